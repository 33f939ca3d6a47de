package gateway

import (
	"bytes"
	"strings"
)

// maxHops is how many Received fields a message may have before it counts as looping. (RFC 5321, section 6.3.)
const maxHops = 100

// headerScan looks at the header section while content passes: it counts Received fields and notes a traceparent. It
// keeps the start of one line only, however long the header is.
type headerScan struct {
	line        [96]byte
	n           int
	ended       bool
	received    int
	traceparent string
}

// feed takes the next octets of content.
func (h *headerScan) feed(p []byte) {
	for len(p) > 0 && !h.ended {
		i := bytes.IndexByte(p, '\n')
		end := i + 1
		if i < 0 {
			end = len(p)
		}
		h.n += copy(h.line[h.n:], p[:end])
		p = p[end:]
		if i >= 0 {
			h.endLine(strings.TrimRight(string(h.line[:h.n]), "\r\n"))
			h.n = 0
		}
	}
}

func (h *headerScan) endLine(line string) {
	if line == "" {
		h.ended = true
		return
	}
	if _, ok := cutPrefixFold(line, "Received:"); ok {
		h.received++
	}
	// The first one counts. What it says is checked where it is used.
	if v, ok := cutPrefixFold(line, "Traceparent:"); ok && h.traceparent == "" {
		h.traceparent = strings.TrimSpace(v)
	}
}

// looping tells whether the message has been through too many hosts.
func (h *headerScan) looping() bool { return h.received > maxHops }

func cutPrefixFold(s, prefix string) (string, bool) {
	if len(s) < len(prefix) || !strings.EqualFold(s[:len(prefix)], prefix) {
		return s, false
	}
	return s[len(prefix):], true
}
