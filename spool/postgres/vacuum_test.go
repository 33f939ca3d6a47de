package postgres_test

import (
	"strconv"
	"testing"
	"time"

	"github.com/rohrpost/rohrpost/spool"
	"github.com/rohrpost/rohrpost/spool/pgserver/pgservertest"
	"github.com/rohrpost/rohrpost/spool/postgres"
)

// TestNoVacuumDebt runs many lives and reads what PostgreSQL counts: nothing is ever updated or deleted but the working
// set and the leases, and those are kept small by the settings that the schema gives them.
func TestNoVacuumDebt(t *testing.T) {
	// A server of its own, whose autovacuum does not clean up under the test.
	url := pgservertest.Start(t, map[string]string{"fsync": "off", "autovacuum": "off"}).URL("postgres")
	if err := postgres.Migrate(t.Context(), url); err != nil {
		t.Fatal(err)
	}
	f := &fixture{T: t, url: url, store: openStore(t, url)}
	inc := f.register("a")
	const rounds, size = 30, 100
	for range rounds {
		var born, permits, waits, ends spool.Batch
		for range size {
			m := message(t, "x")
			born.Messages = append(born.Messages, m)
			permits.Attempts = append(permits.Attempts, spool.Attempt{
				ID: newID(t), Message: m.ID, Kind: spool.AttemptPermit, Destination: "b.example", Number: 1, Recipients: []int32{0}, Time: time.Now(),
			})
			w := wait(m.ID, "b.example", true, 0)
			waits.Waits = append(waits.Waits, w)
			w.Attempts, w.Owned = 2, false
			permits.Waits = append(permits.Waits, w)
			ends.Outcomes = append(ends.Outcomes, outcome(m.ID, delivered))
			ends.Unwaits = append(ends.Unwaits, w.WaitKey)
		}
		for _, b := range []*spool.Batch{&born, &waits, &permits, &ends} {
			f.commit(inc, b)
		}
		if _, err := f.store.Renew(t.Context(), inc, newID(t), lease); err != nil {
			t.Fatal(err)
		}
	}
	f.store.Close() // what its connections have counted is told at the latest now
	f.waitInserted(rounds * size)
	for _, row := range f.sql(`SELECT relname || ': ' || n_tup_upd || ' updated, ' || n_tup_del || ' deleted, ' || n_dead_tup || ' dead'
		FROM pg_stat_user_tables
		WHERE relname ~ '^(message|content_chunk|attempt|outcome|message_search)_[0-9]{8}$' AND n_tup_upd + n_tup_del + n_dead_tup > 0`) {
		t.Errorf("vacuum debt: %s", row)
	}
	if dead := f.sql("SELECT (n_dead_tup > 0)::text FROM pg_stat_user_tables WHERE relname = 'deferred'"); dead[0] != "true" {
		t.Error("the working set has no dead rows after it was churned: the statistics are not to be believed")
	}
	// What autovacuum does by the table's settings as soon as a thousand rows are dead.
	threshold := f.sql(`SELECT option_value FROM pg_class c, pg_options_to_table(c.reloptions)
		WHERE c.oid = 'deferred'::regclass AND option_name = 'autovacuum_vacuum_threshold'`)
	if len(threshold) != 1 || threshold[0] != "1000" {
		t.Errorf("autovacuum's threshold of the working set is %v", threshold)
	}
	// A page that another process of the server holds at the moment, such as the one that writes it, is passed over.
	f.await("the empty working set has pages after it was vacuumed", func() bool {
		f.sql("VACUUM deferred")
		return f.sql("SELECT (pg_relation_size('deferred') / 8192)::text")[0] == "0"
	})
	if hot := f.sql("SELECT (n_tup_upd = n_tup_hot_upd)::text FROM pg_stat_user_tables WHERE relname = 'incarnation'"); hot[0] != "true" {
		t.Error("renewals of the lease leave dead entries in indexes")
	}
}

// waitInserted waits until the statistics know of all messages: they are told some time after the commit.
func (f *fixture) waitInserted(want int) {
	f.Helper()
	for deadline := time.Now().Add(30 * time.Second); ; time.Sleep(100 * time.Millisecond) {
		got := f.sql(`SELECT coalesce(sum(n_tup_ins), 0)::text FROM pg_stat_user_tables WHERE relname LIKE 'outcome\_%'`)
		if n, err := strconv.Atoi(got[0]); err == nil && n >= want {
			return
		}
		if time.Now().After(deadline) {
			f.Fatalf("the statistics know of %s of %d outcomes", got[0], want)
		}
	}
}
