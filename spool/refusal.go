package spool

import (
	"time"

	mailv1 "github.com/rohrpost/rohrpost/proto/gen/rohrpost/mail/v1"
	"github.com/rohrpost/rohrpost/proto/smtpreply"
)

// maxNoted is how many recipients a refusal names.
const maxNoted = 10

// Refusal is what is noted of a message that a verdict refused before it was durable, and of which nothing else is kept.
type Refusal struct {
	Search                 // what people look for, as far as the message could be read
	Time         time.Time // when its client was told
	Client       string    // its IP address
	Sender       string
	Recipients   []string // the first ten
	RecipientSum int      // of all of them
	Size         int64    // of the content, in octets
	Reply        *mailv1.Reply
	Rule         string // the filter's rule that decided; empty where none matched
	Traceparent  string // of its trace
}

// noteRefusal has it noted that a message is refused, for the sake of one of its recipients. Nobody waits for that.
func (c *core) noteRefusal(m *message, decisive int32, reply *smtpreply.Error) {
	env := m.row.Envelope
	r := &Refusal{
		Search: searchOf(m.row.ID, m.parsed), Time: c.now, Client: env.GetReception().GetClientIp(), Sender: env.GetSender(),
		RecipientSum: len(env.GetRecipients()), Size: m.row.Size, Reply: reply.Reply(),
		Rule: m.verdict.GetRecipients()[decisive].GetRule(), Traceparent: m.row.Trace.GetTraceparent(),
	}
	for _, to := range env.GetRecipients()[:min(maxNoted, r.RecipientSum)] {
		r.Recipients = append(r.Recipients, to.GetAddress())
	}
	c.decide(decision{kind: decideRefusal, refusal: r})
}
