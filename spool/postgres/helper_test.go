package postgres_test

import (
	"context"
	"crypto/sha256"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"go.uber.org/goleak"
	"google.golang.org/protobuf/types/known/timestamppb"

	mailv1 "github.com/rohrpost/rohrpost/proto/gen/rohrpost/mail/v1"
	"github.com/rohrpost/rohrpost/spool"
	"github.com/rohrpost/rohrpost/spool/pgserver/pgservertest"
	"github.com/rohrpost/rohrpost/spool/postgres"
)

func TestMain(m *testing.M) {
	code := pgservertest.Main(m)
	if err := goleak.Find(); code == 0 && err != nil {
		println(err.Error())
		code = 1
	}
	os.Exit(code)
}

// lease is longer than any test on any machine takes.
const lease = time.Hour

// patience bounds what would otherwise hang: many times what a busy machine takes.
const patience = time.Minute

// fixture is a database with stores on it.
type fixture struct {
	*testing.T
	url   string
	store *postgres.Store
}

func newFixture(t *testing.T) *fixture {
	t.Helper()
	url := newDatabase(t)
	return &fixture{T: t, url: url, store: openStore(t, url)}
}

var template struct {
	sync.Mutex
	name string
}

// newDatabase makes a migrated database.
func newDatabase(t *testing.T) string {
	t.Helper()
	server := pgservertest.Server(t)
	template.Lock()
	defer template.Unlock()
	if template.name == "" {
		if err := server.EnsureDatabase(t.Context(), "migrated"); err != nil {
			t.Fatal(err)
		}
		if err := postgres.Migrate(t.Context(), server.URL("migrated")); err != nil {
			t.Fatal(err)
		}
		template.name = "migrated"
	}
	return pgservertest.CopyDatabase(t, template.name)
}

func openStore(t *testing.T, url string) *postgres.Store {
	t.Helper()
	store, err := postgres.Open(t.Context(), postgres.Options{URL: url, Unsafe: true, CommitTimeout: 20 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(store.Close)
	return store
}

func (f *fixture) register(name string) spool.Incarnation {
	f.Helper()
	l, err := f.store.Register(f.Context(), spool.Registration{Name: name, Address: name + ":1", Lease: lease})
	if err != nil {
		f.Fatal(err)
	}
	return l.Incarnation
}

func (f *fixture) commit(inc spool.Incarnation, batch *spool.Batch) {
	f.Helper()
	if err := f.store.Commit(f.Context(), inc, batch); err != nil {
		f.Fatal(err)
	}
}

// sql runs a statement and gives what it returns, one value a row, as text.
func (f *fixture) sql(statement string, args ...any) []string {
	f.Helper()
	conn := f.connect()
	defer func() { _ = conn.Close(context.Background()) }()
	rows, err := conn.Query(f.Context(), statement, args...)
	if err != nil {
		f.Fatalf("%s: %v", statement, err)
	}
	if len(rows.FieldDescriptions()) == 0 {
		rows.Close()
		if err := rows.Err(); err != nil {
			f.Fatalf("%s: %v", statement, err)
		}
		return nil
	}
	all, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		f.Fatalf("%s: %v", statement, err)
	}
	return all
}

// exec runs statements that return nothing.
func (f *fixture) exec(statements string) {
	f.Helper()
	conn := f.connect()
	defer func() { _ = conn.Close(context.Background()) }()
	if _, err := conn.Exec(f.Context(), statements); err != nil {
		f.Fatalf("%s: %v", statements, err)
	}
}

func (f *fixture) connect() *pgx.Conn {
	f.Helper()
	conn, err := pgx.Connect(f.Context(), f.url)
	if err != nil {
		f.Fatal(err)
	}
	return conn
}

// audit fails the test if an invariant is violated.
func (f *fixture) audit() {
	f.Helper()
	for _, problem := range f.sql("SELECT message_id || ': ' || problem FROM spool_audit") {
		f.Error("audit: ", problem)
	}
}

func newID(t testing.TB) spool.ID {
	t.Helper()
	id, err := uuid.NewV7()
	if err != nil {
		t.Fatal(err)
	}
	return id
}

// message makes one with content, to recipients.
func message(t testing.TB, content string, recipients ...string) spool.Message {
	t.Helper()
	if len(recipients) == 0 {
		recipients = []string{"rcpt@b.example"}
	}
	envelope := &mailv1.Envelope{Sender: "sender@a.example", Reception: &mailv1.Reception{
		ReceivedAt: timestamppb.Now(), ClientIp: "192.0.2.1", Protocol: "ESMTP",
	}}
	for _, r := range recipients {
		envelope.Recipients = append(envelope.Recipients, &mailv1.Recipient{Address: r})
	}
	hash := sha256.Sum256([]byte(content))
	return spool.Message{
		ID: newID(t), Envelope: envelope, Size: int64(len(content)), Hash: hash[:], Content: []byte(content),
		Edits: []*mailv1.Edit{{Kind: &mailv1.Edit_Prepend{Prepend: &mailv1.HeaderField{Name: "Received", Value: "from a"}}}},
		Trace: &mailv1.TraceContext{Traceparent: "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"},
		// PostgreSQL keeps microseconds.
		Accepted: time.Now().UTC().Truncate(time.Microsecond),
	}
}

func wait(id spool.ID, destination string, owned bool, recipients ...int32) spool.Wait {
	return spool.Wait{
		WaitKey: spool.WaitKey{Message: id, Destination: destination}, Reason: spool.WaitRetry, Recipients: recipients,
		Attempts: 1, NextAt: time.Now().Add(-time.Second), ExpiresAt: time.Now().Add(time.Hour), Owned: owned,
		LastReply: &mailv1.Reply{Code: 451, EnhancedCode: "4.3.0", Text: "later"},
	}
}

func outcome(id spool.ID, states ...mailv1.RecipientState) spool.Outcome {
	o := spool.Outcome{Message: id, Time: time.Now().UTC().Truncate(time.Microsecond), Journal: []*mailv1.JournalEntry{
		{Time: timestamppb.Now(), Event: "delivered", Stage: "deliver", Text: "done", Worker: "deliver-1"},
	}}
	for i, state := range states {
		o.Recipients = append(o.Recipients, spool.RecipientEnd{
			Recipient: int32(i), State: state, Reply: &mailv1.Reply{Code: 250, EnhancedCode: "2.0.0", Text: "ok"},
		})
	}
	return o
}

func messages(all ...spool.Message) *spool.Batch { return &spool.Batch{Messages: all} }

const delivered = mailv1.RecipientState_RECIPIENT_STATE_DELIVERED
