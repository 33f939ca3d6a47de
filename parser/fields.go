package parser

import (
	"slices"
	"strings"

	"google.golang.org/protobuf/types/known/timestamppb"

	mailv1 "github.com/rohrpost/rohrpost/proto/gen/rohrpost/mail/v1"
)

// fieldKind is how a field is read that means something.
type fieldKind struct {
	// single is whether the field may stand once only (RFC 5322, 3.6; RFC 2369, 3; RFC 2919, 3).
	single bool
	read   func(r *reader, value string, where place)
}

// fieldKinds are the fields that mean something, by their names in lower case, which have at most maxKindName octets.
var fieldKinds = map[string]*fieldKind{
	"subject": {true, func(r *reader, value string, where place) { r.out.Subject = r.words(value, where) }},
	"from":    addressField(func(m *mailv1.ParsedMessage) *[]*mailv1.Address { return &m.From }),
	"sender": {true, func(r *reader, value string, where place) {
		if all := r.addresses(value, where); len(all) > 0 {
			r.out.Sender = all[0]
		}
	}},
	"to":          addressField(func(m *mailv1.ParsedMessage) *[]*mailv1.Address { return &m.To }),
	"cc":          addressField(func(m *mailv1.ParsedMessage) *[]*mailv1.Address { return &m.Cc }),
	"bcc":         addressField(func(m *mailv1.ParsedMessage) *[]*mailv1.Address { return &m.Bcc }),
	"reply-to":    addressField(func(m *mailv1.ParsedMessage) *[]*mailv1.Address { return &m.ReplyTo }),
	"date":        {true, (*reader).readDate},
	"message-id":  {true, func(r *reader, value string, where place) { r.out.MessageId = r.id(value, where) }},
	"in-reply-to": {true, func(r *reader, value string, where place) { r.out.InReplyTo = r.ids(value, where) }},
	"references":  {true, func(r *reader, value string, where place) { r.out.References = r.ids(value, where) }},
	"keywords": {false, func(r *reader, value string, where place) {
		r.out.Keywords = append(r.out.Keywords, r.phrases(value, where)...)
	}},
	"received": {false, (*reader).readReceived},
	"list-id": {true, func(r *reader, value string, _ place) {
		if _, id, ok := strings.Cut(value, "<"); ok { // the phrase before it is for people
			value, _, _ = strings.Cut(id, ">")
		}
		r.list().Id = oneLine(strings.TrimSpace(value))
	}},
	"list-unsubscribe": uriField(func(l *mailv1.MailingList) *[]string { return &l.Unsubscribe }),
	"list-unsubscribe-post": {true, func(r *reader, value string, _ place) {
		r.list().OneClick = strings.EqualFold(value, "List-Unsubscribe=One-Click") // RFC 8058, 3.1
	}},
	"list-post":      uriField(func(l *mailv1.MailingList) *[]string { return &l.Post }),
	"list-subscribe": uriField(func(l *mailv1.MailingList) *[]string { return &l.Subscribe }),
	"list-help":      uriField(func(l *mailv1.MailingList) *[]string { return &l.Help }),
	"list-owner":     uriField(func(l *mailv1.MailingList) *[]string { return &l.Owner }),
	"list-archive":   uriField(func(l *mailv1.MailingList) *[]string { return &l.Archive }),
}

const maxKindName = 32

func addressField(to func(*mailv1.ParsedMessage) *[]*mailv1.Address) *fieldKind {
	return &fieldKind{true, func(r *reader, value string, where place) { *to(r.out) = r.addresses(value, where) }}
}

func uriField(to func(*mailv1.MailingList) *[]string) *fieldKind {
	return &fieldKind{true, func(r *reader, value string, _ place) { *to(r.list()) = uris(value) }}
}

// list is what the List fields say.
func (r *reader) list() *mailv1.MailingList {
	if r.out.List == nil {
		r.out.List = &mailv1.MailingList{}
	}
	return r.out.List
}

// maxURIs is how many URIs of a List field are kept.
const maxURIs = 50

// uris reads URIs in angle brackets (RFC 2369, 2). Comments and what else stands around them is left out, so that NO
// yields none.
func uris(s string) []string {
	var out []string
	for len(out) < maxURIs {
		_, rest, opened := strings.Cut(s, "<")
		uri, after, closed := strings.Cut(rest, ">")
		if !opened || !closed {
			break
		}
		// White space inside comes of folding (RFC 2369, 2).
		if uri = strings.Join(strings.Fields(uri), ""); uri != "" {
			out = append(out, oneLine(uri))
		}
		s = after
	}
	return out
}

// maxPhrases is how many phrases of a field are kept.
const maxPhrases = 1000

// phrases reads phrases with commas between them (RFC 5322, 3.6.5), each decoded.
func (r *reader) phrases(s string, where place) []string {
	var out []string
	for phrase := range strings.SplitSeq(s, ",") {
		if len(out) == maxPhrases {
			break
		}
		if phrase = strings.TrimSpace(r.words(strings.TrimSpace(phrase), where)); phrase != "" {
			out = append(out, phrase)
		}
	}
	return out
}

// fields reads the typed fields of the message. Of a field that may stand once the first counts (RFC 5322, 3.6).
func (r *reader) fields(s *source, root *node) {
	var room [16]*fieldKind
	seen := room[:0]
	var lower [maxKindName]byte
	counted := r.wordCount // the words of these fields were counted when their values were decoded
	r.wordCount = 0
	defer func() { r.wordCount = counted }()
	for i := range root.fields {
		f := &root.fields[i]
		if len(f.name) > maxKindName {
			continue
		}
		kind, known := fieldKinds[string(appendLower(lower[:0], f.name))]
		if !known {
			continue
		}
		where := r.place(s, "", f.offset)
		if kind.single && slices.Contains(seen, kind) {
			r.defect("ambiguous_field", severe, where, "%s stands more than once", f.name)
			continue
		}
		if kind.single {
			seen = append(seen, kind)
		}
		kind.read(r, f.value(r, where), where)
	}
}

// readDate reads the Date field.
func (r *reader) readDate(value string, where place) {
	t, odd, ok := date(value)
	if !ok {
		r.defect("invalid_date", warning, where, "%s", excerpt(value))
		return
	}
	if odd {
		r.defect("obsolete_date", info, where, "%s", excerpt(value))
	}
	if ts := timestamppb.New(t); ts.CheckValid() == nil {
		_, offset := t.Zone()
		r.out.Date, r.out.DateOffsetMinutes = ts, int32(offset/60)
	}
}

// ids reads up to maxIDs message ids.
func (r *reader) ids(value string, where place) []string {
	ids := r.someIDs(value, maxIDs+1, where)
	if len(ids) > maxIDs {
		r.defect("malformed_message_id", warning, where, "more than %d ids", maxIDs)
		ids = ids[:maxIDs]
	}
	return ids
}

// id reads the first message id of a value, empty if there is none. Some readers take the last of several, or all of the value.
func (r *reader) id(value string, where place) string {
	ids := r.someIDs(value, 1, where)
	if len(ids) == 0 {
		return ""
	}
	if beside := strings.Replace(value, ids[0], "", 1); beside != "<>" && strings.Trim(withoutComments(beside), "<> \t") != "" {
		r.defect("ambiguous_message_id", severe, where, "something beside the id: %s", excerpt(value))
	}
	return ids[0]
}

func (r *reader) someIDs(value string, limit int, where place) []string {
	ids, odd := messageIDs(value, limit)
	if odd {
		r.defect("malformed_message_id", warning, where, "%s", excerpt(value))
	}
	for i := range ids {
		ids[i] = oneLine(ids[i])
	}
	return ids
}
