// Package wire is the connection under go-smtp: it owns the read buffer and gives the library one command line at a
// time, so that the edge itself decides what ends a line, a message, and the client's patience.
//
// What it puts right in the library (v0.26.0):
//
//   - The end of DATA is CRLF.CRLF and nothing else; CR CR LF . CR LF is one, too (cases D1 to D3). Content is read
//     from [Conn.Body], byte for byte; the library never sees it.
//   - BDAT is done here (cases D6, D7, D13). A connection that ends inside a chunk is an error, never the end of the
//     message.
//   - Command lines end with CRLF and are bounded (cases D5, D11).
//   - Deadlines for each command, for content, for replies.
//   - Replies are written together, just before the connection waits for the client (RFC 2920, section 3.2).
//   - Replies carry our name and the codes that RFC 5321 asks for.
//   - 421 when the server stops.
//   - TLS, at once or by STARTTLS, lies below this package and so below the library, whose own would hide the text from
//     here.
//
// A connection that waits for its client holds no buffer, so that ten thousand idle ones cost little.
package wire

import (
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"time"
)

// Options are what connections of a listener have in common. Durations must be set unless said otherwise.
type Options struct {
	Hostname         string        // what replies call this host
	LenientNewline   bool          // accept a command line that ends with LF alone
	CommandTimeout   time.Duration // for a whole command line
	DataTimeout      time.Duration // for the next octets of content
	DataTotalTimeout time.Duration // for the content of one message
	WriteTimeout     time.Duration // for pending replies
	HandshakeTimeout time.Duration // for a TLS handshake
	SessionTimeout   time.Duration // after it no further command is waited for

	GreetDelay  time.Duration // a client that speaks within it, before the greeting, is turned away; 0 means none
	ReplyDelay  time.Duration // is waited before each reply; 0 means none
	MinRate     int64         // octets of content a second, on average, beyond DataTimeout; 0 means any
	MaxCommands int           // command lines since the last accepted message; 0 means any number
	MaxErrors   int           // 5xx replies since the last accepted message; 0 means any number

	Stopping <-chan struct{} // closed when the server stops: replies are not delayed any more

	MaxRecipients int // is announced by LIMITS (RFC 9422); 0 means not at all

	TLS         *tls.Config // what STARTTLS or ImplicitTLS speaks; nil means no TLS
	ImplicitTLS bool        // TLS begins at once, without STARTTLS (RFC 8314, section 3.3)
}

// Owner is told what happens to a connection. Its methods are called by the session's goroutine.
type Owner interface {
	// Begin is called once, before the greeting. A reply that it returns, without CRLF, is told in its place, and the
	// connection closes.
	Begin() (refusal string)
	// Secured is called after a TLS handshake. Octets that the client sent behind STARTTLS before it have been dropped.
	Secured(state tls.ConnectionState, dropped int)
	// Failed is called after a TLS handshake that failed.
	Failed(err error)
	// Notifies tells whether the client's messages may ask for notifications: DSN is announced to it. (RFC 3461.)
	Notifies() bool
	// Early is called where the client spoke before the greeting.
	Early()
	// Closed is called once, when the connection has closed.
	Closed()
}

// The sizes of a connection.
const (
	// MaxCommandLine is the longest command line, CRLF included: RFC 5321 section 4.5.3.1.4 asks for 512, extensions
	// for some more.
	MaxCommandLine = 2048

	maxDomain   = 255
	maxDiscard  = 1 << 20 // how much of an overlong line is read before the connection closes
	lingerTime  = time.Second
	lingerBytes = 256 << 10
)

// Conn is a client's connection, as the library sees it. Read, Write and what Body returns belong to the session's
// goroutine; Close, Shutdown, CutOff and Kill may be called from any.
type Conn struct {
	raw   net.Conn // as it was accepted: for deadlines
	nc    net.Conn // what is read and written: raw, or TLS over it
	opts  *Options
	owner Owner

	in
	out []byte // replies that have not been written

	started   time.Time
	begun     bool
	pending   []byte // the rest of the command line that the library is reading
	line      []byte // the current command line with its line end, in buf; nil where it was refused
	text      string // the same without line end
	verb      string // its first word in upper case
	replied   bool   // a reply line to it has been seen
	greeted   bool   // EHLO or HELO has been said, since TLS began if it did
	extended  bool   // the last greeting was EHLO
	held      bool   // line has been read ahead and is the next for the library
	chunk     int64  // octets of the current BDAT chunk still to come
	lastChunk bool   // it is the last one
	sasl      bool   // the library waits for a response within AUTH
	swallow   bool   // drop the library's next reply
	body      body   // set from 354 to the end of the content
	pace      pace
	judging   bool  // the content is over and the library's reply to it comes next
	commands  int   // since the last accepted message
	errors    int   // the same
	replies   int   // complete ones in out
	hangUp    bool  // close once pending replies are out
	failed    error // sticky: the connection is not read any more and replies are dropped

	refusals map[string]int // how often what was refused, nil where nothing was; see countRefusal

	mu       sync.Mutex
	idle     bool // waiting for a command
	stopping bool
	cutOff   bool // content is not waited for either
	closed   bool
}

// New wraps an accepted connection. opts must not change afterwards.
func New(nc net.Conn, opts *Options, owner Owner) *Conn {
	c := &Conn{raw: nc, nc: nc, opts: opts, owner: owner, started: time.Now()}
	c.watch(nc)
	return c
}

// ErrEnded is in what a reader of content gets where the session ends before the content: the client is gone, or too slow and
// has been told 421 by then.
var ErrEnded = errors.New("wire: the session ended within the message")

// errTimeout says that a deadline has passed.
var errTimeout = errors.New("client took too long")

// Read gives the library what it waits for: one command line, or, once the content has been read from Body, the end
// mark.
func (c *Conn) Read(p []byte) (int, error) {
	if !c.begun {
		c.begun = true
		c.begin()
	}
	if len(c.pending) == 0 && c.next() != nil {
		return 0, io.EOF // of any other error the library would write a line of its own
	}
	n := copy(p, c.pending)
	c.pending = c.pending[n:]
	return n, nil
}

// begin is what comes before the greeting, which the library has written by now.
func (c *Conn) begin() {
	if refusal := c.owner.Begin(); refusal != "" {
		c.out, c.hangUp = nil, true
		if !c.opts.ImplicitTLS { // else a handshake would be needed to say it
			c.say(refusal)
		}
		return
	}
	if c.opts.ImplicitTLS {
		if err := c.handshake(0); err != nil {
			_ = c.fail(err) // the next read tells
			return
		}
	}
	if c.opts.GreetDelay > 0 {
		c.awaitSilence()
	}
}

// awaitSilence turns a client away that does not wait for the greeting: programs that only pretend to speak SMTP don't.
// (RFC 5321, section 4.3.1.)
func (c *Conn) awaitSilence() {
	if !c.startIdle(time.Now().Add(c.opts.GreetDelay)) {
		return // the first wait for a command says goodbye
	}
	err := c.readMore(commandBuffers)
	c.endIdle()
	switch {
	case errors.Is(err, errTimeout):
	case err != nil:
		_ = c.fail(err) // the next read tells
	default:
		c.owner.Early()
		c.out, c.hangUp = nil, true
		c.say("554 5.5.1 " + c.opts.Hostname + " You talked before the greeting")
	}
}

// next fills pending.
func (c *Conn) next() error {
	if c.body != nil {
		if err := c.body.skip(); err != nil {
			return err
		}
		c.body, c.pace, c.judging = nil, pace{}, true
		c.pending = []byte(".\r\n")
		return nil
	}
	if err := c.skipChunk(); err != nil { // of a BDAT that was refused
		return err
	}
	c.pace = pace{} // the next message's is its own
	if err := c.nextLine(); err != nil {
		return err
	}
	c.pending = c.line
	return nil
}

// body is content on its way in.
type body interface {
	io.Reader
	// skip reads on to where the client expects its reply.
	skip() error
}

// Body returns the content that the client sends by DATA or BDAT, to be read by the session within its Data call instead
// of what the library gives it; nil where there is none. It ends with io.EOF at the end of the message and nowhere
// else; [ErrReset] where the client gave the message up.
func (c *Conn) Body() io.Reader {
	if c.body == nil {
		return nil
	}
	return c.body
}

// CommandLine returns the current command line without its line end, as the client wrote it.
func (c *Conn) CommandLine() string { return c.text }

// Extended tells whether the client greeted with EHLO.
func (c *Conn) Extended() bool { return c.extended }

// fillData waits for more octets of content. What goes wrong ends the session, with ErrEnded.
func (c *Conn) fillData() error {
	if c.failed != nil {
		return c.failed
	}
	if err := c.readContent(); err != nil {
		return c.fail(ended(err))
	}
	return nil
}

func (c *Conn) readContent() error {
	c.release()
	if err := c.flush(); err != nil {
		return err
	}
	asked := time.Now()
	if err := c.limitContent(c.pace.deadline(c.opts, asked)); err != nil {
		return err
	}
	before := c.w - c.r
	err := c.readMore(contentBuffers)
	c.pace.add(asked, c.w-c.r-before)
	if errors.Is(err, errTimeout) && c.isCutOff() {
		return c.sayGoodbye()
	}
	return err
}

// ended is ErrEnded for a cause.
func ended(cause error) error {
	if errors.Is(cause, io.EOF) {
		cause = io.ErrUnexpectedEOF // never the end of a message: half of it would be accepted
	}
	return fmt.Errorf("%w: %w", ErrEnded, cause)
}

// fail ends the session: nothing is read any more. After a time-out the client is told; what the library says later is
// dropped.
func (c *Conn) fail(err error) error {
	if errors.Is(err, errTimeout) {
		c.lastWords("421 4.4.2 " + c.opts.Hostname + " Timeout, closing connection")
	}
	c.out = nil
	c.failed = err
	return err
}

// lastWords writes a reply that ends the session.
func (c *Conn) lastWords(reply string) {
	c.say(reply)
	_ = c.flush() // the client may be gone, and the session ends either way
}

// LocalAddr returns the server's address.
func (c *Conn) LocalAddr() net.Addr { return c.raw.LocalAddr() }

// RemoteAddr returns the client's address.
func (c *Conn) RemoteAddr() net.Addr { return c.raw.RemoteAddr() }

// SetDeadline does nothing: the deadlines are the connection's own.
func (c *Conn) SetDeadline(time.Time) error { return nil }

// SetReadDeadline does nothing: the deadlines are the connection's own.
func (c *Conn) SetReadDeadline(time.Time) error { return nil }

// SetWriteDeadline does nothing: the deadlines are the connection's own.
func (c *Conn) SetWriteDeadline(time.Time) error { return nil }

var _ net.Conn = (*Conn)(nil)
