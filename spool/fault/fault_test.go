package fault

import (
	"errors"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

func parse(t *testing.T, text string) *Faults {
	t.Helper()
	f, err := Parse(text, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	return f
}

func TestFaultsStrikeWhenTheyShould(t *testing.T) {
	f := parse(t, "lease.renew=fail@2, handover=fail@2+")
	for p, want := range map[Point]string{LeaseRenew: "0100", HandOver: "0111", CommitDone: "0000"} {
		got := ""
		for range 4 {
			if err := f.Reach(p); err == nil {
				got += "0"
			} else if errors.Is(err, Err) {
				got += "1"
			}
		}
		if got != want {
			t.Errorf("%s failed %s, want %s", p, got, want)
		}
	}
}

func TestNoFaults(t *testing.T) {
	f := parse(t, " ")
	if f != nil || f.Reach(CommitDone) != nil {
		t.Error("faults where none were given")
	}
}

func TestExitAndStall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := parse(t, "result.durable=stall:10s,result.durable=exit@2")
		code := 0
		f.exit = func(c int) { code = c }
		start := time.Now()
		if err := f.Reach(ResultDurable); err != nil || time.Since(start) != 10*time.Second || code != 0 {
			t.Errorf("got %v after %s, exit code %d", err, time.Since(start), code)
		}
		_ = f.Reach(ResultDurable)
		if code != ExitCode {
			t.Errorf("exit code %d, want %d", code, ExitCode)
		}
	})
}

func TestParseRefuses(t *testing.T) {
	for text, want := range map[string]string{
		"commit.done":              "write place=fail",
		"commit.dun=fail":          "there is no place commit.dun",
		"commit.done=explode":      "fail, stall:10s or exit",
		"commit.done=stall":        "fail, stall:10s or exit",
		"commit.done=stall:soon":   "stall needs a time",
		"commit.done=fail@0":       "which time, from 1",
		"result.durable=fail":      "can't fail",
		"commit.done=fail,,x=fail": "write place=fail",
	} {
		if _, err := Parse(text, nil); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want %q", text, err, want)
		}
	}
}
