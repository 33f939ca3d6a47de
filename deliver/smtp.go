package deliver

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"

	"github.com/rohrpost/rohrpost/deliver/internal/smtpclient"
	mailv1 "github.com/rohrpost/rohrpost/proto/gen/rohrpost/mail/v1"
)

// transaction is one SMTP transaction with a next hop.
type transaction struct {
	*session
	a       *attempt
	helo    string
	host    string // the next hop's host, as configured
	limits  Timeouts
	targets []*target // those that have no result yet
	// answered says that the peer has answered the content and waits for the next message.
	answered bool
}

// errStale means that a kept connection was no longer good: nothing has been said on it, and no result is set.
var errStale = errors.New("the kept connection has ended")

// smtp delivers to a given host.
func (d *Deliverer) smtp(ctx context.Context, a *attempt, route *Route, targets []*target) {
	host, port, _ := net.SplitHostPort(route.SMTP.Address) // Validate has seen it
	ctx, span := d.tracer.Start(ctx, "deliver.smtp", trace.WithSpanKind(trace.SpanKindClient), trace.WithAttributes(
		attribute.String("rohrpost.message.id", a.MessageID),
		attribute.String("server.address", host),
		attribute.String("server.port", port),
		attribute.Int("rohrpost.recipients", len(targets)),
	))
	defer span.End()
	if err := d.converse(ctx, a, route, host, targets); err != nil {
		span.RecordError(err)
		d.log.WarnContext(ctx, "smtp delivery failed", "message_id", a.MessageID, "next_hop", route.SMTP.Address, "error", err)
	}
	for _, t := range targets {
		if t.status != delivered {
			span.SetStatus(codes.Error, "not delivered to every recipient")
			span.SetAttributes(attribute.Int("rohrpost.reply.code", int(t.reply.GetCode())))
		}
	}
}

// converse makes one transaction, on a kept connection or a new one. It sets the result of every target; the error is for
// the log.
func (d *Deliverer) converse(ctx context.Context, a *attempt, route *Route, host string, targets []*target) error {
	helo := route.SMTP.Helo
	if helo == "" {
		helo = d.host
	}
	tx := &transaction{a: a, helo: helo, host: host, limits: d.cfg.Timeouts, targets: targets}
	name := route.SMTP.Address + " " + helo
	for kept := d.sessions.take(name); kept != nil; kept = d.sessions.take(name) {
		if err := d.use(ctx, tx, kept, tx.run); !errors.Is(err, errStale) {
			return err
		}
	}
	cctx, cancel := context.WithTimeout(ctx, d.cfg.Timeouts.Connect)
	raw, err := d.dial(cctx, "tcp", route.SMTP.Address)
	cancel()
	if err != nil {
		a.remotes = append(a.remotes, route.SMTP.Address)
		tx.end(temporary, dialReply(err))
		return fmt.Errorf("connecting: %w", err)
	}
	fresh := &session{hop: name, conn: smtpclient.New(raw), remote: hop(host, raw.RemoteAddr())}
	return d.use(ctx, tx, fresh, func(ctx context.Context) error {
		if err := tx.hello(); err != nil {
			return err
		}
		return tx.run(ctx)
	})
}

// use makes the transaction on a connection, which is kept afterwards where it is ready for another.
func (d *Deliverer) use(ctx context.Context, tx *transaction, s *session, run func(context.Context) error) error {
	tx.session = s
	// Where the context ends, closing unblocks whatever read or write is under way.
	stop := context.AfterFunc(ctx, func() { _ = s.conn.Close() })
	err := run(ctx)
	if !errors.Is(err, errStale) {
		tx.a.remotes = append(tx.a.remotes, s.remote)
		trace.SpanFromContext(ctx).SetAttributes(
			attribute.String("network.peer.address", s.conn.RemoteAddr().String()),
			attribute.Int("rohrpost.connection.messages", s.sent))
	}
	alive := stop()
	switch {
	case err != nil || !alive: // whatever state it is in, nothing more may be sent on it
		_ = s.conn.Close()
	case tx.answered:
		d.sessions.put(s)
	default:
		d.sessions.end(s)
	}
	return err
}

// hop names a next hop as it was reached, such as `mx1.example [192.0.2.1]:25`.
func hop(host string, addr net.Addr) string {
	ip, port, err := net.SplitHostPort(addr.String())
	if err != nil {
		return host
	}
	return host + " [" + ip + "]:" + port
}

// run sends the message on a connection that has answered EHLO.
func (tx *transaction) run(ctx context.Context) error {
	ok, err := tx.envelope(ctx)
	if err != nil || !ok {
		return err
	}
	tx.sent++
	return tx.content(ctx)
}

// end gives the remaining targets a result.
func (tx *transaction) end(status mailv1.ResultStatus, reply *mailv1.Reply) {
	all(tx.targets, status, reply)
	tx.targets = nil
}

// refused gives the remaining targets the result of a refusal by the peer.
func (tx *transaction) refused(reply *smtpclient.Reply) {
	for _, t := range tx.targets {
		t.remote = tx.host
	}
	tx.end(statusOf(reply.Code), refusal(reply))
}

// refusal is the reply as it was given. One that is no refusal where a success was to be said otherwise has no meaning,
// and must not look like a success.
func refusal(reply *smtpclient.Reply) *mailv1.Reply {
	if reply.Code < 400 {
		return newReply(451, "4.5.0", "The next hop's reply has no meaning: "+cut(reply.Mail().GetText(), 200))
	}
	return reply.Mail()
}

// broken gives the remaining targets the result of a connection that broke before the final dot.
func (tx *transaction) broken(where string, err error) error {
	if errors.Is(err, smtpclient.ErrReply) {
		tx.end(temporary, newReply(451, "4.5.0", "The next hop's reply was malformed: "+where))
	} else {
		tx.end(temporary, brokenReply(where, err))
	}
	return fmt.Errorf("%s: %w", where, err)
}

// statusOf tells what a reply that is no success means before the final dot. A code that SMTP does not know here is a
// fault of the peer, not of the message; one that asks us to authenticate or to encrypt (RFC 4954, section 6; RFC 3207,
// section 4) is a fault of our configuration (case E5).
func statusOf(code int) mailv1.ResultStatus {
	switch code {
	case 530, 534, 535, 538:
		return temporary
	}
	if code >= 500 {
		return permanent
	}
	return temporary
}

// hello reads the greeting and says EHLO, or HELO where the peer does not know that. A refusal here is about us or the
// host and not about the message: it is temporary whatever its code.
func (tx *transaction) hello() error {
	reply, err := tx.conn.Read(tx.limits.Greeting)
	if err != nil {
		return tx.broken("greeting", err)
	}
	if reply.Code != 220 {
		return tx.unwelcome("greeting", reply)
	}
	reply, err = tx.conn.Cmd(tx.limits.Helo, "EHLO "+tx.helo)
	if err != nil {
		return tx.broken("EHLO", err)
	}
	if reply.Code == 250 {
		tx.ext = readExtensions(reply.Lines())
		return nil
	}
	if reply.Code != 500 && reply.Code != 502 && reply.Code != 504 {
		return tx.unwelcome("EHLO", reply)
	}
	reply, err = tx.conn.Cmd(tx.limits.Helo, "HELO "+tx.helo)
	if err != nil {
		return tx.broken("HELO", err)
	}
	if reply.Code != 250 {
		return tx.unwelcome("HELO", reply)
	}
	return nil
}

func (tx *transaction) unwelcome(where string, reply *smtpclient.Reply) error {
	for _, t := range tx.targets {
		t.remote = tx.host
	}
	tx.end(temporary, refusal(reply))
	return fmt.Errorf("%s: the next hop answered %d", where, reply.Code)
}

// readers are used for one content each.
var readers = sync.Pool{New: func() any { return bufio.NewReaderSize(nil, 32<<10) }}

// content sends the content and reads the final reply.
func (tx *transaction) content(ctx context.Context) error {
	content, err := tx.a.open(ctx)
	if err != nil {
		tx.a.spoil(tx.targets, err)
		return err
	}
	defer func() { _ = content.Close() }() // only read
	// Content that can't be read should show before DATA and before the permit: then the job is simply given back.
	in := readers.Get().(*bufio.Reader)
	in.Reset(content)
	defer func() {
		in.Reset(nil)
		readers.Put(in)
	}()
	if _, err := in.Peek(in.Size()); err != nil && !errors.Is(err, io.EOF) {
		tx.a.spoil(tx.targets, err)
		return err
	}
	reply, err := tx.conn.Cmd(tx.limits.Data, "DATA")
	if err != nil {
		return tx.broken("DATA", err)
	}
	if reply.Code != 354 {
		tx.refused(reply)
		if reply.Code < 400 {
			return fmt.Errorf("DATA: the next hop answered %d", reply.Code) // it may be waiting for content
		}
		return nil
	}
	tx.a.permit.start(ctx)
	if err := tx.body(ctx, in); err != nil {
		return err
	}
	return tx.finalReply()
}

// body sends all but the final dot, waits for the permit and sends the dot.
func (tx *transaction) body(ctx context.Context, in io.Reader) error {
	body := tx.conn.Body(tx.limits.Data)
	_, err := io.Copy(writerOnly{body}, in)
	if err == nil {
		err = body.Flush()
	}
	switch {
	case errors.Is(err, errContent):
		tx.a.spoil(tx.targets, err)
		return err
	case errors.Is(err, smtpclient.ErrBareLineEnd):
		// Another attempt would find the same octets.
		tx.end(permanent, newReply(554, "5.6.0", "The content has a bare CR or LF and can't be sent"))
		return err
	case err != nil:
		if reply := tx.conn.LastWords(); reply != nil {
			tx.refused(reply)
			return fmt.Errorf("content: the next hop answered %d and closed", reply.Code)
		}
		return tx.broken("content", err)
	}
	if err := tx.a.permit.wait(ctx); err != nil {
		tx.end(untried, cutShort())
		return err
	}
	if err := body.End(); err != nil {
		if reply := tx.conn.LastWords(); reply != nil {
			tx.refused(reply)
			return fmt.Errorf("final dot: the next hop answered %d and closed", reply.Code)
		}
		tx.end(unknown, newReply(451, "4.4.2", "The connection was lost at the final dot: the message may have been delivered"))
		return fmt.Errorf("final dot: %w", err)
	}
	return nil
}

// writerOnly keeps io.Copy from looking for other ways.
type writerOnly struct{ io.Writer }

// finalReply reads the reply to the final dot. Without a clear one, nobody knows whether the message was taken: that is
// unknown, and must not be retried as if nothing had been sent (cases B5, C1).
func (tx *transaction) finalReply() error {
	reply, err := tx.conn.Read(tx.limits.DataDot)
	switch {
	case err != nil && isTimeout(err):
		tx.end(unknown, newReply(451, "4.4.2", "No reply to the final dot in time: the message may have been delivered"))
		return fmt.Errorf("reply to the final dot: %w", err)
	case err != nil:
		tx.end(unknown, newReply(451, "4.4.2", "No reply to the final dot: the message may have been delivered"))
		return fmt.Errorf("reply to the final dot: %w", err)
	case reply.Code >= 400:
		tx.answered = reply.Code != 421
		tx.refused(reply)
	case reply.Code >= 300:
		tx.end(unknown, newReply(451, "4.5.0", "The reply to the final dot has no meaning: the message may have been delivered"))
		return fmt.Errorf("reply to the final dot: code %d", reply.Code)
	default:
		for _, t := range tx.targets {
			t.remote, t.handedOver = tx.host, tx.ext.has("DSN")
		}
		tx.answered = true
		tx.end(delivered, reply.Mail())
	}
	return nil
}

// readExtensions reads the lines of an EHLO reply. (RFC 5321, section 4.1.1.1.)
func readExtensions(lines []string) extensions {
	ext := make(extensions)
	for i, line := range lines {
		if i == 0 {
			continue // the greeting
		}
		keyword, params, _ := strings.Cut(strings.TrimSpace(line), " ")
		ext[strings.ToUpper(keyword)] = strings.TrimSpace(params)
	}
	return ext
}
