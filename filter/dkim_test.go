package filter_test

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"encoding/base64"
	"io"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/emersion/go-msgauth/dkim"

	"github.com/rohrpost/rohrpost/filter"
	mailv1 "github.com/rohrpost/rohrpost/proto/gen/rohrpost/mail/v1"
)

// key signs for selector "sel" of a.example.
type key struct{ private ed25519.PrivateKey }

const keyName = "sel._domainkey.a.example"

func newKey(t *testing.T) key {
	t.Helper()
	_, private, err := ed25519.GenerateKey(nil)
	if err != nil {
		t.Fatal(err)
	}
	return key{private}
}

func (k key) record() string {
	public, _ := k.private.Public().(ed25519.PublicKey)
	return "v=DKIM1; k=ed25519; p=" + base64.StdEncoding.EncodeToString(public)
}

func (k key) zone() *zone {
	return &zone{txt: map[string][]string{keyName: {k.record()}}, err: map[string]error{}, hang: map[string]bool{}}
}

func (k key) sign(t *testing.T, content string) string {
	t.Helper()
	var signed bytes.Buffer
	err := dkim.Sign(&signed, strings.NewReader(content), &dkim.SignOptions{
		Domain: "a.example", Selector: "sel", Signer: k.private,
		HeaderCanonicalization: dkim.CanonicalizationRelaxed, BodyCanonicalization: dkim.CanonicalizationSimple,
	})
	if err != nil {
		t.Fatal(err)
	}
	return signed.String()
}

// words drops the properties of results.
func words(found []string) []string {
	var w []string
	for _, f := range found {
		word, _, _ := strings.Cut(f, " ")
		w = append(w, word)
	}
	return w
}

func TestDKIM(t *testing.T) {
	k := newKey(t)
	signed := k.sign(t, plain)
	dots := k.sign(t, "From: ann@a.example\r\n\r\n..x\r\n.\r\nend\r\n")
	for _, c := range []struct {
		name, content string
		change        func(*zone)
		want          []string
	}{
		{"good", signed, nil, []string{"pass"}},
		{"twice", k.sign(t, signed), nil, []string{"pass", "pass"}},
		{"no signature", plain, nil, []string{"none"}},
		{"altered body", strings.Replace(signed, "Hello", "Hallo", 1), nil, []string{"fail"}},
		{"altered header", strings.Replace(signed, "Subject: Hi", "Subject: Ho", 1), nil, []string{"fail"}},
		{"one of two is good", k.sign(t, strings.Replace(signed, "Hello", "Hallo", 1)), nil, []string{"pass", "fail"}},
		{"case D12: dots as the sender had them", dots, nil, []string{"pass"}},
		{"case D12: dots left stuffed", strings.Replace(dots, "\r\n..x\r\n.\r\n", "\r\n...x\r\n..\r\n", 1), nil, []string{"fail"}},
		{"no key", signed, func(z *zone) { delete(z.txt, keyName) }, []string{"permerror"}},
		{"key revoked", signed, func(z *zone) { z.txt[keyName] = []string{"v=DKIM1; p="} }, []string{"permerror"}},
		{"case E2: SERVFAIL", signed, func(z *zone) { delete(z.txt, keyName); z.err[keyName] = errServfail }, []string{"temperror"}},
		{"case E2: time-out", signed, func(z *zone) { z.hang[keyName] = true }, []string{"temperror"}},
		{
			"time-out with two signatures", k.sign(t, signed),
			func(z *zone) { z.hang[keyName] = true },
			[]string{"temperror"},
		},
		{"malformed", "DKIM-Signature: \xff\xfe; v=1\r\n" + plain, nil, []string{"permerror"}},
		{"body length tag", strings.Replace(signed, " v=1;", " v=1; l=5;", 1), nil, []string{"policy"}},
		{
			"header only, case C9", k.sign(t, "From: ann@a.example\r\n\r\n"),
			nil,
			[]string{"pass"},
		},
		{
			"no empty line, case C9", strings.TrimSuffix(k.sign(t, "From: ann@a.example\r\n\r\n"), "\r\n"),
			nil,
			[]string{"pass"},
		},
		{"empty, case C9", "", nil, []string{"none"}},
		{"header too long", signed[:len(signed)-len("\r\nHello\r\n")] + "X: " + strings.Repeat("y", 5000) + "\r\n\r\n", nil, []string{"permerror"}},
		{"too many", strings.Repeat("DKIM-Signature: v=2\r\n", 4) + plain, nil, []string{"permerror", "permerror", "permerror", "policy"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			z := k.zone()
			if c.change != nil {
				c.change(z)
			}
			f := newFilter(t, z, func(cfg *filter.Config) {
				cfg.DKIM.MaxSignatures, cfg.DKIM.MaxHeader = 3, 4096
				if z.hang[keyName] {
					cfg.DKIM.Timeout = 150 * time.Millisecond
				}
			})
			v := judge(t, f, input(c.content))
			if got := words(results(v, "dkim")); !slices.Equal(got, c.want) {
				t.Errorf("got %q, want %q", got, c.want)
			}
			marshal(t, v)
		})
	}
}

func TestDKIMOfOwnMessage(t *testing.T) {
	k := newKey(t)
	in := input(k.sign(t, plain))
	in.Envelope.Reception = &mailv1.Reception{}
	if got := results(judge(t, newFilter(t, k.zone(), nil), in), "dkim"); !slices.Equal(got, []string{"none"}) {
		t.Errorf("got %q, want none", got)
	}
}

// A content that stalls ends with the check's deadline, and its reader is closed.
func TestStalledContent(t *testing.T) {
	k := newKey(t)
	r, w := io.Pipe()
	go func() { _, _ = io.Copy(w, strings.NewReader(k.sign(t, plain))) }() // and never its end
	in := input(plain)
	in.Content = func() (io.ReadCloser, error) { return r, nil }
	f := newFilter(t, k.zone(), func(c *filter.Config) { c.DKIM.Timeout = 100 * time.Millisecond })
	if got := words(results(judge(t, f, in), "dkim")); !slices.Equal(got, []string{"temperror"}) {
		t.Errorf("got %q, want temperror", got)
	}
	if _, err := w.Write([]byte("x")); err == nil {
		t.Error("the reader was not closed")
	}
}

// The vectors of dkimpy.
func TestDKIMVectors(t *testing.T) {
	testKey := strings.TrimSpace(string(corpus(t, "dkimpy-vectors/test.txt")))
	signed := crlf(corpus(t, "dkimpy-vectors/rfc6376.signed.msg"))
	brisbane := "v=DKIM1; k=ed25519; p=11qYAYKxCrfVS/7TyWQHOg7hcvPapiMlrwIaaPcHURo="
	for _, c := range []struct {
		name, content, test string
		want                []string
	}{
		{"as signed", signed, testKey, []string{"pass", "pass"}},
		{"altered body", strings.Replace(signed, "We lost", "We won", 1), testKey, []string{"fail", "fail"}},
		{"bad version", signed, string(corpus(t, "dkimpy-vectors/badversion.txt")), []string{"pass", "permerror"}},
		{"bad k", signed, string(corpus(t, "dkimpy-vectors/badk.txt")), []string{"pass", "permerror"}},
		{"no k", signed, string(corpus(t, "dkimpy-vectors/test2.txt")), []string{"pass", "pass"}},
		{"unsigned", crlf(corpus(t, "dkimpy-vectors/test.message")), testKey, []string{"none"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			z := &zone{txt: map[string][]string{
				"brisbane._domainkey.football.example.com": {brisbane},
				"test._domainkey.football.example.com":     {strings.TrimSpace(c.test)},
			}}
			if got := words(results(judge(t, newFilter(t, z, nil), input(c.content)), "dkim")); !slices.Equal(got, c.want) {
				t.Errorf("got %q, want %q", got, c.want)
			}
		})
	}
}

// The context of a look-up is the check's.
func TestKeyLookupHasDeadline(t *testing.T) {
	k := newKey(t)
	seen := make(chan bool, 1)
	f := newFilter(t, spy{k.zone(), func(ctx context.Context) {
		_, ok := ctx.Deadline()
		seen <- ok
	}}, func(c *filter.Config) { c.SPF.Enabled = false })
	judge(t, f, input(k.sign(t, plain)))
	if !<-seen {
		t.Error("a look-up without deadline")
	}
}

type spy struct {
	*zone
	saw func(context.Context)
}

func (s spy) LookupTXT(ctx context.Context, name string) ([]string, error) {
	s.saw(ctx)
	return s.zone.LookupTXT(ctx, name)
}
