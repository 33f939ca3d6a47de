//go:build compose

package compose

import (
	"fmt"
	"strings"
	"sync"
	"testing"

	adminv1 "github.com/rohrpost/rohrpost/proto/gen/rohrpost/admin/v1"
	mailv1 "github.com/rohrpost/rohrpost/proto/gen/rohrpost/mail/v1"
)

// sendMany sends mails over several sessions at once and returns their ids.
func sendMany(t testing.TB, prefix string, gateways []string, mails int, rest string) []string {
	t.Helper()
	const sessions = 8
	ids := make([]string, mails)
	var wg sync.WaitGroup
	for s := range sessions {
		wg.Go(func() {
			for i := s; i < mails; i += sessions {
				id, err := sendPatiently(gateways[i%len(gateways)], fmt.Sprintf("%s-%04d", prefix, i), rest)
				if err != nil {
					t.Error(err)
					return
				}
				ids[i] = id
			}
		})
	}
	wg.Wait()
	if t.Failed() {
		t.FailNow()
	}
	return ids
}

// parsed waits for the end of mails and returns the entry of each one's parser in its journal.
func parsed(t testing.TB, ids []string) []*mailv1.JournalEntry {
	t.Helper()
	admin := adminv1.NewAdminServiceClient(pipeline.dial(t, "cli"))
	var entries []*mailv1.JournalEntry
	for _, id := range ids {
		message := wait(t, admin, id, adminv1.MessageState_MESSAGE_STATE_ENDED)
		for _, e := range message.GetJournal() {
			if e.GetStage() == "parser" && e.GetWorker() != "" {
				entries = append(entries, e)
			}
		}
	}
	return entries
}

// shares counts who did what.
func shares(entries []*mailv1.JournalEntry, who func(*mailv1.JournalEntry) string) map[string]int {
	counts := map[string]int{}
	for _, e := range entries {
		counts[who(e)]++
	}
	return counts
}

// awaitParsers sends mails until so many parsers have taken part: a container may be up before its worker has found the
// spool.
func awaitParsers(t testing.TB, gateways []string, want int) {
	t.Helper()
	eventually(t, fmt.Sprintf("%d parsers take part", want), func() error {
		seen := shares(parsed(t, sendMany(t, "warm", gateways, 4*want, heavy)), (*mailv1.JournalEntry).GetWorker)
		if len(seen) < want {
			return fmt.Errorf("only %v", seen)
		}
		return nil
	})
}

// checkShares checks that so many took part and each has between a low and a high part of the whole, in percent.
func checkShares(t *testing.T, what string, counts map[string]int, want, low, high int) {
	t.Helper()
	t.Log(what, counts)
	total := 0
	for _, n := range counts {
		total += n
	}
	if len(counts) != want {
		t.Errorf("%d %s took part, want %d", len(counts), what, want)
	}
	for name, n := range counts {
		if 100*n < low*total || 100*n > high*total {
			t.Errorf("%s did %d of %d, want %d to %d %%", name, n, total, low, high)
		}
	}
}

// docker compose up --scale parser=4, each with a quarter of a core: each takes its part.
func TestFourParsersShare(t *testing.T) {
	pipeline.tellLogs(t, "parser", "spool")
	gateways := []string{pipeline.address("gateway")}
	restore := pipeline.with("PARSER_CPUS=0.25")
	t.Cleanup(func() { restore(); pipeline.do(t, "up", "-d", "--wait") })
	pipeline.do(t, "up", "-d", "--wait", "--scale", "parser=4")
	awaitParsers(t, gateways, 4)
	entries := parsed(t, sendMany(t, "parsers", gateways, 200, heavy))
	checkShares(t, "parsers", shares(entries, (*mailv1.JournalEntry).GetWorker), 4, 15, 35)
}

// With deploy/compose.scale.yaml everything scales: the workers find both spools, and go on when one is lost.
func TestEverythingScales(t *testing.T) {
	pipeline.tellLogs(t, "parser", "spool", "gateway")
	restore := pipeline.withFile("deploy/compose.scale.yaml")
	t.Cleanup(func() { restore(); pipeline.do(t, "up", "-d", "--wait") })
	pipeline.do(t, "up", "-d", "--wait", "--scale", "parser=4", "--scale", "filter=2", "--scale", "deliver=2",
		"--scale", "gateway=2", "--scale", "spool=2")
	gateways := pipeline.gateways(t)
	if len(gateways) != 2 {
		t.Fatalf("gateways %v", gateways)
	}
	awaitParsers(t, gateways, 4)
	entries := parsed(t, sendMany(t, "scaled", gateways, 200, "\r\nHello.\r\n"))
	checkShares(t, "parsers", shares(entries, (*mailv1.JournalEntry).GetWorker), 4, 10, 45)
	t.Log("spools", shares(entries, (*mailv1.JournalEntry).GetSpool))

	// One spool is lost: what it had is adopted, and mail goes on through the other.
	lost := pipeline.containers(t, "spool")[0]
	if _, err := pipeline.docker("kill", lost.ID); err != nil {
		t.Fatal(err)
	}
	eventually(t, "mail is accepted by the other spool", func() error {
		for _, gateway := range gateways {
			if _, err := send(gateway, "one-spool"); err != nil {
				return err
			}
		}
		return nil
	})
	if out := pipeline.do(t, "ps", "spool", "--status", "running", "-q"); len(strings.Fields(out)) != 1 {
		t.Errorf("running spools: %q", out)
	}
}
