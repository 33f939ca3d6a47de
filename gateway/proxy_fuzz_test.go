package gateway

import (
	"bytes"
	"encoding/binary"
	"io"
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"
)

// pieces is a connection from a balancer whose octets come in two pieces.
type pieces struct {
	net.Conn // nil: nothing else is called
	rest     [][]byte
}

var balancer = netip.MustParseAddrPort("198.51.100.1:4711")

func (p *pieces) Read(b []byte) (int, error) {
	for len(p.rest) > 0 && len(p.rest[0]) == 0 {
		p.rest = p.rest[1:]
	}
	if len(p.rest) == 0 {
		return 0, io.EOF
	}
	n := copy(b, p.rest[0])
	p.rest[0] = p.rest[0][n:]
	return n, nil
}

func (*pieces) SetReadDeadline(time.Time) error { return nil }
func (*pieces) RemoteAddr() net.Addr            { return net.TCPAddrFromAddrPort(balancer) }
func (*pieces) LocalAddr() net.Addr             { return net.TCPAddrFromAddrPort(balancer) }

// FuzzProxy looks for what a balancer may send that is taken for a header and is none, or for the address of another
// client than it names, or that takes octets of the client with it (case D15).
func FuzzProxy(f *testing.F) {
	v2 := func(command, family byte, body string) string {
		head := []byte("\r\n\r\n\x00\r\nQUIT\n")
		head = append(head, 0x20|command, family)
		return string(binary.BigEndian.AppendUint16(head, uint16(len(body)))) + body
	}
	four := "\xc0\x00\x02\x07\xc0\x00\x02\x19\x12\x67\x00\x19"
	six := strings.Repeat("\x20\x01\x0d\xb8\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x07", 2) + "\x12\x67\x00\x19"
	for _, seed := range []string{
		"PROXY TCP4 192.0.2.7 192.0.2.25 4711 25\r\n", "PROXY TCP6 2001:db8::7 2001:db8::25 4711 25\r\n", "PROXY UNKNOWN\r\n",
		"PROXY UNKNOWN 192.0.2.7 192.0.2.25 4711 25\r\n", "PROXY TCP4 192.0.2.7 192.0.2.25 4711 25\n", "PROXY TCP4 ::1 ::1 1 1\r\n",
		"PROXY TCP4 192.0.2.7 192.0.2.25 4711 25 x\r\n", "PROXY TCP6 ::ffff:192.0.2.7 ::1 1 2\r\n", "PROXY TCP6 fe80::1%eth0 ::1 1 2\r\n",
		"PROXY TCP4 192.0.2.7 192.0.2.25 99999 25\r\n", "PROXY \r\n", "PROXY TCP4\r\n", "EHLO c.test\r\n", "PROXY  TCP4 1.2.3.4 1.2.3.4 1 1\r\n",
		v2(1, 0x11, four), v2(1, 0x21, six), v2(0, 0x00, ""), v2(0, 0x11, four), v2(1, 0x11, four+"\x03\x00\x04abcd"), v2(1, 0x11, "short"),
		v2(1, 0x31, strings.Repeat("/", 216)), v2(1, 0x12, four), v2(2, 0x11, four), v2(1, 0x00, ""), v2(1, 0x11, four+strings.Repeat("\x04\x00\xff"+strings.Repeat("x", 255), 20)),
	} {
		for _, cut := range []uint8{0, 5, 14} {
			f.Add([]byte(seed+"EHLO c.test\r\n"), cut)
		}
	}
	f.Fuzz(func(t *testing.T, raw []byte, cut uint8) {
		first := min(int(cut), len(raw))
		conn := behindBalancer(&pieces{rest: [][]byte{bytes.Clone(raw[:first]), bytes.Clone(raw[first:])}}, time.Minute)
		client, ok := clientOf(conn)
		if !ok {
			return // the session ends unread
		}
		length, named := headerOf(raw)
		if length < 0 {
			t.Fatalf("%q is taken for a header", raw)
		}
		rest, err := io.ReadAll(conn)
		if err != nil || !bytes.Equal(rest, raw[length:]) {
			t.Errorf("%q leaves %q, %v", raw, rest, err)
		}
		if got := client.Addr(); got != balancer.Addr() && got != named {
			t.Errorf("%q is from %s, want %s or the balancer", raw, got, named)
		}
	})
}

// headerOf reads a header by its specification: its length, -1 where there is none, and the address that it names.
func headerOf(raw []byte) (length int, client netip.Addr) {
	if line, _, ok := bytes.Cut(raw, []byte("\r\n")); ok && bytes.HasPrefix(line, []byte("PROXY ")) && len(line) < maxHeader {
		if f := bytes.Fields(line); len(f) > 2 && (string(f[1]) == "TCP4" || string(f[1]) == "TCP6") {
			client, _ = netip.ParseAddr(string(f[2]))
		}
		return len(line) + 2, client.Unmap().WithZone("")
	}
	if len(raw) < 16 || string(raw[:12]) != "\r\n\r\n\x00\r\nQUIT\n" {
		return -1, client
	}
	length = 16 + int(binary.BigEndian.Uint16(raw[14:]))
	if length > len(raw) {
		return -1, client
	}
	size := map[byte]int{1: 4, 2: 16}[raw[13]>>4]
	if size > 0 && raw[12]&0xf == 1 && 16+size <= length {
		client, _ = netip.AddrFromSlice(raw[16 : 16+size])
	}
	return length, client.Unmap()
}
