package postgres_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	mailv1 "github.com/rohrpost/rohrpost/proto/gen/rohrpost/mail/v1"
	"github.com/rohrpost/rohrpost/spool"
	"github.com/rohrpost/rohrpost/spool/pgserver/pgservertest"
	"github.com/rohrpost/rohrpost/spool/postgres"
)

// A batch as it comes under steady load: as many new messages of 4 KB as permits and ends of earlier ones, made durable by
// one Commit at a time.
//
//	go test -run '^$' -bench Commit -count 5 ./spool/postgres
func BenchmarkCommit(b *testing.B) {
	server := pgservertest.Start(b, map[string]string{"fsync": "on", "synchronous_commit": "on"})
	for _, n := range []int{1, 8, 32, 128} {
		b.Run(fmt.Sprintf("messages=%d", n), func(b *testing.B) {
			database := fmt.Sprintf("mail%d_%d", n, time.Now().UnixNano())
			if err := server.EnsureDatabase(b.Context(), database); err != nil {
				b.Fatal(err)
			}
			url := server.URL(database)
			if err := postgres.Migrate(b.Context(), url); err != nil {
				b.Fatal(err)
			}
			store, err := postgres.Open(b.Context(), postgres.Options{URL: url, Unsafe: true})
			if err != nil {
				b.Fatal(err)
			}
			defer store.Close()
			l, err := store.Register(b.Context(), spool.Registration{Name: "a", Address: "a:1", Lease: time.Minute})
			if err != nil {
				b.Fatal(err)
			}
			content := "Subject: bench\r\n\r\n" + strings.Repeat(strings.Repeat("x", 62)+"\r\n", 64)
			var last []spool.Message
			server0 := cpuOf(b, server.Dir())
			for b.Loop() {
				batch := &spool.Batch{}
				for range n {
					batch.Messages = append(batch.Messages, message(b, content))
				}
				for _, m := range last {
					batch.Attempts = append(batch.Attempts, permitOf(b, m))
					batch.Outcomes = append(batch.Outcomes, outcome(m.ID, delivered))
					batch.Searches = append(batch.Searches, spool.Search{Message: m.ID, Subject: "bench", From: "ann@a.example"})
				}
				if err := store.Commit(b.Context(), l.Incarnation, batch); err != nil {
					b.Fatal(err)
				}
				last = batch.Messages
			}
			b.ReportMetric(float64(n*b.N)/b.Elapsed().Seconds(), "messages/s")
			b.ReportMetric(float64((cpuOf(b, server.Dir())-server0).Microseconds())/float64(n*b.N), "server-µs/message")
		})
	}
}

func permitOf(b *testing.B, m spool.Message) spool.Attempt {
	b.Helper()
	return spool.Attempt{
		ID: newID(b), Message: m.ID, Kind: spool.AttemptPermit, Destination: "b.example", Number: 1, Token: make([]byte, 40),
		Recipients: []int32{0}, Time: time.Now(), Journal: []*mailv1.JournalEntry{{Event: "permitted", Stage: "deliver"}},
	}
}

// cpuOf is the processor time that the server's processes have used, in clock ticks of 10 ms.
func cpuOf(b *testing.B, dir string) time.Duration {
	b.Helper()
	pidFile, err := os.ReadFile(filepath.Join(dir, "postmaster.pid"))
	if err != nil {
		b.Fatal(err)
	}
	postmaster, _, _ := strings.Cut(string(pidFile), "\n")
	var ticks int64
	stats, err := filepath.Glob("/proc/[0-9]*/stat")
	if err != nil {
		b.Fatal(err)
	}
	for _, path := range stats {
		stat, err := os.ReadFile(path)
		if err != nil {
			continue // it has ended
		}
		pid, rest, _ := strings.Cut(string(stat), " (")
		fields := strings.Fields(rest[strings.LastIndexByte(rest, ')')+1:])
		used := fields[11:13] // utime, stime (proc(5), from state on)
		if pid == postmaster {
			used = fields[11:15] // and those of its children that have ended
		} else if fields[1] != postmaster {
			continue
		}
		for _, f := range used {
			n, err := strconv.ParseInt(f, 10, 64)
			if err != nil {
				b.Fatal(err)
			}
			ticks += n
		}
	}
	return time.Duration(ticks) * 10 * time.Millisecond
}
