package spool

import (
	"crypto/sha256"

	mailv1 "github.com/rohrpost/rohrpost/proto/gen/rohrpost/mail/v1"
)

func contentHash(content []byte) []byte {
	sum := sha256.Sum256(content)
	return sum[:]
}

// hashOf tells what a client that sends again would send: the SHA-256 of the content's SHA-256, the sender and the
// recipients in order, each ended by a NUL, which stands in no address.
func hashOf(envelope *mailv1.Envelope, content []byte) []byte {
	h := sha256.New()
	h.Write(content)
	h.Write([]byte(envelope.GetSender()))
	h.Write([]byte{0})
	for _, r := range envelope.GetRecipients() {
		h.Write([]byte(r.GetAddress()))
		h.Write([]byte{0})
	}
	return h.Sum(nil)
}
