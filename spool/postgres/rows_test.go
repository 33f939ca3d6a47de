package postgres

import (
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgtype"
)

// What a row has comes back as the parameters of a statement, encoded as pgx does it.
func TestColumnsAreEncodedAsPgxDoes(t *testing.T) {
	id := uuid.MustParse("01970000-0000-7000-8000-0000000000ff")
	at := time.Date(2026, 12, 1, 10, 11, 12, 131415000, time.FixedZone("", 3600))
	columns := []struct {
		oid   uint32
		value any
		write func(*rowSet)
	}{
		{pgtype.UUIDOID, pgtype.UUID{Bytes: id, Valid: true}, func(r *rowSet) { r.uuid(id) }},
		{pgtype.Int8OID, int64(-3), func(r *rowSet) { r.bigint(-3) }},
		{pgtype.Int4OID, int32(7), func(r *rowSet) { r.integer(7) }},
		{pgtype.TextOID, "Grüße", func(r *rowSet) { r.text("Grüße") }},
		{pgtype.ByteaOID, []byte{0, 255}, func(r *rowSet) { r.bytea([]byte{0, 255}) }},
		{pgtype.ByteaOID, []byte{}, func(r *rowSet) { r.bytea([]byte{}) }},
		{pgtype.ByteaOID, []byte(nil), func(r *rowSet) { r.bytea(nil) }},
		{pgtype.TimestamptzOID, at, func(r *rowSet) { r.timestamptz(at) }},
		{pgtype.TimestamptzOID, time.Time{}, func(r *rowSet) { r.timestamptz(time.Time{}) }},
		{pgtype.TextArrayOID, []string{"a", ""}, func(r *rowSet) { r.texts([]string{"a", ""}) }},
		{pgtype.Int4ArrayOID, []int32{1, -1}, func(r *rowSet) { r.integers([]int32{1, -1}) }},
	}
	r := newRows(newTable("t", "a, b, c, d, e, f, g, h, i, j, k", "DO NOTHING"), 0)
	for range 2 {
		r.add(id)
		for _, c := range columns {
			c.write(r)
		}
	}
	types := pgtype.NewMap()
	for row := range r.len() {
		for i, got := range r.values(row) {
			want, err := types.Encode(columns[i].oid, pgtype.BinaryFormatCode, columns[i].value, []byte{})
			if err != nil {
				t.Fatal(err)
			}
			if string(got) != string(want) || (got == nil) != (want == nil) {
				t.Errorf("row %d, column %d is %x, want %x", row, i, got, want)
			}
		}
	}
}
