package gateway_test

import (
	"context"
	"crypto/tls"
	"errors"
	"net/netip"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/rohrpost/rohrpost/gateway"
	"github.com/rohrpost/rohrpost/proto/pattern"
)

func patterns(texts ...string) []pattern.Pattern {
	var list []pattern.Pattern
	for _, text := range texts {
		list = append(list, pattern.MustParse(text))
	}
	return list
}

// stranger lets loopback clients be strangers to a host of ours.test.
func stranger(c *gateway.Config) {
	c.Relay.Networks = nil
	c.Accept.Domains = patterns("ours.test", "*.ours.test")
	c.Accept.Recipients = []pattern.Pattern{} // as `config show` writes it: none is not a list
}

// The classic tricks by which a host is made to relay; none works, and nothing is stored.
func TestNoOpenRelay(t *testing.T) {
	e := start(t, &fakeSpool{}, startOptions{change: stranger})
	for name, rcpt := range map[string]string{
		"plain":                      "<u@other.test>",
		"no brackets":                "u@other.test",
		"percent hack":               "<u%other.test@ours.test>",
		"percent hack, twice":        "<u%other.test%ours.test@ours.test>",
		"percent hack, our name":     "<u%other.test@mx.test>",
		"percent hack, our address":  "<u%other.test@[127.0.0.1]>",
		"percent hack, no domain":    "<u%other.test>",
		"bang path":                  "<other.test!u@ours.test>",
		"bang path, no domain":       "<other.test!u>",
		"bang and percent":           "<ours.test!u%other.test@ours.test>",
		"source route":               "<@ours.test:u@other.test>",
		"source route of two":        "<@ours.test,@mx.test:u@other.test>",
		"source route to a percent":  "<@ours.test:u%other.test@ours.test>",
		"quoted address":             `<"u@other.test"@ours.test>`,
		"quoted percent":             `<"u%other.test"@ours.test>`,
		"quoted, escaped at":         `<"u\@other.test"@ours.test>`,
		"quoted, no domain":          `<"u@other.test">`,
		"quoted bang":                `<"other.test!u"@ours.test>`,
		"two at signs":               "<u@other.test@ours.test>",
		"two at signs, ours first":   "<u@ours.test@other.test>",
		"escaped at":                 `<u\@other.test@ours.test>`,
		"two in one":                 "<u@ours.test,u@other.test>",
		"nested brackets":            "<<u@other.test>@ours.test>",
		"address literal":            "<u@[203.0.113.5]>",
		"our address literal":        "<u@[127.0.0.1]>",
		"final dot":                  "<u@other.test.>",
		"ours at the front":          "<u@ours.test.other.test>",
		"ours at the end":            "<u@fakeours.test>",
		"empty label":                "<u@.ours.test>",
		"postmaster elsewhere":       "<postmaster@other.test>",
		"postmaster, percent":        "<postmaster%other.test@ours.test>",
		"look-alike in Cyrillic":     "<u@\u043eurs.test>",
		"parameter that looks so":    "<u@other.test> ORCPT=rfc822;u@ours.test",
		"space in front":             " <u@other.test>",
		"tab between, then another":  "<u@ours.test>\t<u@other.test>",
		"control character":          "<u@other.test\x01@ours.test>",
		"quoted colon":               `<"@ours.test:u@other.test"@ours.test>`,
		"semicolon, a group":         "<group:u@other.test;@ours.test>",
		"comment":                    "<u@other.test(@ours.test)>",
		"UUCP and at, ours last":     "<other.test!u%x@ours.test>",
		"underscore for a dot":       "<u@ours_test>",
		"empty local part":           "<@ours.test>",
		"domain in another encoding": "<u@ours.test%00.other.test>",
	} {
		for from, sender := range map[string]string{"": "<a@client.test>", ", null sender": "<>", ", as one of ours": "<boss@ours.test>"} {
			t.Run(name+from, func(t *testing.T) {
				d := e.dial(t)
				d.cmd("EHLO ours.test", "250-")
				d.cmd("MAIL FROM:"+sender+" SMTPUTF8", "250 ")
				d.cmd("RCPT TO:"+rcpt, "5")
				d.cmd("DATA", "503 ")
			})
		}
	}
	if n := len(e.spool.all()); n != 0 {
		t.Errorf("%d messages stored", n)
	}
}

// What strangers may send: mail for the accepted domains, and for postmaster.
func TestAcceptedDomains(t *testing.T) {
	d := start(t, &fakeSpool{}, startOptions{change: stranger}).dial(t)
	d.cmd("EHLO c.test", "250-")
	d.cmd("MAIL FROM:<a@client.test>", "250 ")
	for _, rcpt := range []string{
		"u@ours.test", "u@OURS.test", "u@deep.sub.ours.test", `"u u"@ours.test`, "@relay.test:u@ours.test", "postmaster", "Postmaster@mx.test", "postmaster@ours.test",
	} {
		d.cmd("RCPT TO:<"+rcpt+">", "250 ")
	}
	d.cmd("RCPT TO:<u@other.test>", "550 5.7.1 Relaying denied")
}

// Who may send to everybody: own networks, users, hosts with a certificate.
func TestRelay(t *testing.T) {
	ca, otherCA := newAuthority(t), newAuthority(t)
	certificate := func(a *authority, name string) *tls.Config {
		pair, err := tls.LoadX509KeyPair(a.issue(t, name).Cert, a.file(name+".key"))
		if err != nil {
			t.Fatal(err)
		}
		return &tls.Config{
			RootCAs: ca.pool(), ServerName: "mx.test",
			GetClientCertificate: func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return &pair, nil },
		}
	}
	s := startSubmission(t, func(c *gateway.Config) {
		stranger(c)
		c.TLS = ca.section(t, "mx.test")
		c.TLS.ClientCA = ca.file("ca.crt")
		c.Relay.Networks = []netip.Prefix{netip.MustParsePrefix("192.0.2.0/24")}
		c.Relay.Certificates = patterns("*.hosts.test")
		c.Listeners = append(c.Listeners, gateway.Listener{Listen: "127.0.0.1:0", Kind: gateway.KindRelay},
			gateway.Listener{Listen: "127.0.0.1:0", ProxyFrom: []netip.Prefix{loopback}},
			gateway.Listener{Listen: "127.0.0.1:0", Kind: gateway.KindRelay, ProxyFrom: []netip.Prefix{loopback}})
	})
	proxied := func(listener int, client string) *dialog {
		d := s.on(listener).dialRaw(t)
		d.send(header(t, 1, client+":25"))
		d.want("220 ")
		return d
	}
	secured := func(listener int, config *tls.Config) *dialog {
		d := s.on(listener).dial(t)
		d.starttls(config)
		return d
	}
	plain := &tls.Config{RootCAs: ca.pool(), ServerName: "mx.test"}
	user := secured(1, plain)
	user.cmd("EHLO c.test", "250-")
	user.cmd("AUTH PLAIN "+b64("\x00ann@a.test\x00secret"), "235 ")
	for name, c := range map[string]struct {
		d          *dialog
		mail, rcpt string
	}{
		"own network":                         {proxied(4, "192.0.2.9"), "250 ", "250 "},
		"another network":                     {proxied(4, "198.51.100.9"), "250 ", "550 5.7.1 Relaying"},
		"own network, relay":                  {proxied(5, "192.0.2.9"), "250 ", "250 "},
		"another network, relay":              {proxied(5, "198.51.100.9"), "550 5.7.1 You may not", "503 "},
		"user":                                {user, "250 ", "250 "},
		"certificate":                         {secured(0, certificate(ca, "a.hosts.test")), "250 ", "250 "},
		"certificate, relay":                  {secured(3, certificate(ca, "b.hosts.test")), "250 ", "250 "},
		"certificate of another name":         {secured(0, certificate(ca, "a.else.test")), "250 ", "550 5.7.1 Relaying"},
		"certificate of another name, relay":  {secured(3, certificate(ca, "b.else.test")), "550 5.7.1 You may not", "503 "},
		"certificate of another authority":    {secured(0, certificate(otherCA, "a.hosts.test")), "250 ", "550 5.7.1 Relaying"},
		"no certificate, inside TLS":          {secured(0, plain), "250 ", "550 5.7.1 Relaying"},
		"no certificate, in the clear, relay": {s.on(3).dial(t), "550 5.7.1 You may not", "503 "},
	} {
		t.Run(name, func(t *testing.T) {
			c.d.t = t
			c.d.cmd("EHLO c.test", "250-")
			c.d.cmd("MAIL FROM:<ann@a.test>", c.mail)
			c.d.cmd("RCPT TO:<u%x@other.test>", c.rcpt)
		})
	}
}

// fakeDirectory knows some addresses.
type fakeDirectory map[string]gateway.DirectoryEntry

func (f fakeDirectory) Lookup(ctx context.Context, address string) (gateway.DirectoryEntry, error) {
	switch address {
	case "away@ours.test":
		return gateway.DirectoryEntry{}, errors.New("secret host 10.0.0.1 is away")
	case "slow@ours.test":
		<-ctx.Done()
		return gateway.DirectoryEntry{}, ctx.Err()
	}
	return f[address], nil
}

// Recipients are checked at RCPT: by lists, by a file, by a directory.
func TestRecipients(t *testing.T) {
	file := filepath.Join(t.TempDir(), "recipients")
	writeFile(t, file, []byte("# more\n\nfile@ours.test\n"))
	directory := fakeDirectory{
		"dir@ours.test":  {Known: true},
		"team@ours.test": {Known: true, Aliases: []string{"ann@a.test", "dir@ours.test"}},
		"two@ours.test":  {Known: true, Aliases: []string{"dir@ours.test"}},
		"bad@ours.test":  {Known: true, Aliases: []string{"no address"}},
		"many@ours.test": {Known: true, Aliases: strings.Fields(strings.Repeat("x@x.test ", 99))},
	}
	e := start(t, &fakeSpool{}, startOptions{directory: directory, change: func(c *gateway.Config) {
		stranger(c)
		c.Timeouts.Directory, c.MaxRecipients, c.MaxErrors = short, 100, 0
		c.Accept.Recipients, c.Accept.RecipientsFile = patterns("list@ours.test", "lists.ours.test"), file
	}})
	d := e.dial(t)
	d.cmd("EHLO c.test", "250-")
	d.cmd("MAIL FROM:<a@client.test>", "250 ")
	for _, s := range []step{
		{"list@ours.test", "250 "},
		{"any@lists.ours.test", "250 "},
		{"file@ours.test", "250 "},
		{"dir@ours.test", "250 "},
		{"team@ours.test> ORCPT=rfc822;t@else.test", "250 "},
		{"two@ours.test", "250 "},
		{"nobody@ours.test", "550 5.1.1"},
		{"postmaster@ours.test", "250 "},
		{"away@ours.test", "451 4.3.0 Recipient can't be checked"},
		{"slow@ours.test", "451 4.3.0"},
		{"bad@ours.test", "451 4.3.0"},
		{"many@ours.test", "452 4.5.3"},
	} {
		if !strings.Contains(s.send, ">") {
			s.send += ">"
		}
		d.cmd("RCPT TO:<"+s.send, s.want)
	}
	d.cmd("DATA", "354 ")
	d.cmd("x\r\n.", "250 ")
	var got []string
	for _, r := range e.spool.all()[0].sub.Envelope.GetRecipients() {
		got = append(got, r.GetAddress()+" "+r.GetOriginalRecipient())
	}
	want := []string{"list@ours.test ", "any@lists.ours.test ", "file@ours.test ", "dir@ours.test ", "ann@a.test rfc822;t@else.test", "postmaster@ours.test "}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("recipients (-want +got):\n%s", diff)
	}
	writeFile(t, file, []byte("# more\n\nnew-one@ours.test\n"))
	waitFor(t, "the new file", func() bool {
		d.cmd("MAIL FROM:<a@client.test>", "250 ")
		d.send("RCPT TO:<new-one@ours.test>\r\nRSET\r\n")
		known := strings.HasPrefix(d.reply(), "250 ")
		d.want("250 ")
		return known
	})
}

// What the directory says is believed for a while; where it said nothing it is asked again.
func TestDirectoryIsRemembered(t *testing.T) {
	directory := fakeDirectory{"dir@ours.test": {Known: true}}
	e := start(t, &fakeSpool{}, startOptions{directory: directory, change: stranger})
	d := e.dial(t)
	d.cmd("EHLO c.test", "250-")
	d.cmd("MAIL FROM:<a@client.test>", "250 ")
	d.cmd("RCPT TO:<dir@ours.test>", "250 ")
	d.cmd("RCPT TO:<away@ours.test>", "451 4.3.0")
	delete(directory, "dir@ours.test")
	d.cmd("RCPT TO:<dir@ours.test>", "250 ")
	d.cmd("RCPT TO:<away@ours.test>", "451 4.3.0")
}
