package gateway

import (
	"io"
	"net"
	"strings"
	"testing"
	"time"
)

// Case D15: a header of version 1 may come octet by octet. A pipe's write returns once it has been read.
func TestProxyHeaderInPieces(t *testing.T) {
	const line = "PROXY TCP4 192.0.2.7 192.0.2.25 4711 25\r\n"
	for name, c := range map[string]struct {
		raw  string
		want bool
	}{
		"whole":       {line, true},
		"UNKNOWN":     {"PROXY UNKNOWN\r\n", true},
		"no end":      {"PROXY TCP4 " + strings.Repeat("1", 200), false},
		"no header":   {"EHLO c.test\r\n", false},
		"almost one":  {"PROXYTCP4 192.0.2.7 192.0.2.25 4711 25\r\n", false},
		"is cut":      {"PROXY TCP4 192", false},
		"bare LF":     {"PROXY UNKNOWN\n", false},
		"more behind": {line + "EHLO c.test\r\n", true},
	} {
		t.Run(name, func(t *testing.T) {
			near, far := net.Pipe()
			defer near.Close()
			written := make(chan struct{})
			go func() {
				defer close(written)
				defer far.Close()
				for i := range len(c.raw) {
					if _, err := io.WriteString(far, c.raw[i:i+1]); err != nil {
						return // no more is read of what is no header
					}
				}
			}()
			conn := behindBalancer(near, time.Minute)
			if got := conn.ProxyHeader() != nil; got != c.want {
				t.Errorf("a header is found: %t", got)
			}
			if c.want {
				rest, err := io.ReadAll(conn)
				if _, want, _ := strings.Cut(c.raw, "\n"); err != nil || string(rest) != want {
					t.Errorf("%q behind it, %v", rest, err)
				}
			}
			near.Close()
			<-written
		})
	}
}
