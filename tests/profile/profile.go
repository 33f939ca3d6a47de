// Package profile tells where a message's CPU goes: which service, and which step in it.
package profile

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/google/pprof/profile"
)

// Step is the CPU that a step takes in a service.
type Step struct {
	Service string
	Name    string
	CPU     time.Duration
}

// Steps adds a CPU profile of a service up by step, the dearest first.
func Steps(service string, p *profile.Profile) []Step {
	value := len(p.SampleType) - 1 // samples, then nanoseconds
	by := map[string]int64{}
	for _, s := range p.Sample {
		by[step(s)] += s.Value[value]
	}
	steps := make([]Step, 0, len(by))
	for name, ns := range by {
		steps = append(steps, Step{Service: service, Name: name, CPU: time.Duration(ns)})
	}
	slices.SortFunc(steps, func(a, b Step) int {
		return cmp.Or(cmp.Compare(b.CPU, a.CPU), strings.Compare(a.Name, b.Name))
	})
	return steps
}

// places say by the start of a function's name what step it belongs to. What calls into nothing of ours, such as the
// scheduler, is told apart by background.
var places = []struct{ prefix, step string }{
	{"github.com/rohrpost/rohrpost/proto/gen/", "protobuf"},
	{"github.com/rohrpost/rohrpost/", ""}, // the package's own name
	{"google.golang.org/protobuf/", "protobuf"},
	{"google.golang.org/grpc", "gRPC"},
	{"golang.org/x/net/http2", "gRPC"},
	{"go.opentelemetry.io/", "tracing"},
	{"log/slog", "log"},
	{"github.com/jackc/pgx", "PostgreSQL client"},
	{"github.com/emersion/go-smtp", "go-smtp"},
	{"crypto/internal/", "cryptography"},
	{"crypto/sha256", "cryptography"},
	{"github.com/google/cel-go", "rules (CEL)"},
	{"cel.dev/cel-go", "rules (CEL)"},
	{"github.com/emersion/go-msgauth", "DKIM"},
	{"blitiri.com.ar/go/spf", "SPF"},
}

var background = []struct{ prefix, step string }{
	{"runtime.gcBgMarkWorker", "garbage collection"},
	{"runtime.bgsweep", "garbage collection"},
	{"runtime.bgscavenge", "garbage collection"},
	{"runtime.schedule", "scheduler"},
	{"runtime.mcall", "scheduler"},
	{"runtime.findRunnable", "scheduler"},
	{"runtime.mstart", "scheduler"},
}

// step is the innermost place that a stack goes through. Garbage collection on behalf of an allocation is no place of its
// own: it belongs to who allocates.
func step(s *profile.Sample) string {
	for _, name := range functions(s) {
		for _, p := range places {
			if !strings.HasPrefix(name, p.prefix) {
				continue
			}
			if p.step != "" {
				return p.step
			}
			own, _, _ := strings.Cut(strings.TrimPrefix(name, p.prefix), ".")
			return own
		}
	}
	for _, name := range functions(s) {
		for _, p := range background {
			if strings.HasPrefix(name, p.prefix) {
				return p.step
			}
		}
	}
	return "other"
}

// functions lists the names of a stack, the innermost first.
func functions(s *profile.Sample) []string {
	var names []string
	for _, loc := range s.Location {
		for _, line := range loc.Line {
			if line.Function != nil {
				names = append(names, line.Function.Name)
			}
		}
	}
	return names
}

// Write writes the steps that take at least a microsecond of each message, as a table for docs/performance.md. Those of a
// service stand together.
func Write(w io.Writer, steps []Step, messages int64) error {
	tw := tabwriter.NewWriter(w, 0, 0, 1, ' ', 0)
	fmt.Fprintln(tw, "| Service\t| Step\t| µs per message\t|") //nolint:errcheck // a tabwriter tells it at Flush
	fmt.Fprintln(tw, "|---\t|---\t|---\t|")                    //nolint:errcheck // likewise
	for rest := steps; len(rest) > 0; {
		n := slices.IndexFunc(rest, func(s Step) bool { return s.Service != rest[0].Service })
		if n < 0 {
			n = len(rest)
		}
		service(tw, rest[:n], messages)
		rest = rest[n:]
	}
	if err := tw.Flush(); err != nil {
		return fmt.Errorf("writing the table: %w", err)
	}
	return nil
}

// service writes the steps of one service.
func service(w io.Writer, steps []Step, messages int64) {
	var small time.Duration
	for _, s := range steps {
		if s.CPU/time.Duration(messages) < time.Microsecond {
			small += s.CPU
			continue
		}
		row(w, s.Service, s.Name, s.CPU, messages)
	}
	if small > 0 {
		row(w, steps[0].Service, "the rest", small, messages)
	}
}

func row(w io.Writer, service, name string, cpu time.Duration, messages int64) {
	micros := float64(cpu.Nanoseconds()) / float64(messages) / 1000
	fmt.Fprintf(w, "| %s\t| %s\t| %.1f\t|\n", service, name, micros) //nolint:errcheck // a tabwriter tells it at Flush
}
