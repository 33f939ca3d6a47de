package spool

import (
	"google.golang.org/protobuf/types/known/timestamppb"

	mailv1 "github.com/rohrpost/rohrpost/proto/gen/rohrpost/mail/v1"
)

// chunkSize is the most octets of a chunk row.
const chunkSize = 256 << 10

// notify inserts notifications into the transaction that ends their recipients, so that a crash sends none or one. The
// null reverse-path is never told anything (RFC 5321, section 4.5.5), and a notification must not have another.
func (c *core) notify(m *message, w *write, notifications []Notification) {
	if m.row.Envelope.GetSender() == "" {
		return
	}
	for _, n := range notifications {
		if n.Envelope.GetSender() != "" || len(n.Envelope.GetRecipients()) == 0 || len(n.Content) == 0 {
			continue
		}
		c.insertNotification(m, w, n)
	}
}

func (c *core) insertNotification(parent *message, w *write, n Notification) {
	if n.Envelope.GetReception() == nil {
		n.Envelope.Reception = &mailv1.Reception{}
	}
	if n.Envelope.Reception.GetReceivedAt() == nil {
		n.Envelope.Reception.ReceivedAt = timestamppb.New(c.now)
	}
	row := Message{
		ID: c.mintID(c.now), Owner: c.inc, Envelope: n.Envelope, Trace: parent.row.Trace,
		Size: int64(len(n.Content)), Hash: hashOf(n.Envelope, contentHash(n.Content)), Content: n.Content, Accepted: c.now,
	}
	var chunks []Chunk
	if len(row.Content) > InlineLimit {
		chunks = chunksOf(row.ID, row.Content)
		row.Content = nil
	}
	m := newMessage(row)
	c.note(m, eventAccepted, bySpool, nil, "notification about "+parent.row.ID.String())
	add := c.acceptWrite(m, row, chunks)
	w.Messages = append(w.Messages, add.Messages...)
	w.Chunks = append(w.Chunks, add.Chunks...)
	w.born = append(w.born, m)
}

// born sets a notification going once it is durable.
func (c *core) born(m *message) {
	c.keep(m)
	c.admit(m)
}

func chunksOf(id ID, content []byte) []Chunk {
	var chunks []Chunk
	for offset := 0; offset < len(content); offset += chunkSize {
		chunks = append(chunks, Chunk{
			Message: id, Seq: int32(len(chunks)), Offset: int64(offset),
			Data: content[offset:min(offset+chunkSize, len(content))],
		})
	}
	return chunks
}
