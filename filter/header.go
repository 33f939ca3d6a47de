package filter

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"strings"
)

// field is a header field as it stands in the content.
type field struct {
	name  string
	value string // behind the colon, folding included, without the final CRLF
	raw   string // all of it, with the final CRLF
	lines int
}

// unfolded is the value without its line ends and without white space around it (RFC 5322, section 2.2.3).
func (f field) unfolded() string {
	return strings.TrimSpace(strings.NewReplacer("\r", "", "\n", "").Replace(f.value))
}

// errHeaderTooLong means that the header section has no end within the limit.
var errHeaderTooLong = errors.New("the header section is too long")

// readHeader reads the header section with its empty line, and leaves r at the first octet of the body. A content that
// ends within its header section is given an empty line (case C9). With [errHeaderTooLong] it returns what it read.
func readHeader(r *bufio.Reader, limit int64) ([]byte, error) {
	var head bytes.Buffer
	startsLine := true
	for {
		line, err := r.ReadSlice('\n')
		head.Write(line)
		switch {
		case errors.Is(err, io.EOF):
			if len(line) > 0 {
				head.WriteString("\r\n")
			}
			head.WriteString("\r\n")
			return head.Bytes(), nil
		case err != nil && !errors.Is(err, bufio.ErrBufferFull):
			return nil, err
		case startsLine && err == nil && len(bytes.TrimRight(line, "\r\n")) == 0:
			return head.Bytes(), nil
		case int64(head.Len()) > limit:
			return head.Bytes(), errHeaderTooLong
		}
		startsLine = err == nil
	}
}

// parseFields splits a header section into fields, in time linear in its length. Lines that are no field are skipped,
// together with what folds them.
func parseFields(head []byte) []field {
	text := string(head)
	var fields []field
	for pos, open := 0, false; pos < len(text); {
		next := len(text)
		if i := strings.IndexByte(text[pos:], '\n'); i >= 0 {
			next = pos + i + 1
		}
		line := text[pos:next]
		if line[0] == ' ' || line[0] == '\t' {
			if open {
				last := &fields[len(fields)-1]
				start := pos - len(last.raw)
				last.raw = text[start:next]
				last.lines++
			}
			pos = next
			continue
		}
		name, _, ok := strings.Cut(line, ":")
		name = strings.TrimRight(name, " \t")
		if open = ok && validName(name); open {
			fields = append(fields, field{name: name, raw: line, lines: 1})
		}
		pos = next
	}
	for i := range fields {
		_, value, _ := strings.Cut(fields[i].raw, ":")
		fields[i].value = strings.TrimRight(value, "\r\n")
	}
	return fields
}

// validName tells whether a field may be called so (RFC 5322, section 2.2).
func validName(s string) bool {
	return s != "" && !strings.ContainsFunc(s, func(r rune) bool { return r <= ' ' || r > '~' })
}

// named returns the fields of a name, in order.
func named(fields []field, name string) []field {
	var found []field
	for _, f := range fields {
		if strings.EqualFold(f.name, name) {
			found = append(found, f)
		}
	}
	return found
}
