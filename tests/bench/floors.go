package bench

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"github.com/rohrpost/rohrpost/tests/load/peers"
	"github.com/rohrpost/rohrpost/tests/load/report"
	"github.com/rohrpost/rohrpost/tests/load/stack"
)

// floorTime is how long a floor is measured in each round.
const floorTime = 3 * time.Second

// floors are what the machine can do at most of the parts that every message needs.
func floors(o Options) []entry {
	const group = "floors of the machine"
	all := []entry{{
		group: group, name: "fsync of a new file of 4 KiB, and of its folder", system: "floor: disk", takes: floorTime, value: fsyncs(true),
	}, {
		group: group, name: "fsync of 4 KiB appended", system: "floor: disk", takes: floorTime, value: fsyncs(false),
	}}
	for _, batch := range []int{1, 8, 32, 128, 0} {
		name := fmt.Sprintf("COPY of the spool's rows, 4 KiB, %d in a transaction", batch)
		if batch == 0 {
			name = "COPY of the spool's rows, 4 KiB, mean batch of the spool under load"
		}
		all = append(all, entry{
			group: group, name: name, system: "floor: Postgres", takes: floorTime + 8*time.Second,
			value: func(ctx context.Context, dir string) (map[string]float64, error) { return copyRows(ctx, o, dir, batch) },
		})
	}
	return all
}

// fsyncs tells how many small writes a second are durable one after another.
func fsyncs(anew bool) func(context.Context, string) (map[string]float64, error) {
	return func(ctx context.Context, dir string) (map[string]float64, error) {
		content := make([]byte, 4<<10)
		folder, err := os.Open(dir) //nolint:gosec // a folder of our own
		if err != nil {
			return nil, err
		}
		defer folder.Close()
		path := filepath.Join(dir, "0")
		n, begun := 0, time.Now()
		for ; time.Since(begun) < floorTime && ctx.Err() == nil; n++ {
			if anew {
				path = filepath.Join(dir, strconv.Itoa(n))
			}
			if err := writeSynced(path, content); err != nil {
				return nil, err
			}
			if anew {
				if err := folder.Sync(); err != nil {
					return nil, err
				}
			}
		}
		return map[string]float64{"value": float64(n) / time.Since(begun).Seconds()}, nil
	}
}

func writeSynced(path string, content []byte) error {
	file, err := os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600) //nolint:gosec // a folder of our own
	if err != nil {
		return err
	}
	defer file.Close()
	if _, err := file.Write(content); err != nil {
		return err
	}
	return file.Sync()
}

// copyRows tells how many rows a second a plain loop of COPY transactions writes over one connection: rows as the spool wrote
// them, taken from it after a short load. With batch 0 each transaction has as many as the spool's had.
func copyRows(ctx context.Context, o Options, dir string, batch int) (_ map[string]float64, err error) {
	how := stack.Options{Rohrpost: o.Rohrpost, Rohrload: o.Rohrload, Dir: dir, Hold: true}
	pg, err := stack.Postgres(ctx, dir)
	if err != nil {
		return nil, err
	}
	o.versions["PostgreSQL"] = pg.Version()
	defer func() {
		if stopErr := pg.Stop(context.WithoutCancel(ctx)); err == nil {
			err = stopErr
		}
	}()
	s, err := stack.Start(ctx, pg, how)
	if err != nil {
		return nil, err
	}
	m := &measurement{options: o, dir: dir, entry: &entry{}, server: &peers.Server{SMTP: s.SMTP}}
	m.result = &report.Run{}
	_, _, err = m.generate(ctx, load{sessions: 50, perSession: 10, size: 4 << 10, warmFor: time.Second, duration: 2 * time.Second})
	mean := 0.0
	if err == nil {
		mean, err = s.Batch(ctx)
	}
	if _, stopErr := s.Stop(context.WithoutCancel(ctx)); err == nil {
		err = stopErr
	}
	if err != nil {
		return nil, err
	}
	values := map[string]float64{}
	if batch == 0 {
		batch = max(1, int(mean+0.5))
		values["batch"] = mean
	}
	floor, err := OpenFloor(ctx, s.Database())
	if err != nil {
		return nil, err
	}
	defer floor.Close(context.WithoutCancel(ctx))
	values["value"], err = floor.Copy(ctx, batch, floorTime)
	return values, err
}
