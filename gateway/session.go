package gateway

import (
	"fmt"
	"io"
	"strings"

	"github.com/emersion/go-smtp"

	"github.com/rohrpost/rohrpost/gateway/user"
	"github.com/rohrpost/rohrpost/gateway/wire"
	mailv1 "github.com/rohrpost/rohrpost/proto/gen/rohrpost/mail/v1"
	"github.com/rohrpost/rohrpost/proto/smtpreply"
)

// session is what the library calls for one client's commands, from one goroutine.
type session struct {
	*client
	conn *smtp.Conn
	user *user.User   // who authenticated; nil before
	tx   *transaction // nil outside; dropped whole at any end (case D8)
}

// The refusals of commands out of sequence.
var (
	errNoTransaction = smtpreply.New(503, "5.5.1", "No transaction under way")
	errNested        = smtpreply.New(503, "5.5.1", "A transaction is under way: end it by RSET")
	errAuthRequired  = smtpreply.New(530, "5.7.0", "Authentication required") // RFC 4954, section 6; RFC 6409, section 4.3
	errNotYours      = smtpreply.New(550, "5.7.1", "Sender address is not yours")
	errNoRecipients  = smtpreply.New(554, "5.5.1", "No valid recipients")
)

// newSession is called at the client's first EHLO or HELO.
func (g *Gateway) newSession(conn *smtp.Conn) (smtp.Session, error) {
	w, ok := conn.Conn().(*wire.Conn)
	if !ok {
		return nil, refusal(fmt.Errorf("connection is a %T", conn.Conn()))
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	return &session{client: g.clients[w], conn: conn}, nil
}

// Mail begins a transaction.
func (s *session) Mail(_ string, opts *smtp.MailOptions) error {
	if s.tx != nil { // RFC 5321, section 4.1.4; the library would keep the recipients of the one before
		return refusal(errNested)
	}
	sender, parameters, ok := path(s.wire.CommandLine())
	if !ok {
		return refusal(errSenderSyntax)
	}
	if repeated(parameters) {
		return refusal(errRepeated)
	}
	if len(opts.EnvelopeID) > maxEnvelopeID {
		return refusal(errLongEnvelopeID)
	}
	if err := checkSender(sender, opts.UTF8); err != nil {
		return refusal(err)
	}
	if err := s.checkClient(sender); err != nil {
		return refusal(err)
	}
	if !s.pass(CountBytes, s.userName(), sender) || !s.pass(CountMessages, s.userName(), sender) {
		return refusal(errRate)
	}
	tx := s.newTransaction(opts.Size, &mailv1.Envelope{
		Sender:   sender,
		BodyType: bodyType(opts.Body),
		Smtputf8: opts.UTF8,

		EnvelopeId: opts.EnvelopeID,
		DsnReturn:  dsnReturn(opts.Return),
		Reception: &mailv1.Reception{
			ClientIp:  s.addr.Addr().String(),
			Helo:      cut(s.conn.Hostname()),
			Protocol:  protocolName(s.wire.Extended(), opts.UTF8, s.tls != "", s.user != nil),
			Gateway:   s.set.cfg.Hostname,
			SessionId: s.id,
			Tls:       s.tls,

			AuthenticatedUser: s.userName(),
		},
	})
	s.swap(tx)
	return nil
}

// checkClient tells whether the client may send from an address: where users submit mail, only a user may, and from the
// addresses that are his; where our own hosts relay, only they.
func (s *session) checkClient(sender string) error {
	switch {
	case s.port.kind == KindRelay && !s.trusted():
		return errRelayOnly
	case !s.port.submission():
		return nil
	case s.user == nil:
		return errAuthRequired
	case !s.user.May(sender):
		return errNotYours
	}
	return nil
}

func (s *session) userName() string {
	if s.user == nil {
		return ""
	}
	return s.user.Name
}

// Rcpt adds a recipient.
func (s *session) Rcpt(_ string, opts *smtp.RcptOptions) error {
	tx := s.tx
	if tx == nil {
		return refusal(errNoTransaction)
	}
	address, parameters, ok := path(s.wire.CommandLine())
	if !ok {
		return refusal(errRecipientSyntax)
	}
	if repeated(parameters) {
		return refusal(errRepeated)
	}
	if longOriginalRecipient(parameters) {
		return refusal(errLongOriginalRecipient)
	}
	if strings.EqualFold(address, "postmaster") {
		address += "@" + s.set.cfg.Hostname // RFC 5321, section 4.5.1
	}
	if err := checkRecipient(address, tx.envelope.GetSmtputf8()); err != nil {
		return refusal(err)
	}
	if len(tx.envelope.GetRecipients()) >= s.port.limits.MaxRecipients {
		return refusal(errTooManyRcpts) // RFC 5321, section 4.5.3.1.10: what was accepted stays
	}
	if !s.pass(CountRecipients, s.userName(), tx.envelope.GetSender()) {
		return refusal(errRate)
	}
	final, err := s.admitRecipient(address)
	if err != nil {
		s.log.InfoContext(s.ctx, "recipient refused", "recipient", cut(address), "error", err)
		return refusal(err)
	}
	if !tx.add(address, final, opts, s.port.limits.MaxRecipients) {
		return refusal(errTooManyRcpts)
	}
	return nil
}

// Data takes the content and answers for it. It takes the content from the connection: what the library makes of it is
// not the same octets (case D2).
func (s *session) Data(io.Reader) error {
	body := s.wire.Body()
	if s.tx == nil || body == nil {
		return refusal(errNoTransaction)
	}
	if len(s.tx.envelope.GetRecipients()) == 0 {
		return refusal(errNoRecipients) // RFC 5321, section 3.3
	}
	return s.receive(s.tx, body)
}

// Reset ends the transaction.
func (s *session) Reset() { s.swap(nil) }

// Logout ends the session.
func (s *session) Logout() error {
	s.swap(nil)
	return nil
}

func (s *session) swap(next *transaction) {
	if s.tx != nil {
		s.tx.drop()
	}
	s.tx = next
}

func bodyType(b smtp.BodyType) mailv1.BodyType {
	switch b {
	case smtp.Body7Bit:
		return mailv1.BodyType_BODY_TYPE_7BIT
	case smtp.Body8BitMIME:
		return mailv1.BodyType_BODY_TYPE_8BITMIME
	case smtp.BodyBinaryMIME: // the library refuses it
	}
	return mailv1.BodyType_BODY_TYPE_UNSPECIFIED
}

// cut shortens what a client says to what is kept of it, in valid UTF-8, which protobuf asks for.
func cut(s string) string {
	const most = 255
	if len(s) > most {
		s = s[:most]
	}
	return strings.ToValidUTF8(s, "?")
}
