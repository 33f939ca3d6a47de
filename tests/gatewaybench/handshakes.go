package gatewaybench

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"regexp"
	"strconv"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/rohrpost/rohrpost/tests/bench"
	"github.com/rohrpost/rohrpost/tests/load/gen"
	"github.com/rohrpost/rohrpost/tests/load/machine"
	"github.com/rohrpost/rohrpost/tests/load/report"
	"github.com/rohrpost/rohrpost/tests/load/stack"
)

// handshakes measures sessions that begin TLS by STARTTLS, a full handshake each, beside the same without TLS and beside what
// OpenSSL makes of handshakes alone, where its program is there.
func (o *Options) handshakes(ctx context.Context, place bench.Place, run *report.Run) error {
	for _, who := range servers {
		err := o.with(ctx, place, who, how{startTLS: true}, func(e *edge) error {
			for key, way := range map[string]gen.TLS{who: gen.StartTLS, who + "_plain": gen.Plain} {
				s, err := e.load(ctx, run, gen.Config{Sessions: few, PerSession: 1, Duration: o.Measure, TLS: way})
				if err != nil {
					return err
				}
				run.Set(key+"_rate", s.SessionRate())
				run.Set(key+"_cpu", s.cpu()/float64(s.Sessions))
			}
			run.Set(who+"_handshake_cpu", run.Values[who+"_cpu"]-run.Values[who+"_plain_cpu"])
			return nil
		})
		if err != nil {
			return err
		}
	}
	if _, err := exec.LookPath("openssl"); err != nil {
		return nil //nolint:nilerr // the table has no such rows then
	}
	return o.openSSL(ctx, place, run)
}

// openSSL measures handshakes of OpenSSL's own client with its own server, which uses one core at most.
func (o *Options) openSSL(ctx context.Context, place bench.Place, run *report.Run) (err error) {
	files, err := stack.Certificate(place.Dir)
	if err != nil {
		return err
	}
	address, err := stack.FreePort(ctx)
	if err != nil {
		return err
	}
	// -www keeps it from reading its standard input.
	server, err := stack.StartProcess("openssl", nil, "openssl", "s_server", "-accept", address, "-cert", files.Cert, "-key", files.Key, "-www", "-quiet")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, server.Stop(context.WithoutCancel(ctx))) }()
	if err := listening(ctx, address, server); err != nil {
		return err
	}
	var n float64
	usage, err := machine.Around(map[string][]int{serverGroup: {server.PID()}}, loadGroup, func() (err error) {
		n, err = sTime(ctx, address, o.Measure)
		return err
	})
	if err != nil {
		return err
	}
	run.Watched(usage)
	run.Set("openssl_rate", n/usage.Wall)
	run.Set("openssl_handshake_cpu", usage.Groups[serverGroup].CPU*1e6/n)
	return nil
}

// sTimeLine is what `openssl s_time` says at its end.
var sTimeLine = regexp.MustCompile(`(?m)^(\d+) connections in \d+ real seconds`)

// sTime makes full handshakes for a time, of whole seconds, by two clients, and tells how many.
func sTime(ctx context.Context, address string, d time.Duration) (sum float64, err error) {
	var counts [2]float64
	var group errgroup.Group
	for i := range counts {
		group.Go(func() error {
			seconds := strconv.Itoa(max(1, int(d/time.Second)))
			out, err := exec.CommandContext(ctx, "openssl", "s_time", "-connect", address, "-new", "-time", seconds).CombinedOutput() //nolint:gosec // our own words
			if err != nil {
				return fmt.Errorf("openssl s_time: %w\n%s", err, out)
			}
			m := sTimeLine.FindSubmatch(out)
			if m == nil {
				return fmt.Errorf("openssl s_time said no number:\n%s", out)
			}
			counts[i], err = strconv.ParseFloat(string(m[1]), 64)
			return err
		})
	}
	err = group.Wait()
	return counts[0] + counts[1], err
}
