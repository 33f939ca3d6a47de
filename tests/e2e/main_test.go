// Package e2e looks at the whole pipeline from outside: it sends mail as a plain SMTP client, follows it with the
// generated clients and looks at what arrived. It uses nothing else but services/rohrtest.
package e2e

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"go.uber.org/goleak"

	"github.com/rohrpost/rohrpost/deliver"
	adminv1 "github.com/rohrpost/rohrpost/proto/gen/rohrpost/admin/v1"
	mailv1 "github.com/rohrpost/rohrpost/proto/gen/rohrpost/mail/v1"
	"github.com/rohrpost/rohrpost/services/rohrtest"
)

func TestMain(m *testing.M) {
	code := rohrtest.Main(m)
	if err := goleak.Find(); err != nil && code == 0 {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

// mail makes a small mail.
func mail(subject, body string) []byte {
	return []byte("From: Ann <ann@a.example>\r\nTo: Bob <bob@b.example>\r\nSubject: " + subject +
		"\r\nMessage-ID: <" + subject + "@a.example>\r\nDate: Mon, 30 Nov 2026 12:00:00 +0000\r\n\r\n" + body)
}

// withCRLF adds the final CRLF that SMTP adds.
func withCRLF(mail []byte) []byte {
	if len(mail) > 0 && !bytes.HasSuffix(mail, []byte("\r\n")) {
		mail = append(slices.Clone(mail), '\r', '\n')
	}
	return mail
}

// expected is what must lie in a Maildir: the content with the declared edits, nothing else.
func expected(t *testing.T, content []byte, m *adminv1.Message, recipient string) []byte {
	t.Helper()
	edits := slices.Concat(m.GetEdits(), m.GetVerdict().GetEdits(), deliver.FinalEdits(m.GetEnvelope(), recipient))
	r, err := deliver.Apply(bytes.NewReader(content), edits)
	if err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	if _, err := b.ReadFrom(r); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// checkArrived checks that each recipient has the message once, octet for octet.
func checkArrived(t *testing.T, p *rohrtest.Pipeline, content []byte, m *adminv1.Message) {
	t.Helper()
	for i, r := range m.GetEnvelope().GetRecipients() {
		if state := m.GetSummary().GetRecipients()[i].GetState(); state != mailv1.RecipientState_RECIPIENT_STATE_DELIVERED {
			t.Errorf("%s: %s is %v: %v", m.GetSummary().GetId(), r.GetAddress(), state, m.GetJournal())
			continue
		}
		want := expected(t, content, m, r.GetAddress())
		copies := 0
		for _, got := range p.Mail(r.GetAddress()) {
			if bytes.Contains(got, []byte(m.GetSummary().GetId())) {
				copies++
				if !bytes.Equal(got, want) {
					t.Errorf("%s to %s: %s", m.GetSummary().GetId(), r.GetAddress(), firstDifference(got, want))
				}
			}
		}
		if copies != 1 {
			t.Errorf("%s arrived %d times at %s", m.GetSummary().GetId(), copies, r.GetAddress())
		}
	}
}

func firstDifference(got, want []byte) string {
	n := min(len(got), len(want))
	i := 0
	for i < n && got[i] == want[i] {
		i++
	}
	near := func(b []byte) string { return string(b[max(0, i-40):min(len(b), i+40)]) }
	return fmt.Sprintf("differs from octet %d of %d (want %d) on: got …%q…, want …%q…", i, len(got), len(want), near(got), near(want))
}

// corpus finds a folder of ../shared/corpus beside the repository.
func corpus(t *testing.T, folder string) string {
	t.Helper()
	dir, err := filepath.Abs("../../../shared/corpus/" + folder)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(dir); err != nil {
		t.Skipf("the corpus %s is not here: it lies beside the repository, in ../shared/corpus", folder)
	}
	return dir
}
