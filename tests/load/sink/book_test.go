package sink

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/rohrpost/rohrpost/tests/load/ledger"
	"github.com/rohrpost/rohrpost/tests/load/mail"
)

// What came before can be told from what came after, in every count.
func TestSince(t *testing.T) {
	s := start(t, Config{})
	c := dial(t, s.SMTP())
	c.dialog(envelope...)
	c.dialog(message("1")+".", "250")
	before := s.Stats()
	for _, text := range []string{message("1"), strings.Replace(message("2"), "quick", "quack", 1), "X: y\r\n\r\n"} {
		c.dialog(append(append([]string{}, envelope[4:]...), text+".", "250")...)
	}
	got := s.Stats().Since(before)
	if !got.First.IsZero() || got.Last.IsZero() || got.Faults[mail.ErrHash.Error()] != 1 || got.Octets <= 0 || got.Octets >= s.Stats().Octets {
		t.Errorf("%+v", got)
	}
	got.Faults, got.Last, got.Octets = nil, time.Time{}, 0
	if want := (Stats{Arrivals: 3, Accepted: 3, Distinct: 1, Duplicates: 1, Strange: 1}); fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("got %+v\nwant %+v", got, want)
	}
}

// A client that gets no clear answer sends again; the sink tells what came twice, and for whom.
func TestDuplicatesAndHashes(t *testing.T) {
	path := filepath.Join(t.TempDir(), "ledger")
	l, err := ledger.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	keep := t.TempDir()
	s := start(t, Config{Ledger: l, Keep: keep}, Rule{At: Dot, Reply: "451 4.0.0 later", Times: 1})
	broken := strings.Replace(message("2"), "quick", "quack", 1)
	c := dial(t, s.SMTP())
	c.dialog("", "220", "EHLO x", "250")
	for i, m := range []string{message("1"), message("1"), message("1"), broken, "Subject: x\r\n\r\nstrange\r\n", "Subject: x\r\n\r\nbare\nLF\r\n"} {
		c.dialog(envelope[4:]...)
		want := "250"
		if i == 0 {
			want = "451"
		}
		c.dialog(m+".", want)
	}
	// The notification about 1 has no id of its own.
	c.dialog("MAIL FROM:<>", "250", "RCPT TO:<a@x>", "250", "DATA", "354", "Subject: failed\r\n\r\n--b\r\n\r\n"+message("1")+"--b--\r\n.", "250")
	want := Stats{Sessions: 1, Arrivals: 7, Accepted: 6, Distinct: 2, Duplicates: 1, Reports: 1, Strange: 2}
	got := s.Stats()
	if got.Faults[mail.ErrHash.Error()] != 1 || got.Faults[mail.ErrNoID.Error()] != 1 || got.Faults["a bare LF"] != 1 {
		t.Errorf("faults %v", got.Faults)
	}
	if got.Last.Before(got.First) {
		t.Error("the last came before the first")
	}
	got.Faults, got.Octets, got.First, got.Last = nil, 0, want.First, want.Last
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("got %+v\nwant %+v", got, want)
	}
	arrivals, err := ledger.Read[ledger.Arrival](path)
	if err != nil || len(arrivals) != 7 || arrivals[0].Reply != 451 || arrivals[0].Recipient != "b@y" || !arrivals[6].Report || arrivals[6].ID != "1" {
		t.Fatalf("%+v, %v", arrivals, err)
	}
	kept, err := os.ReadFile(filepath.Join(keep, arrivals[3].Raw))
	if err != nil || string(kept) != broken {
		t.Errorf("kept %d octets, %v; want those that came", len(kept), err)
	}
}

func TestMessageID(t *testing.T) {
	for content, want := range map[string]string{
		"Received: from a by b with ESMTP id 0190-ab;\r\n\tdate\r\nX: y\r\n":          "0190-ab",
		"Received: from a\r\n\tby b with ESMTP\r\n\tid Q7 for <x@y>; date\r\nX:y\r\n": "Q7",
		"Received: from a by b; date\r\nX-Id: id 7\r\n":                               "",
		"Subject: id 7\r\n": "", "": "",
	} {
		if got := messageID([]byte(content)); got != want {
			t.Errorf("%q has %q, want %q", content, got, want)
		}
	}
}

// What arrives for somebody else must not make up for what was lost.
func TestWrongRecipient(t *testing.T) {
	path := filepath.Join(t.TempDir(), "ledger")
	l, err := ledger.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	s := start(t, Config{Ledger: l})
	c := dial(t, s.SMTP())
	c.dialog("", "220", "EHLO x", "250", "MAIL FROM:<a@x>", "250", "RCPT TO:<B@y>", "250", "RCPT TO:<c@y>", "250", "DATA", "354", message("1")+".", "250")
	if got := s.Stats(); len(got.Faults) != 1 || got.Faults[mail.ErrFor.Error()] != 1 {
		t.Errorf("faults %v", got.Faults)
	}
	arrivals, err := ledger.Read[ledger.Arrival](path)
	if err != nil || len(arrivals) != 2 || arrivals[0].Fault != "" || arrivals[1].Fault != mail.ErrFor.Error() {
		t.Errorf("%+v, %v", arrivals, err)
	}
}
