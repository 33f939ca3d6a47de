//go:build compose

package compose

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/textproto"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	adminv1 "github.com/rohrpost/rohrpost/proto/gen/rohrpost/admin/v1"
	mailv1 "github.com/rohrpost/rohrpost/proto/gen/rohrpost/mail/v1"
)

// traffic sends a mail every now and then until it is stopped, and remembers what became of each. Refusals are fine: a
// client would come again.
type traffic struct {
	addresses func() []string // of gateways; a mail goes to the first that says something
	halt      context.CancelFunc
	done      sync.WaitGroup

	mu       sync.Mutex
	accepted map[string]string // subject by id
	refused  map[refusal]int
	fault    string // what was broken last
}

// refusal is what a client saw, and the fault during or after which it began.
type refusal struct{ fault, kind string }

// maxSessions bounds the mails under way: however slow the machine is, the load does not grow.
const maxSessions = 8

// startTraffic sends to the published port.
func startTraffic(t testing.TB, prefix string, every time.Duration) *traffic {
	t.Helper()
	return startTrafficTo(t, prefix, every, func() []string { return []string{pipeline.address("gateway")} })
}

func startTrafficTo(t testing.TB, prefix string, every time.Duration, addresses func() []string) *traffic {
	t.Helper()
	ctx, halt := context.WithCancel(context.Background())
	tr := &traffic{addresses: addresses, halt: halt, accepted: map[string]string{}, refused: map[refusal]int{}}
	tr.done.Go(func() {
		slots := make(chan struct{}, maxSessions)
		ticker := time.NewTicker(every)
		defer ticker.Stop()
		for i := 0; ; i++ {
			select {
			case <-ctx.Done():
				return
			case <-ticker.C:
			}
			select {
			case slots <- struct{}{}:
				tr.done.Go(func() { tr.one(fmt.Sprintf("%s-%04d", prefix, i)); <-slots })
			default: // a gateway that can't be reached keeps its clients waiting
			}
		}
	})
	t.Cleanup(tr.stop)
	return tr
}

// one sends a mail as RFC 5321, section 5.1 has it: an address that can't be reached is no refusal while there is
// another.
func (tr *traffic) one(subject string) {
	tr.mu.Lock()
	fault := tr.fault
	tr.mu.Unlock()
	var id string
	err := errors.New("no gateway")
	for _, address := range tr.addresses() {
		if id, err = send(address, subject); err == nil || code(err) != 0 || sentWhole(err) {
			break
		}
	}
	tr.mu.Lock()
	defer tr.mu.Unlock()
	if err != nil {
		tr.refused[refusal{fault, kind(err)}]++
		return
	}
	tr.accepted[id] = subject
}

// code is the SMTP reply in an error, 0 for none.
func code(err error) int {
	var reply *textproto.Error
	if errors.As(err, &reply) {
		return reply.Code
	}
	return 0
}

// kind is what a client saw: the reply, if there was one.
func kind(err error) string {
	var reply *textproto.Error
	if errors.As(err, &reply) {
		return reply.Error()
	}
	if sentWhole(err) {
		return "no reply to the content"
	}
	return "no session"
}

func (tr *traffic) stop() { tr.halt(); tr.done.Wait() }

func (tr *traffic) count() int {
	tr.mu.Lock()
	defer tr.mu.Unlock()
	return len(tr.accepted)
}

// begin notes what is broken from now on.
func (tr *traffic) begin(fault string) {
	tr.mu.Lock()
	defer tr.mu.Unlock()
	tr.fault = fault
}

// saw tells what clients saw of a fault, so far.
func (tr *traffic) saw(fault string) map[string]int {
	tr.mu.Lock()
	defer tr.mu.Unlock()
	seen := map[string]int{}
	for r, n := range tr.refused {
		if r.fault == fault {
			seen[r.kind] += n
		}
	}
	return seen
}

// during runs a fault and tells what clients saw of it, and how long after its end mail was accepted again.
func (tr *traffic) during(t testing.TB, service, what string, fault func()) {
	t.Helper()
	name, before := service+" "+what, tr.count()
	tr.begin(name)
	fault()
	ended, count := time.Now(), tr.count()
	eventually(t, name+": mail is accepted again", func() error {
		if tr.count() == count {
			return errNotYet
		}
		return nil
	})
	t.Logf("%s: %d accepted, refused %v, accepted again %v after the end", name, tr.count()-before, tr.saw(name),
		time.Since(ended).Round(10*time.Millisecond))
}

// check checks that every accepted mail ended as delivered, and arrived once unless the journal knows of an attempt
// whose outcome was unknown; and that clients were told 4yz and no more while the gateway itself was well.
func (tr *traffic) check(t *testing.T) {
	t.Helper()
	tr.stop()
	t.Logf("%d accepted, refused: %v", len(tr.accepted), tr.refused)
	if len(tr.accepted) == 0 {
		t.Error("nothing was accepted: the test shows nothing")
	}
	for r, n := range tr.refused {
		if away := strings.HasPrefix(r.fault, "gateway "); strings.HasPrefix(r.kind, "5") || !away && !strings.HasPrefix(r.kind, "4") {
			t.Errorf("%s: %d clients saw %q, want replies 4yz only", r.fault, n, r.kind)
		}
	}
	admin := adminv1.NewAdminServiceClient(pipeline.dial(t, "cli"))
	for _, id := range slices.Sorted(maps.Keys(tr.accepted)) {
		message := wait(t, admin, id, adminv1.MessageState_MESSAGE_STATE_ENDED)
		if state := message.GetSummary().GetRecipients()[0].GetState(); state != mailv1.RecipientState_RECIPIENT_STATE_DELIVERED {
			t.Errorf("%s ended as %v; the journal: %v", id, state, message.GetJournal())
		}
		unknown := 0
		for _, e := range message.GetJournal() {
			if e.GetEvent() == "unknown" {
				unknown++
			}
		}
		if n := copies(t, tr.accepted[id]); n < 1 || n > 1+unknown {
			t.Errorf("%s arrived %d times with %d unknown attempts; the journal: %v", id, n, unknown, message.GetJournal())
		}
	}
}
