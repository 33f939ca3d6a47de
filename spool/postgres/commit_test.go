package postgres_test

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/testing/protocmp"

	mailv1 "github.com/rohrpost/rohrpost/proto/gen/rohrpost/mail/v1"
	"github.com/rohrpost/rohrpost/spool"
	"github.com/rohrpost/rohrpost/spool/pgserver"
	"github.com/rohrpost/rohrpost/spool/pgserver/pgservertest"
	"github.com/rohrpost/rohrpost/spool/postgres"
)

// P1: what Commit said is durable is there after the server was killed at once. With synchronous_commit off it is not:
// the log writer, which would save it by chance, sleeps for 10 seconds here.
func TestP1_CommittedMessageOutlivesServerCrash(t *testing.T) {
	server := pgservertest.Start(t, map[string]string{"wal_writer_delay": "10s", "synchronous_commit": "off"})
	if err := server.EnsureDatabase(t.Context(), "mail"); err != nil {
		t.Fatal(err)
	}
	url := server.URL("mail")
	if err := postgres.Migrate(t.Context(), url); err != nil {
		t.Fatal(err)
	}
	store, err := postgres.Open(t.Context(), postgres.Options{URL: url})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(store.Close)
	f := &fixture{T: t, url: url, store: store}
	inc := f.register("a")
	m := message(t, "precious")
	f.commit(inc, messages(m))
	if err := server.Kill(); err != nil {
		t.Fatal(err)
	}
	if err := server.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := f.sql("SELECT id::text FROM message"); len(got) != 1 || got[0] != m.ID.String() {
		t.Errorf("after the crash there is %v, want the message that was committed before it", got)
	}
}

func TestOpenRefusesUndurableServer(t *testing.T) {
	_, err := postgres.Open(t.Context(), postgres.Options{URL: newDatabase(t)}) // the tests' server has fsync off
	if !errors.Is(err, postgres.ErrUnsafe) || !strings.Contains(err.Error(), "spool.unsafe") {
		t.Errorf("got %v, want an error that names the mend", err)
	}
}

func TestRoundTrip(t *testing.T) {
	f := newFixture(t)
	inc := f.register("a")
	m := message(t, "Subject: x\r\n\r\nbody\r\n", "r0@b.example", "r1@c.example")
	verdict := &mailv1.Verdict{Recipients: []*mailv1.RecipientVerdict{{Action: mailv1.Action_ACTION_ACCEPT}, {Tags: []string{"spam"}}}}
	m.Verdict = verdict
	attempt := spool.Attempt{
		ID: newID(t), Message: m.ID, Kind: spool.AttemptResult, Destination: "b.example", Number: 1, Token: []byte{1, 2},
		Recipients: []int32{0}, Time: m.Accepted,
		Ended: []spool.RecipientEnd{{
			Recipient: 0, State: mailv1.RecipientState_RECIPIENT_STATE_BOUNCED,
			Reply: &mailv1.Reply{Code: 550, Text: "5.1.1 no such user\nreally"},
		}},
		Journal: []*mailv1.JournalEntry{{Event: "bounced", Stage: "deliver", Text: "gone"}, {Event: "noted"}},
		Verdict: verdict,
	}
	w := wait(m.ID, "c.example", true, 1)
	w.NextAt, w.ExpiresAt = m.Accepted.Add(time.Hour), time.Time{}
	search := spool.Search{Message: m.ID, Subject: "x", HeaderMessageID: "1@a.example", From: "sender@a.example"}
	f.commit(inc, &spool.Batch{
		Messages: []spool.Message{m}, Attempts: []spool.Attempt{attempt}, Waits: []spool.Wait{w},
		Searches: []spool.Search{search},
	})

	got, err := f.store.Get(t.Context(), m.ID)
	if err != nil || got.Err != nil {
		t.Fatal(err, got.Err)
	}
	m.Owner, m.Content = inc, nil
	want := &spool.Record{
		Stored: spool.Stored{Message: m, Attempts: []spool.Attempt{attempt}, Waits: []spool.Wait{w}},
		Search: search, OwnerName: "a",
	}
	if diff := cmp.Diff(want, got, protocmp.Transform(), cmp.Comparer(time.Time.Equal)); diff != "" {
		t.Errorf("before its end (-want +got):\n%s", diff)
	}

	end := outcome(m.ID, mailv1.RecipientState_RECIPIENT_STATE_BOUNCED, delivered)
	f.commit(inc, &spool.Batch{Outcomes: []spool.Outcome{end}, Unwaits: []spool.WaitKey{w.WaitKey}})
	got, err = f.store.Get(t.Context(), m.ID)
	if err != nil {
		t.Fatal(err)
	}
	want.Outcome, want.Waits, want.OwnerName = &end, nil, ""
	if diff := cmp.Diff(want, got, protocmp.Transform(), cmp.Comparer(time.Time.Equal)); diff != "" {
		t.Errorf("after its end (-want +got):\n%s", diff)
	}
	list, err := f.store.List(t.Context(), spool.ID(bytes.Repeat([]byte{0xff}, 16)), 10)
	if err != nil || len(list) != 1 || list[0].ID != m.ID {
		t.Errorf("List gave %v, %v", list, err)
	}
	if id, err := f.store.FindByHeaderMessageID(t.Context(), "1@a.example"); err != nil || id != m.ID {
		t.Errorf("FindByHeaderMessageID gave %v, %v", id, err)
	}
	if _, err := f.store.FindByHeaderMessageID(t.Context(), "2@a.example"); !errors.Is(err, spool.ErrNotFound) {
		t.Errorf("of an unknown one: %v", err)
	}
	if _, err := f.store.Get(t.Context(), newID(t)); !errors.Is(err, spool.ErrNotFound) {
		t.Errorf("Get of an unknown one: %v", err)
	}
	f.audit()
}

// What is noted of refused messages stands in a view, once.
func TestRefusals(t *testing.T) {
	f := newFixture(t)
	inc := f.register("a")
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	noted := spool.Refusal{
		Search: spool.Search{Message: newID(t), Subject: "Buy\x00", From: "ann@a.example"}, Time: at, Client: "192.0.2.1",
		Sender: "ann@a.example", Recipients: []string{"bob@b.example"}, RecipientSum: 12, Size: 7,
		Reply: &mailv1.Reply{Code: 550, EnhancedCode: "5.7.1", Text: "No"}, Rule: "ads",
	}
	f.commit(inc, &spool.Batch{Refusals: []spool.Refusal{noted}})
	f.commit(inc, &spool.Batch{Refusals: []spool.Refusal{noted}, Messages: []spool.Message{message(t, "x")}})
	got := f.sql(`SELECT concat_ws('|', id, refused_at AT TIME ZONE 'UTC', client, sender, recipients, recipient_sum, size, reply, rule, subject,
		from_address, header_message_id, traceparent) FROM refused`)
	want := noted.Message.String() + "|2026-01-02 03:04:05|192.0.2.1|ann@a.example|{bob@b.example}|12|7|550 5.7.1 No|ads|Buy\uFFFD|ann@a.example||"
	if diff := cmp.Diff([]string{want}, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	f.audit()
}

func TestCommitIsIdempotent(t *testing.T) {
	f := newFixture(t)
	inc := f.register("a")
	m := message(t, "once")
	batch := messages(m)
	batch.Attempts = []spool.Attempt{{ID: newID(t), Message: m.ID, Kind: spool.AttemptPermit, Time: time.Now()}}
	f.commit(inc, batch)
	f.commit(inc, batch)
	other := message(t, "new beside old")
	f.commit(inc, &spool.Batch{Messages: []spool.Message{m, other}, Outcomes: []spool.Outcome{outcome(other.ID, delivered)}})
	if got := f.sql("SELECT count(*)::text FROM message"); got[0] != "2" {
		t.Errorf("%s messages, want 2", got[0])
	}
	if got := f.sql("SELECT count(*)::text FROM attempt"); got[0] != "1" {
		t.Errorf("%s attempts, want 1", got[0])
	}
}

// A message that another owns, or that went on already, is told and nothing is written.
func TestCommitRefusesForeignMessage(t *testing.T) {
	f := newFixture(t)
	a, b := f.register("a"), f.register("b")
	foreign, ended, released, withdrawn := message(t, "foreign"), message(t, "ended"), message(t, "released"), message(t, "withdrawn")
	f.commit(a, messages(foreign))
	f.commit(b, &spool.Batch{
		Messages: []spool.Message{ended, released, withdrawn},
		Outcomes: []spool.Outcome{
			outcome(ended.ID, delivered), outcome(withdrawn.ID, mailv1.RecipientState_RECIPIENT_STATE_WITHDRAWN),
		},
		Waits: []spool.Wait{wait(released.ID, "b.example", false, 0)},
	})
	for name, c := range map[string]struct {
		m    spool.Message
		want error
	}{
		"foreign":   {foreign, spool.ErrExists},
		"ended":     {ended, spool.ErrSettled},
		"released":  {released, spool.ErrSettled},
		"withdrawn": {withdrawn, spool.ErrWithdrawn},
	} {
		m, innocent := c.m, message(t, "innocent")
		err := f.store.Commit(t.Context(), b, messages(innocent, m))
		var row *spool.RowError
		if !errors.As(err, &row) || row.Message != m.ID || row.Err != c.want { //nolint:errorlint // exactly this one
			t.Errorf("%s: got %v, want %v for %s", name, err, c.want, m.ID)
		}
		if _, err := f.store.Get(t.Context(), innocent.ID); !errors.Is(err, spool.ErrNotFound) {
			t.Errorf("%s: the other message of the batch: %v", name, err)
		}
	}
}

func TestRowErrorNamesMessage(t *testing.T) {
	f := newFixture(t)
	inc := f.register("a")
	tooOld := message(t, "no partition")
	tooOld.ID = spool.ID{0, 1, 2, 3, 4, 5, 0x70, 0, 0x80}
	short := message(t, "short hash")
	short.Hash = []byte{1}
	lying := message(t, "its chunks are missing")
	lying.Content, lying.Size = nil, 1000
	for name, bad := range map[string]spool.Message{"no partition": tooOld, "check": short, "content missing": lying} {
		first, last := message(t, "first"), message(t, "last")
		err := f.store.Commit(t.Context(), inc, messages(first, bad, last))
		var row *spool.RowError
		if !errors.As(err, &row) || row.Message != bad.ID {
			t.Errorf("%s: got %v, want a RowError for %s", name, err, bad.ID)
		}
	}
	if got := f.sql("SELECT count(*)::text FROM message"); got[0] != "0" {
		t.Errorf("%s messages were written", got[0])
	}
	odd := message(t, "odd", "a\x00b@c.example") // what PostgreSQL can't keep in a text must not refuse a mail
	f.commit(inc, messages(odd))
	twins := messages(message(t, "twins", "a@c.example", "b@c.example"))
	for i, destination := range []string{"c\x00.example", "c\uFFFD.example"} { // there they are one
		twins.Waits = append(twins.Waits, wait(twins.Messages[0].ID, destination, true, int32(i)))
	}
	f.commit(inc, twins)
}

func TestContent(t *testing.T) {
	f := newFixture(t)
	inc := f.register("a")
	random := make([]byte, 700_000)
	if _, err := rand.Read(random); err != nil {
		t.Fatal(err)
	}
	for name, size := range map[string]int{"empty": 0, "inline": 8192, "chunk": 8193, "chunks": 700_000} {
		t.Run(name, func(t *testing.T) {
			m := message(t, string(random[:size]))
			f.commit(inc, messages(m))
			check(t, f.store, m.ID, random[:size])
		})
	}
	t.Run("uploaded", func(t *testing.T) {
		m := message(t, string(random[:600]))
		m.Content = nil
		// A broken stream left chunks that were cut differently.
		f.commit(inc, &spool.Batch{Chunks: []spool.Chunk{{Message: m.ID, Data: random[:100]}, {Message: m.ID, Seq: 1, Offset: 100, Data: random[100:150]}}})
		f.commit(inc, &spool.Batch{Chunks: []spool.Chunk{{Message: m.ID, Data: random[:400]}}})
		last := messages(m)
		last.Chunks = []spool.Chunk{{Message: m.ID, Seq: 1, Offset: 400, Data: random[400:600]}}
		f.commit(inc, last)
		check(t, f.store, m.ID, random[:600])
	})
	if err := f.store.ReadContent(t.Context(), newID(t), 0, 0, into(&bytes.Buffer{})); !errors.Is(err, spool.ErrNotFound) {
		t.Errorf("of no message: %v", err)
	}
}

// into takes content.
func into(b *bytes.Buffer) func([]byte) error {
	return func(piece []byte) error {
		b.Write(piece)
		return nil
	}
}

func check(t *testing.T, store *postgres.Store, id spool.ID, want []byte) {
	t.Helper()
	var all, part bytes.Buffer
	if err := store.ReadContent(t.Context(), id, 0, 0, into(&all)); err != nil || !bytes.Equal(all.Bytes(), want) {
		t.Errorf("%d octets, %v; want %d", all.Len(), err, len(want))
	}
	from := int64(len(want)) * 2 / 3
	length := int64(len(want)) / 4
	if err := store.ReadContent(t.Context(), id, from, length, into(&part)); err != nil || !bytes.Equal(part.Bytes(), want[from:][:length]) {
		t.Errorf("a part: %d octets, %v", part.Len(), err)
	}
}

// throughProxy opens a store whose connections a test can cut.
func throughProxy(t *testing.T, f *fixture) (*postgres.Store, *proxy) {
	t.Helper()
	server := pgservertest.Server(t)
	p := startProxy(t, filepath.Join(server.Dir(), ".s.PGSQL.5432"))
	return openStore(t, strings.Replace(f.url, escaped(server.Dir()), escaped(p.dir), 1)), p
}

func TestUnknownCommit(t *testing.T) {
	for name, action := range map[string]commitAction{"reply lost": loseReply, "commit lost": loseCommit} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t)
			store, p := throughProxy(t, f)
			f.store = store
			inc := f.register("a")
			m := message(t, "unknown")
			batch := messages(m)
			batch.Waits = []spool.Wait{wait(m.ID, "b.example", true, 0)}
			p.nextCommit(action)
			if err := store.Commit(t.Context(), inc, batch); !errors.Is(err, spool.ErrCommitUnknown) {
				t.Fatalf("got %v, want ErrCommitUnknown", err)
			}
			f.commit(inc, batch)
			if got := f.sql("SELECT id::text FROM message"); len(got) != 1 || got[0] != m.ID.String() {
				t.Errorf("there is %v", got)
			}
			f.audit()
		})
	}
}

// The first backend is still in its transaction when the batch is committed again: the second must wait for it and must
// not write a second row.
func TestUnknownCommitStillUnderWay(t *testing.T) {
	f := newFixture(t)
	store, p := throughProxy(t, f)
	f.store = store
	inc := f.register("a")
	m := message(t, "slow")
	batch := messages(m)
	release := p.nextCommit(holdCommit)
	if err := store.Commit(t.Context(), inc, batch); !errors.Is(err, spool.ErrCommitUnknown) {
		t.Fatalf("got %v, want ErrCommitUnknown", err)
	}
	second := make(chan error, 1)
	ctx := t.Context()
	go func() { second <- store.Commit(ctx, inc, batch) }()
	for len(f.sql("SELECT pid::text FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()")) == 0 {
		select {
		case err := <-second:
			t.Fatalf("the second commit did not wait for the first: %v", err)
		case <-time.After(5 * time.Millisecond):
		}
	}
	close(release)
	if err := <-second; err != nil {
		t.Fatal(err)
	}
	if got := f.sql("SELECT id::text FROM message"); len(got) != 1 {
		t.Errorf("%d rows, want one", len(got))
	}
}

func TestServerAway(t *testing.T) {
	server := pgservertest.Start(t, map[string]string{"fsync": "off"})
	url := server.URL("postgres")
	if err := postgres.Migrate(t.Context(), url); err != nil {
		t.Fatal(err)
	}
	f := &fixture{T: t, url: url, store: openStore(t, url)}
	inc := f.register("a")
	m := message(t, "later")
	if err := server.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := f.store.Commit(t.Context(), inc, messages(m)); !errors.Is(err, spool.ErrUnavailable) {
		t.Errorf("got %v, want ErrUnavailable", err)
	}
	if _, err := postgres.Open(t.Context(), postgres.Options{URL: url}); !errors.Is(err, spool.ErrUnavailable) {
		t.Errorf("Open: got %v, want ErrUnavailable", err)
	}
	restart(t, server)
	deadline := time.Now().Add(patience)
	for { // case C8: the pool finds the server again by itself
		err := f.store.Commit(t.Context(), inc, messages(m))
		if err == nil {
			break
		}
		if !errors.Is(err, spool.ErrUnavailable) || time.Now().After(deadline) {
			t.Fatal(err)
		}
	}
}

func restart(t *testing.T, server *pgserver.Server) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if err := server.Restart(ctx); err != nil {
		t.Fatal(err)
	}
}

// Arrays travel as text within a statement for all rows: nothing in them may be read as syntax.
func TestTextsInArrays(t *testing.T) {
	f := newFixture(t)
	inc := f.register("a")
	texts := []string{`"`, `\`, `\"`, "NULL", "null", "", " ", "a, b", "{}", "{a}", "'", "ä\t\n", `\x`}
	m, other := message(t, "a", texts...), message(t, "b", "one@b.example")
	f.commit(inc, messages(m, other))
	got := f.sql("SELECT r FROM message, unnest(recipients) WITH ORDINALITY AS u (r, n) WHERE id = $1 ORDER BY n", m.ID)
	if diff := cmp.Diff(texts, got); diff != "" {
		t.Error(diff)
	}
}
