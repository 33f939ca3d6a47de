// Command rohrload makes load on mail servers, takes mail as a next hop does, and reports what was measured. See
// docs/performance.md for the method.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/alecthomas/kong"
)

type commands struct {
	Gen     genCommand     `cmd:"" help:"Make load: SMTP or LMTP sessions, every reply checked."`
	Sink    sinkCommand    `cmd:"" help:"Take mail by SMTP, LMTP or HTTP, and misbehave as a script says."`
	Report  reportCommand  `cmd:"" help:"Put results together and show them as a table, as a page with charts, or as Markdown."`
	Bench   benchCommand   `cmd:"" help:"Measure this pipeline: what make bench runs."`
	Peers   peersCommand   `cmd:"" help:"Measure this pipeline, others and the machine's floors in turn: what make bench-peers runs."`
	Spool   spoolCommand   `cmd:"" help:"Measure the spool alone, and River on the same life: what make bench-spool runs."`
	Gateway gatewayCommand `cmd:"" help:"Measure the gateway alone, beside the bare SMTP library: what make bench-gateway runs."`
	Discard discardCommand `cmd:"" hidden:"" help:"A spool that acknowledges and stores nothing, to measure a gateway alone."`
	Floor   floorCommand   `cmd:"" hidden:"" help:"The bare SMTP library with a backend that throws everything away."`
}

func main() {
	os.Exit(program(os.Args[1:], os.Exit))
}

// program runs a command line, and gives the exit code: 1 where mail is not as it must be, 2 for whatever else went wrong. exit
// is called after help.
func program(args []string, exit func(int)) int {
	// The first signal lets what is under way end and be reported, the second ends the program.
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	context.AfterFunc(ctx, stop)
	var c commands
	parser := kong.Must(&c, kong.Name("rohrload"), kong.Exit(exit),
		kong.Description("Load for mail servers, and the sink behind them: figures and lost mail, proven by ids and hashes."),
		kong.ConfigureHelp(kong.HelpOptions{Compact: true}), kong.BindTo(ctx, (*context.Context)(nil)))
	command, err := parser.Parse(args)
	if err == nil {
		err = command.Run()
	}
	switch {
	case err == nil:
		return 0
	case errors.Is(err, errFound):
		_, _ = fmt.Fprintln(os.Stderr, "rohrload:", err)
		return 1
	}
	_, _ = fmt.Fprintln(os.Stderr, "rohrload:", err)
	return 2
}

// errFound means that the program worked and found mail that was lost, doubled or broken.
var errFound = errors.New("mail is missing, doubled or broken")
