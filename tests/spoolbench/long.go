package spoolbench

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/rohrpost/rohrpost/tests/bench"
	"github.com/rohrpost/rohrpost/tests/load/report"
)

// longTransaction is a transaction that stays open over all rounds, in a database of a server of its own, beside a spool that
// runs all the time: it renews its lease, and what it leaves dead can't be taken away. It has a snapshot and has written.
type longTransaction struct {
	o     *Options
	dir   string
	rig   *rig
	conn  *pgx.Conn
	begun time.Time
}

func (l *longTransaction) open(ctx context.Context) (err error) {
	if l.dir, err = l.o.TempDir(); err != nil {
		return err
	}
	if l.rig, err = l.o.start(ctx, bench.Place{Dir: l.dir, Base: l.dir}, nil); err != nil {
		return err
	}
	if l.conn, err = pgx.Connect(ctx, l.rig.Database()); err != nil {
		return err
	}
	for _, statement := range []string{
		"BEGIN ISOLATION LEVEL REPEATABLE READ", "SELECT count(*) FROM message", "SELECT pg_current_xact_id()",
	} {
		if _, err := l.conn.Exec(ctx, statement); err != nil {
			return fmt.Errorf("opening a long transaction: %w", err)
		}
	}
	l.begun = time.Now()
	return nil
}

// close ends it. It may never have been opened.
func (l *longTransaction) close(ctx context.Context) (err error) {
	if l.conn != nil {
		err = l.conn.Close(ctx)
	}
	if l.rig != nil {
		l.rig.close(ctx, &err)
	}
	if l.dir != "" {
		err = errors.Join(err, os.RemoveAll(l.dir))
	}
	return err
}

// measure measures both rates of a spool with nothing beside it, and of the one beside the transaction.
func (l *longTransaction) measure(ctx context.Context, place bench.Place, run *report.Run) error {
	err := l.o.with(ctx, place, nil, func(r *rig) error { return r.both(ctx, run, "alone") })
	if err != nil {
		return err
	}
	sleep(ctx, l.o.TransactionAge-time.Since(l.begun))
	run.Set("age", time.Since(l.begun).Seconds())
	if err := l.rig.both(ctx, run, "beside"); err != nil {
		return err
	}
	compare(run, "beside", "alone")
	return l.rig.settle(ctx) // what was submitted must be gone before the next round, which begins with whole lives
}

// settle lets workers end what is left.
func (r *rig) settle(ctx context.Context) error {
	w, err := r.work(ctx, nil)
	if err != nil {
		return err
	}
	all, err := count(ctx, r.Database(), "SELECT count(*) FROM message")
	if err == nil {
		err = reached(ctx, r.Database(), outcomes, all)
	}
	return errors.Join(err, w.stop())
}
