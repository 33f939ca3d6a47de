package resolver

import (
	"context"
	"errors"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"blitiri.com.ar/go/spf"
	"github.com/google/go-cmp/cmp"
	"github.com/miekg/dns"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// fakeDNS is a server on loopback. What it answers is decided by the test.
type fakeDNS struct {
	addr string

	mu     sync.Mutex
	answer func(network string, query dns.Question, reply *dns.Msg) bool // false: no answer at all
	asked  []string                                                      // "udp MX example.org."
}

func startDNS(t *testing.T, answer func(network string, query dns.Question, reply *dns.Msg) bool) *fakeDNS {
	t.Helper()
	f := &fakeDNS{answer: answer}
	packets, err := (&net.ListenConfig{}).ListenPacket(t.Context(), "udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	f.addr = packets.LocalAddr().String()
	streams, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", f.addr)
	if err != nil {
		t.Skipf("the TCP port beside %s is taken: %v", f.addr, err)
	}
	for _, server := range []*dns.Server{
		{PacketConn: packets, Handler: f.handler("udp")},
		{Listener: streams, Handler: f.handler("tcp")},
	} {
		started, ended := make(chan struct{}), make(chan error, 1)
		server.NotifyStartedFunc = func() { close(started) }
		go func() { ended <- server.ActivateAndServe() }()
		<-started
		t.Cleanup(func() {
			if err := errors.Join(server.Shutdown(), <-ended); err != nil {
				t.Error(err)
			}
		})
	}
	return f
}

func (f *fakeDNS) handler(network string) dns.HandlerFunc {
	return func(w dns.ResponseWriter, query *dns.Msg) {
		reply := new(dns.Msg).SetReply(query)
		f.mu.Lock()
		f.asked = append(f.asked, network+" "+dns.TypeToString[query.Question[0].Qtype]+" "+query.Question[0].Name)
		ok := f.answer(network, query.Question[0], reply)
		f.mu.Unlock()
		if ok {
			_ = w.WriteMsg(reply)
		}
	}
}

func (f *fakeDNS) count() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.asked)
}

// records answers from lines of a zone file; what is not in them does not exist.
func records(t *testing.T, lines ...string) func(string, dns.Question, *dns.Msg) bool {
	t.Helper()
	var all []dns.RR
	for _, line := range lines {
		rr, err := dns.NewRR(line)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, rr)
	}
	return func(_ string, q dns.Question, reply *dns.Msg) bool {
		known := false
		for _, rr := range all {
			if rr.Header().Name == q.Name {
				known = true
			}
			if rr.Header().Name == q.Name && (rr.Header().Rrtype == q.Qtype || rr.Header().Rrtype == dns.TypeCNAME) {
				reply.Answer = append(reply.Answer, rr)
			}
			if cname, ok := rr.(*dns.CNAME); ok && cname.Hdr.Name == q.Name { // as a recursive server does
				for _, target := range all {
					if target.Header().Name == cname.Target && target.Header().Rrtype == q.Qtype {
						reply.Answer = append(reply.Answer, target)
					}
				}
			}
		}
		if !known {
			reply.Rcode = dns.RcodeNameError
		}
		if len(reply.Answer) == 0 {
			soa, _ := dns.NewRR("example.org. 600 IN SOA ns.example.org. root.example.org. 1 1 1 1 60")
			reply.Ns = append(reply.Ns, soa)
		}
		return true
	}
}

// clock is a clock that the test moves.
type clock struct {
	mu  sync.Mutex
	now time.Time
}

func (c *clock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

func (c *clock) add(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = c.now.Add(d)
}

func newResolver(t *testing.T, change func(*Config), servers ...string) (*Resolver, *clock) {
	t.Helper()
	cfg := DefaultConfig()
	cfg.Servers, cfg.Timeout, cfg.Rounds = servers, 20*time.Second, 1 // a busy machine's server answers late
	if change != nil {
		change(&cfg)
	}
	c := &clock{now: time.Unix(1_000_000, 0)}
	r, err := New(cfg, Options{Now: c.Now})
	if err != nil {
		t.Fatal(err)
	}
	return r, c
}

func dnsError(t *testing.T, err error) *net.DNSError {
	t.Helper()
	e, ok := err.(*net.DNSError) //nolint:errorlint // package spf looks at the bare type, too
	if !ok {
		t.Fatalf("got %T %v, want a bare *net.DNSError", err, err)
	}
	return e
}

func TestLookups(t *testing.T) {
	f := startDNS(t, records(t,
		`example.org. 300 IN TXT "v=spf1 " "-all"`,
		`example.org. 300 IN TXT "quote \" and \\ and \200"`,
		`example.org. 300 IN MX 20 b.example.org.`,
		`example.org. 300 IN MX 10 a.example.org.`,
		`null.example.org. 300 IN MX 0 .`,
		`a.example.org. 300 IN A 192.0.2.1`,
		`a.example.org. 300 IN AAAA 2001:db8::1`,
		`four.example.org. 300 IN A 192.0.2.4`,
		`www.example.org. 300 IN CNAME a.example.org.`,
		`1.2.0.192.in-addr.arpa. 300 IN PTR a.example.org.`,
		`xn--mnchen-3ya.example.org. 300 IN A 192.0.2.9`,
	))
	r, _ := newResolver(t, nil, f.addr)
	ctx := t.Context()
	txt, err := r.LookupTXT(ctx, "Example.ORG")
	if diff := cmp.Diff([]string{"v=spf1 -all", "quote \" and \\ and \xc8"}, txt); diff != "" || err != nil {
		t.Errorf("TXT: %v %s", err, diff)
	}
	mx, err := r.LookupMX(ctx, "example.org")
	if diff := cmp.Diff([]*net.MX{{Host: "a.example.org.", Pref: 10}, {Host: "b.example.org.", Pref: 20}}, mx); diff != "" || err != nil {
		t.Errorf("MX: %v %s", err, diff)
	}
	null, err := r.LookupMX(ctx, "null.example.org")
	if diff := cmp.Diff([]*net.MX{{Host: "."}}, null); diff != "" || err != nil {
		t.Errorf("null MX: %v %s", err, diff)
	}
	for host, want := range map[string]string{
		"a.example.org": "192.0.2.1 2001:db8::1", "www.example.org": "192.0.2.1 2001:db8::1", "four.example.org.": "192.0.2.4",
		"münchen.example.org": "192.0.2.9", "192.0.2.7": "192.0.2.7", "localhost": "127.0.0.1 ::1",
	} {
		addrs, err := r.LookupIPAddr(ctx, host)
		var got []string
		for _, a := range addrs {
			got = append(got, a.String())
		}
		if strings.Join(got, " ") != want || err != nil {
			t.Errorf("%s: got %v, %v", host, got, err)
		}
	}
	names, err := r.LookupAddr(ctx, "192.0.2.1")
	if diff := cmp.Diff([]string{"a.example.org."}, names); diff != "" || err != nil {
		t.Errorf("PTR: %v %s", err, diff)
	}
	for name, do := range map[string]func() error{
		"no such domain": func() error { _, err := r.LookupMX(ctx, "absent.example.org"); return err },
		"no such type":   func() error { _, err := r.LookupMX(ctx, "a.example.org"); return err },
		"no address":     func() error { _, err := r.LookupIPAddr(ctx, "example.org"); return err },
		"not a name":     func() error { _, err := r.LookupTXT(ctx, "a b"); return err },
		"empty label":    func() error { _, err := r.LookupTXT(ctx, "a..b"); return err },
		"not an IP":      func() error { _, err := r.LookupAddr(ctx, "a"); return err },
	} {
		if e := dnsError(t, do()); !e.IsNotFound || e.IsTemporary {
			t.Errorf("%s: got %+v", name, e)
		}
	}
}

// case E2, case E3: a failure to find out is temporary and never looks like an absence.
func TestFailuresAreTemporary(t *testing.T) {
	for name, test := range map[string]struct {
		answer  func(string, dns.Question, *dns.Msg) bool
		timeout bool
	}{
		"SERVFAIL": {answer: func(_ string, _ dns.Question, reply *dns.Msg) bool { reply.Rcode = dns.RcodeServerFailure; return true }},
		"REFUSED":  {answer: func(_ string, _ dns.Question, reply *dns.Msg) bool { reply.Rcode = dns.RcodeRefused; return true }},
		"silence":  {answer: func(string, dns.Question, *dns.Msg) bool { return false }, timeout: true},
		"another question": {answer: func(_ string, _ dns.Question, reply *dns.Msg) bool {
			reply.Question[0].Name = "evil.example."
			return true
		}},
	} {
		t.Run(name, func(t *testing.T) {
			f := startDNS(t, test.answer)
			r, _ := newResolver(t, func(c *Config) {
				if test.timeout {
					c.Timeout = 100 * time.Millisecond
				}
			}, f.addr)
			_, err := r.LookupMX(t.Context(), "example.org")
			e := dnsError(t, err)
			if e.IsNotFound || !e.IsTemporary || e.IsTimeout != test.timeout || e.Server != f.addr || e.Name != "example.org" {
				t.Errorf("got %+v", e)
			}
		})
	}
	t.Run("no servers", func(t *testing.T) {
		r, _ := newResolver(t, nil)
		r.servers = nil
		_, err := r.LookupMX(t.Context(), "example.org")
		if e := dnsError(t, err); e.IsNotFound || !e.IsTemporary || !strings.Contains(e.Err, "resolver.servers") {
			t.Errorf("got %+v", e)
		}
	})
	t.Run("addresses known of one type only by failure", func(t *testing.T) {
		f := startDNS(t, func(_ string, q dns.Question, reply *dns.Msg) bool {
			if q.Qtype == dns.TypeAAAA {
				reply.Rcode = dns.RcodeServerFailure
			}
			return true
		})
		r, _ := newResolver(t, nil, f.addr)
		_, err := r.LookupIPAddr(t.Context(), "example.org")
		if e := dnsError(t, err); e.IsNotFound || !e.IsTemporary {
			t.Errorf("got %+v", e)
		}
	})
}

func TestNextServerAndRecovery(t *testing.T) {
	bad := startDNS(t, func(_ string, _ dns.Question, reply *dns.Msg) bool { reply.Rcode = dns.RcodeServerFailure; return true })
	good := startDNS(t, records(t, `example.org. 300 IN TXT "x"`))
	r, _ := newResolver(t, nil, bad.addr, good.addr)
	if got, err := r.LookupTXT(t.Context(), "example.org"); err != nil || len(got) != 1 || bad.count() != 1 {
		t.Errorf("got %v, %v", got, err)
	}
}

func TestTruncatedAnswerIsAskedByTCP(t *testing.T) {
	full := records(t, `example.org. 300 IN TXT "all of it"`)
	f := startDNS(t, func(network string, q dns.Question, reply *dns.Msg) bool {
		if network == "udp" {
			reply.Truncated = true
			return true
		}
		return full(network, q, reply)
	})
	r, _ := newResolver(t, nil, f.addr)
	got, err := r.LookupTXT(t.Context(), "example.org")
	if diff := cmp.Diff([]string{"all of it"}, got); diff != "" || err != nil {
		t.Errorf("%v %s", err, diff)
	}
	if diff := cmp.Diff([]string{"udp TXT example.org.", "tcp TXT example.org."}, f.asked); diff != "" {
		t.Error(diff)
	}
}

func TestCacheKeepsByTTL(t *testing.T) {
	for name, test := range map[string]struct {
		name   string
		change func(*Config)
		keeps  time.Duration
	}{
		"TTL":                         {name: "example.org", keeps: 300 * time.Second},
		"least TTL of an alias":       {name: "www.example.org", keeps: 30 * time.Second},
		"TTL 0":                       {name: "zero.example.org"},
		"TTL with the highest bit":    {name: "high.example.org"}, // RFC 2181, section 8
		"bounded":                     {name: "example.org", change: func(c *Config) { c.MaxTTL = time.Minute }, keeps: time.Minute},
		"absent name, by the SOA":     {name: "absent.example.org", keeps: 60 * time.Second}, // RFC 2308, section 5
		"absent type, by the SOA":     {name: "a.example.org", keeps: 60 * time.Second},
		"absent, bounded":             {name: "absent.example.org", change: func(c *Config) { c.MaxNegativeTTL = time.Second }, keeps: time.Second},
		"no cache":                    {name: "example.org", change: func(c *Config) { c.CacheSize = 0 }},
		"another name pushes it out ": {name: "example.org", change: func(c *Config) { c.CacheSize = 1 }, keeps: 300 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			f := startDNS(t, records(t,
				`example.org. 300 IN TXT "x"`, `zero.example.org. 0 IN TXT "x"`, `high.example.org. 4000000000 IN TXT "x"`,
				`www.example.org. 30 IN CNAME example.org.`, `a.example.org. 300 IN A 192.0.2.1`))
			r, clock := newResolver(t, test.change, f.addr)
			_, first := r.LookupTXT(t.Context(), test.name)
			if test.keeps > 0 {
				clock.add(test.keeps - 1)
				_, second := r.LookupTXT(t.Context(), test.name)
				if f.count() != 1 {
					t.Errorf("asked again too soon: %v", f.asked)
				}
				if (first == nil) != (second == nil) {
					t.Errorf("the cache says %v, the server %v", second, first)
				}
				clock.add(1)
			}
			_, _ = r.LookupTXT(t.Context(), test.name)
			if f.count() != 2 {
				t.Errorf("kept too long: %v", f.asked)
			}
		})
	}
}

func TestCacheIsBounded(t *testing.T) {
	c, now := newCache(10), time.Unix(0, 0)
	for i := range 1000 {
		c.put(question{name: strings.Repeat("x", i)}, &entry{ttl: time.Minute}, now)
	}
	if len(c.entries) != 10 {
		t.Errorf("%d entries", len(c.entries))
	}
}

// Strangers choose what is looked up: answers of any size must not fill the memory.
func TestLargeAnswerIsNotKept(t *testing.T) {
	large := records(t, `large.example.org. 300 IN TXT "`+strings.Repeat("x", 250)+`"`+strings.Repeat(` "`+strings.Repeat("x", 250)+`"`, 19))
	f := startDNS(t, func(network string, q dns.Question, reply *dns.Msg) bool {
		if network == "udp" {
			reply.Truncated = true
			return true
		}
		return large(network, q, reply)
	})
	r, _ := newResolver(t, nil, f.addr)
	for range 2 {
		if texts, err := r.LookupTXT(t.Context(), "large.example.org"); err != nil || len(texts) != 1 || len(texts[0]) != 5000 {
			t.Fatalf("%.50v, %v", texts, err)
		}
	}
	if len(r.cache.entries) != 0 {
		t.Errorf("%d answers are kept", len(r.cache.entries))
	}
}

func TestSameQuestionIsAskedOnce(t *testing.T) {
	release := make(chan struct{})
	answer := records(t, `example.org. 300 IN TXT "x"`)
	f := startDNS(t, func(network string, q dns.Question, reply *dns.Msg) bool {
		<-release
		return answer(network, q, reply)
	})
	r, _ := newResolver(t, nil, f.addr)
	impatient, cancel := context.WithCancel(t.Context())
	errs := make(chan error, 20)
	for range 20 {
		go func() {
			_, err := r.LookupTXT(t.Context(), "example.org")
			errs <- err
		}()
	}
	given := make(chan error, 1)
	go func() {
		_, err := r.LookupTXT(impatient, "example.org")
		given <- err
	}()
	cancel()
	err := <-given
	if e := dnsError(t, err); e.IsNotFound || !errors.Is(err, context.Canceled) {
		t.Errorf("got %+v", e)
	}
	close(release) // the others must not suffer from the one that went away
	for range 20 {
		if err := <-errs; err != nil {
			t.Error(err)
		}
	}
	if f.count() != 1 {
		t.Errorf("asked %d times", f.count())
	}
}

func TestStaticZone(t *testing.T) {
	f := startDNS(t, records(t, `sample.test. 300 IN A 192.0.2.66`, `example.org. 300 IN A 192.0.2.1`))
	zone := []Record{
		{Name: "Sample.test", Type: "txt", Value: `v=spf1 ip4:192.0.2.1 -all`},
		{Name: "sample.test", Type: "TXT", Value: `back\slash "quoted"`},
		{Name: "sample.test", Type: "MX", Value: "10 mail.sample.test"},
		{Name: "mail.sample.test", Type: "A", Value: "192.0.2.1"},
		{Name: "mail.sample.test", Type: "AAAA", Value: "2001:db8::1"},
		{Name: "192.0.2.1", Type: "PTR", Value: "mail.sample.test"},
		{Name: "null.test", Type: "MX", Value: "0 ."},
	}
	r, _ := newResolver(t, func(c *Config) { c.Zone = zone }, f.addr)
	ctx := t.Context()
	txt, err := r.LookupTXT(ctx, "SAMPLE.test.")
	if diff := cmp.Diff([]string{"v=spf1 ip4:192.0.2.1 -all", `back\slash "quoted"`}, txt); diff != "" || err != nil {
		t.Errorf("TXT: %v %s", err, diff)
	}
	if mx, err := r.LookupMX(ctx, "null.test"); err != nil || mx[0].Host != "." {
		t.Errorf("null MX: %v %v", mx, err)
	}
	names, err := r.LookupAddr(ctx, "192.0.2.1")
	if diff := cmp.Diff([]string{"mail.sample.test."}, names); diff != "" || err != nil {
		t.Errorf("PTR: %v %s", err, diff)
	}
	_, err = r.LookupIPAddr(ctx, "sample.test") // a name of the zone has nothing besides
	if e := dnsError(t, err); !e.IsNotFound {
		t.Errorf("got %+v", e)
	}
	result, err := spf.CheckHostWithSender(net.ParseIP("192.0.2.1"), "x", "a@sample.test", spf.WithResolver(r), spf.WithContext(ctx))
	if result != spf.Pass {
		t.Errorf("SPF: %v %v", result, err)
	}
	if f.count() != 0 {
		t.Errorf("the zone asked a server: %v", f.asked)
	}
	if _, err := r.LookupIPAddr(ctx, "example.org"); err != nil {
		t.Errorf("other names: %v", err)
	}
}

func TestValidate(t *testing.T) {
	if err := DefaultConfig().Validate(); err != nil {
		t.Errorf("the default: %v", err)
	}
	for want, change := range map[string]func(*Config){
		"resolver.servers":          func(c *Config) { c.Servers = []string{"dns.example"} },
		"resolver.timeout":          func(c *Config) { c.Timeout = 0 },
		"resolver.rounds":           func(c *Config) { c.Rounds = 0 },
		"resolver.cache_size":       func(c *Config) { c.CacheSize = -1 },
		"resolver.max_ttl":          func(c *Config) { c.MaxTTL = -1 },
		"resolver.max_negative_ttl": func(c *Config) { c.MaxNegativeTTL = -1 },
		"resolver.zone[1]":          func(c *Config) { c.Zone = []Record{{"a", "A", "192.0.2.1"}, {"a", "A", "x"}} },
		"10 mail.example.org":       func(c *Config) { c.Zone = []Record{{"a", "MX", "mail"}} },
		"TXT, MX":                   func(c *Config) { c.Zone = []Record{{"a", "SRV", "x"}} },
		"IPv6":                      func(c *Config) { c.Zone = []Record{{"a", "AAAA", "192.0.2.1"}} },
		"not a domain name":         func(c *Config) { c.Zone = []Record{{"a b", "TXT", "x"}} },
	} {
		cfg := DefaultConfig()
		change(&cfg)
		if err := cfg.Validate(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %q in it", err, want)
		}
	}
	cfg := DefaultConfig()
	cfg.Servers = []string{"192.0.2.1", "192.0.2.1:5353", "2001:db8::1", "[2001:db8::1]:53"}
	if err := cfg.Validate(); err != nil {
		t.Error(err)
	}
}
