package parser

import (
	"io"
	"runtime"
	"strings"
	"testing"
	"time"
)

// TestLittleIsHeld: of large mails that are made to be held in memory the reader holds no more than of others.
func TestLittleIsHeld(t *testing.T) {
	const multipart = "Content-Type: multipart/mixed; boundary=b\r\n\r\n"
	long := strings.Repeat("x", 60_000)
	kept := strings.Repeat("X-A: "+strings.Repeat("y", 1000)+"\r\n", 256)
	for _, c := range []struct {
		name, start, block string
		times, most        int // most is what may be held, in MiB
	}{
		{"fields between long lines that are none", "Subject: s\r\n", long + "\r\nA: b\r\n", 400, 8},
		{"fields of long names", "Subject: s\r\n", long + ": b\r\n", 400, 8},
		{"reports", multipart, "--b\r\nContent-Type: message/delivery-status\r\n\r\n" + strings.Repeat("Final-Recipient: x; a@b\r\n\r\n", 9000), 150, 8},
		{"long parameters", multipart, "--b\r\nContent-Type: a/b; x=" + long + "\r\n\r\n", 400, 8},
		{"long file names", multipart, "--b\r\nContent-Disposition: attachment; filename=\"" + long + "\"\r\n\r\n", 400, 8},
		{"long content ids", multipart, "--b\r\nContent-ID: <" + long + ">\r\n\r\n", 400, 8},
		{"long encodings", multipart, "--b\r\nContent-Transfer-Encoding: " + long + "\r\n\r\n", 400, 8},
		{"long types", multipart, "--b\r\nContent-Type: " + long + "/x\r\n\r\n", 400, 8},
		{"header sections", multipart, "--b\r\n" + kept + "\r\n", 100, 8},
		{"an encoded message", "Content-Type: message/rfc822\r\nContent-Transfer-Encoding: base64\r\n\r\n", strings.Repeat("QUJD", 18) + "\r\n", 280_000, 40},
	} {
		t.Run(c.name, func(t *testing.T) {
			block := c.block
			size := len(c.start) + len(block)*c.times
			in := &measured{in: io.MultiReader(strings.NewReader(c.start), &repeated{line: block, left: len(block) * c.times})}
			before := heap()
			m, err := ParseReader(in, int64(size), Limits{Time: time.Hour})
			if err != nil || m.GetSize() != int64(size) {
				t.Fatalf("%v, size %d", err, m.GetSize())
			}
			if held := int64(in.peak) - int64(before); held > int64(c.most)<<20 {
				t.Errorf("%d KiB held of a mail of %d", held>>10, size>>10)
			}
		})
	}
}

// TestManyHideNothing: where one field or part uses a limit up, enough of the others is read.
func TestManyHideNothing(t *testing.T) {
	t.Parallel()
	content := "To: " + folded("a@b,", 12_000) + "\r\nFrom: me@c\r\nContent-Type: multipart/mixed; boundary=b\r\n\r\n" +
		strings.Repeat("--b\r\nContent-Type: a/b"+manyParams(5000)+"\r\n\r\n", 20) +
		"--b\r\nContent-Type: multipart/mixed; x=y; boundary=c\r\n\r\n--c\r\n\r\n--c--\r\n--b--\r\n"
	m := check(t, []byte(content), Limits{ResultBytes: maxResultBytes})
	if from := m.GetFrom(); len(from) != 1 || from[0].GetAddress() != "me@c" || !hasDefect(m, "address_limit") {
		t.Errorf("from %v, defects %v", from, kinds(m))
	}
	parts := m.GetParts()[0].GetParts()
	if len(parts) != 21 || len(parts[20].GetParts()) != 1 || !hasDefect(m, "ambiguous_parameter") {
		t.Errorf("%d parts, defects %v", len(parts), kinds(m))
	}
}

// heap is how many octets are in use once the garbage is gone.
func heap() uint64 {
	runtime.GC()
	var stats runtime.MemStats
	runtime.ReadMemStats(&stats)
	return stats.HeapAlloc
}

// measured finds the most that was in use while a stream was read.
type measured struct {
	in    io.Reader
	since int
	peak  uint64
}

func (m *measured) Read(p []byte) (int, error) {
	n, err := m.in.Read(p)
	if m.since += n; m.since > 2<<20 || err != nil {
		m.peak, m.since = max(m.peak, heap()), 0
	}
	return n, err
}
