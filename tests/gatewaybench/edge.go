package gatewaybench

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/rohrpost/rohrpost/services"
	"github.com/rohrpost/rohrpost/services/process"
	"github.com/rohrpost/rohrpost/tests/bench"
	"github.com/rohrpost/rohrpost/tests/load/gen"
	"github.com/rohrpost/rohrpost/tests/load/machine"
	"github.com/rohrpost/rohrpost/tests/load/peers"
	"github.com/rohrpost/rohrpost/tests/load/report"
	"github.com/rohrpost/rohrpost/tests/load/stack"
)

// The servers that are compared.
const (
	ours    = "gateway"
	library = "library" // the bare SMTP library with a backend that discards
)

var servers = []string{ours, library}

// The groups of processes that are watched: the server alone, and this process.
const (
	serverGroup = "server"
	loadGroup   = "load"
)

// how says how a server runs.
type how struct {
	delay    time.Duration // before each reply
	startTLS bool
	profiles bool // it tells what memory it uses
}

// edge is a running server.
type edge struct {
	*peers.Server
	profiles string // host:port
}

// with starts a server, does something with it, and stops it.
func (o *Options) with(ctx context.Context, place bench.Place, who string, h how, do func(*edge) error) (err error) {
	dir, err := os.MkdirTemp(place.Dir, who)
	if err != nil {
		return err
	}
	e := &edge{}
	if h.profiles {
		if e.profiles, err = stack.FreePort(ctx); err != nil {
			return err
		}
	}
	start := o.gateway(h, e.profiles)
	if who == library {
		if start, err = o.library(h, dir, e.profiles); err != nil {
			return err
		}
	}
	if e.Server, err = start(ctx, peers.Options{Dir: dir}); err != nil {
		return err
	}
	err = do(e)
	_, stopErr := e.Stop(context.WithoutCancel(ctx))
	return errors.Join(err, stopErr)
}

// gateway starts a gateway before a spool that discards.
func (o *Options) gateway(h how, profiles string) peers.Start {
	return peers.Rohrpost(o.Rohrpost, o.Rohrload, stack.Options{
		Discard: true, ReplyDelay: h.delay, StartTLS: h.startTLS, MaxSessions: o.Sessions + 100, Configure: func(cfg *services.Config) {
			cfg.Debug.Listen = profiles
			o.connect(cfg)
		},
	})
}

// connect says how the processes talk.
func (o *Options) connect(cfg *services.Config) {
	if !o.TLS {
		cfg.TLS = process.TLSConfig{}
	}
}

// library starts the bare library.
func (o *Options) library(h how, dir, profiles string) (peers.Start, error) {
	args := []string{"floor", "--delay", h.delay.String()}
	if profiles != "" {
		args = append(args, "--debug", profiles)
	}
	if h.startTLS {
		files, err := stack.Certificate(dir)
		if err != nil {
			return nil, err
		}
		args = append(args, "--cert", files.Cert, "--key", files.Key)
	}
	return peers.Child(o.Rohrload, args...), nil
}

// sent is what came of a load, and what it cost.
type sent struct {
	*gen.Result
	machine.Usage
}

// load makes a load on a server and notes what it cost.
func (e *edge) load(ctx context.Context, run *report.Run, cfg gen.Config) (s sent, err error) {
	cfg.Target = e.SMTP
	s.Usage, err = machine.Around(e.Groups(), loadGroup, func() (err error) {
		s.Result, err = gen.Run(ctx, cfg)
		return err
	})
	if err != nil {
		return s, err
	}
	run.Watched(s.Usage)
	if s.Accepted == 0 {
		return s, fmt.Errorf("nothing was accepted: %v", s.Errors)
	}
	return s, nil
}

// cpu is what the server used, in µs.
func (s *sent) cpu() float64 { return s.Groups[serverGroup].CPU * 1e6 }

// pss is the most memory that the server had, in octets.
func (s *sent) pss() float64 { return float64(s.Groups[serverGroup].PeakPSS) }

// astray is how much did not go as it must: messages that were not accepted, and every other reply or end of a connection that
// should not have come.
func (s *sent) astray() float64 {
	sum := s.Messages - s.Accepted
	for _, n := range s.Errors {
		sum += n
	}
	return float64(sum)
}

// background is a load beside which something else is done.
type background struct {
	cancel context.CancelFunc
	done   chan struct{} // closed when it has ended
	result *gen.Result
	err    error
}

// begin begins a load, which goes on until it is stopped or has sent everything.
func begin(ctx context.Context, cfg gen.Config) *background {
	ctx, cancel := context.WithCancel(ctx)
	b := &background{cancel: cancel, done: make(chan struct{})}
	go func() {
		defer close(b.done)
		b.result, b.err = gen.Run(ctx, cfg)
	}()
	return b
}

// stop ends the load and tells what came of it.
func (b *background) stop() (*gen.Result, error) {
	b.cancel()
	<-b.done
	return b.result, b.err
}

// inUse is the heap and the stacks that the server uses, in octets, after a garbage collection. (Package runtime, MemStats.)
func (e *edge) inUse(ctx context.Context) (heap, stacks float64, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+e.profiles+"/debug/pprof/heap?gc=1&debug=1", nil)
	if err != nil {
		return 0, 0, err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return 0, 0, err
	}
	defer resp.Body.Close()
	http.DefaultClient.CloseIdleConnections()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		return 0, 0, err
	}
	if heap, err = memStat(string(text), "HeapInuse"); err != nil {
		return 0, 0, err
	}
	stacks, err = memStat(string(text), "Stack")
	return heap, stacks, err
}

// memStat finds a value in a heap profile in text form.
func memStat(profile, name string) (float64, error) {
	_, rest, found := strings.Cut(profile, "\n# "+name+" = ")
	if !found {
		return 0, fmt.Errorf("the heap profile has no %s", name)
	}
	digits := strings.FieldsFunc(rest, func(r rune) bool { return r == ' ' || r == '\n' })
	return strconv.ParseFloat(digits[0], 64)
}
