package parser

import (
	"bytes"
	"slices"
	"strings"
)

// describe reads the fields that say what the entity is.
func (r *reader) describe(s *source, n *node) {
	var room [4]string
	seen := room[:0]
	disposition := structured{}
	typeName := ""
	n.part.Encoding = "7bit"
	for i := range n.fields {
		f := &n.fields[i]
		name := contentName(f.name)
		if name == "" {
			continue
		}
		where := r.place(s, n.part.Path, f.offset)
		if slices.Contains(seen, name) {
			r.defect("ambiguous_field", severe, where, "%s stands more than once", f.name)
			continue
		}
		seen = append(seen, name)
		switch name {
		case "content-type":
			typeName = r.contentType(n, f.raw, where)
		case "content-transfer-encoding":
			r.transferEncoding(n, f.value(r, where), where)
		case "content-disposition":
			disposition = r.disposition(r.unfoldParams(f.raw, where), where)
		case "content-id":
			n.part.ContentId = strings.Clone(cut(r.id(f.value(r, where), where), maxContentID)) // of a value that is not held
		}
	}
	n.part.Disposition = oneLine(disposition.value)
	switch name := disposition.params["filename"]; {
	case name == "":
		n.part.Filename = typeName
	case typeName != "" && typeName != name:
		r.defect("ambiguous_filename", severe, n.where, "%s here, %s in Content-Type", excerpt(name), excerpt(typeName))
		fallthrough
	default:
		n.part.Filename = name
	}
	r.settleEncoding(n)
}

// contentNames are the fields that say what an entity is, in lower case.
var contentNames = []string{"content-type", "content-transfer-encoding", "content-disposition", "content-id"}

// contentName is the name of a field in lower case if it is one of contentNames, else empty.
func contentName(name []byte) string {
	if len(name) < len("content-id") || name[0]|0x20 != 'c' {
		return ""
	}
	for _, known := range contentNames {
		if isASCII(name, known) {
			return known
		}
	}
	return ""
}

// disposition reads Content-Disposition (RFC 2183, 2), also where parameters stand alone.
func (r *reader) disposition(value string, where place) structured {
	if l := (lexer{s: value}); l.isParam(0) {
		r.defect("ambiguous_parameter", severe, where, "no disposition: %s", excerpt(value))
		value = ";" + value
	}
	return r.structured(value, where)
}

// maxContentID is how many octets of a Content-ID are kept: those of the longest line (RFC 5322, 2.1.1).
const maxContentID = 998

// contentType reads Content-Type (RFC 2045, 5) and returns its name parameter. Where there is no type and subtype, the
// default counts, charset included (5.2).
func (r *reader) contentType(n *node, raw []byte, where place) string {
	value := r.unfoldParams(raw, where)
	v := r.structured(value, where)
	name := v.params["name"]
	main, sub, ok := strings.Cut(v.value, "/")
	token := sub[:tokenEnd(sub)] // as in text/plain>
	if !ok || main == "" || token == "" || tokenEnd(main) < len(main) || token != sub {
		r.defect("invalid_content_type", warning, where, "%s", excerpt(value))
		if ok || main == "multipart" || main == "message" {
			r.defect("ambiguous_content_type", severe, where, "%s, read as %s", excerpt(value), n.part.Type)
		}
	}
	if ok && main != "" && token != "" && tokenEnd(main) == len(main) {
		n.part.Type = v.value[:len(main)+1+len(token)]
	}
	if main == "" {
		return name
	}
	n.part.Params = v.params
	n.part.Charset = lowerASCII(v.params["charset"])
	if n.isMultipart() {
		r.boundary(n, raw, value, where)
	}
	return name
}

// boundary reads the boundary of a multipart.
func (r *reader) boundary(n *node, raw []byte, value string, where place) {
	boundary, plain := boundaryOf(value, n.part.Params["boundary"])
	n.boundary = boundary
	switch {
	case n.boundary == "":
		r.defect("missing_boundary", warning, where, "a multipart without boundary: %s", excerpt(value))
		r.defect("ambiguous_multipart", severe, where, "a %s without boundary, read as a text", excerpt(n.part.Type))
		n.part.Type = plainType // RFC 2045, 5.2
	case !plain || strings.Trim(boundary, " \t") != boundary || strings.ContainsFunc(boundary, isNoBoundary):
		r.defect("ambiguous_boundary_value", severe, where, "not what a boundary may be: %q", excerpt(boundary))
	case len(n.boundary) > 70:
		r.defect("ambiguous_boundary_length", severe, where, "a boundary of %d octets", len(n.boundary))
	case strings.Contains(boundary, " ") && !bytes.Contains(raw, []byte(boundary)):
		r.defect("ambiguous_boundary_value", severe, where, "a fold in a boundary: %q", excerpt(boundary))
	}
}

// isNoBoundary tells whether a character is none that every reader takes for one of a boundary: anything printable in ASCII,
// which is more than RFC 2046, 5.1.1 grants.
func isNoBoundary(c rune) bool { return c < ' ' || c >= 0x7f }

// boundaryOf prefers the octets as they stand to what was decoded of them, and tells whether they stand so.
func boundaryOf(value, decoded string) (boundary string, plain bool) {
	l := lexer{s: value}
	l.value()
	for l.i < len(l.s) {
		if p, ok := l.param(); ok && p.name == "boundary" {
			return p.value, true
		}
	}
	return decoded, false
}

// tokenEnd is how many octets of a token stand at the start of s.
func tokenEnd(s string) int {
	for i := range len(s) {
		if !isToken(s[i]) {
			return i
		}
	}
	return len(s)
}

// transferEncoding reads Content-Transfer-Encoding (RFC 2045, 6).
func (r *reader) transferEncoding(n *node, value string, where place) {
	name := lowerASCII(strings.Trim(withoutComments(value), " \t;\"'"))
	if name != lowerASCII(strings.Trim(value, " \t")) {
		r.defect("ambiguous_encoding", severe, where, "%s", excerpt(value))
	}
	if name == "" {
		return
	}
	if decoding(name) == isUnknown {
		name = r.oneEncoding(name, where)
	}
	n.part.Encoding = oneLine(cut(name, 100))
}

// oneEncoding chooses one of several encodings in a field: the first that is known.
func (r *reader) oneEncoding(name string, where place) string {
	words := strings.FieldsFunc(name, func(c rune) bool { return strings.ContainsRune(" \t;,\"'", c) })
	for _, w := range words {
		if decoding(w) != isUnknown && len(words) > 1 {
			r.defect("ambiguous_encoding", severe, where, "%s", excerpt(name))
			return w
		}
	}
	r.defect("unknown_encoding", warning, where, "%s", excerpt(name))
	if resembles(name) {
		r.defect("ambiguous_encoding", severe, where, "%s, read as it stands", excerpt(name))
	}
	return name
}

// resembles tells whether an unknown encoding looks like one that is known, as base-64 does: readers that are not strict decode
// what the widespread clients show as it stands.
func resembles(name string) bool {
	letters := strings.Map(func(c rune) rune {
		if c < 0x80 && (isLetter(byte(c)) || isDigit(byte(c))) {
			return c
		}
		return -1
	}, name)
	for _, known := range []string{"base64", "b64", "quoted", "printable", "uuenc", "uue", "yenc"} {
		if strings.Contains(letters, known) {
			return true
		}
	}
	return letters == "b" || letters == "q" || letters == "qp"
}

// settleEncoding chooses the decoding. A multipart is never encoded (RFC 2045, 6.4).
func (r *reader) settleEncoding(n *node) {
	if n.isMultipart() && !isIdentity(n.part.Encoding) {
		r.defect("ambiguous_multipart_encoding", severe, n.where, "a multipart in %s, read as it stands", n.part.Encoding)
	}
	if n.part.Type == messageType && !isIdentity(n.part.Encoding) { // RFC 2046, 5.2.1; message/global may (RFC 6532, 3.7)
		r.defect("ambiguous_message_encoding", severe, n.where, "a message in %s, decoded", n.part.Encoding)
	}
}
