package main

import (
	"context"
	"fmt"
	"time"

	"github.com/rohrpost/rohrpost/services"
	"github.com/rohrpost/rohrpost/services/cli"
	"github.com/rohrpost/rohrpost/services/process"
	"github.com/rohrpost/rohrpost/spool/postgres"
)

// spoolCommand runs a spool, or looks at the database of spools.
type spoolCommand struct {
	Run    spoolRun    `cmd:"" default:"withargs" hidden:"" help:"Run a spool."`
	Audit  spoolAudit  `cmd:"" help:"Look for messages without owner, schedule and outcome. Exit code 1 where one is found."`
	Resume spoolResume `cmd:"" help:"Let a database send again that was restored from a backup; without --yes only tell what that means."`
}

type spoolRun struct{ configFlag }

// Run runs the spool until it is told to stop.
func (c *spoolRun) Run(ctx context.Context) error {
	return c.run(ctx, process.Spool, func(cfg *services.Config) error {
		_, err := databaseOf(cfg, "")
		return err
	})
}

// databaseOf is the configured database, or the one that is given in its place.
func databaseOf(cfg *services.Config, given string) (string, error) {
	if given != "" {
		return given, nil
	}
	if cfg.Spool.Database == "" {
		return "", process.Usage("spool.database is missing: give the PostgreSQL URL there or in ROHRPOST_SPOOL_DATABASE")
	}
	return cfg.Spool.Database, nil
}

// databaseFlag is how commands find the database.
type databaseFlag struct {
	configFlag
	Database string `name:"database" placeholder:"URL" help:"PostgreSQL to look at in place of the configured one."`
}

func (f *databaseFlag) url() (string, error) {
	cfg, err := f.load()
	if err != nil {
		return "", err
	}
	return databaseOf(cfg, f.Database)
}

type spoolAudit struct{ databaseFlag }

// Run audits: promise P2, and what else must hold over all tables.
func (c *spoolAudit) Run(ctx context.Context, std *cli.IO) error {
	url, err := c.url()
	if err != nil {
		return err
	}
	problems, err := postgres.Audit(ctx, url)
	if err != nil {
		return err
	}
	if len(problems) == 0 {
		_, err := fmt.Fprintln(std.Out, "Every message has an owner, a schedule or an outcome.")
		return err
	}
	for _, p := range problems {
		if _, err := fmt.Fprintf(std.Out, "%s\t%s\n", p.Message, p.Text); err != nil {
			return err
		}
	}
	return fmt.Errorf("the audit found %d problems; docs/sql.md tells what must hold", len(problems))
}

type spoolResume struct {
	databaseFlag
	Yes bool `name:"yes" help:"Resume. What may be sent a second time is told without it."`
}

// Run resumes, or tells what that means.
func (c *spoolResume) Run(ctx context.Context, std *cli.IO) error {
	url, err := c.url()
	if err != nil {
		return err
	}
	act := postgres.FindHold
	if c.Yes {
		act = postgres.Resume
	}
	h, err := act(ctx, url)
	if err != nil {
		return err
	}
	if h == nil {
		_, err := fmt.Fprintln(std.Out, "Nothing is held.")
		return err
	}
	_, err = fmt.Fprintf(std.Out, "Held since %s by spool %s: %s.\n%d messages to %d recipients have not ended in this database. "+
		"Any of them may have been sent after the backup was made, and would be sent a second time.\n",
		h.Since.UTC().Format(time.RFC3339), h.Spool, h.Reason, h.Messages, h.Recipients)
	if err != nil {
		return err
	}
	if c.Yes {
		_, err = fmt.Fprintln(std.Out, "Resumed. The spools go on within seconds.")
		return err
	}
	_, err = fmt.Fprintf(std.Out, "To send them: %s spool resume --yes. To keep one back: cancel or hold it first.\n", std.Program)
	return err
}
