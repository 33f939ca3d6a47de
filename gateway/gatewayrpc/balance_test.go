package gatewayrpc_test

import (
	"bytes"
	"context"
	"errors"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"

	"github.com/rohrpost/rohrpost/gateway/gatewayrpc"
	spoolv1 "github.com/rohrpost/rohrpost/proto/gen/rohrpost/spool/v1"
	"github.com/rohrpost/rohrpost/proto/smtpreply"
)

// Two spools share the load.
func TestSpoolsShareTheLoad(t *testing.T) {
	const n = 300
	a, b := start(t, "a", acceptAll), start(t, "b", acceptAll)
	c := client(t, gatewayrpc.Options{}, a.connect(t), b.connect(t))
	untilBoth(t, c, a, b)
	a.holds.Store(true) // so that it is not the faster one that gets more
	b.holds.Store(true)
	var wg sync.WaitGroup
	for range n {
		wg.Go(func() {
			if err := submit(t, c, small("x\r\n")); err != nil {
				t.Errorf("Submit: %v", err)
			}
		})
	}
	eventually(t, "all messages are sent", func() bool { return len(a.got())+len(b.got()) == n })
	if atA := len(a.got()); atA < n*35/100 || atA > n*65/100 {
		t.Errorf("one spool got %d of %d messages, want 35 to 65 %%", atA, n)
	}
	a.letGo(t)
	b.letGo(t)
	wg.Wait()
}

// A spool that does not answer gets nothing more while another one does.
func TestSpoolThatOwesAnswersIsLeft(t *testing.T) {
	a, b := start(t, "a", acceptAll), start(t, "b", acceptAll)
	c := client(t, gatewayrpc.Options{}, a.connect(t), b.connect(t))
	untilBoth(t, c, a, b)
	a.holds.Store(true)
	wait := untilHeld(t, c, a)
	before := len(a.got())
	for range 100 {
		if err := submit(t, c, small("x\r\n")); err != nil {
			t.Fatal(err)
		}
	}
	if got := len(a.got()); got > before {
		t.Errorf("the spool that owes an answer got %d more", got-before)
	}
	a.letGo(t)
	wait()
}

// What lies before a spool that takes nothing goes to another one, long before the stream is given up; what it may have goes
// there once the stream has broken.
func TestQueueOfStalledSpoolMoves(t *testing.T) {
	var stall atomic.Bool
	a := start(t, "a", func(s *serverStream, f *spoolv1.SubmitFrame) ([]*spoolv1.SubmitReplyFrame, error) {
		if stall.Load() {
			<-s.ctx.Done()
		}
		return acceptAll(s, f)
	})
	b := start(t, "b", acceptAll)
	c := client(t, gatewayrpc.Options{SendTimeout: patience}, a.connect(t), b.connect(t))
	untilBoth(t, c, a, b)
	stall.Store(true)
	const n = 64
	done := make(chan error, n)
	for range n { // half of them are more than the windows of a stream hold
		go func() {
			done <- submit(t, c, small(strings.Repeat("x", 60_000)))
		}()
	}
	answered := 0
	quiet := time.NewTimer(patience)
	for answered < n*3/4 {
		select {
		case err := <-done:
			if answered++; err != nil {
				t.Fatalf("Submit: %v", err)
			}
		case <-quiet.C:
			t.Fatalf("%d of %d messages are answered, the others lie before a spool that takes nothing", answered, n)
		}
	}
	a.die()
	for ; answered < n; answered++ {
		if err := <-done; err != nil {
			t.Errorf("Submit: %v", err)
		}
	}
}

// A spool that dies is left, and joined again when it is back.
func TestDeadSpoolIsJoinedAgain(t *testing.T) {
	a, b := start(t, "a", acceptAll), start(t, "b", acceptAll)
	c := client(t, gatewayrpc.Options{}, a.connect(t), b.connect(t))
	untilBoth(t, c, a, b)
	a.die()
	for range 100 {
		if err := submit(t, c, small("x\r\n")); err != nil {
			t.Fatal(err)
		}
	}
	if got := len(b.got()); got < 100 {
		t.Errorf("the spool that is left got %d messages, want all", got)
	}
	a.revive(t)
	untilBoth(t, c, a, b)
}

// A message whose spool dies under it is accepted once, whether or not the spool had made it durable.
func TestMessagesOfDyingSpool(t *testing.T) {
	for name, durable := range map[string]bool{"durable": true, "lost": false} {
		t.Run(name, func(t *testing.T) {
			var db database
			a := start(t, "a", func(s *serverStream, f *spoolv1.SubmitFrame) ([]*spoolv1.SubmitReplyFrame, error) {
				if durable {
					db.commit(f.GetMessage().GetBegin().GetId(), "a")
				}
				return acceptAll(s, f)
			})
			b := start(t, "b", func(s *serverStream, f *spoolv1.SubmitFrame) ([]*spoolv1.SubmitReplyFrame, error) {
				begin := f.GetMessage().GetBegin()
				if fresh := db.commit(begin.GetId(), "b"); !fresh && !begin.GetAgain() {
					t.Error("a message that another spool has is submitted as if it were new")
				}
				return acceptAll(s, f)
			})
			c := client(t, gatewayrpc.Options{}, a.connect(t), b.connect(t))
			untilBoth(t, c, a, b)
			a.holds.Store(true)
			wait := untilHeld(t, c, a)
			var more sync.WaitGroup
			for range 50 {
				more.Go(func() {
					if err := submit(t, c, small("x\r\n")); err != nil {
						t.Errorf("Submit: %v", err)
					}
				})
			}
			a.die()
			wait()
			more.Wait()
			for _, m := range slices.Concat(a.got(), b.got()) {
				if id := m.GetBegin().GetId(); a.times(id) > 1 || b.times(id) > 1 {
					t.Errorf("message %s was sent to a %d times and to b %d times", id, a.times(id), b.times(id))
				}
			}
		})
	}
}

// A spool that lost its stream only, and may have the message, is asked again and no other: that could not tell before it
// had taken the message over.
func TestBrokenStreamOfLivingSpool(t *testing.T) {
	var breaks atomic.Bool
	a := start(t, "a", func(s *serverStream, f *spoolv1.SubmitFrame) ([]*spoolv1.SubmitReplyFrame, error) {
		if breaks.CompareAndSwap(true, false) {
			return nil, errDies
		}
		return acceptAll(s, f)
	})
	b := start(t, "b", acceptAll)
	c := client(t, gatewayrpc.Options{}, a.connect(t), b.connect(t))
	untilBoth(t, c, a, b)
	breaks.Store(true)
	for breaks.Load() {
		sub := small("x\r\n")
		if err := submit(t, c, sub); err != nil {
			t.Fatal(err)
		}
		if id := sub.ID.String(); a.times(id) > 0 && (a.times(id) != 2 || b.times(id) > 0) {
			t.Errorf("the message was sent to a %d times and to b %d times", a.times(id), b.times(id))
		}
	}
}

// A spool that comes back tells what became of a message about which another one, that was asked meanwhile, can't tell: even
// where that gives up first.
func TestSpoolThatComesBackAnswers(t *testing.T) {
	var db database
	giveUp := make(chan func() error, 10)
	a := start(t, "a", func(s *serverStream, f *spoolv1.SubmitFrame) ([]*spoolv1.SubmitReplyFrame, error) {
		db.commit(f.GetMessage().GetBegin().GetId(), "a")
		return acceptAll(s, f)
	})
	b := start(t, "b", func(s *serverStream, f *spoolv1.SubmitFrame) ([]*spoolv1.SubmitReplyFrame, error) {
		id := f.GetMessage().GetBegin().GetId()
		if !db.commit(id, "b") {
			giveUp <- func() error { return s.send(refused(id, 451, "4.4.2")) }
			return nil, nil
		}
		return acceptAll(s, f)
	})
	c := client(t, gatewayrpc.Options{}, a.connect(t), b.connect(t))
	untilBoth(t, c, a, b)
	a.holds.Store(true)
	wait := untilHeld(t, c, a)
	got := a.got()
	id := got[len(got)-1].GetBegin().GetId()
	a.die()
	a.forget()
	tell := <-giveUp
	a.revive(t)
	eventually(t, "the spool that is back is asked", func() bool { return a.times(id) == 2 })
	if err := tell(); err != nil {
		t.Fatal(err)
	}
	seen := len(b.got())
	for len(b.got()) == seen { // what b answers next comes behind the refusal
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		_, _ = c.Submit(ctx, small("y\r\n")) // it may be held
		cancel()
	}
	a.letGo(t)
	wait()
	if b.times(id) != 1 {
		t.Errorf("the other spool was asked %d times", b.times(id))
	}
}

// A message that a spool may have made durable before it died is not refused because none can tell just now, as while the
// database is away: its client would send it a second time (promise P3).
func TestDoubtfulMessageIsNotRefused(t *testing.T) {
	for name, restarts := range map[string]bool{"by another": false, "by the same, which has started anew": true} {
		t.Run(name, func(t *testing.T) {
			var db database
			var away atomic.Bool
			spool := func(name string) *node {
				return start(t, name, func(s *serverStream, f *spoolv1.SubmitFrame) ([]*spoolv1.SubmitReplyFrame, error) {
					if id := f.GetMessage().GetBegin().GetId(); !db.commit(id, name) && away.Load() {
						return []*spoolv1.SubmitReplyFrame{refused(id, 451, "4.3.0")}, nil
					}
					return acceptAll(s, f)
				})
			}
			a, b := spool("a"), spool("b")
			c := client(t, gatewayrpc.Options{}, a.connect(t), b.connect(t))
			untilBoth(t, c, a, b)
			a.holds.Store(true)
			wait := untilHeld(t, c, a)
			got := a.got()
			id := got[len(got)-1].GetBegin().GetId()
			if restarts {
				b.die()
			}
			away.Store(true)
			a.die()
			next, times := b, 1
			if restarts {
				a.holds.Store(false)
				a.revive(t)
				next, times = a, 2
			}
			eventually(t, "a spool is asked", func() bool { return next.times(id) >= times })
			away.Store(false)
			wait()
		})
	}
}

// A message that a spool has no room for goes to another, and so do those after it. What is said of the message itself is
// for its client.
func TestSpoolWithoutRoom(t *testing.T) {
	for name, test := range map[string]struct {
		code     int32
		enhanced string
		moves    bool
		again    bool
	}{
		"no room":        {452, "4.3.1", true, false},
		"not able":       {451, "4.3.0", true, true},
		"starting anew":  {451, "4.3.2", true, true},
		"a bad message":  {451, "4.6.0", false, false},
		"deferred":       {451, "4.7.1", false, false},
		"rejected":       {550, "5.7.1", false, false},
		"case A6, large": {552, "5.3.4", false, false},
	} {
		t.Run(name, func(t *testing.T) {
			var full atomic.Bool
			a := start(t, "a", func(s *serverStream, f *spoolv1.SubmitFrame) ([]*spoolv1.SubmitReplyFrame, error) {
				if full.Load() {
					return []*spoolv1.SubmitReplyFrame{refused(f.GetMessage().GetBegin().GetId(), test.code, test.enhanced)}, nil
				}
				return acceptAll(s, f)
			})
			b := start(t, "b", acceptAll)
			c := client(t, gatewayrpc.Options{Aside: patience}, a.connect(t), b.connect(t))
			untilBoth(t, c, a, b)
			full.Store(true)
			var err error
			for range 10 { // two would do, were it not for the turns that others take
				if err = submit(t, c, small("x\r\n")); len(a.got()) > 0 {
					break
				}
			}
			id := a.got()[0].GetBegin().GetId()
			if !test.moves {
				if got := smtpreply.From(err).Reply().GetCode(); got != test.code || b.times(id) > 0 {
					t.Errorf("the client is told %d, and the other spool was sent it %d times", got, b.times(id))
				}
				return
			}
			if err != nil || b.times(id) != 1 {
				t.Fatalf("Submit: %v, the other spool was sent it %d times", err, b.times(id))
			}
			for _, m := range b.got() {
				if m.GetBegin().GetId() == id && m.GetBegin().GetAgain() != test.again {
					t.Errorf("again is %t, want %t", m.GetBegin().GetAgain(), test.again)
				}
			}
			for range 20 {
				if err := submit(t, c, small("x\r\n")); err != nil {
					t.Fatal(err)
				}
			}
			if got := len(a.got()); got > 1 {
				t.Errorf("the spool without room got %d more", got-1)
			}
		})
	}
}

// Where no spool can take a message, the client hears so at once.
func TestNoSpoolHasRoom(t *testing.T) {
	for enhanced, code := range map[string]int32{"4.3.1": 452, "4.3.0": 451, "4.3.2": 451} {
		t.Run(enhanced, func(t *testing.T) {
			var full atomic.Bool
			on := func(s *serverStream, f *spoolv1.SubmitFrame) ([]*spoolv1.SubmitReplyFrame, error) {
				if full.Load() {
					return []*spoolv1.SubmitReplyFrame{refused(f.GetMessage().GetBegin().GetId(), code, enhanced)}, nil
				}
				return acceptAll(s, f)
			}
			a, b := start(t, "a", on), start(t, "b", on)
			c := client(t, gatewayrpc.Options{}, a.connect(t), b.connect(t))
			untilBoth(t, c, a, b)
			full.Store(true)
			for range 10 {
				sub := small("x\r\n")
				err := submit(t, c, sub)
				if got := smtpreply.From(err).Reply(); got.GetCode() != code || got.GetEnhancedCode() != enhanced {
					t.Errorf("told %v", got)
				}
				if id := sub.ID.String(); a.times(id) > 1 || b.times(id) > 1 {
					t.Errorf("sent to a %d times and to b %d times", a.times(id), b.times(id))
				}
			}
		})
	}
}

// A large message goes to another spool where its own opens no stream, with all its content; and once begun it stays.
func TestLargeMessageFindsASpool(t *testing.T) {
	content := bytes.Repeat([]byte("0123456789\r\n"), 1<<16)
	var got bytes.Buffer
	a := start(t, "a", acceptAll)
	b := start(t, "b", func(s *serverStream, f *spoolv1.SubmitFrame) ([]*spoolv1.SubmitReplyFrame, error) {
		got.Write(f.GetChunk().GetData())
		return acceptAll(s, f)
	})
	c := client(t, gatewayrpc.Options{}, a.connect(t), b.connect(t))
	untilBoth(t, c, a, b)
	a.change(func(f *fakeSpool) { f.only = f.streams })
	for range 2 { // both spools' turns
		got.Reset()
		if err := submit(t, c, large(bytes.NewReader(content))); err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(got.Bytes(), content) {
			t.Error("content has changed")
		}
	}
}

// Two addresses of one spool are one spool: messages come on one stream, and when that breaks on another.
func TestTwoAddressesOfOneSpool(t *testing.T) {
	var breaks atomic.Bool
	streams := map[int]bool{}
	var mu sync.Mutex
	a := start(t, "a", func(s *serverStream, f *spoolv1.SubmitFrame) ([]*spoolv1.SubmitReplyFrame, error) {
		mu.Lock()
		streams[s.number] = true
		mu.Unlock()
		if breaks.CompareAndSwap(true, false) {
			return nil, errDies
		}
		return acceptAll(s, f)
	})
	c := client(t, gatewayrpc.Options{}, a.connect(t), a.connect(t))
	for i := range 100 {
		breaks.Store(i == 50)
		if err := submit(t, c, small("x\r\n")); err != nil {
			t.Fatal(err)
		}
	}
	mu.Lock()
	defer mu.Unlock()
	if len(streams) != 2 {
		t.Errorf("messages came on %d streams, want one and another", len(streams))
	}
}

// Spools that others tell of take their part, and their connections are closed when they are gone for good.
func TestPeersShareTheLoad(t *testing.T) {
	b := start(t, "b", acceptAll)
	var told atomic.Bool
	a := start(t, "a", func(s *serverStream, f *spoolv1.SubmitFrame) ([]*spoolv1.SubmitReplyFrame, error) {
		replies, err := acceptAll(s, f)
		if told.CompareAndSwap(true, false) {
			replies = append(replies, &spoolv1.SubmitReplyFrame{Kind: &spoolv1.SubmitReplyFrame_Hello{Hello: &spoolv1.SpoolHello{
				ProtocolVersion: 1, Spool: "a", Incarnation: 1,
			}}})
		}
		return replies, err
	})
	a.change(func(f *fakeSpool) { f.peers = []string{b.address} })
	var dialled atomic.Int64
	closed := make(chan struct{})
	c := client(t, gatewayrpc.Options{Dial: func(address string) (gatewayrpc.Conn, error) {
		if dialled.Add(1); address != b.address {
			return nil, errors.New("no such spool")
		}
		conn, err := dial(address)
		return &watchedConn{ClientConn: conn, closed: closed}, err
	}}, a.connect(t))
	untilBoth(t, c, a, b)
	b.die()
	b.revive(t) // a spool that others tell of is found again
	untilBoth(t, c, a, b)
	if n := dialled.Load(); n != 1 {
		t.Errorf("dialled %d times", n)
	}
	told.Store(true)
	b.die()
	for {
		if err := submit(t, c, small("x\r\n")); err != nil {
			t.Fatal(err)
		}
		if !told.Load() {
			break
		}
	}
	select {
	case <-closed:
	case <-time.After(patience):
		t.Error("the connection to a spool that is gone is never closed")
	}
}

// watchedConn tells when it is closed.
type watchedConn struct {
	*grpc.ClientConn
	closed chan struct{}
}

func (c *watchedConn) Close() error {
	defer close(c.closed)
	return c.ClientConn.Close()
}

// With all spools gone those that were told of are looked for as well: the first to come back may be one of them.
func TestPeerComesBackFirst(t *testing.T) {
	a, b := start(t, "a", acceptAll), start(t, "b", acceptAll)
	a.change(func(f *fakeSpool) { f.peers = []string{b.address} })
	var tries atomic.Int64
	c := client(t, gatewayrpc.Options{Unreachable: patience, Dial: func(address string) (gatewayrpc.Conn, error) {
		return dial(address, grpc.WithContextDialer(func(ctx context.Context, address string) (net.Conn, error) {
			tries.Add(1)
			return new(net.Dialer).DialContext(ctx, "tcp", address)
		}))
	}}, a.connect(t))
	untilBoth(t, c, a, b)
	a.die()
	b.die()
	before := tries.Load()
	eventually(t, "the spool that was told of is looked for", func() bool { return tries.Load() > before+3 })
	b.revive(t)
	if err := submit(t, c, small("x\r\n")); err != nil {
		t.Error(err)
	}
}
