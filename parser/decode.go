package parser

import (
	"bytes"
	"sync"
)

// decoder reads a Content-Transfer-Encoding from pieces of a body. It hands the decoded octets to sink, in pieces that are
// only valid during the call.
type decoder interface {
	// write reads the next piece.
	write(p []byte, sink func([]byte))
	// close reads what is left. It returns the kind of a defect, empty if there was none.
	close(sink func([]byte)) (defect string)
}

// transfer is a kind of Content-Transfer-Encoding.
type transfer int

const (
	isUnknown transfer = iota // read as it stands
	isPlain
	isBase64
	isQuotedPrintable
	isUuencode
)

// decoding finds the kind of a Content-Transfer-Encoding in lower case.
func decoding(name string) transfer {
	switch name {
	case "", "7bit", "8bit", "binary", "7-bit", "8-bit", "none":
		return isPlain
	case "base64":
		return isBase64
	case "quoted-printable":
		return isQuotedPrintable
	case "x-uuencode", "uuencode", "x-uue", "uue":
		return isUuencode
	}
	return isUnknown
}

type asItStands struct{}

func (asItStands) write(p []byte, sink func([]byte)) { sink(p) }
func (asItStands) close(func([]byte)) string         { return "" }

const (
	// chunk is how many decoded octets are handed on at once.
	chunk = 32 << 10
	// slack is by how much a chunk may be exceeded before it is handed on.
	slack = 4 << 10
)

// chunks are buffers for decoded octets.
var chunks = sync.Pool{New: func() any { return new([chunk + slack]byte) }}

// withChunk lends a buffer.
func withChunk(use func(out []byte)) {
	buffer := chunks.Get().(*[chunk + slack]byte)
	use(buffer[:0])
	chunks.Put(buffer)
}

// base64Values maps the alphabet of RFC 2045, 6.8 to its values, anything else to 255.
var base64Values = func() (t [256]byte) {
	for i := range t {
		t[i] = 255
	}
	for i, c := range []byte("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/") {
		t[c] = byte(i)
	}
	return t
}()

// base64Groups maps the four characters of a group to their bits in place; what is not of the alphabet has the top bit.
var base64Groups = func() (t [4][256]uint32) {
	for i := range t {
		for c, v := range base64Values {
			t[i][c] = 1 << 31
			if v < 64 {
				t[i][c] = uint32(v) << (18 - 6*i)
			}
		}
	}
	return t
}()

// base64Decoder reads base64. What is not of the alphabet is passed over (RFC 2045, 6.8), where some readers stop. Padding
// ends a group, not the body: some writers join encoded pieces.
type base64Decoder struct {
	acc               uint32 // the bits of a group under way
	bits              int
	pad, junk, joined bool
}

func (d *base64Decoder) write(p []byte, sink func([]byte)) {
	withChunk(func(out []byte) {
		for len(p) > 0 {
			if d.bits == 0 {
				out, p = d.groups(out, p)
			}
			if len(out) >= chunk {
				sink(out)
				out = out[:0]
			}
			if len(p) > 0 {
				out = d.octet(out, p[0])
				p = p[1:]
			}
		}
		if len(out) > 0 {
			sink(out)
		}
	})
}

// groups decodes whole groups as far as there is nothing between them.
func (d *base64Decoder) groups(out, p []byte) (rest, left []byte) {
	t := &base64Groups
	n := min((cap(out)-len(out))/3, len(p)/4)
	dst := out[len(out) : len(out)+3*n]
	i := 0
	for ; i < n; i++ {
		q := p[4*i : 4*i+4 : 4*i+4]
		v := t[0][q[0]] | t[1][q[1]] | t[2][q[2]] | t[3][q[3]]
		if v>>31 != 0 {
			break
		}
		o := dst[3*i : 3*i+3 : 3*i+3]
		o[0], o[1], o[2] = byte(v>>16), byte(v>>8), byte(v)
	}
	d.joined = d.joined || d.pad && i > 0
	return out[:len(out)+3*i], p[4*i:]
}

// octet reads one character.
func (d *base64Decoder) octet(out []byte, c byte) []byte {
	v := base64Values[c]
	switch {
	case v < 64:
		d.joined = d.joined || d.pad
		d.acc = d.acc<<6 | uint32(v)
		if d.bits += 6; d.bits == 24 {
			out = append(out, byte(d.acc>>16), byte(d.acc>>8), byte(d.acc))
			d.bits = 0
		}
	case c == '=':
		d.pad = true
		out = flushBase64(out, d.acc, d.bits)
		d.bits = 0
	case c > ' ':
		d.junk = true
	}
	return out
}

func (d *base64Decoder) close(sink func([]byte)) string {
	var last [3]byte
	sink(flushBase64(last[:0], d.acc, d.bits))
	switch {
	case d.joined || d.junk:
		return "ambiguous_base64"
	case d.bits != 0:
		return "invalid_base64"
	}
	return ""
}

// flushBase64 writes the whole octets of an unfinished group.
func flushBase64(out []byte, acc uint32, bits int) []byte {
	switch bits {
	case 12:
		return append(out, byte(acc>>4))
	case 18:
		return append(out, byte(acc>>10), byte(acc>>2))
	}
	return out
}

func decodeBase64(b []byte) ([]byte, bool) {
	out := make([]byte, 0, len(b)/4*3+3)
	collect := func(p []byte) { out = append(out, p...) }
	var d base64Decoder
	d.write(b, collect)
	defect := d.close(collect)
	// Words often lack their padding; nothing is lost by that.
	return out, defect == "" || len(b)%4 != 0 && bytes.IndexByte(b, '=') < 0
}
