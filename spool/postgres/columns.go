package postgres

import (
	"encoding/binary"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgtype"
)

// The columns of a row, each behind its length, as the receive function of its type reads it.

// null is the length of NULL.
const null = ^uint32(0)

func (r *rowSet) uint32(n uint32) { r.data = binary.BigEndian.AppendUint32(r.data, n) }

func (r *rowSet) uuid(id uuid.UUID) {
	r.uint32(uint32(len(id)))
	r.data = append(r.data, id[:]...)
}

func (r *rowSet) bigint(n int64) {
	r.uint32(8)
	r.data = binary.BigEndian.AppendUint64(r.data, uint64(n))
}

func (r *rowSet) integer(n int32) {
	r.uint32(4)
	r.uint32(uint32(n))
}

func (r *rowSet) text(s string) {
	r.uint32(uint32(len(s)))
	r.data = append(r.data, s...)
}

// bytea writes octets, NULL for nil.
func (r *rowSet) bytea(b []byte) {
	if b == nil {
		r.uint32(null)
		return
	}
	r.uint32(uint32(len(b)))
	r.data = append(r.data, b...)
}

// epoch is where PostgreSQL's time begins.
var epoch = time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)

func (r *rowSet) timestamptz(t time.Time) { r.bigint(t.UnixMicro() - epoch.UnixMicro()) }

func (r *rowSet) texts(list []string) {
	array(r, pgtype.TextOID, len(list), func(i int) { r.text(list[i]) })
}

func (r *rowSet) integers(list []int32) {
	array(r, pgtype.Int4OID, len(list), func(i int) { r.integer(list[i]) })
}

// array writes an array of n elements as array_recv of PostgreSQL reads it: the number of dimensions, whether there are NULLs,
// the type of the elements; the length and the lower bound of the dimension, where there is one; the elements.
func array(r *rowSet, elements uint32, n int, element func(i int)) {
	at := len(r.data)
	r.uint32(0) // the length is known at the end
	dimensions := uint32(min(n, 1))
	for _, part := range []uint32{dimensions, 0, elements} {
		r.uint32(part)
	}
	if dimensions > 0 {
		r.uint32(uint32(n))
		r.uint32(1)
	}
	for i := range n {
		element(i)
	}
	binary.BigEndian.PutUint32(r.data[at:], uint32(len(r.data)-at-4))
}
