package postgres_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rohrpost/rohrpost/spool"
)

// The queries of docs/sql.md must run on this schema.
func TestDocumentedQueries(t *testing.T) {
	page, err := os.ReadFile(filepath.Join("..", "..", "docs", "sql.md"))
	if err != nil {
		t.Fatal(err)
	}
	f := newFixture(t)
	inc := f.register("a")
	m, waiting := message(t, "m"), message(t, "w")
	f.commit(inc, &spool.Batch{
		Messages: []spool.Message{m, waiting}, Outcomes: []spool.Outcome{outcome(m.ID, delivered)},
		Waits: []spool.Wait{wait(waiting.ID, "b.example", true, 0)},
	})
	conn := f.connect()
	defer func() { _ = conn.Close(t.Context()) }()
	blocks := strings.Split(string(page), "```sql\n")[1:]
	if len(blocks) < 10 {
		t.Errorf("the page has %d queries only", len(blocks))
	}
	for _, block := range blocks {
		query, _, _ := strings.Cut(block, "```")
		rows, err := conn.Query(t.Context(), query)
		if err != nil {
			t.Errorf("%s: %v", query, err)
			continue
		}
		rows.Close()
		if err := rows.Err(); err != nil {
			t.Errorf("%s: %v", query, err)
		}
	}
}
