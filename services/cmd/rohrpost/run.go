package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"

	"github.com/alecthomas/kong"

	"github.com/rohrpost/rohrpost/gateway"
	"github.com/rohrpost/rohrpost/services"
	"github.com/rohrpost/rohrpost/services/cli"
	"github.com/rohrpost/rohrpost/services/process"
)

// serviceCommand runs one service; the subcommand's name is the service's word.
type serviceCommand struct {
	configFlag
}

// Run runs the service until it is told to stop.
func (c *serviceCommand) Run(ctx context.Context, kctx *kong.Context) error {
	return c.run(ctx, kctx.Selected().Name, func(*services.Config) error { return nil })
}

// run runs a service whose configuration also passes check.
func (f configFlag) run(ctx context.Context, service string, check func(*services.Config) error) error {
	ctx, hangups, release := process.Hangups(ctx, slog.Default())
	defer release()
	cfg, err := f.loadValid()
	if err != nil {
		return err
	}
	if err := check(cfg); err != nil {
		return err
	}
	percent := process.CalmPercent
	if service == process.Parser {
		percent = process.ParserPercent
		if err := process.Nice(cfg.Parser.Nice); err != nil {
			slog.WarnContext(ctx, "parser.nice has no effect", "error", err)
		}
	}
	process.PaceGC(percent)
	return services.Run(ctx, newEnv(cfg, f.load, hangups), cfg, service)
}

// newEnv is the environment of a process that loads its configuration again when hangups says so.
func newEnv(cfg *services.Config, load func() (*services.Config, error), hangups <-chan struct{}) services.Env {
	env := services.NewEnv(cfg, buildVersion())
	env.Load, env.Hangups = load, hangups
	return env
}

// migrateCommand brings the schema up to date.
type migrateCommand struct {
	configFlag
}

// Run migrates. It may be run again and again.
func (c *migrateCommand) Run(ctx context.Context, std *cli.IO) error {
	cfg, err := c.loadValid()
	if err != nil {
		return err
	}
	if _, err := databaseOf(cfg, ""); err != nil {
		return err
	}
	if err := services.Migrate(ctx, cfg); err != nil {
		return err
	}
	_, err = fmt.Fprintln(std.Out, "The database is up to date.")
	return err
}

// configCommand looks at the configuration without running anything.
type configCommand struct {
	Check configCheck `cmd:"" help:"Check the configuration file and the ROHRPOST_* variables."`
	Show  configShow  `cmd:"" help:"Print the whole configuration that is in force, secrets masked."`
}

type configCheck struct{ configFlag }

// Run checks.
func (c *configCheck) Run(std *cli.IO) error {
	if _, err := c.loadValid(); err != nil {
		return err
	}
	_, err := fmt.Fprintln(std.Out, "The configuration is valid.")
	return err
}

type configShow struct{ configFlag }

// Run shows.
func (c *configShow) Run(std *cli.IO) error {
	cfg, err := c.load()
	if err != nil {
		return err
	}
	text, err := process.Show(cfg)
	if err != nil {
		return err
	}
	_, err = std.Out.Write(text)
	return err
}

// upCommand runs everything.
type upCommand struct {
	configFlag
	Data     string `name:"data" default:"rohrpost-data" env:"ROHRPOST_DATA" placeholder:"DIR" help:"Folder of everything that lasts: database, mail, token."`
	SMTP     string `name:"smtp" default:"" env:"ROHRPOST_SMTP" placeholder:"ADDR" help:"Address to take mail at, in place of that of the first listener (default 127.0.0.1:2525)."`
	HTTP     string `name:"http" default:"" env:"ROHRPOST_HTTP" placeholder:"ADDR" help:"Address of the console (default 127.0.0.1:8025)."`
	GRPC     string `name:"grpc" default:"" env:"ROHRPOST_GRPC" placeholder:"ADDR" help:"Address of the gRPC services (default 127.0.0.1:7025)."`
	JSON     string `name:"json" default:"" env:"ROHRPOST_JSON" placeholder:"ADDR" help:"Address of SendService and AdminService as JSON over HTTP (default 127.0.0.1:7026)."`
	Database string `name:"database" default:"" placeholder:"URL" help:"PostgreSQL to use in place of a private one."`
}

// load reads the configuration; the flags win over it.
func (c *upCommand) load() (*services.Config, error) {
	cfg, err := c.configFlag.load()
	if err != nil {
		return nil, err
	}
	if c.SMTP != "" {
		if len(cfg.Gateway.Listeners) == 0 {
			cfg.Gateway.Listeners = make([]gateway.Listener, 1)
		}
		cfg.Gateway.Listeners[0].Listen = c.SMTP
	}
	for flag, key := range map[*string]*string{
		&c.HTTP: &cfg.Console.Listen, &c.GRPC: &cfg.Spool.Listen, &c.JSON: &cfg.Spool.HTTPListen,
		&c.Database: &cfg.Spool.Database,
	} {
		if *flag != "" {
			*key = *flag
		}
	}
	return cfg, nil
}

// Run runs the pipeline until Ctrl-C.
func (c *upCommand) Run(ctx context.Context, std *cli.IO) error {
	process.PaceGC(process.CalmPercent)
	ctx, hangups, release := process.Hangups(ctx, slog.Default())
	defer release()
	cfg, err := c.load()
	if err != nil {
		return err
	}
	err = services.Up(ctx, newEnv(cfg, c.load, hangups), cfg, services.UpOptions{
		Data:  c.Data,
		Ready: func(r services.Running) { announce(std, r) },
	})
	if err == nil || errors.Is(err, context.Canceled) && ctx.Err() != nil {
		_, err = fmt.Fprintln(std.Out, "Stopped. Everything is kept in "+c.Data+".")
		return err
	}
	return err
}

// announce tells where everything is and what to do next, in words that work when pasted.
func announce(std *cli.IO, r services.Running) {
	var b strings.Builder
	fmt.Fprintf(&b, "\nRohrpost %s is running.\n\n", buildVersion())
	for _, line := range [][2]string{
		{"SMTP", r.SMTP},
		{"Users", userWords(r)},
		{"Console", "http://" + r.HTTP},
		{"gRPC", r.GRPC + " (token in " + filepath.Join(r.Data, process.TokenFile) + ")"},
		{"JSON", "http://" + r.JSON + " (the same token)"},
		{"Mail", mailWords(r)},
		{"Database", r.Database},
		{"Traces", traceWords(os.Getenv)},
	} {
		fmt.Fprintf(&b, "  %-9s %s\n", line[0], line[1])
	}
	if r.DatabaseURL != "" {
		fmt.Fprintf(&b, "  %-9s '%s' (for psql and --database)\n", "", r.DatabaseURL)
	}
	fmt.Fprintf(&b, "\nSend a mail from another terminal in this folder:\n\n  %s send --sample good%s\n\nCtrl-C stops.\n\n", std.Program, sendFlags(r))
	_, _ = io.WriteString(std.Out, b.String())
}

func userWords(r services.Running) string {
	var words []string
	if r.Submission != "" {
		words = append(words, r.Submission+" (STARTTLS)")
	}
	if r.Submissions != "" {
		words = append(words, r.Submissions+" (TLS)")
	}
	if words == nil {
		return "no listener for them"
	}
	return strings.Join(words, ", ") + ", once added by `user add`"
}

func mailWords(r services.Running) string {
	if r.Mail == "" {
		return "by the routes of the configuration"
	}
	return filepath.Join(r.Mail, "<domain>", "<mailbox>", "new")
}

func traceWords(getenv func(string) string) string {
	for _, name := range []string{"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT"} {
		if endpoint := getenv(name); endpoint != "" {
			return "sent to " + endpoint
		}
	}
	return "off (set OTEL_EXPORTER_OTLP_ENDPOINT, such as http://127.0.0.1:4317)"
}

// sendFlags are what `send` needs where the data folder, which tells it the address, is not at its default place.
func sendFlags(r services.Running) string {
	if r.Data != "rohrpost-data" {
		return " --data " + r.Data
	}
	return ""
}
