package postgres

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/rohrpost/rohrpost/spool"
)

// rowSet is rows for one table, to be inserted.
type rowSet struct {
	table    string
	columns  []column
	conflict string // what follows ON CONFLICT
	rows     [][]any
	messages []spool.ID // of each row
}

// column is a column of a table with the SQL type of its values.
type column struct{ name, kind string }

// columns reads a list such as "id uuid, owner bigint".
func columns(list string) []column {
	var all []column
	for _, item := range strings.Split(list, ",") {
		name, kind, _ := strings.Cut(strings.TrimSpace(item), " ")
		all = append(all, column{name, kind})
	}
	return all
}

func (r *rowSet) add(message spool.ID, values ...any) {
	r.rows = append(r.rows, values)
	r.messages = append(r.messages, message)
}

func (r *rowSet) names() string {
	names := make([]string, len(r.columns))
	for i, c := range r.columns {
		names[i] = c.name
	}
	return strings.Join(names, ", ")
}

// queueInsert queues one statement that inserts all rows: each column travels as an array. Arrays within it, which would
// have to be of one length, travel as text.
func (r *rowSet) queueInsert(q *pgx.Batch) {
	if len(r.rows) == 0 {
		return
	}
	values, arrays := make([]string, len(r.columns)), make([]string, len(r.columns))
	args := make([]any, len(r.columns))
	for i, c := range r.columns {
		values[i], arrays[i] = c.name, fmt.Sprintf("$%d::%s[]", i+1, c.kind)
		if strings.HasSuffix(c.kind, "[]") {
			values[i], arrays[i] = c.name+"::"+c.kind, fmt.Sprintf("$%d::text[]", i+1)
		}
		args[i] = r.array(i, c.kind)
	}
	q.Queue(fmt.Sprintf("INSERT INTO %s (%s) SELECT %s FROM unnest(%s) AS row (%s)",
		r.table, r.names(), strings.Join(values, ", "), strings.Join(arrays, ", "), r.names()), args...)
}

// array gives the values of a column.
func (r *rowSet) array(i int, kind string) any {
	switch kind {
	case "uuid":
		// Given a uuid.UUID, pgx tries its text first, fails with an error that it formats, and then reads the text again.
		return valuesOf(r.rows, i, func(v any) pgtype.UUID { return pgtype.UUID{Bytes: v.(spool.ID), Valid: true} })
	case "bigint":
		return valuesOf(r.rows, i, asIs[int64])
	case "integer":
		return valuesOf(r.rows, i, asIs[int32])
	case "bytea":
		return valuesOf(r.rows, i, asIs[[]byte])
	case "timestamptz":
		return valuesOf(r.rows, i, asIs[time.Time])
	case "text":
		return valuesOf(r.rows, i, asIs[string])
	case "text[]":
		return valuesOf(r.rows, i, func(v any) string { return arrayText(v.([]string), quoted) })
	case "integer[]":
		return valuesOf(r.rows, i, func(v any) string {
			return arrayText(v.([]int32), func(n int32) string { return strconv.Itoa(int(n)) })
		})
	case "timestamptz[]":
		return valuesOf(r.rows, i, func(v any) string {
			return arrayText(v.([]time.Time), func(t time.Time) string { return t.UTC().Format(time.RFC3339Nano) })
		})
	default:
		panic("postgres: a column of kind " + kind) // only the tables in encode are inserted
	}
}

func asIs[T any](v any) T { return v.(T) }

// valuesOf gives a column as an array that pgx need not look at by reflection.
func valuesOf[T any](rows [][]any, i int, of func(any) T) pgtype.FlatArray[T] {
	values := make(pgtype.FlatArray[T], len(rows))
	for n, row := range rows {
		values[n] = of(row[i])
	}
	return values
}

// arrayText writes an array as PostgreSQL reads it. (PostgreSQL documentation, array input and output syntax.)
func arrayText[T any](values []T, text func(T) string) string {
	var b strings.Builder
	b.WriteByte('{')
	for i, v := range values {
		if i > 0 {
			b.WriteByte(',')
		}
		b.WriteString(text(v))
	}
	b.WriteByte('}')
	return b.String()
}

var quoter = strings.NewReplacer(`\`, `\\`, `"`, `\"`)

func quoted(s string) string { return `"` + quoter.Replace(s) + `"` }

// insertNew inserts the rows that are not there yet, one statement for each, and tells how many that were.
func (r *rowSet) insertNew(ctx context.Context, tx pgx.Tx) (int64, error) {
	places := make([]string, len(r.columns))
	for i := range places {
		places[i] = fmt.Sprintf("$%d", i+1)
	}
	sql := fmt.Sprintf("INSERT INTO %s (%s) VALUES (%s) ON CONFLICT %s", r.table, r.names(), strings.Join(places, ", "), r.conflict)
	batch := &pgx.Batch{}
	var wrote int64
	for _, row := range r.rows {
		batch.Queue(sql, row...).Exec(func(tag pgconn.CommandTag) error {
			wrote += tag.RowsAffected()
			return nil
		})
	}
	err := tx.SendBatch(ctx, batch).Close()
	return wrote, err
}
