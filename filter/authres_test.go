package filter_test

import (
	"strings"
	"testing"

	"github.com/emersion/go-msgauth/authres"
	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/proto"

	"github.com/rohrpost/rohrpost/filter"
	mailv1 "github.com/rohrpost/rohrpost/proto/gen/rohrpost/mail/v1"
)

// marshal checks that a verdict can be sent: text must be UTF-8, header values free of bare CR and LF.
func marshal(t *testing.T, v *mailv1.Verdict) {
	t.Helper()
	if _, err := proto.Marshal(v); err != nil {
		t.Errorf("the verdict can't be sent: %v", err)
	}
	for _, e := range v.GetEdits() {
		value := e.GetPrepend().GetValue()
		bare := strings.ReplaceAll(strings.ReplaceAll(value, "\r\n\t", ""), "\r\n ", "")
		if strings.ContainsAny(bare, "\r\n\x00") {
			t.Errorf("value has a bare line end: %q", value)
		}
		for line := range strings.SplitSeq(value, "\r\n") {
			if len(line) > 900 {
				t.Errorf("a line of %d octets", len(line))
			}
		}
	}
}

// apply does to a content what deliver does, after the contract of the edits.
func apply(content string, edits []*mailv1.Edit) string {
	head, body, _ := strings.Cut(content, "\r\n\r\n")
	var fields []string
	for line := range strings.SplitSeq(head, "\r\n") {
		if strings.HasPrefix(line, " ") || strings.HasPrefix(line, "\t") {
			fields[len(fields)-1] += "\r\n" + line
			continue
		}
		fields = append(fields, line)
	}
	for _, e := range edits {
		if p := e.GetPrepend(); p != nil {
			fields = append([]string{p.GetName() + ": " + p.GetValue()}, fields...)
			continue
		}
		var kept []string
		for _, f := range fields {
			name, value, _ := strings.Cut(f, ":")
			value = strings.ToLower(strings.TrimSpace(strings.ReplaceAll(value, "\r\n", "")))
			if !strings.EqualFold(name, e.GetRemove().GetName()) ||
				!strings.HasPrefix(value, strings.ToLower(e.GetRemove().GetValuePrefix())) {
				kept = append(kept, f)
			}
		}
		fields = kept
	}
	return strings.Join(fields, "\r\n") + "\r\n\r\n" + body
}

// What strangers wrote in our name goes, what others wrote stays, and ours comes first.
func TestForgedResults(t *testing.T) {
	forged := "Authentication-Results: mx.rohr.example; spf=pass smtp.mailfrom=boss@b.example\r\n" +
		"AUTHENTICATION-RESULTS:  MX.rohr.example 1; dkim=pass\r\n" +
		"Authentication-Results:\r\n\tmx.rohr.example; spf=pass\r\n" +
		"Authentication-Results: (a (nested) comment)\r\n mx.rohr.example; spf=pass\r\n" +
		"Authentication-Results: \"mx.rohr.example\"; spf=pass\r\n" +
		"Authentication-Results: \"m\\x.rohr.example\"; spf=pass\r\n" +
		"Authentication-Results: (\xff) mx.rohr.example; spf=pass\r\n" +
		"X-Rohrpost-Tags: trusted\r\n"
	other := "Authentication-Results: lists.example.org; spf=pass\r\n"
	v := judge(t, newFilter(t, &zone{}, nil), input(forged+other+plain))
	marshal(t, v)
	want := "Authentication-Results: mx.rohr.example;\r\n\tspf=none\r\n\t smtp.mailfrom=ann@a.example;\r\n\tdkim=none\r\n" +
		other + plain
	if diff := cmp.Diff(want, apply(forged+other+plain, v.GetEdits())); diff != "" {
		t.Error(diff)
	}
}

// The field can be read by another program, whatever strangers put into it.
func TestResultsCanBeRead(t *testing.T) {
	for _, sender := range []string{
		"ann@a.example", `"x; spf=pass"@a.example`, "a\tb@a.example", "ann@" + strings.Repeat("x.", 200) + "example",
		"jürg@a.example", "(x@a.example",
	} {
		k := newKey(t)
		in := input(k.sign(t, plain))
		in.Envelope.Sender = sender
		v := judge(t, newFilter(t, k.zone(), nil), in)
		marshal(t, v)
		edits := v.GetEdits()
		field := edits[len(edits)-1].GetPrepend()
		id, parsed, err := authres.Parse(strings.ReplaceAll(field.GetValue(), "\r\n", ""))
		if err != nil || id != "mx.rohr.example" {
			t.Errorf("%q: %v in %q", sender, err, field.GetValue())
			continue
		}
		for _, r := range parsed {
			if spf, ok := r.(*authres.SPFResult); ok && spf.Value != authres.ResultNone {
				t.Errorf("%q forged a result: %q", sender, field.GetValue())
			}
		}
	}
}

func TestAuthservID(t *testing.T) {
	for _, c := range []struct{ configured, gateway, want string }{
		{"mx.example", "gw.example", "mx.example"},
		{"", "gw.example", "gw.example"},
		{"", "", "localhost"},
	} {
		in := input(plain)
		in.Envelope.Reception.Gateway = c.gateway
		v := judge(t, newFilter(t, &zone{}, func(cfg *filter.Config) { cfg.AuthservID = c.configured }), in)
		edits := v.GetEdits()
		if got := edits[len(edits)-1].GetPrepend().GetValue(); !strings.HasPrefix(got, c.want+";") {
			t.Errorf("%+v: got %q", c, got)
		}
		if got := edits[0].GetRemove().GetValuePrefix(); got != c.want {
			t.Errorf("%+v: removes %q", c, got)
		}
	}
}
