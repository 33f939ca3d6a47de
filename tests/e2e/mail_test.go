package e2e

import (
	"bytes"
	"crypto/rand"
	"encoding/base64"
	"fmt"
	"net/textproto"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	mailv1 "github.com/rohrpost/rohrpost/proto/gen/rohrpost/mail/v1"
	"github.com/rohrpost/rohrpost/services/rohrtest"
)

func events(journal []*mailv1.JournalEntry) []string {
	var out []string
	for _, e := range journal {
		out = append(out, e.GetEvent())
	}
	return out
}

// One mail: durable, parsed, filtered, delivered, all under one trace that is one tree.
func TestOneMail(t *testing.T) {
	p := rohrtest.Start(t)
	content := mail("one", "Hello.\r\n..\r\n.dots\r\n")
	id := p.Send("ann@a.example", []string{"bob@b.example"}, content)
	m := p.WaitEnded(id)
	checkArrived(t, p, content, m)

	got := events(m.GetJournal())
	for _, want := range []string{"accepted", "parsed", "filtered", "permitted", "delivered"} {
		i := slices.Index(got, want)
		if i < 0 {
			t.Fatalf("no %s in order in the journal: %v", want, events(m.GetJournal()))
		}
		got = got[i+1:]
	}
	if s := m.GetSummary(); s.GetSubject() != "one" || s.GetHeaderMessageId() != "one@a.example" {
		t.Errorf("search columns: subject %q, Message-ID %q", s.GetSubject(), s.GetHeaderMessageId())
	}

	spans := p.WaitTree(m.GetSummary().GetTraceId(), "smtp.transaction", "spool.submit", "spool.accept",
		"parser.job", "parser.parse", "filter.job", "filter.judge", "deliver.job", "deliver.attempt", "deliver.maildir")
	services := map[string]bool{}
	ids := map[string]bool{}
	for _, s := range spans {
		services[s.Service], ids[s.SpanID] = true, true
	}
	for _, s := range spans {
		if s.ParentID == "" && s.Name != "smtp.transaction" || s.ParentID != "" && !ids[s.ParentID] {
			t.Errorf("%s %s is not below the transaction:\n%s", s.Service, s.Name, rohrtest.Tree(spans))
		}
		if got, ok := s.Attributes["rohrpost.message.id"]; ok && got != id {
			t.Errorf("%s carries the id %s", s.Name, got)
		}
	}
	for _, name := range []string{"gateway", "spool", "parser", "filter", "deliver"} {
		if !services[name] {
			t.Errorf("no span of %s:\n%s", name, rohrtest.Tree(spans))
		}
	}
}

func TestOddSizes(t *testing.T) {
	p := rohrtest.Start(t)
	big := make([]byte, 10<<20)
	if _, err := rand.Read(big); err != nil {
		t.Fatal(err)
	}
	var body bytes.Buffer
	for text := base64.StdEncoding.EncodeToString(big); text != ""; text = text[min(76, len(text)):] {
		body.WriteString(text[:min(76, len(text))] + "\r\n")
	}
	hundred := make([]string, 0, 100)
	for i := range 100 {
		hundred = append(hundred, fmt.Sprintf("user%d@d%d.example", i, i%3))
	}
	for name, c := range map[string]struct {
		to      []string
		content []byte
	}{
		"10 MB":                           {[]string{"big@b.example"}, mail("big", body.String())},
		"empty body (case C9)":            {[]string{"empty@b.example"}, mail("empty", "")},
		"nothing at all (case C9)":        {[]string{"nothing@b.example"}, nil},
		"headers only (case C9)":          {[]string{"headers@b.example"}, []byte("Subject: x\r\n")},
		"100 recipients in 3 domains":     {hundred, mail("hundred", "Hello all.\r\n")},
		"exactly the inline limit":        {[]string{"inline@b.example"}, exactly(128 << 10)},
		"one octet over the inline limit": {[]string{"over@b.example"}, exactly(128<<10 + 1)},
		"a line of nearly 64 KiB":         {[]string{"long@b.example"}, mail("long", strings.Repeat("x", 64<<10-10)+"\r\n")},
		"capitals in the address":         {[]string{"Post.Master@B.EXAMPLE"}, mail("caps", "Hello.\r\n")},
	} {
		t.Run(name, func(t *testing.T) {
			id := p.Send("ann@a.example", c.to, c.content)
			checkArrived(t, p, withCRLF(c.content), p.WaitEnded(id))
		})
	}
	t.Run("a line over 64 KiB (case G2)", func(t *testing.T) {
		_, err := p.TrySend("ann@a.example", []string{"long@b.example"}, mail("longer", strings.Repeat("x", 64<<10+10)+"\r\n"))
		checkRefused(t, err)
	})
}

func exactly(size int) []byte {
	content := mail("exactly", "")
	for len(content) < size-2 {
		content = append(content, bytes.Repeat([]byte("x"), min(70, size-2-len(content)))...)
		if len(content) < size-4 {
			content = append(content, '\r', '\n')
		}
	}
	return append(content[:size-2], '\r', '\n')
}

func checkRefused(t *testing.T, err error) {
	t.Helper()
	if reply, ok := err.(*textproto.Error); !ok || reply.Code < 500 { //nolint:errorlint // net/textproto returns it bare
		t.Errorf("got %v, want a 5xx", err)
	}
}

var bareNewline = regexp.MustCompile(`(^|[^\r])\n|\r([^\n]|$)`)

// Real mail goes through all services unchanged; what has a bare CR or LF is refused (P7).
func TestRealMail(t *testing.T) {
	p := rohrtest.Start(t)
	for name, dir := range map[string]string{"mime4j": corpus(t, "mime4j-testmsgs"), "own samples": "../../parser/testdata"} {
		files, err := filepath.Glob(filepath.Join(dir, "*.msg"))
		if err != nil || len(files) < 10 {
			t.Fatalf("%s: %d messages in %s, %v", name, len(files), dir, err)
		}
		for _, file := range files {
			t.Run(filepath.Base(file), func(t *testing.T) {
				content, err := os.ReadFile(file)
				if err != nil {
					t.Fatal(err)
				}
				if bareNewline.Match(content) {
					_, err := p.TrySend("ann@a.example", []string{"bare@b.example"}, content)
					checkRefused(t, err)
					return
				}
				id := p.Send("ann@a.example", []string{"real@b.example"}, content)
				checkArrived(t, p, withCRLF(content), p.WaitEnded(id))
			})
		}
	}
}
