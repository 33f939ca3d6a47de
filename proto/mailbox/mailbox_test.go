package mailbox_test

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/rohrpost/rohrpost/proto/mailbox"
)

func TestValid(t *testing.T) {
	for s, want := range map[string]bool{
		"ann@a.example": true, "a.b+c@a_b.example": true, `"a b"@a.example`: true, `"a\"@b"@a.example`: true,
		"ann@[192.0.2.1]": true, "ann@[IPv6:2001:db8::1]": true, "jörg@bücher.example": true,
		"": false, "ann": false, "@a.example": false, "ann@": false, "a..b@a.example": false, ".a@a.example": false,
		"a b@a.example": false, `"a"b@a.example`: false, "ann@-a.example": false, "ann@a..example": false,
		"ann@[192.0.2.300]": false, "ann@[2001:db8::1]": false, "ann@[IPv6:fe80::1%eth0]": false,
		"ann@a.example\r\n": false, "a\x00b@a.example": false, "\xff@a.example": false,
		"ann@" + strings.Repeat("a", 64) + ".example": false,
	} {
		if got := mailbox.Valid(s); got != want {
			t.Errorf("Valid(%q) = %v, want %v", s, got, want)
		}
	}
}

func TestTooLong(t *testing.T) {
	for s, want := range map[string]bool{
		strings.Repeat("a", 64) + "@a.example": false, strings.Repeat("a", 65) + "@a.example": true,
		"a@" + strings.Repeat("a.", 126): false, "a@" + strings.Repeat("a.", 127): true,
	} {
		if got := mailbox.TooLong(s); got != want {
			t.Errorf("TooLong(%q) = %v, want %v", s, got, want)
		}
	}
}

func TestLiteral(t *testing.T) {
	for _, s := range []string{"192.0.2.1", "2001:db8::1"} {
		if l := mailbox.Literal(netip.MustParseAddr(s)); !mailbox.IsLiteral(l) || !mailbox.Valid("ann@"+l) {
			t.Errorf("%s: %s is no literal", s, l)
		}
	}
}
