// Package fakedns is a small authoritative DNS server for tests, on loopback, by UDP and TCP. It answers what it was told to
// and fails as it was told to: late, not at all, with an error code, truncated.
package fakedns

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"time"

	"github.com/miekg/dns"
)

// Fault is how a name's answers go wrong. The zero value is none.
type Fault struct {
	// Delay is waited before each answer.
	Delay time.Duration
	// Code is answered in place of records, such as [dns.RcodeServerFailure]; 0 answers records.
	Code int
	// Silent answers nothing at all.
	Silent bool
	// Truncated answers UDP with the TC bit and no records, so that the client must ask again by TCP.
	Truncated bool
}

// Server is a running server. Its records and faults may be changed while it runs.
type Server struct {
	servers []*dns.Server
	address string
	done    chan struct{}
	wg      sync.WaitGroup

	mu      sync.Mutex
	records map[string][]dns.RR // by name
	faults  map[string]Fault
	asked   map[string]int // by "name TYPE"
}

// Start starts a server at a free port of loopback. A name without records does not exist (NXDOMAIN).
func Start(ctx context.Context) (*Server, error) {
	s := &Server{records: map[string][]dns.RR{}, faults: map[string]Fault{}, asked: map[string]int{}, done: make(chan struct{})}
	var lc net.ListenConfig
	var udp net.PacketConn
	var tcp net.Listener
	for try := 0; ; try++ { // the port that is free for UDP may be taken for TCP
		var err error
		if udp, err = lc.ListenPacket(ctx, "udp", "127.0.0.1:0"); err != nil {
			return nil, fmt.Errorf("starting a DNS server: %w", err)
		}
		if tcp, err = lc.Listen(ctx, "tcp", udp.LocalAddr().String()); err == nil {
			break
		}
		_ = udp.Close()
		if try == 10 {
			return nil, fmt.Errorf("starting a DNS server: %w", err)
		}
	}
	s.address = udp.LocalAddr().String()
	for _, server := range []*dns.Server{{PacketConn: udp, Handler: s}, {Listener: tcp, Handler: s}} {
		started := make(chan struct{})
		server.NotifyStartedFunc = func() { close(started) }
		s.servers = append(s.servers, server)
		s.wg.Go(func() { _ = server.ActivateAndServe() }) // until Close
		<-started
	}
	return s, nil
}

// Address is the server's host:port.
func (s *Server) Address() string { return s.address }

// Close stops the server.
func (s *Server) Close() error {
	close(s.done)
	var errs []error
	for _, server := range s.servers {
		errs = append(errs, server.Shutdown())
	}
	s.wg.Wait()
	return errors.Join(errs...)
}

// Add adds records in the form of zone files, such as `example.test. 300 IN MX 10 mx.example.test.`; a name without final dot
// is a full name, too. For PTR the name may be an IP address.
func (s *Server) Add(records ...string) error {
	for _, text := range records {
		name, rest, _ := strings.Cut(text, " ")
		if reverse, err := dns.ReverseAddr(name); err == nil {
			text = reverse + " " + rest
		}
		rr, err := dns.NewRR(text)
		if err != nil || rr == nil {
			return fmt.Errorf("fakedns: %q is no record: %w", text, err)
		}
		s.mu.Lock()
		key := dns.CanonicalName(rr.Header().Name)
		s.records[key] = append(s.records[key], rr)
		s.mu.Unlock()
	}
	return nil
}

// Remove takes away all records of a name.
func (s *Server) Remove(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.records, dns.CanonicalName(name))
}

// Fail makes a name's answers go wrong from now on; the zero Fault makes them right again. The empty name stands for all names
// that have no fault of their own.
func (s *Server) Fail(name string, fault Fault) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if name != "" {
		name = dns.CanonicalName(name)
	}
	s.faults[name] = fault
}

// Asked tells how often a name was asked for records of a type, such as MX.
func (s *Server) Asked(name, rrtype string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.asked[dns.CanonicalName(name)+" "+rrtype]
}

// ServeDNS implements [dns.Handler].
func (s *Server) ServeDNS(w dns.ResponseWriter, query *dns.Msg) {
	answer := new(dns.Msg).SetReply(query)
	answer.Authoritative = true
	if len(query.Question) != 1 {
		answer.Rcode = dns.RcodeFormatError
		_ = w.WriteMsg(answer)
		return
	}
	fault := s.fill(answer, query.Question[0])
	if fault.Delay > 0 {
		select {
		case <-s.done:
			return
		case <-time.After(fault.Delay):
		}
	}
	if fault.Silent {
		return
	}
	if _, udp := w.RemoteAddr().(*net.UDPAddr); udp {
		if fault.Truncated {
			answer.Answer, answer.Truncated = nil, true
		}
		size := dns.MinMsgSize
		if opt := query.IsEdns0(); opt != nil {
			size = int(opt.UDPSize())
		}
		answer.Truncate(size)
		answer.Truncated = answer.Truncated || fault.Truncated
	}
	_ = w.WriteMsg(answer) // a client that has gone asks again
}

// fill answers a question and returns the fault that holds for it.
func (s *Server) fill(answer *dns.Msg, q dns.Question) Fault {
	s.mu.Lock()
	defer s.mu.Unlock()
	name := dns.CanonicalName(q.Name)
	s.asked[name+" "+dns.TypeToString[q.Qtype]]++
	fault, ok := s.faults[name]
	if !ok {
		fault = s.faults[""]
	}
	if fault.Code != 0 {
		answer.Rcode = fault.Code
		return fault
	}
	s.follow(answer, name, q.Qtype)
	return fault
}

// maxAliases bounds a chain of CNAMEs, which may be a ring.
const maxAliases = 10

// follow adds a name's records, and those that its aliases lead to. (RFC 1034, section 3.6.2.)
func (s *Server) follow(answer *dns.Msg, name string, rrtype uint16) {
	for range maxAliases {
		records, exists := s.records[name]
		if !exists {
			answer.Rcode = dns.RcodeNameError
			return
		}
		alias := ""
		for _, rr := range records {
			cname, isAlias := rr.(*dns.CNAME)
			switch {
			case rr.Header().Rrtype == rrtype || rrtype == dns.TypeANY:
				answer.Answer = append(answer.Answer, rr)
			case isAlias:
				answer.Answer = append(answer.Answer, rr)
				alias = dns.CanonicalName(cname.Target)
			}
		}
		if alias == "" {
			return
		}
		name = alias
	}
}
