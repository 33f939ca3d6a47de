package postgres_test

import (
	"errors"
	"fmt"
	"testing"

	"github.com/rohrpost/rohrpost/spool"
)

// A transaction that loses against another (SQLSTATE 40001), at a statement or at its COMMIT, is made again a few times. Where it
// loses each time, nothing of it is there, and the batch may come again.
func TestSerializationFailure(t *testing.T) {
	for _, at := range []string{"IMMEDIATE", "DEFERRED"} {
		for losses, committed := range map[int]bool{2: true, 100: false} {
			t.Run(fmt.Sprintf("%s, %d times", at, losses), func(t *testing.T) {
				f := newFixture(t)
				inc := f.register("a")
				f.exec(fmt.Sprintf(`
					CREATE SEQUENCE losses; -- no rollback takes back what was drawn from it
					CREATE FUNCTION lose() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
						IF nextval('losses') <= %d THEN RAISE EXCEPTION 'lost' USING ERRCODE = '40001'; END IF;
						RETURN NULL;
					END $$;
					CREATE CONSTRAINT TRIGGER lose AFTER INSERT ON deferred DEFERRABLE INITIALLY %s
						FOR EACH ROW EXECUTE FUNCTION lose();`, losses, at))
				m := message(t, "conflict")
				batch := messages(m)
				batch.Waits = []spool.Wait{wait(m.ID, "b.example", true, 0)}
				err := f.store.Commit(t.Context(), inc, batch)
				var row *spool.RowError
				switch {
				case committed != (err == nil):
					t.Fatalf("got %v, want it committed: %v", err, committed)
				case errors.As(err, &row) || errors.Is(err, spool.ErrFenced) || errors.Is(err, spool.ErrCommitUnknown):
					t.Errorf("got %v, which says more than that it may be tried again", err)
				}
				if rows := f.sql("SELECT id::text FROM message"); (len(rows) == 1) != committed {
					t.Errorf("there is %v", rows)
				}
				f.exec("DROP TRIGGER lose ON deferred")
				f.commit(inc, batch)
				if rows := f.sql("SELECT id::text FROM message"); len(rows) != 1 {
					t.Errorf("there is %v", rows)
				}
				f.audit()
			})
		}
	}
}
