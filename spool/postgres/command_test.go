package postgres_test

import (
	"strings"
	"testing"
	"time"

	"github.com/rohrpost/rohrpost/spool"
)

// A command is a row; the spool that owns the message, or one that claims it, executes it.
func TestCommands(t *testing.T) {
	f := newFixture(t)
	seeder := f.register("seeder")
	waiting, ended := message(t, "waits"), message(t, "ended")
	later := wait(waiting.ID, "b.example", false, 0)
	later.NextAt = time.Now().Add(time.Hour)
	f.commit(seeder, &spool.Batch{
		Messages: []spool.Message{waiting, ended}, Waits: []spool.Wait{later}, Outcomes: []spool.Outcome{outcome(ended.ID, delivered)},
	})
	run(t, f.store, nil, nil)
	for _, c := range []struct {
		id   spool.ID
		verb spool.Verb
		want string
	}{
		{waiting.ID, spool.VerbHold, "hold: 1 recipients"},
		{waiting.ID, spool.VerbCancel, "cancel: 1 recipients"},
		{waiting.ID, spool.VerbRetry, "it has ended"},
		{ended.ID, spool.VerbHold, "it has ended"},
		{newID(t), spool.VerbHold, "there is no such message"},
	} {
		command, err := f.store.Order(t.Context(), c.id, c.verb, "test")
		if err != nil {
			t.Fatal(err)
		}
		for deadline := time.Now().Add(patience); ; time.Sleep(5 * time.Millisecond) {
			result, done, err := f.store.CommandResult(t.Context(), command)
			if err != nil {
				t.Fatal(err)
			}
			if done {
				if !strings.HasPrefix(result, c.want) {
					t.Errorf("%s: %q, want %q", c.verb, result, c.want)
				}
				break
			}
			if time.Now().After(deadline) {
				t.Fatalf("%s was not executed", c.verb)
			}
		}
	}
	if got := f.sql("SELECT o.states[1] FROM outcome o WHERE o.message_id = $1", waiting.ID); len(got) != 1 || got[0] != "cancelled" {
		t.Errorf("it ended as %v", got)
	}
	f.audit()
}
