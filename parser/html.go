package parser

import (
	"html"
	"strings"
)

// textOf makes text from HTML: tags go, blocks become lines, entities are decoded. It is for reading and searching, no
// rendering.
func textOf(s string) string {
	w := htmlText{}
	for len(s) > 0 {
		lt := strings.IndexByte(s, '<')
		if lt < 0 {
			w.text(s)
			break
		}
		w.text(s[:lt])
		s = w.tag(s[lt:])
	}
	return strings.TrimSpace(clean(w.out.String()))
}

type htmlText struct {
	out      strings.Builder
	space    bool // whether white space is due
	newlines int  // how many line ends the output has last, two at the start
	// unended are the elements that have no end from here on, so that none is looked for again.
	unended map[string]bool
}

// text writes text with white space collapsed.
func (w *htmlText) text(s string) {
	s = html.UnescapeString(s)
	for len(s) > 0 {
		i := strings.IndexAny(s, htmlSpace+"\u00a0")
		if i != 0 {
			word := s
			if i > 0 {
				word = s[:i]
			}
			if w.space && w.out.Len() > 0 && w.newlines == 0 {
				w.out.WriteByte(' ')
			}
			w.out.WriteString(word)
			w.space, w.newlines = false, 0
			s = s[len(word):]
			continue
		}
		w.space = true
		s = strings.TrimLeft(s, htmlSpace+"\u00a0")
	}
}

// tag reads the tag at the start of s and returns what follows. A "<" that starts none is text. It ends where a browser's
// tokenizer ends it (WHATWG HTML, 13.2.5), so that nothing is hidden here that people see there.
func (w *htmlText) tag(s string) string {
	switch {
	case strings.HasPrefix(s, "<!--"):
		return s[commentLength(s):]
	case len(s) > 1 && (s[1] == '!' || s[1] == '?') || len(s) > 2 && s[1] == '/' && !isLetter(s[2]): // a bogus comment
		_, after, _ := strings.Cut(s, ">")
		return after
	case len(s) < 2 || s == "</" || s[1] != '/' && !isLetter(s[1]):
		w.text("&lt;")
		return s[1:]
	}
	name, closing := tagName(s[1:])
	after := s[tagLength(s):]
	switch name {
	case "script", "style", "title", "template", "iframe", "noembed", "noframes":
		if !closing {
			_, after = w.element(after, name)
		}
	case "textarea", "xmp": // no tags in there
		if !closing {
			var inside string
			inside, after = w.element(after, name)
			w.text(inside)
		}
	case "plaintext":
		if !closing {
			w.text(after)
			return ""
		}
	case "br":
		w.line(1)
	case "p", "div", "tr", "li", "ul", "ol", "table", "blockquote", "pre", "hr", "section", "article", "header", "footer",
		"h1", "h2", "h3", "h4", "h5", "h6", "dl", "dt", "dd", "center", "form", "address", "body":
		if name == "p" || name[0] == 'h' && len(name) == 2 {
			w.line(2)
		} else if w.newlines == 0 {
			w.line(1)
		}
	case "td", "th":
		w.space = true
	}
	return after
}

// line makes the output end with n line ends, or one more where n is 1; never more than two.
func (w *htmlText) line(n int) {
	if w.out.Len() == 0 {
		return
	}
	if n == 1 {
		n = w.newlines + 1
	}
	for ; w.newlines < min(n, 2); w.newlines++ {
		w.out.WriteByte('\n')
	}
	w.space = false
}
