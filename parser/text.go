package parser

import "strings"

// bodies chooses the text and the HTML of the message and lists its attachments.
func (r *reader) bodies(root *node) {
	text, html := r.texts[0].found, r.texts[1].found
	if text == nil && html == nil {
		text, html = r.texts[0].first, r.texts[1].first
	}
	if text != nil {
		r.out.Text = r.text(text)
	}
	if html != nil {
		r.out.Html = r.text(html)
		if text == nil || strings.TrimSpace(r.out.Text) == "" {
			r.out.Text, r.out.TextFromHtml = textOf(r.out.Html), true
		}
	}
	leaves(root, func(n, parent *node) {
		switch {
		case n == text || n == html:
		case isAttachment(n, parent):
			r.out.Attachments = append(r.out.Attachments, n.part.Path)
		case !strings.HasPrefix(n.part.Type, "text/") && (n.part.ContentId != "" || n.part.Disposition == "inline"):
			r.out.Inlines = append(r.out.Inlines, n.part.Path)
		}
	})
}

// leaves visits what is no multipart, in order, without looking into nested messages.
func leaves(n *node, visit func(n, parent *node)) {
	var walk func(n, parent *node)
	walk = func(n, parent *node) {
		if !n.isMultipart() {
			visit(n, parent)
			return
		}
		for _, child := range n.children {
			walk(child, n)
		}
	}
	walk(n, nil)
}

// isAttachment tells whether a reader would find a leaf in the list of attachments: what says so, what has a file name,
// and what is neither text nor belongs to the HTML beside it (RFC 2387).
func isAttachment(n, parent *node) bool {
	switch {
	case n.part.Disposition == "attachment":
		return true
	case parent != nil && parent.part.Type == "multipart/related" && n.part.ContentId != "":
		return false
	case n.part.Filename != "":
		return true
	case n.part.Disposition == "inline", strings.HasPrefix(n.part.Type, "text/"):
		return false
	}
	return parent == nil || parent.part.Type != "multipart/report"
}

// text is the decoded text of a leaf, up to the limit.
func (r *reader) text(n *node) string {
	limit := int(r.limits.TextBytes)
	s := r.decodeCharset(n.part.Charset, n.kept, n.where)
	if strings.IndexByte(s, 0) >= 0 {
		r.once("ambiguous_nul", severe, n.where, "a NUL in a text")
	}
	s = clean(s)
	if n.cut || len(s) > limit {
		r.out.TextTruncated = true
		r.defect("text_limit", info, n.where, "a text of more than %s", r.limits.TextBytes)
	}
	return cut(s, limit)
}
