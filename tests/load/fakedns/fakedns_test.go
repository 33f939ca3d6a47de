package fakedns

import (
	"errors"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/miekg/dns"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func start(t *testing.T, records ...string) *Server {
	t.Helper()
	s, err := Start(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	if err := s.Add(records...); err != nil {
		t.Fatal(err)
	}
	return s
}

// ask returns the answer's records as text without TTLs.
func (s *Server) ask(t *testing.T, network, name string, rrtype uint16) (*dns.Msg, []string, error) {
	t.Helper()
	msg := new(dns.Msg).SetQuestion(dns.Fqdn(name), rrtype)
	client := &dns.Client{Net: network, Timeout: 10 * time.Second}
	answer, _, err := client.ExchangeContext(t.Context(), msg, s.Address())
	if err != nil {
		return nil, nil, err
	}
	var texts []string
	for _, rr := range answer.Answer {
		texts = append(texts, dns.TypeToString[rr.Header().Rrtype]+" "+strings.TrimPrefix(rr.String(), rr.Header().String()))
	}
	return answer, texts, nil
}

func TestRecords(t *testing.T) {
	s := start(t, "a.test. 300 IN A 127.0.0.2", "A.test 300 IN A 127.0.0.3", "a.test. IN AAAA ::1", "a.test. IN MX 10 mx.a.test.", `a.test. IN TXT "v=spf1 -all" " x"`,
		"192.0.2.1 IN PTR a.test.", "www.test. IN CNAME a.test.", "ring.test. IN CNAME ring.test.", "lost.test. IN CNAME nowhere.test.")
	for _, c := range []struct {
		name   string
		rrtype uint16
		want   string
		code   int
	}{
		{"a.test", dns.TypeA, "A 127.0.0.2, A 127.0.0.3", 0},
		{"A.TEST", dns.TypeAAAA, "AAAA ::1", 0},
		{"a.test", dns.TypeMX, "MX 10 mx.a.test.", 0},
		{"a.test", dns.TypeTXT, `TXT "v=spf1 -all" " x"`, 0},
		{"1.2.0.192.in-addr.arpa", dns.TypePTR, "PTR a.test.", 0},
		{"www.test", dns.TypeMX, "CNAME a.test., MX 10 mx.a.test.", 0},
		{"a.test", dns.TypeSRV, "", 0}, // no such records, but the name is there
		{"none.test", dns.TypeA, "", dns.RcodeNameError},
		{"lost.test", dns.TypeA, "CNAME nowhere.test.", dns.RcodeNameError},
	} {
		for _, network := range []string{"udp", "tcp"} {
			answer, texts, err := s.ask(t, network, c.name, c.rrtype)
			if err != nil || strings.Join(texts, ", ") != c.want || answer.Rcode != c.code || !answer.Authoritative {
				t.Errorf("%s %s: %v %v %v, want %s", network, c.name, texts, answer, err, c.want)
			}
		}
	}
	if _, texts, err := s.ask(t, "tcp", "ring.test", dns.TypeA); err != nil || len(texts) != maxAliases {
		t.Errorf("a ring of aliases: %v %v", texts, err)
	}
	if n := s.Asked("a.test", "MX"); n != 2 {
		t.Errorf("asked %d times", n)
	}
	s.Remove("a.test")
	if answer, _, err := s.ask(t, "udp", "a.test", dns.TypeA); err != nil || answer.Rcode != dns.RcodeNameError {
		t.Errorf("after Remove: %v %v", answer, err)
	}
	if err := s.Add("a.test. IN A nonsense"); err == nil {
		t.Error("a broken record is no error")
	}
}

func TestFaults(t *testing.T) {
	s := start(t, "a.test. IN A 127.0.0.2", "b.test. IN A 127.0.0.3")
	s.Fail("a.test", Fault{Code: dns.RcodeServerFailure})
	if answer, _, err := s.ask(t, "udp", "a.test", dns.TypeA); err != nil || answer.Rcode != dns.RcodeServerFailure {
		t.Errorf("SERVFAIL: %v %v", answer, err)
	}
	s.Fail("a.test", Fault{Silent: true})
	short := &dns.Client{Timeout: 100 * time.Millisecond}
	var netErr net.Error
	if _, _, err := short.ExchangeContext(t.Context(), new(dns.Msg).SetQuestion("a.test.", dns.TypeA), s.Address()); !errors.As(err, &netErr) || !netErr.Timeout() {
		t.Errorf("silence: %v", err)
	}
	s.Fail("a.test", Fault{Delay: 100 * time.Millisecond})
	begun := time.Now()
	if _, texts, err := s.ask(t, "udp", "a.test", dns.TypeA); err != nil || len(texts) != 1 || time.Since(begun) < 100*time.Millisecond {
		t.Errorf("delay: %v %v after %s", texts, err, time.Since(begun))
	}
	s.Fail("a.test", Fault{Truncated: true})
	if answer, texts, err := s.ask(t, "udp", "a.test", dns.TypeA); err != nil || !answer.Truncated || len(texts) != 0 {
		t.Errorf("truncated by UDP: %v %v", answer, err)
	}
	if answer, texts, err := s.ask(t, "tcp", "a.test", dns.TypeA); err != nil || answer.Truncated || len(texts) != 1 {
		t.Errorf("then by TCP: %v %v", answer, err)
	}
	if _, texts, err := s.ask(t, "udp", "b.test", dns.TypeA); err != nil || len(texts) != 1 {
		t.Errorf("another name: %v %v", texts, err)
	}
	s.Fail("", Fault{Code: dns.RcodeRefused})
	if answer, _, err := s.ask(t, "udp", "b.test", dns.TypeA); err != nil || answer.Rcode != dns.RcodeRefused {
		t.Errorf("a fault for all: %v %v", answer, err)
	}
	s.Fail("b.test", Fault{})
	if _, texts, err := s.ask(t, "udp", "b.test", dns.TypeA); err != nil || len(texts) != 1 {
		t.Errorf("but not for one: %v %v", texts, err)
	}
}

// What does not fit into a packet comes by TCP.
func TestLargeAnswer(t *testing.T) {
	s := start(t)
	for range 10 {
		if err := s.Add(`big.test. IN TXT "` + strings.Repeat("x", 200) + `"`); err != nil {
			t.Fatal(err)
		}
	}
	if answer, _, err := s.ask(t, "udp", "big.test", dns.TypeTXT); err != nil || !answer.Truncated {
		t.Errorf("by UDP: %v", err)
	}
	if _, texts, err := s.ask(t, "tcp", "big.test", dns.TypeTXT); err != nil || len(texts) != 10 {
		t.Errorf("by TCP: %d records, %v", len(texts), err)
	}
}
