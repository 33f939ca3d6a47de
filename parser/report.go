package parser

import (
	"bytes"
	"strings"

	mailv1 "github.com/rohrpost/rohrpost/proto/gen/rohrpost/mail/v1"
)

// reportBytes is how much of a report is read.
const reportBytes = 256 << 10

// report reads the first machine-readable report of the message: a delivery status (RFC 3464) or a feedback report
// (RFC 5965), also where no multipart/report holds it. Where there is none, a bounce may be written for people.
func (r *reader) report() {
	found := r.found
	if found == nil {
		r.out.Report = r.writtenReport()
		return
	}
	out := &mailv1.Report{Type: strings.TrimPrefix(found.part.Type, "message/")}
	out.Type = strings.TrimPrefix(out.Type, "global-")
	if found.parent != nil && found.parent.part.Params["report-type"] != "" {
		out.Type = lowerASCII(found.parent.part.Params["report-type"])
	}
	if found.cut {
		r.defect("report_limit", severe, found.where, "a report of more than %d octets", reportBytes)
	}
	groups, odd := r.groups(found.kept, found.part.Path)
	if odd != nil {
		r.defect("malformed_report", warning, found.where, "%s: %s", odd.GetKind(), odd.GetDetail())
	}
	if strings.Contains(found.part.Type, "feedback") {
		for _, g := range groups {
			out.Fields = append(out.Fields, g...)
		}
		feedback(out)
	} else {
		perRecipient(out, groups)
		r.fromText(out)
	}
	r.out.Report = out
}

func isReport(mediaType string) bool {
	switch mediaType {
	case "message/delivery-status", "message/global-delivery-status", "message/feedback-report",
		"message/disposition-notification", "message/global-disposition-notification":
		return true
	}
	return false
}

// perRecipient shares out the groups of a delivery status (RFC 3464, 2.1).
func perRecipient(out *mailv1.Report, groups [][]*mailv1.Header) {
	if len(groups) == 0 {
		return
	}
	// Some writers leave the fields about the whole message out.
	if value(groups[0], "Final-Recipient") == "" && value(groups[0], "Original-Recipient") == "" {
		out.Fields, groups = groups[0], groups[1:]
	}
	for _, g := range groups {
		out.Recipients = append(out.Recipients, recipient(g))
	}
}

// feedback reads what a feedback report says (RFC 5965, 3).
func feedback(out *mailv1.Report) {
	out.FeedbackType = lowerASCII(value(out.Fields, "Feedback-Type"))
	for _, h := range out.Fields {
		if strings.EqualFold(h.GetName(), "Original-Rcpt-To") {
			out.Recipients = append(out.Recipients, &mailv1.ReportRecipient{Address: strings.Trim(h.GetValue(), "<> ")})
		}
	}
}

// value is the value of the first field with a name.
func value(headers []*mailv1.Header, name string) string {
	for _, h := range headers {
		if strings.EqualFold(h.GetName(), name) {
			return h.GetValue()
		}
	}
	return ""
}

// groups reads groups of fields with empty lines between them. They are none of the message's header sections: they have
// limits of their own, and what is odd in them is nothing that two readers of the mail see differently. It is returned.
func (r *reader) groups(body []byte, part string) (groups [][]*mailv1.Header, odd *mailv1.Defect) {
	own := newReader(r.limits)
	defer own.release()
	s := own.source(body, true)
	for pos := 0; pos < len(body); {
		if line, next := s.line(pos); next > 0 && len(bytes.TrimSpace(line)) == 0 {
			pos = next
			continue
		}
		sec := own.section(s, pos, part)
		if len(sec.fields) == 0 {
			break
		}
		groups = append(groups, own.headers(s, sec.fields, part))
		pos = sec.body
	}
	for _, d := range own.out.Defects {
		if strings.HasSuffix(d.GetKind(), "_limit") {
			r.once(d.GetKind(), d.GetSeverity(), place{part: part, offset: unknownOffset}, "%s", d.GetDetail())
		} else if odd == nil {
			odd = d
		}
	}
	return groups, odd
}
