package postgres

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgproto3"

	"github.com/rohrpost/rohrpost/spool"
)

// table is a table into which rows are inserted.
type table struct {
	columns int
	copying string // takes rows as they are encoded here
	insert  string // inserts one row unless it is there
}

// newTable knows a table by the names of its columns and by what follows ON CONFLICT.
func newTable(name, columns, conflict string) *table {
	n := strings.Count(columns, ",") + 1
	places := make([]string, n)
	for i := range places {
		places[i] = fmt.Sprintf("$%d", i+1)
	}
	return &table{
		columns: n,
		copying: fmt.Sprintf("COPY %s (%s) FROM STDIN (FORMAT binary)", name, columns),
		insert:  fmt.Sprintf("INSERT INTO %s (%s) VALUES (%s) ON CONFLICT %s", name, columns, strings.Join(places, ", "), conflict),
	}
}

// rowSet is rows for one table, encoded as COPY takes them. (PostgreSQL documentation, COPY, binary format.)
type rowSet struct {
	*table
	data     []byte     // of all rows, one after another, behind what copyHead is
	starts   []int      // of each row in data
	messages []spool.ID // of each row
}

// copyHead stands before the rows: the type of a message and room for its length; then the signature, flags and the length of an
// extension. copyTrailer stands after them.
var (
	copyHead    = []byte("d\x00\x00\x00\x00" + "PGCOPY\n\xff\r\n\x00" + "\x00\x00\x00\x00" + "\x00\x00\x00\x00")
	copyTrailer = []byte{0xff, 0xff}
)

// copyFrame is how much of copyHead belongs to the message.
const copyFrame = 5

// newRows makes an empty set with room for octets.
func newRows(t *table, room int) *rowSet {
	return &rowSet{table: t, data: append(make([]byte, 0, len(copyHead)+room), copyHead...)}
}

// add begins a row about a message. All columns of the table must follow, in its order.
func (r *rowSet) add(message spool.ID) {
	r.starts, r.messages = append(r.starts, len(r.data)), append(r.messages, message)
	r.data = binary.BigEndian.AppendUint16(r.data, uint16(r.columns))
}

func (r *rowSet) len() int { return len(r.starts) }

// copyAll appends the rows of all sets. It sends them together, and then reads what came of it: one round trip. What the
// server says to a row that it does not take ends the transaction, and it passes over the rest.
func copyAll(ctx context.Context, conn *pgx.Conn, sets []*rowSet) error {
	server := conn.PgConn()
	front := server.Frontend()
	var err error
	sent := 0
	for _, set := range sets {
		if set.len() == 0 {
			continue
		}
		if err = set.send(front); err != nil {
			break
		}
		sent++
	}
	if err == nil {
		err = front.Flush()
	}
	var refused *pgconn.PgError
	for err == nil && sent > 0 {
		var msg pgproto3.BackendMessage
		if msg, err = server.ReceiveMessage(ctx); err != nil {
			break
		}
		switch msg := msg.(type) {
		case *pgproto3.ErrorResponse:
			if refused == nil {
				refused = pgconn.ErrorResponseToPgError(msg)
			}
		case *pgproto3.ReadyForQuery:
			sent--
		}
	}
	if err != nil {
		_ = server.Close(ctx) // it is not known where the server stands
	}
	if refused != nil {
		return refused
	}
	return err
}

// sendBuffered is how many octets are put together with other messages before they are sent. More of them are sent as they are,
// since the buffer would have to be made anew each time.
const sendBuffered = 16 << 10

// send sends the rows, to be copied, or leaves them in the buffer.
func (r *rowSet) send(front *pgproto3.Frontend) error {
	front.SendQuery(&pgproto3.Query{String: r.copying})
	if len(r.data) <= sendBuffered {
		front.Send(&pgproto3.CopyData{Data: r.data[copyFrame:]})
	} else {
		if err := front.Flush(); err != nil {
			return err
		}
		binary.BigEndian.PutUint32(r.data[1:], uint32(len(r.data)-1))
		if err := front.SendUnbufferedEncodedCopyData(r.data); err != nil {
			return err
		}
	}
	front.Send(&pgproto3.CopyData{Data: copyTrailer})
	front.Send(&pgproto3.CopyDone{})
	return nil
}

// insertNew inserts the rows that are not there yet, one statement for each, and tells how many that were.
func (r *rowSet) insertNew(ctx context.Context, tx pgx.Tx) (int64, error) {
	pipeline := tx.Conn().PgConn().StartPipeline(ctx)
	for i := range r.starts {
		pipeline.SendQueryParams(r.insert, r.values(i), nil, []int16{pgx.BinaryFormatCode}, nil)
	}
	err := pipeline.Sync()
	var wrote int64
	for range r.starts {
		if err != nil {
			break
		}
		var n int64
		n, err = affected(pipeline)
		wrote += n
	}
	if closeErr := pipeline.Close(); err == nil {
		err = closeErr
	}
	return wrote, err
}

// affected tells how many rows the next statement of a pipeline wrote.
func affected(pipeline *pgconn.Pipeline) (int64, error) {
	results, err := pipeline.GetResults()
	if err != nil {
		return 0, err
	}
	reader, ok := results.(*pgconn.ResultReader)
	if !ok {
		return 0, errors.New("postgres: a statement without a result")
	}
	tag, err := reader.Close()
	return tag.RowsAffected(), err
}

// values are those of a row, as parameters of a statement.
func (r *rowSet) values(i int) [][]byte {
	rest := r.data[r.starts[i]+2:]
	values := make([][]byte, r.columns)
	for c := range values {
		size := int32(binary.BigEndian.Uint32(rest))
		rest = rest[4:]
		if size >= 0 {
			values[c], rest = rest[:size:size], rest[size:]
		}
	}
	return values
}
