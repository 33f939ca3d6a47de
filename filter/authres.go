package filter

import (
	"strings"

	mailv1 "github.com/rohrpost/rohrpost/proto/gen/rohrpost/mail/v1"
)

// The results of RFC 8601, section 2.7, that we write ourselves.
const (
	resultPass      = "pass"
	resultFail      = "fail"
	resultPolicy    = "policy"
	resultNone      = "none"
	resultTempError = "temperror"
	resultPermError = "permerror"
)

// The fields that we write.
const (
	fieldAuthenticationResults = "Authentication-Results"
	fieldTags                  = "X-Rohrpost-Tags"
)

// authResult is what one method found.
type authResult struct {
	method string
	result string
	props  []property
	detail string // for the journal; not written into the message, since it may name what is ours
}

type property struct{ name, value string }

// summary is the result of several: the best that can be said, and "" for none at all. One signature that passes is
// enough (RFC 6376, section 6.1); short of that, an outage may have hidden one.
func summary(results []authResult) string {
	for _, want := range []string{resultPass, resultTempError, resultFail, resultPolicy, resultPermError} {
		for _, r := range results {
			if r.result == want {
				return want
			}
		}
	}
	if len(results) > 0 {
		return results[0].result
	}
	return ""
}

// summarize makes the variable `results` of rules. A check that is switched off is none.
func summarize(found *findings) map[string]string {
	results := map[string]string{"spf": resultNone, "dkim": resultNone}
	for _, r := range [][]authResult{found.spf, found.dkim} {
		if s := summary(r); s != "" {
			results[r[0].method] = s
		}
	}
	return results
}

func (f *findings) results() []*mailv1.CheckResult {
	var results []*mailv1.CheckResult
	for _, r := range append(f.spf[:len(f.spf):len(f.spf)], f.dkim...) {
		var props []string
		for _, p := range r.props {
			props = append(props, p.name+"="+p.value)
		}
		results = append(results, &mailv1.CheckResult{
			Check: r.method, Result: r.result, Property: text(strings.Join(props, " ")), Detail: text(r.detail),
		})
	}
	return results
}

// text makes what strangers wrote fit for a message of the pipeline: UTF-8 of at most 1 000 octets.
func text(s string) string { return strings.ToValidUTF8(first(s, 1000), "?") }

// authservID is the name we write results under.
func (f *Filter) authservID(envelope *mailv1.Envelope) string {
	if f.cfg.AuthservID != "" {
		return f.cfg.AuthservID
	}
	if gateway := envelope.GetReception().GetGateway(); gateway != "" && authservSyntax.MatchString(gateway) {
		return gateway
	}
	return "localhost"
}

// edits removes what strangers wrote in our name (RFC 8601, section 5), then adds what we found. A removal also takes
// away fields of an id that only starts like ours: the RFC allows to remove more, and it is the safe side.
func (f *Filter) edits(envelope *mailv1.Envelope, found *findings, recipients []*mailv1.RecipientVerdict) []*mailv1.Edit {
	id := f.authservID(envelope)
	edits := []*mailv1.Edit{remove(fieldAuthenticationResults, id)}
	for _, prefix := range found.forged {
		edits = append(edits, remove(fieldAuthenticationResults, prefix))
	}
	edits = append(edits, remove(fieldTags, ""))
	if tags := sharedTags(recipients); len(tags) > 0 {
		edits = append(edits, prepend(fieldTags, strings.Join(tags, ",\r\n\t")))
	}
	return append(edits, prepend(fieldAuthenticationResults, formatResults(id, found, envelope.GetSmtputf8())))
}

func remove(name, prefix string) *mailv1.Edit {
	return &mailv1.Edit{Kind: &mailv1.Edit_Remove{Remove: &mailv1.RemoveHeader{Name: name, ValuePrefix: prefix}}}
}

func prepend(name, value string) *mailv1.Edit {
	return &mailv1.Edit{Kind: &mailv1.Edit_Prepend{Prepend: &mailv1.HeaderField{Name: name, Value: value}}}
}

// formatResults writes the value of an Authentication-Results field (RFC 8601, section 2.2), one result a line.
func formatResults(id string, found *findings, utf8 bool) string {
	var b strings.Builder
	b.WriteString(id)
	all := append(found.spf[:len(found.spf):len(found.spf)], found.dkim...)
	if len(all) == 0 {
		b.WriteString("; none")
	}
	for _, r := range all {
		b.WriteString(";\r\n\t" + r.method + "=" + r.result)
		for _, p := range r.props {
			if writable(p.value, utf8) {
				b.WriteString("\r\n\t " + p.name + "=" + quoted(p.value))
			}
		}
	}
	return b.String()
}

// maxProperty keeps lines under the 998 octets of RFC 5322, section 2.1.1.
const maxProperty = 400

// writable tells whether a value may stand in the field. Values come from strangers: what a careless reader could take
// for the end of the value or of the line is left out even where quotes would allow it, and so is what is not ASCII
// unless the message is internationalized (RFC 6532).
func writable(s string, utf8 bool) bool {
	return s != "" && len(s) <= maxProperty && !strings.ContainsFunc(s, func(r rune) bool {
		return r <= ' ' || r == 0x7f || strings.ContainsRune(`;"\()<>,`, r) || r >= 0x80 && !utf8 || r == utf8Error
	})
}

const utf8Error = '\ufffd'

// quoted puts a writable value into quotes where it is not a token, but for the @ of an address (RFC 8601, section 2.2;
// RFC 2045, section 5.1).
func quoted(s string) string {
	if strings.ContainsAny(s, ":/[]?=") {
		return `"` + s + `"`
	}
	return s
}
