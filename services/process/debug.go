package process

import (
	"context"
	"fmt"
	"net/http"
	"net/http/pprof"
	"runtime"
)

// DebugConfig is the section `debug`.
type DebugConfig struct {
	// Listen is the host:port, on loopback, of Go's profiles (net/http/pprof) under /debug/pprof/. Empty means none. Where it
	// is set, contention is sampled too, which costs about a percent of CPU.
	Listen string `yaml:"listen"`
}

// Validate tells what is wrong. Profiles show what is in memory, mail too, and nobody is asked who he is: they stay on the
// machine.
func (c DebugConfig) Validate() error {
	if c.Listen != "" && !Loopback(c.Listen) {
		return fmt.Errorf("debug.listen: %q is not on loopback: write 127.0.0.1:port", c.Listen)
	}
	return nil
}

// The shares of contention that are sampled: one of so many mutex events, and blocking once every so many nanoseconds.
const (
	mutexFraction = 100
	blockRate     = 10_000
)

// Debug opens the listener of the profiles and returns it as a unit.
func Debug(ctx context.Context, cfg DebugConfig) (Unit, error) {
	lis, err := Listen(ctx, "debug.listen", cfg.Listen)
	if err != nil {
		return Unit{}, err
	}
	runtime.SetMutexProfileFraction(mutexFraction)
	runtime.SetBlockProfileRate(blockRate)
	return Unit{Name: "debug", Run: func(ctx context.Context) error {
		return ServeHTTP(ctx, debugHandler(), lis)
	}}, nil
}

func debugHandler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("/debug/pprof/", pprof.Index)
	mux.HandleFunc("/debug/pprof/profile", pprof.Profile)
	mux.HandleFunc("/debug/pprof/trace", pprof.Trace)
	return onLoopback(mux)
}

// onLoopback refuses what a page of another site makes a browser ask for under a name of its own.
func onLoopback(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !KnownHost(r.Host, nil) || !SameOrigin(r) {
			http.Error(w, "call it by 127.0.0.1 or localhost", http.StatusForbidden)
			return
		}
		next.ServeHTTP(w, r)
	})
}
