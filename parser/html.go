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
		i := strings.IndexAny(s, " \t\r\n\u00a0")
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
		s = strings.TrimLeft(s, " \t\r\n\u00a0")
	}
}

// tag reads the tag at the start of s and returns what follows. A "<" that starts none is text.
func (w *htmlText) tag(s string) string {
	if strings.HasPrefix(s, "<!--") {
		if _, after, ok := strings.Cut(s[4:], "-->"); ok {
			return after
		}
		return ""
	}
	if len(s) < 2 || !isLetter(s[1]) && s[1] != '/' && s[1] != '!' && s[1] != '?' {
		w.text("&lt;")
		return s[1:]
	}
	end := strings.IndexByte(s, '>')
	if end < 0 {
		return ""
	}
	name := strings.ToLower(strings.TrimLeft(s[1:end], "/"))
	if i := strings.IndexFunc(name, func(r rune) bool { return r > 'z' || !isLetter(byte(r)) && (r < '0' || r > '9') }); i >= 0 {
		name = name[:i]
	}
	after := s[end+1:]
	switch name {
	case "script", "style", "head", "title", "template":
		if s[1] != '/' && s[end-1] != '/' && !w.unended[name] {
			return w.skip(after, name)
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

// skip passes over everything up to the end of an element. Without one, nothing is passed over, so that a lone tag hides
// nothing.
func (w *htmlText) skip(s, name string) string {
	tag := "</" + name
	for i := 0; ; {
		j := strings.Index(s[i:], "</")
		if j < 0 {
			if w.unended == nil {
				w.unended = make(map[string]bool)
			}
			w.unended[name] = true
			return s
		}
		i += j
		if len(s)-i >= len(tag) && strings.EqualFold(s[i:i+len(tag)], tag) {
			_, after, _ := strings.Cut(s[i:], ">")
			return after
		}
		i += 2
	}
}

func isLetter(c byte) bool { return 'a' <= c|0x20 && c|0x20 <= 'z' }
