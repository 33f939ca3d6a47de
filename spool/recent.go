package spool

import "time"

// recentLimit bounds what is remembered of messages that are no longer held.
const recentLimit = 1 << 16

// recent remembers the last recentLimit keys that were added. The zero value is empty.
type recent[K comparable, V any] struct {
	values map[K]V
	ring   []K // in the order of adding, from next on once it is full
	next   int
}

func (r *recent[K, V]) add(key K, value V) {
	if r.values == nil {
		r.values = map[K]V{}
	}
	if _, known := r.values[key]; !known {
		if len(r.ring) < recentLimit {
			r.ring = append(r.ring, key)
		} else {
			delete(r.values, r.ring[r.next])
			r.ring[r.next] = key
			r.next = (r.next + 1) % recentLimit
		}
	}
	r.values[key] = value
}

// recentHashes remembers which message had a hash lately, to spot a client that sends again.
type recentHashes struct {
	recent[[32]byte, recentHash]
}

type recentHash struct {
	id ID
	at time.Time
}

func (r *recentHashes) find(hash []byte, since time.Time) (ID, bool) {
	if len(hash) != 32 {
		return ID{}, false
	}
	h, ok := r.values[[32]byte(hash)]
	if !ok || h.at.Before(since) {
		return ID{}, false
	}
	return h.id, true
}

func (r *recentHashes) add(hash []byte, id ID, at time.Time) {
	if len(hash) == 32 {
		r.recent.add([32]byte(hash), recentHash{id: id, at: at})
	}
}

// recentIDs remembers messages that left memory after they were durable, and whether they were withdrawn.
type recentIDs struct {
	recent[ID, bool]
}

func (r *recentIDs) find(id ID) (withdrawn, known bool) {
	withdrawn, known = r.values[id]
	return withdrawn, known
}
