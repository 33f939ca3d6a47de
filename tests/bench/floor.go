package bench

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/rohrpost/rohrpost/tests/load/latency"
)

// Floor is a table like the spool's, and rows that a spool wrote: what Postgres can do at most with those.
type Floor struct {
	conn    *pgx.Conn
	columns []string
	samples [][]any
	next    int
}

const floorTable = "floor"

// OpenFloor makes the table in a database in which a spool has accepted messages.
func OpenFloor(ctx context.Context, url string) (*Floor, error) {
	conn, err := pgx.Connect(ctx, url)
	if err != nil {
		return nil, fmt.Errorf("making a floor: %w", err)
	}
	f := &Floor{conn: conn}
	// With the settings of a day of the spool's, which say what is compressed.
	var settings string
	err = conn.QueryRow(ctx, `SELECT array_to_string(reloptions, ', ') FROM pg_class JOIN pg_inherits ON inhrelid = oid
		WHERE inhparent = 'message'::regclass AND relkind = 'r' AND reloptions IS NOT NULL ORDER BY relname DESC LIMIT 1`).Scan(&settings)
	if err == nil {
		_, err = conn.Exec(ctx, "CREATE TABLE "+floorTable+" (LIKE message INCLUDING ALL) WITH ("+settings+")")
	}
	if err == nil {
		f.columns, f.samples, err = sampleRows(ctx, conn)
	}
	if err != nil {
		f.Close(ctx)
		return nil, fmt.Errorf("making a floor: %w", err)
	}
	return f, nil
}

// Close closes the connection.
func (f *Floor) Close(ctx context.Context) { _ = f.conn.Close(ctx) } // everything is committed

// row is a row of the spool's with an id of its own.
func (f *Floor) row() ([]any, error) {
	row := append([]any(nil), f.samples[f.next%len(f.samples)]...)
	f.next++
	id, err := uuid.NewV7()
	row[0] = [16]byte(id)
	return row, err
}

// Copy tells how many rows a second a plain loop of COPY transactions writes over one connection.
func (f *Floor) Copy(ctx context.Context, batch int, d time.Duration) (float64, error) {
	n, begun := 0, time.Now()
	for time.Since(begun) < d {
		rows := make([][]any, batch)
		for i := range rows {
			var err error
			if rows[i], err = f.row(); err != nil {
				return 0, err
			}
		}
		if _, err := f.conn.CopyFrom(ctx, pgx.Identifier{floorTable}, f.columns, pgx.CopyFromRows(rows)); err != nil {
			return 0, err
		}
		n += batch
	}
	return float64(n) / time.Since(begun).Seconds(), nil
}

// Commits tells how long the commit of a single row takes, one after another.
func (f *Floor) Commits(ctx context.Context, d time.Duration) (latency.Summary, error) {
	places := make([]string, len(f.columns))
	for i := range places {
		places[i] = fmt.Sprintf("$%d", i+1)
	}
	insert := "INSERT INTO " + floorTable + " (" + strings.Join(f.columns, ", ") + ") VALUES (" + strings.Join(places, ", ") + ")"
	var took latency.Recorder
	for begun := time.Now(); time.Since(begun) < d; {
		row, err := f.row()
		if err != nil {
			return latency.Summary{}, err
		}
		one := time.Now()
		if _, err := f.conn.Exec(ctx, insert, row...); err != nil {
			return latency.Summary{}, err
		}
		took.Record(0, time.Since(one))
	}
	return took.Summary(), nil
}

// sampleRows reads rows that the spool wrote, the id first.
func sampleRows(ctx context.Context, conn *pgx.Conn) (columns []string, samples [][]any, err error) {
	rows, err := conn.Query(ctx, "SELECT * FROM message LIMIT 256")
	if err != nil {
		return nil, nil, err
	}
	defer rows.Close()
	for _, field := range rows.FieldDescriptions() {
		columns = append(columns, field.Name)
	}
	for rows.Next() {
		values, err := rows.Values()
		if err != nil {
			return nil, nil, err
		}
		samples = append(samples, values)
	}
	if err := rows.Err(); err != nil {
		return nil, nil, err
	}
	if len(samples) == 0 || columns[0] != "id" {
		return nil, nil, fmt.Errorf("the spool's table has %d rows, its first column is %q", len(samples), columns[0])
	}
	return columns, samples, nil
}
