package gateway

import (
	"log/slog"
	"net/netip"
	"strings"
	"testing"

	"go.opentelemetry.io/otel/trace/noop"

	"github.com/rohrpost/rohrpost/proto/pattern"
)

// FuzzRecipient: whatever stands behind RCPT TO:, a stranger gets a recipient in only where everyone who reads the address,
// by the rules of today or of old, finds our domain.
func FuzzRecipient(f *testing.F) {
	for _, raw := range []string{
		"<u@ours.test>", "<@a.test,@b.test:u@ours.test>", `<"u u"@ours.test> NOTIFY=NEVER`, "<postmaster>", "u@a.ours.test",
		"<u%other.test@ours.test>", "<other.test!u@ours.test>", `<"u@other.test"@ours.test>`, "<@ours.test:u@other.test>",
		"<u@other.test>@ours.test", "<u@[127.0.0.1]>", "<u@ours.test.>", `<"\"@other.test"@ours.test>`, "<ü@ours.test>",
	} {
		f.Add(raw)
	}
	s := strangerSession(f)
	f.Fuzz(func(t *testing.T, raw string) {
		address, _, ok := path("RCPT TO:" + raw)
		if !ok {
			return
		}
		if strings.EqualFold(address, "postmaster") {
			address += "@mx.test"
		}
		if checkRecipient(address, true) != nil {
			return
		}
		final, err := s.admitRecipient(address)
		if err != nil {
			return
		}
		for _, a := range final {
			local, domain, _ := strings.Cut(a, "@")
			domain = strings.ToLower(domain)
			if domain != "ours.test" && !strings.HasSuffix(domain, ".ours.test") && domain != "mx.test" {
				t.Errorf("%q: domain %q", raw, domain)
			}
			if strings.ContainsAny(local, "%!@\r\n\x00") || strings.ContainsAny(domain, "%!@ <>\"\r\n\x00") {
				t.Errorf("%q: taken as %q", raw, a)
			}
		}
	})
}

// strangerSession is a session of a stranger at a host for ours.test.
func strangerSession(f *testing.F) *session {
	f.Helper()
	cfg := DefaultConfig()
	cfg.Hostname = "mx.test"
	cfg.Accept.Domains = []pattern.Pattern{pattern.MustParse("ours.test"), pattern.MustParse("*.ours.test")}
	g, err := New(cfg, nil, Options{Logger: slog.New(slog.DiscardHandler), TracerProvider: noop.NewTracerProvider()})
	if err != nil {
		f.Fatal(err)
	}
	set, err := g.newSettings(f.Context(), cfg, nil, nil)
	if err != nil {
		f.Fatal(err)
	}
	return &session{client: &client{g: g, set: set, ctx: f.Context(), addr: netip.MustParseAddrPort("203.0.113.9:25"), log: g.log}}
}
