package judge

import (
	"os"
	"slices"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/rohrpost/rohrpost/spool/pgserver/pgservertest"
	"github.com/rohrpost/rohrpost/spool/postgres"
	"github.com/rohrpost/rohrpost/tests/load/mail"
)

func TestMain(m *testing.M) { os.Exit(pgservertest.Main(m)) }

// database is a database with the spool's tables, whose partitions are one for all times.
func database(t *testing.T) *pgx.Conn {
	t.Helper()
	url := pgservertest.NewDatabase(t)
	if err := postgres.Migrate(t.Context(), url); err != nil {
		t.Fatal(err)
	}
	conn, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close(t.Context()) })
	for _, table := range []string{"message", "content_chunk", "attempt", "outcome"} {
		do(t, conn, "CREATE TABLE "+table+"_all PARTITION OF "+table+" DEFAULT")
	}
	return conn
}

func do(t *testing.T, conn *pgx.Conn, sql string, args ...any) {
	t.Helper()
	if _, err := conn.Exec(t.Context(), sql, args...); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
}

const (
	small  = "01900000-0000-7000-8000-000000000001"
	large  = "01900000-0000-7000-8000-000000000002"
	report = "01900000-0000-7000-8000-000000000003"
	orphan = "01900000-0000-7000-8000-000000000004"
)

func insertMessage(t *testing.T, conn *pgx.Conn, id, sender string, content *string, size int) {
	t.Helper()
	do(t, conn, `INSERT INTO message (id, owner, sender, recipients, accepted_at, size, content_hash, envelope, traceparent, tracestate, content)
		VALUES ($1, 3, $2, '{bob@b.example}', now(), $4, '', '', '', '', convert_to($3::text, 'UTF8'))`, id, sender, content, size)
}

func insertChunk(t *testing.T, conn *pgx.Conn, id string, owner, offset int, data string) {
	t.Helper()
	do(t, conn, "INSERT INTO content_chunk VALUES ($1, $2, $3, 0, convert_to($4, 'UTF8'))", id, owner, offset, data)
}

func TestRead(t *testing.T) {
	conn := database(t)
	text := string(mail.Sized(700).Make(nil, "load-1", "ann@a.example", "bob@b.example").Bytes())
	returned := "To: <ann@a.example>\r\n\r\nFinal-Recipient: rfc822; bob@b.example\r\n" +
		"Final-Recipient: rfc822; eve@b.example\r\n\r\nX-Rohrload-Id: load-7\r\nX: \xc3\xa4"
	insertMessage(t, conn, small, "ann@a.example", &text, len(text))
	insertMessage(t, conn, large, "ann@a.example", nil, 20)
	insertChunk(t, conn, large, 3, 0, "12345678")
	insertChunk(t, conn, large, 3, 6, "789")  // cut once more after a broken stream
	insertChunk(t, conn, large, 3, 10, "11")  // what stands at 9 is missing, though two more follow
	insertChunk(t, conn, large, 3, 12, "222") // and the rest from 15 on
	insertChunk(t, conn, large, 4, 9, "1234") // another spool's, which does not count
	insertMessage(t, conn, report, "", &returned, len(returned))
	do(t, conn, `INSERT INTO attempt VALUES ('01900000-0000-7000-9000-000000000001', $1, 'permit', 'b.example', 1, '\x0102', '{0}', '{0}', '{delivered}',
		'{""}', now(), NULL, NULL, '{now,now}', '{accepted,permitted}', '{spool,deliver}', '{"",""}')`, small)
	do(t, conn, `INSERT INTO outcome VALUES ($1, '{delivered}', '{""}', now(), NULL, NULL, '{now}', '{delivered}', '{deliver}', '{250}')`, small)
	do(t, conn, `INSERT INTO deferred VALUES ($1, '!all', NULL, 'all', '{}', 0, now(), 'infinity', '')`, large)

	messages, err := Read(t.Context(), conn)
	if err != nil {
		t.Fatal(err)
	}
	if len(messages) != 3 {
		t.Fatalf("%d messages: %v", len(messages), messages)
	}
	one, two, three := messages[0], messages[1], messages[2]
	if one.Missing != 0 || len(one.Rows) != 1 || one.Rows[0].Token != "0102" || len(one.Rows[0].Ended) != 1 || one.Rows[0].States[0] != "delivered" ||
		one.Count("permitted") != 1 || len(one.Outcomes) != 1 ||
		one.LoadID != "load-1" || one.Fault != "" {
		t.Errorf("small: %+v", one)
	}
	if two.Missing != 6 || two.Fault == "" || len(two.Waits) != 1 {
		t.Errorf("large lacks %d octets and waits for %v", two.Missing, two.Waits)
	}
	if three.LoadID != "load-7" || three.Missing != 0 || !slices.Equal(three.Reported, []string{"bob@b.example", "eve@b.example"}) {
		t.Errorf("the notification is about %q and %v and lacks %d octets", three.LoadID, three.Reported, three.Missing)
	}
	if n, err := Unended(t.Context(), conn); err != nil || n != 2 {
		t.Errorf("%d have not ended: %v", n, err)
	}
}

// Chunks that overlap are put together to what was sent; what was changed in one of them is told.
func TestContentOfChunks(t *testing.T) {
	conn := database(t)
	text := string(mail.Sized(700).Make(nil, "load-1", "ann@a.example", "bob@b.example").Bytes())
	changed := text[:600] + "?" + text[601:]
	for id, content := range map[string]string{small: text, large: changed} {
		insertMessage(t, conn, id, "ann@a.example", nil, len(content))
		insertChunk(t, conn, id, 3, 0, content[:300])
		insertChunk(t, conn, id, 3, 100, content[100:250]) // all of it is there already
		insertChunk(t, conn, id, 3, 200, content[200:500])
		insertChunk(t, conn, id, 3, 500, content[500:])
	}
	messages, err := Read(t.Context(), conn)
	if err != nil || len(messages) != 2 {
		t.Fatalf("%d messages: %v", len(messages), err)
	}
	if m := messages[0]; m.Missing != 0 || m.LoadID != "load-1" || m.Fault != "" {
		t.Errorf("whole: %+v", m)
	}
	if m := messages[1]; m.Missing != 0 || m.LoadID != "load-1" || m.Fault == "" {
		t.Errorf("changed: %+v", m)
	}
}

// Rows are in the order of their transactions, whatever the clocks said by which their ids were made.
func TestOrderOfRows(t *testing.T) {
	conn := database(t)
	insertMessage(t, conn, large, "ann@a.example", nil, 4)
	for i, id := range []string{"01900000-0000-7000-9000-000000000009", "01900000-0000-7000-9000-000000000001"} {
		do(t, conn, `INSERT INTO attempt VALUES ($1, $2, 'note', 'b.example', $3, NULL, '{}', '{}', '{}', '{}', now(), NULL, NULL, '{}', '{}', '{}', '{}')`,
			id, large, i)
	}
	messages, err := Read(t.Context(), conn)
	if err != nil || len(messages) != 1 || len(messages[0].Rows) != 2 || messages[0].Rows[1].Number != 1 {
		t.Errorf("%+v %v", messages, err)
	}
}

func TestOrphans(t *testing.T) {
	conn := database(t)
	insertMessage(t, conn, large, "ann@a.example", nil, 4)
	insertChunk(t, conn, large, 3, 0, "1234")
	insertChunk(t, conn, large, 4, 0, "1234") // another spool's
	insertChunk(t, conn, orphan, 3, 0, "1234")
	if n, err := AgeOrphans(t.Context(), conn, "1 hour"); err != nil || n != 2 {
		t.Fatalf("aged %d: %v", n, err)
	}
	if n, err := Orphans(t.Context(), conn); err != nil || n != 2 {
		t.Errorf("%d orphans: %v", n, err)
	}
	// An hour is 3 600 000 ms: 0x36EE80.
	var got string
	if err := conn.QueryRow(t.Context(), "SELECT min(message_id::text) FROM content_chunk WHERE owner = 3").Scan(&got); err != nil {
		t.Fatal(err)
	}
	if want := "018fffc9-1180-7000-8000-000000000004"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	messages, err := Read(t.Context(), conn)
	if err != nil || len(messages) != 1 || messages[0].Missing != 0 {
		t.Errorf("%v %v", messages, err)
	}
}

func TestClients(t *testing.T) {
	conn := database(t)
	do(t, conn, "INSERT INTO incarnation (name, address, expires_at, low_water, fenced_at) VALUES ('a', '', now(), $1, now())", small)
	// The backends that migrated the database end some time after their connections were closed.
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(10 * time.Millisecond) {
		total, _, err := Clients(t.Context(), conn)
		if err != nil || total > 0 && time.Now().After(deadline) {
			t.Fatalf("%d connections are left: %v", total, err)
		}
		if total == 0 {
			break
		}
	}
	other, err := pgx.Connect(t.Context(), conn.Config().ConnString())
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close(t.Context()) //nolint:errcheck // the database goes with the test
	do(t, other, "SET application_name = 'rohrpost-spool/1'")
	total, dead, err := Clients(t.Context(), conn)
	if err != nil || total != 1 || len(dead) != 1 {
		t.Errorf("%d connections, %v of the dead: %v", total, dead, err)
	}
}
