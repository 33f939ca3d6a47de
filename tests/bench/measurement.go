package bench

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"github.com/rohrpost/rohrpost/tests/load/machine"
	"github.com/rohrpost/rohrpost/tests/load/peers"
	"github.com/rohrpost/rohrpost/tests/load/report"
	"github.com/rohrpost/rohrpost/tests/load/sink"
	"github.com/rohrpost/rohrpost/tests/load/stack"
)

// measurement is one under way.
type measurement struct {
	options Options
	entry   *entry
	dir     string
	result  *report.Run
	server  *peers.Server
	sink    *sink.Sink
	warmed  sink.Stats // arrivals of the warm-up
}

// run starts everything anew, warms up, measures, and stops everything.
func (m *measurement) run(ctx context.Context) (err error) {
	o := peers.Options{Dir: m.dir, Base: m.options.base}
	if m.entry.next {
		if m.sink, err = sink.Start(ctx, sink.Config{}); err != nil {
			return err
		}
		defer func() { err = errors.Join(err, m.sink.Close()) }()
		o.Next = m.sink.SMTP()
	}
	if m.server, err = m.entry.start(ctx, o); err != nil {
		return err
	}
	m.result.Startup = m.server.Startup.Seconds()
	maps.Copy(m.options.versions, m.server.Versions)
	err = m.loaded(ctx)
	took, stopErr := m.server.Stop(context.WithoutCancel(ctx))
	m.result.Shutdown = took.Seconds()
	return errors.Join(err, stopErr)
}

// loaded warms up and measures a server that is running.
func (m *measurement) loaded(ctx context.Context) error {
	if err := m.warmUp(ctx); err != nil {
		return err
	}
	self := ""
	if m.sink != nil {
		self = "sink"
	}
	watch, err := machine.Start(m.server.Groups(), self)
	if err != nil {
		return err
	}
	before := m.garbage()
	measured, cpu, err := m.generate(ctx, m.entry.load)
	if err == nil && m.sink != nil {
		err = m.arrived(ctx, measured)
	}
	collected := m.garbage() - before
	usage, watchErr := watch.Stop()
	if err = errors.Join(err, watchErr); err != nil {
		return err
	}
	usage.Groups["generator"] = machine.Group{CPU: cpu.Seconds(), PeakPSS: generatorPSS(measured), Processes: 1}
	m.result.Usage = &usage
	m.values(ctx, collected)
	return nil
}

// garbage is the CPU time of the servers' garbage collectors so far.
func (m *measurement) garbage() time.Duration {
	if m.server.GC == nil {
		return 0
	}
	return m.server.GC()
}

// warmUp sends the whole way through what comes before the measurement, where that ends at the sink: else the warm-up's
// mails would still be under way in the measurement. Elsewhere the generator warms up by itself.
func (m *measurement) warmUp(ctx context.Context) error {
	if m.sink == nil || m.entry.load.warmUp == 0 {
		return nil
	}
	warm := m.entry.load
	warm.messages, warm.warmUp, warm.ramp, warm.duration = warm.warmUp, 0, 0, 0
	warm.sessions = min(warm.sessions, 50)
	run, _, err := m.generate(ctx, warm)
	if err != nil {
		return err
	}
	_, err = report.Await(ctx, m.sink, run.Gens[0], 0)
	m.warmed = m.sink.Stats()
	return err
}

// arrived waits until the sink has everything, or nothing more comes, and books both ends.
func (m *measurement) arrived(ctx context.Context, run *report.Run) error {
	sent := run.Gens[0]
	for last := int64(-1); ; {
		wait, cancel := context.WithTimeout(ctx, 20*time.Second)
		hidden, err := report.Await(wait, m.sink, sent, m.warmed.Distinct)
		cancel()
		m.result.Hidden = hidden
		now := m.sink.Stats().Distinct
		if err == nil || now == last || ctx.Err() != nil {
			break
		}
		last = now
	}
	stats := m.sink.Stats().Since(m.warmed)
	m.result.Sinks = []*sink.Stats{&stats}
	if stats.Distinct > 0 {
		m.result.Whole = stats.Last.Sub(sent.First).Seconds()
	}
	if missing, _, _ := report.Lost(m.result); ctx.Err() != nil && missing > 0 {
		return fmt.Errorf("the time was over with %d of %d still under way", missing, sent.Recipients)
	}
	return nil
}

// values notes what only some servers tell.
func (m *measurement) values(ctx context.Context, collected time.Duration) {
	m.result.Values = map[string]float64{}
	if cpu := m.result.Usage.Groups["server"].CPU; m.server.GC != nil && cpu > 0 {
		m.result.Values["share_gc"] = collected.Seconds() / cpu
	}
	if m.server.Batch != nil && m.sink == nil {
		if batch, err := m.server.Batch(ctx); err == nil {
			m.result.Values["batch"] = batch
		}
	}
}

// generate runs a generator of its own process and returns its result and the CPU time it used.
func (m *measurement) generate(ctx context.Context, l load) (*report.Run, time.Duration, error) {
	out := filepath.Join(m.dir, "gen.json")
	args := []string{
		"gen", m.server.SMTP, "--quiet", "--out", out, "--sessions", strconv.Itoa(l.sessions), "--per-session", strconv.Itoa(l.perSession),
		"--size", strconv.Itoa(l.size), "--ramp", l.ramp.String(), "--warm-for", l.warmFor.String(), "--duration", l.duration.String(),
		"--messages", strconv.FormatInt(l.messages, 10), "--users", "1000", "--grace", "1m",
	}
	if m.sink == nil {
		args = append(args, "--warm-up", strconv.FormatInt(l.warmUp, 10))
	}
	if l.startTLS {
		args = append(args, "--tls", "starttls")
	}
	p, err := stack.StartProcess("generator", nil, m.options.Rohrload, args...)
	if err != nil {
		return nil, 0, err
	}
	select {
	case <-p.Exited():
	case <-ctx.Done():
		stop, cancel := context.WithTimeout(context.WithoutCancel(ctx), 15*time.Second)
		defer cancel()
		_ = p.Stop(stop) // its result, if there is one, says that it was cut short
		return nil, 0, fmt.Errorf("the generator did not end in time: %w", ctx.Err())
	}
	if err := p.Err(); err != nil {
		return nil, 0, fmt.Errorf("the generator failed: %w\n%s", err, p.Log())
	}
	r, err := report.Read(out)
	if err != nil {
		return nil, 0, err
	}
	_ = os.Remove(out)
	run := &r.Cases[0].Runs[0]
	m.result.Gens = run.Gens
	return run, p.CPU(), nil
}

// generatorPSS is the generator's peak memory, as it measured itself.
func generatorPSS(run *report.Run) int64 {
	if run.Usage == nil {
		return 0
	}
	return run.Usage.Groups["generator"].PeakPSS
}
