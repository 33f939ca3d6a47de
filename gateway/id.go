package gateway

import (
	"crypto/rand"
	"encoding/hex"
	"time"

	"github.com/google/uuid"
)

// mintID makes a UUIDv7 of a time of the spool's clock. (RFC 9562, section 5.7.)
func mintID(at time.Time) uuid.UUID {
	var id uuid.UUID
	_, _ = rand.Read(id[:]) // never fails, see crypto/rand
	ms := at.UnixMilli()
	for i := 5; i >= 0; i-- {
		id[i] = byte(ms)
		ms >>= 8
	}
	id[6] = id[6]&0x0f | 0x70 // version 7
	id[8] = id[8]&0x3f | 0x80 // variant
	return id
}

// newSessionID makes the name of a session, 16 hexadecimal digits.
func newSessionID() string {
	var b [8]byte
	_, _ = rand.Read(b[:]) // never fails, see crypto/rand
	return hex.EncodeToString(b[:])
}
