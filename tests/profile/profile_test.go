package profile_test

import (
	"bytes"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	pprof "github.com/google/pprof/profile"

	"github.com/rohrpost/rohrpost/tests/profile"
)

// sample is a stack, the innermost function first, with its CPU.
func sample(cpu time.Duration, stack ...string) *pprof.Sample {
	s := &pprof.Sample{Value: []int64{1, cpu.Nanoseconds()}}
	for _, name := range stack {
		s.Location = append(s.Location, &pprof.Location{Line: []pprof.Line{{Function: &pprof.Function{Name: name}}}})
	}
	return s
}

func TestSteps(t *testing.T) {
	p := &pprof.Profile{
		SampleType: []*pprof.ValueType{{Type: "samples"}, {Type: "cpu", Unit: "nanoseconds"}},
		Sample: []*pprof.Sample{
			sample(3*time.Second, "runtime.memmove", "google.golang.org/protobuf/proto.Marshal", "google.golang.org/grpc.encode"),
			sample(2*time.Second, "runtime.mallocgc", "github.com/rohrpost/rohrpost/gateway.(*wire).Read", "github.com/emersion/go-smtp.x"),
			sample(time.Second, "github.com/rohrpost/rohrpost/proto/gen/rohrpost/mail/v1.x"),
			sample(time.Second, "runtime.scanobject", "runtime.gcBgMarkWorker"),
			sample(time.Microsecond, "main.main"),
		},
	}
	var out bytes.Buffer
	services := []profile.Service{{Name: "gateway", CPU: 9 * time.Second, Steps: profile.Steps(p)}, {Name: "PostgreSQL", CPU: 5 * time.Second}}
	if err := profile.Write(&out, services, 1000); err != nil {
		t.Fatal(err)
	}
	want := `| Service    | Step               | µs per message |
|---         |---                 |---             |
| gateway    | protobuf           | 4000.0         |
| gateway    | gateway            | 2000.0         |
| gateway    | garbage collection | 1000.0         |
| gateway    | the rest           | 0.0            |
| gateway    | not in the profile | 2000.0         |
| gateway    | **all**            | 9000.0         |
| PostgreSQL | **all**            | 5000.0         |
`
	if diff := cmp.Diff(want, out.String()); diff != "" {
		t.Error(diff)
	}
}
