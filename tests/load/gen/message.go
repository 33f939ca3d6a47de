package gen

import (
	"bytes"
	"errors"
	"regexp"
	"strconv"
	"sync"
	"time"

	"github.com/rohrpost/rohrpost/tests/load/ledger"
	"github.com/rohrpost/rohrpost/tests/load/mail"
)

// kind is a mail with its body as it goes over the wire after DATA.
type kind struct {
	mail    *mail.Mail
	stuffed []byte
}

func kinds(mails []*mail.Mail) []kind {
	all := make([]kind, len(mails))
	for i, m := range mails {
		all[i] = kind{mail: m, stuffed: stuff(m.Make(nil, "", "", "").Body)}
	}
	return all
}

// stuff doubles dots at the start of lines; the octets start a line. (RFC 5321, section 4.5.2.)
func stuff(octets []byte) []byte {
	out := octets
	if bytes.Contains(out, []byte("\r\n.")) {
		out = bytes.ReplaceAll(out, []byte("\r\n."), []byte("\r\n.."))
	}
	if bytes.HasPrefix(out, []byte(".")) {
		out = append([]byte("."), out...)
	}
	return out
}

// buffers are what a message needs while it is sent, taken from a pool so that sessions that wait hold none.
type buffers struct {
	commands, own []byte
}

var pool = sync.Pool{New: func() any { return &buffers{commands: make([]byte, 0, 512), own: make([]byte, 0, 1024)} }}

// transaction is one message under way.
type transaction struct {
	c      *client
	kind   *kind
	entry  *ledger.Entry
	bufs   *buffers
	slow   bool
	sent   time.Time // when the last octet of content had been written
	acked  time.Time // when the reply to it came
	broken bool      // the connection is of no more use
}

// queuedID is the id in our gateway's 250.
var queuedID = regexp.MustCompile(`\b([0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[0-9a-f]{4}-[0-9a-f]{12})\b`)

// send sends the message and fills in its entry. The error says what did not go as it must.
func (t *transaction) send(recipients []string) error {
	t.bufs = pool.Get().(*buffers)
	defer pool.Put(t.bufs)
	entry := t.entry
	msg := t.kind.mail.Make(t.bufs.own[:0], entry.ID, entry.Sender, recipients...)
	entry.Size = msg.Len()
	err := t.envelope(recipients, msg)
	if err == nil {
		err = t.content(msg)
	}
	entry.End = time.Now()
	t.judge(err)
	return err
}

// judge says what the sender of the message was told.
func (t *transaction) judge(err error) {
	var refused *replyError
	switch {
	case err == nil:
		t.entry.Outcome = ledger.Accepted
		if m := queuedID.FindString(t.entry.Reply); m != "" {
			t.entry.MessageID = m
		}
	case errors.As(err, &refused):
		t.entry.Outcome, t.entry.Reply = ledger.Refused, refused.text
	case !t.sent.IsZero():
		t.entry.Outcome, t.entry.Reply, t.broken = ledger.Unknown, err.Error(), true
	default:
		t.entry.Outcome, t.entry.Reply, t.broken = ledger.Failed, err.Error(), true
	}
}

// envelope sends MAIL, RCPT and, unless chunked, DATA.
func (t *transaction) envelope(recipients []string, msg mail.Message) error {
	buf := append(t.bufs.commands[:0], "MAIL FROM:<"...)
	buf = append(append(buf, t.entry.Sender...), '>')
	if _, ok := t.c.ext["SIZE"]; ok {
		buf = strconv.AppendInt(append(buf, " SIZE="...), int64(msg.Len()), 10)
	}
	if t.kind.mail.EightBit() {
		if _, ok := t.c.ext["8BITMIME"]; ok {
			buf = append(buf, " BODY=8BITMIME"...)
		}
	}
	ends := []int{len(append(buf, "\r\n"...))}
	buf = append(buf, "\r\n"...)
	for _, recipient := range recipients {
		buf = append(append(append(buf, "RCPT TO:<"...), recipient...), ">\r\n"...)
		ends = append(ends, len(buf))
	}
	if t.c.cfg.Chunk == 0 {
		buf = append(buf, "DATA\r\n"...)
		ends = append(ends, len(buf))
	}
	t.bufs.commands = buf
	if t.c.cfg.Pipelining {
		return t.pipelined(buf, recipients)
	}
	return t.stepwise(buf, ends, recipients)
}

// stepwise sends each command after the reply to the one before.
func (t *transaction) stepwise(buf []byte, ends []int, recipients []string) error {
	step := func(i int, phase string, code int) error {
		start := 0
		if i > 0 {
			start = ends[i-1]
		}
		if err := t.c.write(phase, buf[start:ends[i]]); err != nil {
			return err
		}
		_, err := t.c.expect(phase, code, t.c.cfg.Timeout)
		return err
	}
	if err := step(0, "mail", 250); err != nil {
		return t.rset(err)
	}
	var refusal error
	for i, recipient := range recipients {
		if err := t.recipient(recipient, step(1+i, "rcpt", 250), &refusal); err != nil {
			return err
		}
	}
	if len(t.entry.Recipients) == 0 {
		return t.rset(refusal)
	}
	if t.c.cfg.Chunk > 0 {
		return nil
	}
	if err := step(len(ends)-1, "data", 354); err != nil {
		return t.rset(err)
	}
	return nil
}

// recipient notes whether a recipient was taken; a refusal is kept, any other error ends the message.
func (t *transaction) recipient(recipient string, err error, refusal *error) error {
	var refused *replyError
	switch {
	case err == nil:
		t.entry.Recipients = append(t.entry.Recipients, recipient)
	case errors.As(err, &refused):
		t.entry.Rejected = append(t.entry.Rejected, recipient)
		*refusal = err
	default:
		return err
	}
	return nil
}

// pipelined sends the whole envelope at once and then reads every reply. (RFC 2920, section 3.1.)
func (t *transaction) pipelined(buf []byte, recipients []string) error {
	if err := t.c.write("mail", buf); err != nil {
		return err
	}
	_, refusal := t.c.expect("mail", 250, t.c.cfg.Timeout)
	var refused *replyError
	if refusal != nil && !errors.As(refusal, &refused) {
		return refusal
	}
	for _, recipient := range recipients {
		_, err := t.c.expect("rcpt", 250, t.c.cfg.Timeout)
		var later error
		if err := t.recipient(recipient, err, &later); err != nil {
			return err
		}
		if refusal == nil {
			refusal = later
		}
	}
	if t.c.cfg.Chunk > 0 {
		if len(t.entry.Recipients) == 0 {
			return t.rset(refusal)
		}
		return nil
	}
	_, err := t.c.expect("data", 354, t.c.cfg.Timeout)
	if err == nil && len(t.entry.Recipients) == 0 {
		t.broken = true // it waits for content that nobody is to get
		return &phaseError{"data", errors.New("354 without a recipient")}
	}
	if err != nil && refusal != nil && errors.As(err, &refused) {
		err = refusal // the cause, not the consequence
	}
	if err != nil {
		return t.rset(err)
	}
	return nil
}

// rset clears the server's transaction after a refusal.
func (t *transaction) rset(cause error) error {
	var refused *replyError
	if !errors.As(cause, &refused) {
		return cause
	}
	if refused.code == 421 {
		t.broken = true // the server ends the session (RFC 5321, section 3.8)
		return cause
	}
	if _, err := t.c.cmd("rset", 250, "RSET\r\n"); err != nil {
		t.broken = true
	}
	return cause
}
