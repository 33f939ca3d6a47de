package services

import (
	"os"
	"strings"
	"testing"
)

func TestSpoolAdvertise(t *testing.T) {
	host, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct{ name, advertise, listen, want, wrong string }{
		{name: "not listed", listen: "0.0.0.0:7025"},
		{name: "given", advertise: "spool1:7025", listen: "0.0.0.0:7025", want: "spool1:7025"},
		{name: "auto", advertise: "auto", listen: "0.0.0.0:7025", want: host + ":7025"},
		{name: "auto without a port", advertise: "auto", listen: "127.0.0.1:0", wrong: "spool.advertise: auto needs a fixed port"},
		{name: "no address", advertise: "spool1", listen: "0.0.0.0:7025", wrong: "spool.advertise: \"spool1\" is not an address"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			cfg := DefaultConfig()
			cfg.Spool.Advertise, cfg.Spool.Listen = tt.advertise, tt.listen
			err := cfg.Validate()
			var got string
			if err == nil {
				got, err = cfg.spoolAdvertise()
			}
			switch {
			case tt.wrong == "" && (err != nil || got != tt.want):
				t.Errorf("got %q, %v, want %q", got, err, tt.want)
			case tt.wrong != "" && (err == nil || !strings.Contains(err.Error(), tt.wrong)):
				t.Errorf("got %v, want %q", err, tt.wrong)
			}
		})
	}
}

// A client must not wait for a verdict longer than for its reply.
func TestVerdictWaitFitsTheReply(t *testing.T) {
	cfg := DefaultConfig()
	cfg.Spool.VerdictWait = cfg.Gateway.Timeouts.Submit
	if err := cfg.Validate(); err == nil || !strings.Contains(err.Error(), "spool.verdict_wait") {
		t.Errorf("got %v, want it to name spool.verdict_wait", err)
	}
}

// Faults are for tests: a configuration for production that has them does not start.
func TestFaultsNeedUnsafe(t *testing.T) {
	cfg := DefaultConfig()
	cfg.Spool.Faults = "commit.done=fail"
	if err := cfg.Validate(); err == nil || !strings.Contains(err.Error(), "spool.unsafe") {
		t.Errorf("got %v, want it to name spool.unsafe", err)
	}
	cfg.Spool.Unsafe = true
	if err := cfg.Validate(); err != nil {
		t.Error(err)
	}
	cfg.Spool.Faults = "nowhere=fail"
	if err := cfg.Validate(); err == nil || !strings.Contains(err.Error(), "nowhere") {
		t.Errorf("got %v, want it to name the place", err)
	}
}
