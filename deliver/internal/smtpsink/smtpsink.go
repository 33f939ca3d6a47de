// Package smtpsink is an SMTP server for tests: a real listener that answers by a script and keeps what it took.
package smtpsink

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"strings"
	"sync"
	"testing"
)

// Then is what the sink does after a reply.
type Then int

// What the sink can do after a reply.
const (
	Continue Then = iota
	Close         // close the connection
	Reset         // close it with a RST
	Hang          // answer nothing any more, until the client closes
)

// Action is the answer to one step. Without a reply nothing is sent.
type Action struct {
	Reply string // without the final CRLF
	Then  Then
	Cut   bool // leave the final CRLF out
}

// Script answers a step: "greeting", "dot", "body" (before any content is read), or a verb such as "RCPT", with the line
// that the client sent. Nil means the default: what a server says that takes everything.
type Script func(step, line string) *Action

// Message is a message that was taken.
type Message struct {
	Mail string   // the line of MAIL
	Rcpt []string // the lines of RCPT that were answered with 250
	Data []byte   // the content, dots unstuffed
	Raw  []byte   // the content as it came, without the final dot
}

// Sink is a running server.
type Sink struct {
	// Addr is where it listens, host:port.
	Addr string

	mu       sync.Mutex
	changed  *sync.Cond // of conns and active
	messages []Message
	partial  [][]byte
	lines    []string
	conns    int // accepted
	active   int // of those, the ones whose session has not ended
}

// Start starts a sink that lasts as long as the test.
func Start(t testing.TB, ehlo []string, script Script) *Sink {
	t.Helper()
	l, err := (&net.ListenConfig{}).Listen(context.Background(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &Sink{Addr: l.Addr().String()}
	s.changed = sync.NewCond(&s.mu)
	var sessions sync.WaitGroup // added to by the loop alone, waited for after its end
	var open sync.Map
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			open.Store(conn, nil)
			s.count(1, 1)
			sessions.Go(func() {
				defer s.count(0, -1)
				defer func() { _ = conn.Close() }()
				(&session{sink: s, conn: conn, r: bufio.NewReader(conn), ehlo: ehlo, script: script}).run()
			})
		}
	}()
	t.Cleanup(func() {
		_ = l.Close()
		<-done
		open.Range(func(conn, _ any) bool {
			_ = conn.(net.Conn).Close()
			return true
		})
		sessions.Wait()
	})
	return s
}

func (s *Sink) count(conns, active int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.conns += conns
	s.active += active
	s.changed.Broadcast()
}

// Wait waits until there has been a connection, which may be accepted later than its client is gone, and all sessions
// have ended.
func (s *Sink) Wait() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for s.conns == 0 || s.active > 0 {
		s.changed.Wait()
	}
}

// Messages returns what was taken so far: content whose final dot came, whatever was answered to it.
func (s *Sink) Messages() []Message {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]Message(nil), s.messages...)
}

// Partial returns the pieces of content that came without a final dot.
func (s *Sink) Partial() [][]byte {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([][]byte(nil), s.partial...)
}

// Lines returns all command lines so far.
func (s *Sink) Lines() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]string(nil), s.lines...)
}

// Conns tells how many connections were accepted.
func (s *Sink) Conns() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.conns
}

type session struct {
	sink   *Sink
	conn   net.Conn
	r      *bufio.Reader
	ehlo   []string
	script Script
	msg    Message
}

// step answers; it is false when the session is over.
func (s *session) step(step, line, normal string) (ok, positive bool) {
	a := &Action{Reply: normal}
	if s.script != nil {
		if scripted := s.script(step, line); scripted != nil {
			a = scripted
		}
	}
	if a.Reply != "" {
		end := "\r\n"
		if a.Cut {
			end = ""
		}
		if _, err := io.WriteString(s.conn, a.Reply+end); err != nil {
			return false, false
		}
	}
	switch a.Then {
	case Continue:
		return true, a.Reply != "" && a.Reply[0] < '4'
	case Reset:
		_ = s.conn.(*net.TCPConn).SetLinger(0)
	case Hang:
		_, _ = io.Copy(io.Discard, s.r)
	case Close:
	}
	return false, false
}

func (s *session) run() {
	if ok, _ := s.step("greeting", "", "220 sink.test ESMTP"); !ok {
		return
	}
	for {
		line, err := s.r.ReadString('\n')
		if err != nil {
			return
		}
		line = strings.TrimSuffix(line, "\r\n")
		s.sink.mu.Lock()
		s.sink.lines = append(s.sink.lines, line)
		s.sink.mu.Unlock()
		verb, _, _ := strings.Cut(strings.ToUpper(line), " ")
		if !s.command(verb, line) {
			return
		}
	}
}

func (s *session) command(verb, line string) bool {
	normal := "250 2.0.0 ok"
	switch verb {
	case "EHLO":
		normal = "250-sink.test greets you\r\n"
		for _, e := range s.ehlo {
			normal += "250-" + e + "\r\n"
		}
		normal += "250 HELP"
	case "DATA":
		normal = "354 go on"
	case "QUIT":
		normal = "221 2.0.0 bye"
	}
	ok, positive := s.step(verb, line, normal)
	if !ok {
		return false
	}
	switch {
	case verb == "MAIL" && positive:
		s.msg = Message{Mail: line}
	case verb == "RCPT" && positive:
		s.msg.Rcpt = append(s.msg.Rcpt, line)
	case verb == "DATA" && positive:
		return s.data()
	case verb == "QUIT":
		return false
	}
	return true
}

// data reads content to the end mark, which is CR LF . CR LF and nothing else.
func (s *session) data() bool {
	if ok, _ := s.step("body", "", ""); !ok {
		return false
	}
	var raw []byte
	for {
		line, err := s.r.ReadBytes('\n')
		if string(line) == ".\r\n" && (len(raw) == 0 || strings.HasSuffix(string(raw), "\r\n")) {
			break
		}
		raw = append(raw, line...)
		if err != nil {
			if !errors.Is(err, io.EOF) {
				raw = append(raw, "<"+err.Error()+">"...)
			}
			s.sink.mu.Lock()
			s.sink.partial = append(s.sink.partial, raw)
			s.sink.mu.Unlock()
			return false
		}
	}
	s.msg.Raw = raw
	for line := range strings.SplitAfterSeq(string(raw), "\r\n") {
		s.msg.Data = append(s.msg.Data, strings.TrimPrefix(line, ".")...)
	}
	s.sink.mu.Lock()
	s.sink.messages = append(s.sink.messages, s.msg)
	s.sink.mu.Unlock()
	ok, _ := s.step("dot", "", "250 2.0.0 taken")
	return ok
}
