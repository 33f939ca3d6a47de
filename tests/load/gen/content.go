package gen

import (
	"errors"
	"fmt"
	"time"

	"github.com/rohrpost/rohrpost/tests/load/mail"
)

// content sends the content and reads the reply to it.
func (t *transaction) content(msg mail.Message) error {
	var err error
	if t.c.cfg.Chunk > 0 {
		err = t.chunks(msg)
	} else {
		err = t.lines(msg)
	}
	if err != nil {
		return err
	}
	if t.c.cfg.LMTP {
		return t.replies()
	}
	text, err := t.c.expect("dot", 250, t.dotTimeout())
	t.acked = time.Now()
	t.entry.Reply = text
	var refused *replyError
	t.broken = t.broken || errors.As(err, &refused) && refused.code == 421
	return err
}

// dotTimeout is longer than that of other replies, as clients give it. (RFC 5321, section 4.5.3.2.6.)
func (t *transaction) dotTimeout() time.Duration { return 10 * t.c.cfg.Timeout }

// replies reads the reply for each recipient. The message is refused where all are. (RFC 2033, section 4.2.)
func (t *transaction) replies() error {
	taken := t.entry.Recipients[:0:0]
	var refusal error
	for _, recipient := range t.entry.Recipients {
		text, err := t.c.expect("dot", 250, t.dotTimeout())
		var refused *replyError
		switch {
		case err == nil:
			taken = append(taken, recipient)
			t.entry.Reply = text
		case errors.As(err, &refused):
			t.entry.Rejected = append(t.entry.Rejected, recipient)
			refusal = err
		default:
			return err
		}
	}
	t.acked = time.Now()
	if t.entry.Recipients = taken; len(taken) == 0 {
		return refusal
	}
	return nil
}

// lines writes content as it goes after DATA.
func (t *transaction) lines(msg mail.Message) error {
	header := stuff(msg.Header)
	// From here the server may have got the end mark, whatever becomes of the write.
	if !t.slow {
		t.sent = time.Now()
		return t.written(t.c.write("content", header, t.kind.stuffed, msg.Tail, []byte(".\r\n")))
	}
	if err := t.trickle(header, t.kind.stuffed, msg.Tail); err != nil {
		return err
	}
	t.sent = time.Now()
	return t.written(t.c.write("content", []byte(".\r\n")))
}

func (t *transaction) written(err error) error {
	if err == nil {
		t.sent = time.Now()
	}
	return err
}

// trickle writes as slow clients do, a piece each tenth of a second.
func (t *transaction) trickle(parts ...[]byte) error {
	piece := max(1, t.c.cfg.SlowRate/10)
	for _, octets := range parts {
		for len(octets) > 0 {
			n := min(piece, len(octets))
			if err := t.c.write("content", octets[:n]); err != nil {
				return err
			}
			octets = octets[n:]
			time.Sleep(100 * time.Millisecond)
		}
	}
	return nil
}

// chunks writes content by BDAT. (RFC 3030, section 2.)
func (t *transaction) chunks(msg mail.Message) error {
	octets := msg.Bytes()
	for {
		n := min(t.c.cfg.Chunk, len(octets))
		last := n == len(octets)
		command := fmt.Appendf(nil, "BDAT %d\r\n", n)
		if last {
			command = fmt.Appendf(nil, "BDAT %d LAST\r\n", n)
		}
		if err := t.chunk(command, octets[:n], last); err != nil {
			return err
		}
		if last {
			return nil
		}
		if _, err := t.c.expect("bdat", 250, t.c.cfg.Timeout); err != nil {
			return t.rset(err)
		}
		octets = octets[n:]
	}
}

// chunk writes a chunk after its command. From the last octets of the last one on the server may have the message, whatever
// becomes of the write.
func (t *transaction) chunk(command, octets []byte, last bool) error {
	if t.slow && len(octets) > 0 {
		most := len(octets) - 1
		if err := t.trickle(command, octets[:most]); err != nil {
			return err
		}
		command, octets = nil, octets[most:]
	}
	if last {
		t.sent = time.Now()
	}
	err := t.c.write("content", command, octets)
	if last && err == nil {
		t.sent = time.Now()
	}
	return err
}
