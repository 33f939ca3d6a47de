package deliver

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"strings"

	mailv1 "github.com/rohrpost/rohrpost/proto/gen/rohrpost/mail/v1"
)

// maxUndecided is how many octets of one field are kept to see whether it is to be removed.
const maxUndecided = 64 << 10

// ErrEdit means that an edit can't be applied: its kind is not known, or its field is not well-formed.
var ErrEdit = errors.New("deliver: an edit can't be applied")

// Apply returns the content with the edits applied in order to its header section, as a stream; it keeps at most 64 KiB
// of the content in memory. The octets that no edit touches stay as they are.
//
// A prepended field is written as `Name: value` CRLF before all that is there at that time. A removal takes away what is
// there at that time, fields prepended by earlier edits included, each with its folded lines. Of a field that is named
// by a removal only the first 64 KiB are looked at: where they don't contradict the prefix, it is removed.
//
// The error is [ErrEdit] in its chain; reading fails only where the content's reader does.
func Apply(content io.Reader, edits []*mailv1.Edit) (io.Reader, error) {
	var head []string // prepended fields, the last prepended one last
	var removals []*mailv1.RemoveHeader
	for i, edit := range edits {
		switch kind := edit.GetKind().(type) {
		case *mailv1.Edit_Prepend:
			if err := checkField(kind.Prepend); err != nil {
				return nil, fmt.Errorf("%w: edit %d: %w", ErrEdit, i, err)
			}
			head = append(head, kind.Prepend.GetName()+": "+kind.Prepend.GetValue()+"\r\n")
		case *mailv1.Edit_Remove:
			removals = append(removals, kind.Remove)
			head = remove(head, kind.Remove)
		default:
			return nil, fmt.Errorf("%w: edit %d is of a kind that this version does not know", ErrEdit, i)
		}
	}
	var sb strings.Builder
	for i := len(head) - 1; i >= 0; i-- {
		sb.WriteString(head[i])
	}
	if len(removals) > 0 {
		content = newRemover(content, removals)
	}
	if sb.Len() == 0 {
		return content, nil
	}
	return io.MultiReader(strings.NewReader(sb.String()), content), nil
}

// checkField makes sure that a field can't become two fields or end the header section. (RFC 5322, section 2.2.)
func checkField(f *mailv1.HeaderField) error {
	name := f.GetName()
	if name == "" || strings.ContainsFunc(name, func(r rune) bool { return r < '!' || r > '~' || r == ':' }) {
		return fmt.Errorf("field name %q is not allowed", name)
	}
	value := f.GetValue()
	for i := 0; i < len(value); i++ {
		switch value[i] {
		case 0, '\n':
			return fmt.Errorf("value of %s has a bare LF or a NUL", name)
		case '\r':
			if i+2 >= len(value) || value[i+1] != '\n' || (value[i+2] != ' ' && value[i+2] != '\t') {
				return fmt.Errorf("value of %s has a CR that does not fold", name)
			}
			i++
		}
	}
	return nil
}

// remove takes whole fields out of a list.
func remove(fields []string, r *mailv1.RemoveHeader) []string {
	var kept []string
	for _, f := range fields {
		if judge([]byte(f), true, []*mailv1.RemoveHeader{r}) != matches {
			kept = append(kept, f)
		}
	}
	return kept
}

type judgement int

const (
	undecided judgement = iota
	matches
	differs
)

// judge tells whether the field that starts with raw is to be removed. Where complete is false and more octets could
// change the answer, it is undecided.
func judge(raw []byte, complete bool, removals []*mailv1.RemoveHeader) judgement {
	colon := bytes.IndexByte(raw, ':')
	if colon < 0 || bytes.IndexByte(raw[:colon], '\n') >= 0 {
		if complete || bytes.IndexByte(raw, '\n') >= 0 {
			return differs // a line without a colon is no field: it is not ours to touch
		}
		return undecided
	}
	// White space before the colon is obsolete but read by many. (RFC 5322, section 4.5.8.)
	name := strings.TrimRight(string(raw[:colon]), " \t")
	open := false
	var value string
	for _, r := range removals {
		if !foldEqual(name, r.GetName()) {
			continue
		}
		if value == "" {
			value = strings.TrimLeft(unfold(raw[colon+1:]), " \t\r\n")
		}
		want := r.GetValuePrefix()
		switch {
		case len(value) >= len(want) && foldEqual(value[:len(want)], want):
			return matches
		case !complete && len(value) < len(want) && foldEqual(value, want[:len(value)]):
			open = true
		}
	}
	if open {
		return undecided
	}
	return differs
}

// unfold takes out the line ends. (RFC 5322, section 2.2.3.)
func unfold(raw []byte) string { return strings.ReplaceAll(string(raw), "\r\n", "") }

// foldEqual compares without the case of ASCII letters: Unicode's folding would make one of names that differ.
func foldEqual(a, b string) bool {
	if len(a) != len(b) {
		return false
	}
	for i := 0; i < len(a); i++ {
		if lower(a[i]) != lower(b[i]) {
			return false
		}
	}
	return true
}

func lower(c byte) byte {
	if 'A' <= c && c <= 'Z' {
		return c + 'a' - 'A'
	}
	return c
}
