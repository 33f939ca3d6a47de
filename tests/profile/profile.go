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
	Name string
	CPU  time.Duration
}

// Steps adds a CPU profile of a service up by step, the dearest first.
func Steps(p *profile.Profile) []Step {
	value := len(p.SampleType) - 1 // samples, then nanoseconds
	by := map[string]int64{}
	for _, s := range p.Sample {
		by[step(s)] += s.Value[value]
	}
	steps := make([]Step, 0, len(by))
	for name, ns := range by {
		steps = append(steps, Step{Name: name, CPU: time.Duration(ns)})
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

// Service is what a service used in all, as the kernel counts it, and the steps that its profile found in that.
type Service struct {
	Name  string
	CPU   time.Duration
	Steps []Step
}

// Write writes the steps that take at least a microsecond of each message, as a table for docs/performance.md. Those of a
// service stand together, with what the profile did not see and the sum. A profile takes samples: what it sees may also be more
// than was used, by a little.
func Write(w io.Writer, services []Service, messages int64) error {
	tw := tabwriter.NewWriter(w, 0, 0, 1, ' ', 0)
	fmt.Fprintln(tw, "| Service\t| Step\t| µs per message\t|") //nolint:errcheck // a tabwriter tells it at Flush
	fmt.Fprintln(tw, "|---\t|---\t|---\t|")                    //nolint:errcheck // likewise
	for i := range services {
		services[i].write(tw, messages)
	}
	if err := tw.Flush(); err != nil {
		return fmt.Errorf("writing the table: %w", err)
	}
	return nil
}

// write writes the rows of one service.
func (s *Service) write(w io.Writer, messages int64) {
	var small, seen time.Duration
	for _, step := range s.Steps {
		seen += step.CPU
		if step.CPU/time.Duration(messages) < time.Microsecond {
			small += step.CPU
			continue
		}
		row(w, s.Name, step.Name, step.CPU, messages)
	}
	if small > 0 {
		row(w, s.Name, "the rest", small, messages)
	}
	if len(s.Steps) > 0 {
		row(w, s.Name, "not in the profile", s.CPU-seen, messages)
	}
	row(w, s.Name, "**all**", s.CPU, messages)
}

func row(w io.Writer, service, name string, cpu time.Duration, messages int64) {
	micros := float64(cpu.Nanoseconds()) / float64(messages) / 1000
	fmt.Fprintf(w, "| %s\t| %s\t| %.1f\t|\n", service, name, micros) //nolint:errcheck // a tabwriter tells it at Flush
}
