package parser

import (
	"slices"
	"strings"

	"google.golang.org/protobuf/proto"

	mailv1 "github.com/rohrpost/rohrpost/proto/gen/rohrpost/mail/v1"
)

// fit makes the result no larger than the limit: it cuts the texts, then leaves out, step by step, what matters less.
func (r *reader) fit() {
	limit := int(r.limits.ResultBytes)
	over := func() int { return proto.Size(r.out) - limit }
	if sizeAtMost(r.out) <= limit || over() <= 0 {
		return
	}
	r.defect("result_limit", severe, place{offset: unknownOffset}, "a result of more than %s", r.limits.ResultBytes)
	root := r.out.GetParts()[0]
	steps := []func(){
		func() { r.cutTexts(over()) },
		func() { eachPart(root, func(p *mailv1.Part) { dropRaw(p.Headers) }) },
		func() { eachPart(root, func(p *mailv1.Part) { p.Headers = nil }) },
		func() { dropRaw(r.out.Headers) },
		func() { r.out.Headers = r.out.Headers[:min(len(r.out.Headers), 100)] },
		func() { r.out.Report = nil },
		func() { r.out.References, r.out.InReplyTo, r.out.Keywords = nil, nil, nil },
		func() { r.out.Received, r.out.List = r.out.Received[:min(len(r.out.Received), 30)], nil },
		func() { r.out.To, r.out.Cc, r.out.Bcc = first(r.out.To), first(r.out.Cc), first(r.out.Bcc) },
		func() { r.out.From, r.out.ReplyTo = first(r.out.From), first(r.out.ReplyTo) },
		func() { eachPart(root, func(p *mailv1.Part) { p.Params = nil }) },
		func() { r.out.Headers = nil },
		func() { eachPart(root, func(p *mailv1.Part) { p.Filename = cut(p.Filename, 255) }) },
		func() { root.Parts, root.Unparsed, r.out.Attachments, r.out.Inlines = nil, true, nil, nil },
		func() { r.fitDefects(limit) },
	}
	for _, step := range steps {
		step()
		if over() <= 0 {
			return
		}
	}
	// Only single values of an absurd size are left.
	defects := r.out.GetDefects()
	r.out = &mailv1.ParsedMessage{
		Subject: cut(r.out.GetSubject(), 998), MessageId: cut(r.out.GetMessageId(), 998), Date: r.out.GetDate(),
		Size: r.out.GetSize(), TextTruncated: r.out.GetTextTruncated(),
		Parts: []*mailv1.Part{{Path: "1", Type: cut(root.GetType(), 255), Size: root.GetSize(), RawSize: root.GetRawSize(), Unparsed: true}},
	}
	r.out.Defects = defects
	r.fitDefects(limit)
}

// fitDefects keeps as many defects as there is room for: the first of a kind rather than one more, and a severe one rather
// than others.
func (r *reader) fitDefects(limit int) {
	all := r.out.Defects
	r.out.Defects = nil
	left := limit - proto.Size(r.out)
	byWorth := slices.Clone(all)
	worth := make(map[*mailv1.Defect]int, len(all))
	seen := map[string]bool{}
	for _, d := range all {
		worth[d] = int(d.GetSeverity())
		if strings.HasPrefix(d.GetKind(), "ambiguous_") {
			worth[d] = int(severe)
		}
		if !seen[d.GetKind()] {
			worth[d] += int(severe) + 1
		}
		seen[d.GetKind()] = true
	}
	slices.SortStableFunc(byWorth, func(a, b *mailv1.Defect) int { return worth[b] - worth[a] })
	fits := make(map[*mailv1.Defect]bool, len(all))
	for _, d := range byWorth {
		const frame = 6 // the number of the field and the size
		if n := proto.Size(d) + frame; n <= left {
			left -= n
			fits[d] = true
		}
	}
	r.out.Defects = slices.DeleteFunc(all, func(d *mailv1.Defect) bool { return !fits[d] })
}

// cutTexts shortens HTML and text such that n octets are saved, if they have as many: the HTML first, for the text says
// the same.
func (r *reader) cutTexts(n int) {
	n += 64 // a longer text has a longer length
	r.out.TextTruncated = true
	saved := min(n, len(r.out.Html))
	r.out.Html = cut(r.out.Html, len(r.out.Html)-saved)
	r.out.Text = cut(r.out.Text, max(len(r.out.Text)-(n-saved), 0))
}

func eachPart(p *mailv1.Part, visit func(*mailv1.Part)) {
	visit(p)
	for _, child := range p.GetParts() {
		eachPart(child, visit)
	}
}

func dropRaw(headers []*mailv1.Header) {
	for _, h := range headers {
		h.Raw = nil
	}
}

func first(list []*mailv1.Address) []*mailv1.Address { return list[:min(len(list), 100)] }
