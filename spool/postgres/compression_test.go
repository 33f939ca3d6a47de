package postgres_test

import (
	"bytes"
	"strings"
	"testing"

	"github.com/rohrpost/rohrpost/spool"
)

// A usual mail stands in its row, compressed, and nothing of the row is moved elsewhere.
func TestMailIsCompressedInItsRow(t *testing.T) {
	f := newFixture(t)
	if can := f.sql("SELECT ('lz4' = ANY (enumvals))::text FROM pg_settings WHERE name = 'default_toast_compression'"); can[0] != "true" {
		t.Skip("the server lacks LZ4")
	}
	inc := f.register("a")
	content := strings.Repeat("The quick brown fox jumps over the lazy dog.\r\n", 100)
	m := message(t, content, "ann@b.example", "ben@b.example", "cat@c.example")
	f.commit(inc, &spool.Batch{Messages: []spool.Message{m}})
	if got := f.sql("SELECT coalesce(pg_column_compression(content), 'nothing') FROM message"); got[0] != "lz4" {
		t.Errorf("compressed by %q", got[0])
	}
	moved := f.sql(`SELECT sum(pg_relation_size(reltoastrelid))::text FROM pg_class
		WHERE relkind = 'r' AND relname LIKE 'message\_2%' AND reltoastrelid <> 0`)
	if moved[0] != "0" {
		t.Errorf("%s octets were moved out of rows", moved[0])
	}
	var read bytes.Buffer
	err := f.store.ReadContent(t.Context(), m.ID, 0, 0, func(piece []byte) error {
		read.Write(piece)
		return nil
	})
	if err != nil || read.String() != content {
		t.Errorf("%d octets of %d were read: %v", read.Len(), len(content), err)
	}
}
