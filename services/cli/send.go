package cli

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/mail"
	"regexp"
	"strings"
	"syscall"
	"time"

	"github.com/emersion/go-smtp"

	"github.com/rohrpost/rohrpost/services/process"
)

// Send is the command `send`: it injects a mail over SMTP, as any client would.
type Send struct {
	File   string   `arg:"" optional:"" help:"File of the mail to send; - for standard input. Lines that end in LF are sent with CRLF."`
	Sample string   `enum:",good,attachment,bad-dkim,bounce" default:"" help:"Send a sample in place of a file: good, attachment, bad-dkim or bounce."`
	To     []string `placeholder:"ADDRESS" help:"Recipient, in place of those in To and Cc. Can be given several times."`
	From   *string  `placeholder:"ADDRESS" help:"Sender of the envelope, in place of the one in From; empty for the null sender."`
	SMTP   string   `name:"smtp" default:"" env:"ROHRPOST_SMTP" placeholder:"HOST:PORT" help:"Address of the gateway; by default that of 'rohrpost up' in the data folder, else 127.0.0.1:2525."`
	Data   string   `name:"data" default:"rohrpost-data" env:"ROHRPOST_DATA" placeholder:"DIR" help:"Data folder of 'rohrpost up', which holds the key that signs samples."`
}

const (
	sendLimit   = 1 << 30          // octets of a mail
	dialTimeout = 10 * time.Second // connection and greeting
	sendTimeout = 10 * time.Minute // RFC 5321, section 4.5.3.2.6
)

// Run sends the mail and prints the reply and the command that shows what became of it.
func (c *Send) Run(ctx context.Context, std *IO) error {
	content, from, to, err := c.prepare(std)
	if err != nil {
		return err
	}
	reply, err := c.transmit(ctx, content, from, to)
	if err != nil {
		return err
	}
	if _, err := fmt.Fprintf(std.Out, "250 %s\n", clean(reply)); err != nil {
		return err
	}
	if id := messageID.FindString(reply); id != "" {
		data := ""
		if c.Data != "" && c.Data != defaultData {
			data = " --data " + shellWord(c.Data)
		}
		_, err = fmt.Fprintf(std.Out, "Next: %s message show%s %s\n", std.program(), data, id)
	}
	return err
}

var messageID = regexp.MustCompile(`[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[0-9a-f]{4}-[0-9a-f]{12}`)

// shellWord quotes a text for a shell where it has to be.
func shellWord(s string) string {
	if regexp.MustCompile(`^[A-Za-z0-9_./~+-]+$`).MatchString(s) {
		return s
	}
	return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
}

// prepare gives the content and the envelope.
func (c *Send) prepare(std *IO) (content []byte, from string, to []string, err error) {
	switch {
	case c.Sample != "" && c.File != "":
		return nil, "", nil, process.Usage("give either a file or --sample, not both")
	case c.Sample != "":
		from, to = sampleSender, c.To
		if len(to) == 0 {
			to = []string{sampleRecipient}
			if c.Sample == "bounce" {
				to = []string{sampleBounce}
			}
		}
		key, err := readSampleKey(c.Data)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, "", nil, err
		}
		if content, err = makeSample(c.Sample, to, key, time.Now()); err != nil {
			return nil, "", nil, err
		}
	case c.File != "":
		data, err := readInput(c.File, std.In, sendLimit)
		if err != nil {
			return nil, "", nil, err
		}
		content = crlf(data)
		from, to = headerEnvelope(content)
		if len(c.To) > 0 {
			to = c.To
		}
	default:
		return nil, "", nil, process.Usage("nothing to send: name a file (- for standard input), or a sample such as --sample good")
	}
	if c.From != nil {
		from = *c.From
	}
	if len(to) == 0 {
		return nil, "", nil, process.Usage("%s names no recipient in To or Cc that can be read; give --to ADDRESS", c.File)
	}
	return content, from, to, nil
}

// crlf ends every line with CRLF, as SMTP wants it; files usually have LF (RFC 5321, section 2.3.8).
func crlf(data []byte) []byte {
	data = bytes.ReplaceAll(data, []byte("\r\n"), []byte("\n"))
	return bytes.ReplaceAll(data, []byte("\n"), []byte("\r\n"))
}

// headerEnvelope reads the envelope from the header section, as far as it can be read.
func headerEnvelope(content []byte) (from string, to []string) {
	m, err := mail.ReadMessage(bytes.NewReader(content))
	if err != nil {
		return "", nil
	}
	if list, err := m.Header.AddressList("From"); err == nil {
		from = list[0].Address
	}
	for _, field := range []string{"To", "Cc"} {
		list, err := m.Header.AddressList(field)
		if err != nil {
			continue
		}
		for _, address := range list {
			to = append(to, address.Address)
		}
	}
	return from, to
}

// address is where the gateway listens: as given, else as the data folder says, else the default.
func (c *Send) address() string {
	if c.SMTP != "" {
		return c.SMTP
	}
	dir := c.Data
	if dir == "" {
		dir = defaultData
	}
	if address := process.ReadAddress(dir, process.SMTPAddressFile); address != "" {
		return address
	}
	return "127.0.0.1:2525"
}

// transmit makes one SMTP transaction and returns the text of the final reply.
func (c *Send) transmit(ctx context.Context, content []byte, from string, to []string) (string, error) {
	dialer := net.Dialer{Timeout: dialTimeout}
	conn, err := dialer.DialContext(ctx, "tcp", c.address())
	if errors.Is(err, syscall.ECONNREFUSED) {
		return "", fmt.Errorf("nothing listens on %s: is `rohrpost up` running? (--smtp names another address)", c.address())
	}
	if err != nil {
		return "", fmt.Errorf("can't reach %s: %w; --smtp names another address", c.address(), err)
	}
	stop := context.AfterFunc(ctx, func() { _ = conn.Close() })
	defer stop()
	client := smtp.NewClient(conn)
	defer client.Close() //nolint:errcheck // after QUIT nothing is lost by it
	client.SubmissionTimeout = sendTimeout
	reply, err := transaction(client, content, from, to)
	if err != nil {
		return "", c.explainSMTP(err)
	}
	_ = client.Quit() // the message is accepted whatever comes of it
	return reply, nil
}

func transaction(client *smtp.Client, content []byte, from string, to []string) (string, error) {
	if err := client.Hello("localhost"); err != nil {
		return "", fmt.Errorf("EHLO: %w", err)
	}
	options := &smtp.MailOptions{Size: int64(len(content))}
	if ok, _ := client.Extension("8BITMIME"); ok {
		options.Body = smtp.Body8BitMIME
	}
	if ok, _ := client.Extension("SMTPUTF8"); ok && !ascii(from+strings.Join(to, "")) {
		options.UTF8 = true
	}
	if err := client.Mail(from, options); err != nil {
		return "", fmt.Errorf("MAIL FROM:<%s>: %w", from, err)
	}
	for _, recipient := range to {
		if err := client.Rcpt(recipient, nil); err != nil {
			return "", fmt.Errorf("RCPT TO:<%s>: %w", recipient, err)
		}
	}
	data, err := client.Data()
	if err != nil {
		return "", fmt.Errorf("DATA: %w", err)
	}
	if _, err := data.Write(content); err != nil {
		return "", fmt.Errorf("sending the content: %w", err)
	}
	reply, err := data.CloseWithResponse()
	if err != nil {
		return "", fmt.Errorf("end of DATA: %w", err)
	}
	return reply.StatusText, nil
}

func ascii(s string) bool {
	for i := range len(s) {
		if s[i] >= 0x80 {
			return false
		}
	}
	return true
}

// explainSMTP puts a refusal into one line.
func (c *Send) explainSMTP(err error) error {
	var refusal *smtp.SMTPError
	if !errors.As(err, &refusal) {
		return fmt.Errorf("%s: %w", c.SMTP, err)
	}
	command, _, _ := strings.Cut(err.Error(), ": ")
	kind := "refused it"
	if refusal.Temporary() {
		kind = "can't take it now, try again later"
	}
	return fmt.Errorf("%s %s: %s: %d %d.%d.%d %s", c.SMTP, kind, clean(command), refusal.Code,
		refusal.EnhancedCode[0], refusal.EnhancedCode[1], refusal.EnhancedCode[2], clean(refusal.Message))
}
