package filter_test

import (
	"os"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"

	"github.com/rohrpost/rohrpost/filter"
	"github.com/rohrpost/rohrpost/proto/bytesize"
	mailv1 "github.com/rohrpost/rohrpost/proto/gen/rohrpost/mail/v1"
)

// documented reads the example rules from docs/filter.md.
func documented(t *testing.T) []filter.Rule {
	t.Helper()
	text, err := os.ReadFile("../docs/filter.md")
	if err != nil {
		t.Fatal(err)
	}
	_, block, _ := strings.Cut(string(text), "```yaml\n")
	block, _, _ = strings.Cut(block, "```")
	var cfg filter.Config
	dec := yaml.NewDecoder(strings.NewReader(block))
	dec.KnownFields(true)
	if err := dec.Decode(&cfg); err != nil {
		t.Fatal(err)
	}
	return cfg.Rules
}

// Each example of docs/filter.md matches what it is for, and nothing of a plain message.
func TestDocumentedRules(t *testing.T) {
	k := newKey(t)
	z := k.zone()
	z.err["down.example"] = errServfail
	matching := map[string]func(*filter.Input){
		"own-users": func(in *filter.Input) { in.Envelope.Reception.AuthenticatedUser = "ann" },
		"partners": func(in *filter.Input) {
			*in = input(k.sign(t, plain))
			in.Envelope.Sender = "x@mail.partner.example"
		},
		"forged-own-domain": func(in *filter.Input) { in.Envelope.Sender = "boss@B.example" },
		"unknown-by-outage": func(in *filter.Input) { in.Envelope.Sender = "x@down.example" },
		"programs": func(in *filter.Input) {
			in.Parsed.Parts = []*mailv1.Part{{Parts: []*mailv1.Part{{}, {Filename: "Invoice.PDF.EXE"}}}}
		},
		"bad-network": func(in *filter.Input) { in.Envelope.Reception.ClientIp = "198.51.100.7" },
		"newsletters": func(in *filter.Input) { in.Parsed.Headers = []*mailv1.Header{{Name: "List-Unsubscribe"}} },
		"no-bulk-for-sales": func(in *filter.Input) {
			in.Parsed.Headers = []*mailv1.Header{{Name: "List-Unsubscribe"}}
			in.Envelope.Recipients[0].Address = "Sales@b.example"
		},
		"two-readings": func(in *filter.Input) {
			in.Parsed.Defects = []*mailv1.Defect{{Kind: "ambiguous_boundary", Severity: mailv1.Severity_SEVERITY_ERROR}}
		},
		"big-for-many": func(in *filter.Input) {
			in.Size = int64(11 * bytesize.MiB)
			for range 20 {
				in.Envelope.Recipients = append(in.Envelope.Recipients, &mailv1.Recipient{Address: "c@b.example"})
			}
		},
	}
	all := documented(t)
	if len(all) != 10 {
		t.Errorf("%d rules in docs/filter.md, want ten", len(all))
	}
	f := newFilter(t, z, rules(all...))
	if v := judge(t, f, input(plain)).GetRecipients()[0]; v.GetRule() != "" || len(v.GetTags()) != 0 || v.GetAction() != accept {
		t.Errorf("a plain message: %v", v)
	}
	for _, r := range all {
		change, ok := matching[r.Name]
		if !ok {
			t.Errorf("no message to try rule %q with", r.Name)
			continue
		}
		in := input(plain)
		change(&in)
		v := judge(t, f, in)
		got := v.GetRecipients()[0]
		if r.Action == filter.Tag && (len(got.GetTags()) != len(r.Tags) || got.GetTags()[0] != r.Tags[0]) {
			t.Errorf("%s: tags %v", r.Name, got.GetTags())
		}
		if r.Action != filter.Tag && got.GetRule() != r.Name {
			t.Errorf("%s: decided by %q", r.Name, got.GetRule())
		}
		if failed := results(v, "policy"); failed != nil {
			t.Errorf("%s: %q", r.Name, failed)
		}
		if text := r.Reply.Text; text != "" && got.GetReply().GetText() != text {
			t.Errorf("%s: reply %v", r.Name, got.GetReply())
		}
	}
}
