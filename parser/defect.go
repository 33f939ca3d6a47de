package parser

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	mailv1 "github.com/rohrpost/rohrpost/proto/gen/rohrpost/mail/v1"
)

// The severities, see mailv1.Severity.
const (
	info    = mailv1.Severity_SEVERITY_INFO
	warning = mailv1.Severity_SEVERITY_WARNING
	severe  = mailv1.Severity_SEVERITY_ERROR
)

const (
	// maxOfKind is how many defects of one kind are kept.
	maxOfKind = 20
	// maxRepeats is how many defects of kinds that were noted before are kept. The first of a kind always is: what a policy
	// asks for cannot be pushed out by others.
	maxRepeats = 200
	// maxDetail is how many octets a detail may have.
	maxDetail = 200
	// unknownOffset marks a place that has no offset in the content.
	unknownOffset = -1
)

// place is where something stands, for defects.
type place struct {
	part   string
	offset int64
}

// defect notes something odd.
func (r *reader) defect(kind string, severity mailv1.Severity, where place, format string, args ...any) {
	if r.noted[kind] >= maxOfKind {
		return
	}
	detail := cut(clean(fmt.Sprintf(format, args...)), maxDetail)
	for _, d := range r.out.Defects {
		if d.Kind == kind && d.Offset == where.offset && d.Detail == detail {
			return // a field that is read twice, once for itself and once for what it means
		}
	}
	if r.noted[kind]++; r.noted[kind] > 1 {
		if r.repeats == maxRepeats {
			r.once("defect_limit", severe, place{offset: where.offset}, "more than %d defects that repeat others", maxRepeats)
			return
		}
		r.repeats++
	}
	r.out.Defects = append(r.out.Defects, &mailv1.Defect{
		Kind: kind, Severity: severity, Part: where.part, Offset: where.offset, Detail: detail,
	})
}

// once notes the first defect of a kind only.
func (r *reader) once(kind string, severity mailv1.Severity, where place, format string, args ...any) {
	if r.noted[kind] == 0 {
		r.defect(kind, severity, where, format, args...)
	}
}

// sortDefects puts the defects in the order of the content. What has no offset stays behind what it was met after.
func (r *reader) sortDefects() {
	keys := make(map[*mailv1.Defect]int64, len(r.out.Defects))
	last := int64(0)
	for _, d := range r.out.Defects {
		if d.Offset != unknownOffset {
			last = d.Offset
		}
		keys[d] = last
	}
	slices.SortStableFunc(r.out.Defects, func(a, b *mailv1.Defect) int { return cmp.Compare(keys[a], keys[b]) })
}

// excerpt is the start of something, short enough for a detail.
func excerpt[T string | []byte](b T) string {
	if len(b) > 80 {
		b = b[:80]
	}
	return string(b)
}

// clean makes a string that protobuf and Postgres take: valid UTF-8 without NUL.
func clean(s string) string {
	s = strings.ToValidUTF8(s, "\uFFFD")
	if strings.IndexByte(s, 0) >= 0 {
		s = strings.ReplaceAll(s, "\x00", "\uFFFD")
	}
	return s
}

// cut shortens a valid string to at most n octets, between two characters.
func cut(s string, n int) string {
	if len(s) <= n {
		return s
	}
	for n > 0 && !utf8.RuneStart(s[n]) {
		n--
	}
	return strings.Clone(s[:n])
}
