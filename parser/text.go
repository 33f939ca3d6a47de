package parser

import "strings"

// bodies makes the text and the HTML of the message and lists its attachments.
func (r *reader) bodies(root *node) {
	text, html := r.texts[0].shown, r.texts[1].shown
	if len(text)+len(html) == 0 {
		for i, list := range []*[]*node{&text, &html} {
			if n := r.texts[i].named; n != nil {
				*list = []*node{n}
			}
		}
	}
	r.out.Text = join(r.decoded(text))
	if len(html) > 0 {
		documents := r.decoded(html)
		r.out.Html = join(documents)
		if strings.TrimSpace(r.out.Text) == "" {
			for i, s := range documents { // each by itself: what one leaves open ends with it
				documents[i] = textOf(s)
			}
			r.out.Text, r.out.TextFromHtml = join(documents), true
		}
	}
	r.alternatives(root)
	leaves(root, func(n, parent *node) {
		switch {
		case n.isShown:
		case isAttachment(n, parent):
			r.out.Attachments = append(r.out.Attachments, n.part.Path)
		case isInline(n, parent):
			r.out.Inlines = append(r.out.Inlines, n.part.Path)
		}
	})
}

// isInline tells whether a leaf that is no attachment is shown inside the text, or beside it: a calendar, say.
func isInline(n, parent *node) bool {
	return n.part.ContentId != "" || n.part.Disposition == "inline" ||
		strings.HasPrefix(n.part.Type, "text/") && (parent == nil || parent.part.Type != "multipart/report")
}

// alternatives notes where readers choose between texts of one type, and tells which types stand in a part: 1 for plain text
// and 2 for HTML.
func (r *reader) alternatives(n *node) int {
	switch {
	case n.isShown && n.part.Type == htmlType:
		return 2
	case n.isShown:
		return 1
	case !n.isMultipart():
		return 0
	}
	types := 0
	for _, child := range n.children {
		more := r.alternatives(child)
		if types&more != 0 && n.part.Type == "multipart/alternative" {
			r.once("ambiguous_alternative", severe, child.where, "a text of the same type before it")
		}
		types |= more
	}
	return types
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

// decoded decodes texts of the message, up to the limit all together.
func (r *reader) decoded(list []*node) []string {
	out := make([]string, 0, len(list))
	left := int(r.limits.TextBytes)
	for _, n := range list {
		n.isShown = true
		s := r.text(n, left)
		out = append(out, s)
		left -= len(s)
	}
	return out
}

// text is the decoded text of a leaf, up to a limit.
func (r *reader) text(n *node, limit int) string {
	s := r.decodeCharset(n.part.Charset, n.kept, n.where)
	if strings.IndexByte(s, 0) >= 0 {
		r.once("ambiguous_nul", severe, n.where, "a NUL in a text")
	}
	s = clean(s)
	if n.cut || len(s) > limit {
		r.out.TextTruncated = true
		r.once("text_limit", info, n.where, "a text of more than %s", r.limits.TextBytes)
	}
	return cut(s, limit)
}

// join puts texts one below the other, those that are empty left out.
func join(list []string) string {
	if len(list) == 1 {
		return list[0]
	}
	var out strings.Builder
	for _, s := range list {
		if s != "" && out.Len() > 0 && !strings.HasSuffix(out.String(), "\n") {
			out.WriteByte('\n')
		}
		out.WriteString(s)
	}
	return out.String()
}
