package cli

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"

	"github.com/rohrpost/rohrpost/parser"
	mailv1 "github.com/rohrpost/rohrpost/proto/gen/rohrpost/mail/v1"
	"github.com/rohrpost/rohrpost/services/process"
)

// Parse is the command `parse`: it reads mails from files, without any service, and shows what a parser makes of them.
type Parse struct {
	Files  []string `arg:"" name:"file" help:"Files with a mail or a mailbox (mbox) each; - for standard input."`
	JSON   bool     `name:"json" xor:"form" help:"Print JSON (rohrpost.mail.v1.ParsedMessage), one document for each mail."`
	Tree   bool     `name:"tree" xor:"form" help:"Print the MIME tree alone."`
	Part   string   `name:"part" xor:"form" placeholder:"PATH" help:"Write the decoded body of one part, such as 1.2, to standard output."`
	Number int      `name:"number" placeholder:"N" help:"Only the Nth mail of a mailbox, from 1; with --part the first if not given."`
}

// Run reads the files in order. The context ends it between two mails.
func (c *Parse) Run(ctx context.Context, std *IO) error {
	if c.Number < 0 {
		return process.Usage("--number: %d is out of range; mails count from 1", c.Number)
	}
	if c.Part != "" && len(c.Files) > 1 {
		return process.Usage("--part takes one file, not %d", len(c.Files))
	}
	out := bufio.NewWriter(std.Out)
	for _, name := range c.Files {
		if err := c.file(ctx, name, std.In, out); err != nil {
			return errors.Join(err, out.Flush())
		}
	}
	return out.Flush()
}

// file shows the mails of a file.
func (c *Parse) file(ctx context.Context, name string, in io.Reader, out *bufio.Writer) error {
	if name != "-" {
		file, err := os.Open(name) //nolint:gosec // the user names it
		if err != nil {
			var pathErr *fs.PathError
			if errors.As(err, &pathErr) {
				err = pathErr.Err
			}
			return process.Usage("%s: %w; name a file with a mail in it, or - for standard input", name, err)
		}
		defer file.Close()
		in = file
	}
	wanted := c.Number
	if c.Part != "" {
		wanted = max(wanted, 1)
	}
	box := newMailbox(in)
	for number := 1; ; number++ {
		mail, err := box.next()
		if errors.Is(err, io.EOF) && wanted >= number {
			return process.Usage("%s has no mail number %d", name, wanted)
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err == nil && (wanted == 0 || wanted == number) {
			title := name
			if box.isMbox {
				title = fmt.Sprintf("%s, mail %d", name, number)
			}
			err = c.mail(title, mail, out)
		}
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		if wanted == number || ctx.Err() != nil {
			return ctx.Err()
		}
	}
}

// mail shows one mail.
func (c *Parse) mail(title string, in io.Reader, out *bufio.Writer) error {
	if c.Part != "" {
		found, err := parser.Extract(in, -1, c.Part, out, parser.DefaultLimits())
		if err == nil && !found {
			err = process.Usage("there is no part %s; --tree lists the parts", c.Part)
		}
		return err
	}
	parsed, err := parser.ParseReader(in, -1, parser.DefaultLimits())
	if err != nil {
		return err
	}
	if c.JSON {
		return printJSON(out, parsed)
	}
	if len(c.Files) > 1 || strings.Contains(title, ", mail ") {
		fmt.Fprintf(out, "%s\n", clean(title)) //nolint:errcheck // Flush tells
	}
	if c.Tree {
		printTree(out, parsed.GetParts()[0], 0)
		return nil
	}
	printParsed(out, parsed)
	return nil
}

// printParsed prints a mail for a person. An error of the writer comes again when it is flushed.
//
//nolint:errcheck // see above
func printParsed(out *bufio.Writer, m *mailv1.ParsedMessage) {
	line := func(name, value string) {
		if value != "" {
			fmt.Fprintf(out, "%-12s%s\n", name, clean(value))
		}
	}
	line("From", addressList(m.GetFrom()))
	line("Reply-To", addressList(m.GetReplyTo()))
	line("To", addressList(m.GetTo()))
	line("Cc", addressList(m.GetCc()))
	line("Subject", m.GetSubject())
	if m.GetDate() != nil {
		line("Date", timeText(m.GetDate().AsTime())+" UTC")
	}
	line("Message-ID", m.GetMessageId())
	line("Size", fmt.Sprintf("%d octets", m.GetSize()))
	fmt.Fprintln(out)
	printTree(out, m.GetParts()[0], 0)
	for i, d := range m.GetDefects() {
		if i == 0 {
			fmt.Fprintln(out)
		}
		where := "mail"
		if d.GetPart() != "" {
			where = "part " + d.GetPart()
		}
		if d.GetOffset() >= 0 {
			where += fmt.Sprintf(", octet %d", d.GetOffset())
		}
		fmt.Fprintf(out, "%s %s (%s): %s\n", stateWord(d.GetSeverity()), d.GetKind(), where, clean(d.GetDetail()))
	}
	if text := strings.TrimRight(m.GetText(), " \t\r\n"); text != "" {
		fmt.Fprintln(out)
		for line := range strings.Lines(text) {
			fmt.Fprintln(out, clean(strings.TrimRight(line, "\r\n")))
		}
	}
}

// printTree prints a part and those in it, a line each.
//
//nolint:errcheck // an error of the writer comes again when it is flushed
func printTree(out *bufio.Writer, p *mailv1.Part, level int) {
	fmt.Fprintf(out, "%s%s %s", strings.Repeat("  ", level), p.GetPath(), clean(p.GetType()))
	if p.GetCharset() != "" {
		fmt.Fprintf(out, " %s", clean(p.GetCharset()))
	}
	if !strings.HasPrefix(p.GetType(), "multipart/") {
		fmt.Fprintf(out, ", %s, %d octets", clean(p.GetEncoding()), p.GetSize())
	}
	if p.GetDisposition() != "" {
		fmt.Fprintf(out, ", %s", clean(p.GetDisposition()))
	}
	if p.GetFilename() != "" {
		fmt.Fprintf(out, ", %q", clean(p.GetFilename()))
	}
	if p.GetUnparsed() {
		fmt.Fprint(out, ", not looked into")
	}
	fmt.Fprintln(out)
	for _, child := range p.GetParts() {
		printTree(out, child, level+1)
	}
}

func addressList(list []*mailv1.Address) string {
	all := make([]string, 0, len(list))
	for _, a := range list {
		text := a.GetAddress()
		if a.GetName() != "" {
			text = a.GetName() + " <" + text + ">"
		}
		all = append(all, text)
	}
	return strings.Join(all, ", ")
}
