package parser

import (
	"bytes"

	mailv1 "github.com/rohrpost/rohrpost/proto/gen/rohrpost/mail/v1"
)

// field is a header field as it stands in the source.
type field struct {
	name   []byte // as written; part of the source
	raw    []byte // behind the colon, folding included, without the final line end; part of the source
	offset int    // of the name, in the source
	start  int    // of the value, in the source

	keep     bool   // whether it is within the limits
	unfolded string // what [reader.unfold] made of it
	isDone   bool   // whether it did
}

// value is the unfolded value.
func (f *field) value(r *reader, where place) string {
	if !f.isDone {
		f.unfolded, f.isDone = r.unfold(f.raw, where), true
	}
	return f.unfolded
}

// section is a header section.
type section struct {
	fields []field
	size   int       // of the fields and of what stands between them
	body   int       // where the body starts
	end    delimiter // the delimiter that stood inside the section, so that there is no body
	isCut  bool      // whether one did
	// unended says that the content ends inside the header section.
	unended bool

	seen     bool // whether there was a field, kept or left out
	odd      int  // the start of the line before, if that was no field, else -1
	skipping bool // whether the last field was left out
	extra    int  // how many fields beyond the limit were kept
}

// section reads the header section at pos. It ends at an empty line, at a delimiter, or where the text turns out not
// to be a header section.
func (r *reader) section(s *source, pos int, part string) section {
	sec := section{odd: -1, fields: r.fieldBuf[:0]} // what was there was used up before the next section
	defer func() { r.fieldBuf = sec.fields }()
	for i := pos; ; {
		if d, ok := s.match(i); ok {
			d.end = i
			sec.end, sec.isCut, sec.body = d, true, i
			return r.cutSection(s, sec, part)
		}
		line, next := s.line(i)
		if len(line) == 0 {
			sec.body = i
			sec.unended = sec.seen && sec.odd < 0
			return r.cutSection(s, sec, part)
		}
		text := trimEnd(line)
		if text = bytes.TrimRight(text, "\r"); len(text) == 0 {
			if bytes.HasPrefix(line, []byte("\r\r")) {
				r.once("ambiguous_line_end", severe, r.place(s, part, i), "an empty line with more than one CR")
			}
			sec.body = next
			return r.noHeader(s, sec, pos, part)
		}
		if r.headerLine(s, &sec, i, text, next, part) {
			return sec
		}
		if next < 0 {
			r.once("line_limit", severe, r.place(s, part, i), "a line of more than %s in a header section", r.limits.LineBytes)
			next = s.skip(i + len(line))
		}
		i = next
	}
}

// headerLine reads the line at i of a header section, which is not empty. next is negative where the line is longer than
// what is seen of it. It tells whether the body starts here.
func (r *reader) headerLine(s *source, sec *section, i int, line []byte, next int, part string) bool {
	folded := isSpace(line[0])
	name, colon := fieldName(line)
	if folded && len(bytes.TrimLeft(line, " \t")) == 0 {
		r.headerEnd(s, i, part, "a line of white space")
	}
	switch {
	case folded && sec.skipping && sec.odd < 0: // goes on with a field that is left out
	case folded && len(sec.fields) > 0 && sec.odd < 0:
		// obs-fold: even a line of nothing but white space continues (RFC 5322, 4.2)
		f := &sec.fields[len(sec.fields)-1]
		f.raw = s.slice(f.start, i+len(line))
		sec.size += len(line)
		sec.skipping = next < 0 || len(f.raw) > int(r.limits.HeaderBytes)
	case colon > 0 && !folded:
		if sec.odd >= 0 {
			r.headerEnd(s, sec.odd, part, "not a header field, but one follows")
		}
		sec.odd, sec.seen = -1, true
		if i-s.base > maxWindow {
			s.leave(i)
			line = s.slice(i, i+len(line))
		}
		r.addField(s, sec, field{name: name, raw: line[colon+1:], offset: i, start: i + colon + 1}, part)
		sec.skipping = sec.skipping || next < 0
		if colon > len(name) {
			r.defect("space_before_colon", info, r.place(s, part, i), "%q", name)
			r.headerEnd(s, i, part, "white space before a colon")
		}
	case !sec.seen && sec.odd < 0 && bytes.HasPrefix(line, []byte("From ")) && next > 0:
		r.defect("mbox_from_line", info, r.place(s, part, i), "%s", excerpt(line))
	case sec.odd >= 0 && folded && next > 0 && i-sec.odd < int(r.limits.LineBytes):
		sec.size += len(line) // goes on with the line that is no field
	case sec.odd >= 0 || next < 0:
		// A second line that is no field, or one that is longer than any field: the empty line is missing.
		if sec.body = sec.odd; sec.odd < 0 {
			sec.body = i
		}
		r.headerEnd(s, sec.body, part, "no empty line before the body")
		return true
	default:
		r.defect("malformed_header", warning, r.place(s, part, i), "not a header field: %s", excerpt(line))
		sec.odd = i
		sec.size += len(line)
	}
	return false
}

// headerEnd notes a line that some readers take for the end of a header section and others don't.
func (r *reader) headerEnd(s *source, i int, part, reason string) {
	if r.noted["ambiguous_header_end"] < maxOfKind { // the line is not looked for again in vain
		r.defect("ambiguous_header_end", severe, r.place(s, part, i), "%s: %s", reason, excerpt(s.text(i)))
	}
}

// maxWindow is how many octets of a header section a window on a stream holds before it makes room.
const maxWindow = 1 << 20

// addField adds a field to the section, within the limits.
func (r *reader) addField(s *source, sec *section, f field, part string) {
	over := true
	switch {
	case r.headerCount >= r.limits.HeaderCount:
		r.once("header_count_limit", severe, r.place(s, part, f.offset), "more than %d header fields", r.limits.HeaderCount)
	case sec.size > 4*int(r.limits.HeaderBytes):
		r.once("header_bytes_limit", severe, r.place(s, part, f.offset), "header sections of more than %s", r.limits.HeaderBytes)
	default:
		over = false
	}
	sec.skipping = false
	if over {
		// The structure must not hide behind many fields.
		if sec.skipping = !isStructural(f.name) || sec.extra == maxExtra; sec.skipping {
			return
		}
		sec.extra++
	}
	r.headerCount++
	sec.size += len(f.name) + len(f.raw)
	sec.fields = append(sec.fields, f)
}

// maxExtra is how many structural fields a part may have beyond the limit of fields.
const maxExtra = 4

// isStructural tells whether a field says how the body is to be read.
func isStructural(name []byte) bool {
	switch contentName(name) {
	case "content-type", "content-transfer-encoding", "content-disposition":
		return true
	}
	return false
}

// noHeader gives text without a single field back to the body.
func (r *reader) noHeader(s *source, sec section, pos int, part string) section {
	switch {
	case sec.odd < 0:
	case sec.seen:
		r.headerEnd(s, sec.odd, part, "not a header field, but the last line of them")
	default:
		r.headerEnd(s, pos, part, "no header section")
		sec.body = pos
	}
	return sec
}

// cutSection gives the last line of a section that has no end back to the body, where it is no field: nothing is lost then.
func (r *reader) cutSection(s *source, sec section, part string) section {
	if sec.odd < 0 {
		return sec
	}
	r.headerEnd(s, sec.odd, part, "no empty line before the body")
	sec.body = sec.odd
	if sec.isCut {
		sec.end.end = s.lineEndBefore(sec.end.end, sec.odd)
	}
	return sec
}

// lateHeader notes a message that starts with empty lines before what looks like its header section: for some readers it is.
func (r *reader) lateHeader(s *source, sec section, pos int, part string) {
	i := pos
	for range maxBlankLines {
		line, next := s.line(i)
		if len(line) == 0 || next < 0 || len(bytes.TrimRight(line, "\r\n")) > 0 {
			break
		}
		i = next
	}
	if i == pos || i < sec.body || sec.isCut {
		return
	}
	line, _ := s.line(i)
	if _, colon := fieldName(line); colon > 0 {
		r.defect("ambiguous_header_end", severe, r.place(s, part, pos), "an empty line before what looks like a header section: %s", excerpt(trimEnd(line)))
	}
}

// maxBlankLines is how many empty lines at the start of a message are passed over to see what follows.
const maxBlankLines = 10

// trimEnd takes the final line end away.
func trimEnd(b []byte) []byte {
	n := len(b)
	if n > 0 && b[n-1] == '\n' {
		n--
		for n > 0 && b[n-1] == '\r' {
			n--
		}
	}
	return b[:n]
}

// fieldName reads the name of a field: printable ASCII but the colon (RFC 5322, 2.2), white space before the colon
// tolerated (4.5). The position of the colon is 0 where there is no name.
func fieldName(line []byte) (name []byte, colon int) {
	colon = bytes.IndexByte(line, ':')
	if colon <= 0 {
		return nil, 0
	}
	name = bytes.TrimRight(line[:colon], " \t")
	for _, c := range name {
		if c <= ' ' || c > '~' {
			return nil, 0
		}
	}
	return name, colon
}

// commonNames are names that nearly every mail has: no new string for most fields.
var commonNames = func() map[string]string {
	names := map[string]string{}
	for _, n := range []string{
		"Return-Path", "Received", "Delivered-To", "Authentication-Results", "DKIM-Signature", "ARC-Seal", "Date", "From", "Sender",
		"Reply-To", "To", "Cc", "Bcc", "Subject", "Message-ID", "Message-Id", "In-Reply-To", "References", "MIME-Version", "Mime-Version",
		"Content-Type", "Content-type", "Content-Transfer-Encoding", "Content-Disposition", "Content-ID", "Content-Description",
		"Content-Language", "User-Agent", "X-Mailer", "X-Received", "List-Unsubscribe", "List-Id", "Auto-Submitted",
		"Final-Recipient", "Action", "Status", "Remote-MTA", "Diagnostic-Code", "Reporting-MTA", "Arrival-Date", "Last-Attempt-Date",
	} {
		names[n] = n
	}
	return names
}()

func (r *reader) nameOf(f *field) string {
	if known, ok := commonNames[string(f.name)]; ok {
		return known
	}
	return r.strs.add(f.name)
}

// headers makes the decoded fields of a section, within the limits. All of them share two pieces of memory, one for the raw
// values and one for the strings that need no decoding.
func (r *reader) headers(s *source, fields []field, part string) []*mailv1.Header {
	size, names, kept := 0, 0, 0
	for i := range fields {
		n := len(fields[i].name) + len(fields[i].raw)
		if r.headerBytes+n > int(r.limits.HeaderBytes) {
			r.once("header_bytes_limit", severe, r.place(s, part, fields[i].offset), "header sections of more than %s", r.limits.HeaderBytes)
			continue
		}
		r.headerBytes += n
		size += len(fields[i].raw)
		names += len(fields[i].name)
		fields[i].keep = true
		kept++
	}
	r.strs.room(size + names)
	raw := make([]byte, 0, size)
	slab := make([]mailv1.Header, kept)
	out := make([]*mailv1.Header, kept)
	kept = 0
	for i := range fields {
		f := &fields[i]
		if !f.keep {
			continue
		}
		where := r.place(s, part, f.offset)
		start := len(raw)
		raw = append(raw, f.raw...)
		h := &slab[kept]
		h.Name, h.Value, h.Raw = r.nameOf(f), r.words(f.value(r, where), where), raw[start:len(raw):len(raw)]
		out[kept] = h
		kept++
	}
	return out
}

// place is where the octet i of a source stands.
func (r *reader) place(s *source, part string, i int) place {
	if s.nested {
		return place{part: part, offset: unknownOffset}
	}
	return place{part: part, offset: int64(i)}
}
