package e2e

import (
	"context"
	"log/slog"
	"net"
	"path/filepath"
	"strings"
	"testing"

	"go.opentelemetry.io/otel/trace"
	"go.opentelemetry.io/otel/trace/noop"

	"github.com/rohrpost/rohrpost/services"
	"github.com/rohrpost/rohrpost/services/rohrtest"
)

// up starts a pipeline that can't start and returns why, as a user reads it.
func up(t *testing.T, data string, change func(*services.Config)) string {
	t.Helper()
	cfg := services.DefaultConfig()
	cfg.Gateway.Listeners[0].Listen, cfg.Console.Listen, cfg.Spool.Listen = "127.0.0.1:0", "127.0.0.1:0", "127.0.0.1:0"
	change(&cfg)
	env := services.Env{
		Logger: func(string) *slog.Logger { return slog.New(slog.DiscardHandler) },
		Telemetry: func(context.Context, string) (trace.TracerProvider, func(context.Context) error, error) {
			return noop.NewTracerProvider(), func(context.Context) error { return nil }, nil
		},
	}
	ctx, cancel := context.WithTimeout(t.Context(), rohrtest.Patience)
	defer cancel()
	err := services.Up(ctx, env, &cfg, services.UpOptions{Data: data, Ready: func(services.Running) {
		t.Error("it started")
		cancel()
	}})
	if err == nil {
		t.Fatal("no error")
	}
	return err.Error()
}

// A start that can't succeed says in one line what is wrong and how to mend it.
func TestFaultsAtStart(t *testing.T) {
	taken, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	data := rohrtest.TempDir(t)
	p := rohrtest.Start(t, rohrtest.WithData(data))

	for name, c := range map[string]struct {
		data   string
		change func(*services.Config)
		want   []string
	}{
		"port in use": {rohrtest.TempDir(t), func(cfg *services.Config) {
			cfg.Gateway.Listeners[0].Listen = taken.Addr().String()
			cfg.Spool.Database = p.Database()
		}, []string{taken.Addr().String(), "in use", "--smtp"}},
		"no database there": {rohrtest.TempDir(t), func(cfg *services.Config) {
			cfg.Spool.Database = "postgres://rohrpost@127.0.0.1:1/rohrpost"
		}, []string{"127.0.0.1:1", "spool.database"}},
		"no database URL": {rohrtest.TempDir(t), func(cfg *services.Config) {
			cfg.Spool.Database = "what is this"
		}, []string{"what is this", "spool.database"}},
		"folder in use":    {data, func(*services.Config) {}, []string{"another `rohrpost up`", data, "--data"}},
		"folder is a file": {filepath.Join(data, "token"), func(*services.Config) {}, []string{"token", "--data"}},
	} {
		t.Run(name, func(t *testing.T) {
			got := up(t, c.data, c.change)
			for _, want := range c.want {
				if !strings.Contains(got, want) {
					t.Errorf("got %q, want it to name %q", got, want)
				}
			}
		})
	}
	// It all went past the pipeline that runs.
	p.WaitEnded(p.Send("ann@a.example", []string{"bob@b.example"}, mail("after", "Hello.\r\n")))
}
