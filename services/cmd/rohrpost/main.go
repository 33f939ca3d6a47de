// Command rohrpost is the one program of the pipeline: each service is a subcommand, `up` runs all of them in one
// process, and the others are for people and scripts.
package main

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"regexp"
	"runtime/debug"
	"strings"

	"github.com/alecthomas/kong"

	"github.com/rohrpost/rohrpost/services"
	"github.com/rohrpost/rohrpost/services/cli"
	"github.com/rohrpost/rohrpost/services/process"
)

// version is stamped by the build (-ldflags "-X main.version=…").
var version = ""

// commands are the subcommands.
type commands struct {
	Up          upCommand       `cmd:"" help:"Run the whole pipeline in this process, with a private PostgreSQL and mail into Maildirs."`
	Gateway     serviceCommand  `cmd:"" help:"Run the SMTP edge."`
	Spool       spoolCommand    `cmd:"" help:"Run a spool; look at its database."`
	Parser      serviceCommand  `cmd:"" help:"Run a parser worker."`
	Filter      serviceCommand  `cmd:"" help:"Run a filter worker."`
	Deliver     serviceCommand  `cmd:"" help:"Run a deliver worker."`
	Console     serviceCommand  `cmd:"" help:"Run the web console."`
	Migrate     migrateCommand  `cmd:"" help:"Bring the database's schema up to date."`
	Certs       cli.Certs       `cmd:"" help:"Make a development CA and a certificate for each service."`
	Secrets     cli.Secrets     `cmd:"" help:"Make what separate services need to trust each other: a folder of certificates for each, and a database password."`
	Send        cli.Send        `cmd:"" help:"Send a mail over SMTP."`
	User        cli.User        `cmd:"" help:"Say who may submit mail."`
	Message     cli.Message     `cmd:"" help:"Look at messages, and order what becomes of them."`
	Destination cli.Destination `cmd:"" help:"Say to which destinations nothing is sent for now, and see what waits."`
	Parse       cli.Parse       `cmd:"" help:"Read mails from files and show what a parser makes of them."`
	Health      cli.Health      `cmd:"" help:"Ask a process whether it is well; for health checks."`
	Config      configCommand   `cmd:"" help:"Check or show the configuration."`
	Version     versionCommand  `cmd:"" help:"Print the version."`
}

func main() {
	os.Exit(run(os.Args[1:]))
}

func run(args []string) int {
	// Where a command fails before it has read its configuration, its words still go to standard error as text.
	slog.SetDefault(process.NewLogger(os.Stderr, process.DefaultLogConfig(), ""))
	ctx, stop := process.Signals(context.Background(), slog.Default())
	defer stop()

	std := &cli.IO{In: os.Stdin, Out: os.Stdout, Program: programName(os.Args[0], os.Getenv("ROHRPOST_PROGRAM"))}
	parser, err := kong.New(&commands{},
		kong.Name("rohrpost"),
		kong.Description("A distributed mail pipeline: SMTP gateway, durable spool, MIME parser, filters and delivery."),
		kong.ConfigureHelp(kong.HelpOptions{Compact: true}),
		kong.BindTo(ctx, (*context.Context)(nil)), kong.Bind(std))
	if err != nil {
		return report(err)
	}
	command, err := parser.Parse(args)
	if err != nil {
		return report(process.Usage("%w (see `%s --help`)", err, std.Program))
	}
	return report(command.Run())
}

// report says what went wrong, a line for each fault, and picks the exit code.
func report(err error) int {
	if err != nil {
		// What starts with white space goes on with the line before.
		for line := range strings.SplitSeq(strings.ReplaceAll(err.Error(), "\n\t", " "), "\n") {
			fmt.Fprintln(os.Stderr, "rohrpost: "+line)
		}
	}
	return process.ExitCode(err)
}

// goRun matches where `go run` puts a program: into a temporary folder at first, later into the build cache, wherever that is.
var goRun = regexp.MustCompile(`go-build|[/\\][0-9a-f]{2}[/\\][0-9a-f]{64}-d[/\\]`)

// programName is how the user called the program, so that hints can be pasted. In a container only its maker knows.
func programName(arg0, told string) string {
	if told != "" {
		return told
	}
	if goRun.MatchString(arg0) {
		return "go run ./services/cmd/rohrpost"
	}
	return arg0
}

// buildVersion is the stamped version, or what the Go tool knows of the commit.
func buildVersion() string {
	if version != "" {
		return version
	}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "unknown"
	}
	for _, s := range info.Settings {
		if s.Key == "vcs.revision" {
			return s.Value[:min(12, len(s.Value))]
		}
	}
	return "development"
}

type versionCommand struct{}

// Run prints the version.
func (versionCommand) Run(std *cli.IO) error {
	_, err := fmt.Fprintln(std.Out, buildVersion())
	return err
}

// configFlag is how commands find the configuration file.
type configFlag struct {
	Config string `name:"config" env:"ROHRPOST_CONFIG" placeholder:"FILE" help:"Configuration file (YAML). ROHRPOST_* variables override it."`
}

// load reads the configuration over the defaults.
func (f configFlag) load() (*services.Config, error) {
	cfg := services.DefaultConfig()
	if err := process.Load(f.Config, os.Environ(), &cfg); err != nil {
		return nil, err
	}
	return &cfg, nil
}

// loadValid reads the configuration and checks it.
func (f configFlag) loadValid() (*services.Config, error) {
	cfg, err := f.load()
	if err != nil {
		return nil, err
	}
	if err := cfg.Validate(); err != nil {
		return nil, process.Usage("%w", err)
	}
	return cfg, nil
}
