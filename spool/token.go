package spool

import (
	"encoding/binary"
	"time"

	"github.com/google/uuid"
)

// tokenSize is the length of a token: incarnation, message, stage, serial number and random octets.
const tokenSize = 8 + 16 + 1 + 8 + 16

func (c *core) mintToken(id ID, stage Stage) []byte {
	c.serial++
	t := make([]byte, 0, tokenSize)
	t = binary.BigEndian.AppendUint64(t, uint64(c.inc))
	t = append(t, id[:]...)
	t = append(t, byte(stage))
	t = binary.BigEndian.AppendUint64(t, c.serial)
	t = binary.BigEndian.AppendUint64(t, c.rng.Uint64())
	return binary.BigEndian.AppendUint64(t, c.rng.Uint64())
}

// splitToken reads what a token is about. It is false where that is no token of ours.
func splitToken(t []byte) (inc Incarnation, id ID, stage Stage, ok bool) {
	if len(t) != tokenSize {
		return 0, ID{}, 0, false
	}
	inc = Incarnation(binary.BigEndian.Uint64(t))
	return inc, ID(t[8:24]), Stage(t[24]), true
}

// mintID makes a UUIDv7 (RFC 9562, section 5.7) of a time. Ids grow also within a millisecond (section 6.2, method 1):
// a message's attempts are read in the order of their ids.
func (c *core) mintID(at time.Time) ID {
	var id ID
	c.lastID = max(uint64(at.UnixMilli())<<12, c.lastID+1)
	binary.BigEndian.PutUint64(id[:8], c.lastID&^0x0fff<<4|c.lastID&0x0fff|0x7000)
	binary.BigEndian.PutUint64(id[8:], c.rng.Uint64()&^(3<<62)|1<<63)
	return id
}

// noID is the id of no message.
var noID = uuid.Nil
