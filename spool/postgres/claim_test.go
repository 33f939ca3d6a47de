package postgres_test

import (
	"strconv"
	"testing"
	"time"

	"github.com/rohrpost/rohrpost/spool"
)

// What waits for later is not read at each claim, however much it is: spools ask several times a second.
func TestClaimReadsWhatIsDueAlone(t *testing.T) {
	const waiting, claims = 5000, 10
	f := newFixture(t)
	f.sql(`INSERT INTO deferred (message_id, destination, reason, recipients, attempts, next_at, expires_at, last_reply)
		SELECT gen_random_uuid(), 'd' || i % 50 || '.example', 'retry', '{0}', 1, now() + interval '1 hour', now() + interval '1 day', ''
		FROM generate_series(1, $1::int) i`, waiting)
	f.sql("ANALYZE deferred")
	inc := f.register("reader")
	for range claims {
		if got, err := f.store.Claim(t.Context(), inc, spool.ClaimLimits{Messages: 256, PerDestination: 40}); err != nil || len(got) > 0 {
			t.Fatalf("%d messages, %v", len(got), err)
		}
	}
	if read := f.rowsRead(); read > waiting {
		t.Errorf("%d claims read %d rows of %d that wait for later", claims, read, waiting)
	}
}

// rowsRead is how many waiting rows statements have read so far. It closes the store: its sessions tell what they did at their end.
func (f *fixture) rowsRead() int {
	f.Helper()
	f.store.Close()
	const others = "SELECT count(*)::text FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid() AND backend_type = 'client backend'"
	for deadline := time.Now().Add(patience); f.sql(others)[0] != "0"; time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			f.Fatal("the store's sessions do not end")
		}
	}
	read := f.sql(`SELECT (SELECT seq_tup_read FROM pg_stat_user_tables WHERE relname = 'deferred')
		+ (SELECT coalesce(sum(idx_tup_read), 0) FROM pg_stat_user_indexes WHERE relname = 'deferred') || ''`)
	n, err := strconv.Atoi(read[0])
	if err != nil {
		f.Fatal(err)
	}
	return n
}
