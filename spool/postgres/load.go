package postgres

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/rohrpost/rohrpost/spool"
)

// errMissing means that a waiting row's message is not there.
var errMissing = errors.New("its row is missing")

// loadAll loads messages in the order of their ids' list. One that can't be read hurts only itself (P5): it comes with
// Err set. Where the database can't even read the rows, it is asked for each message alone to find out which is damaged.
func loadAll(ctx context.Context, tx pgx.Tx, ids []spool.ID) ([]*spool.Stored, error) {
	loaded, err := loadApart(ctx, tx, ids)
	if err == nil || !isCorrupt(err) {
		return loaded, err
	}
	loaded = nil
	for _, id := range ids {
		one, err := loadApart(ctx, tx, []spool.ID{id})
		if isCorrupt(err) {
			stored := &spool.Stored{Message: spool.Message{ID: id}, Err: fmt.Errorf("postgres: message %s can't be read: %w", id, err)}
			if stored.Waits, err = waitsOf(ctx, tx, id); err != nil {
				return nil, err
			}
			one = []*spool.Stored{stored}
		}
		if err != nil {
			return nil, err
		}
		loaded = append(loaded, one...)
	}
	return loaded, nil
}

// loadApart loads messages under a savepoint, so that damaged rows don't end the transaction.
func loadApart(ctx context.Context, tx pgx.Tx, ids []spool.ID) ([]*spool.Stored, error) {
	sub, err := tx.Begin(ctx)
	if err != nil {
		return nil, err
	}
	loaded, err := load(ctx, sub, ids)
	if err != nil {
		if rollbackErr := sub.Rollback(ctx); rollbackErr != nil {
			return nil, rollbackErr
		}
		return nil, err
	}
	return loaded, sub.Commit(ctx)
}

// loader collects what is known of messages.
type loader struct {
	byID map[spool.ID]*spool.Stored
	all  []*spool.Stored
}

func newLoader(ids []spool.ID) *loader {
	l := &loader{byID: make(map[spool.ID]*spool.Stored, len(ids))}
	for _, id := range ids {
		stored := &spool.Stored{Message: spool.Message{ID: id}, Err: errMissing}
		l.byID[id] = stored
		l.all = append(l.all, stored)
	}
	return l
}

// blame notes the first thing that is wrong with a message.
func blameMessage(stored *spool.Stored, err error) {
	if err != nil && stored.Err == nil {
		stored.Err = fmt.Errorf("postgres: message %s: %w", stored.ID, err)
	}
}

func load(ctx context.Context, tx pgx.Tx, ids []spool.ID) ([]*spool.Stored, error) {
	l := newLoader(ids)
	if err := l.messages(ctx, tx, ids); err != nil {
		return nil, err
	}
	if err := l.attempts(ctx, tx, ids); err != nil {
		return nil, err
	}
	if err := l.waits(ctx, tx, ids); err != nil {
		return nil, err
	}
	for _, stored := range l.all {
		if stored.Err != nil || stored.Content != nil || stored.Size > spool.InlineLimit {
			continue
		}
		content, err := assemble(ctx, tx, &stored.Message)
		if errors.Is(err, errIncomplete) {
			blameMessage(stored, err)
			continue
		}
		if err != nil {
			return nil, err
		}
		stored.Content = content
	}
	return l.all, nil
}

func (l *loader) messages(ctx context.Context, tx pgx.Tx, ids []spool.ID) error {
	rows, err := tx.Query(ctx, "SELECT "+messageColumns+", m.content FROM any_message m WHERE m.id = ANY ($1)", ids)
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		var content []byte
		m, err, decodeErr := scanMessage(rows, &content)
		if err != nil {
			return err
		}
		stored := l.byID[m.ID]
		stored.Message, stored.Err = m, nil
		stored.Content = content
		blameMessage(stored, decodeErr)
	}
	return rows.Err()
}

// skew is how much earlier than its message an attempt's id may be.
const skew = time.Hour

func (l *loader) attempts(ctx context.Context, q querier, ids []spool.ID) error {
	first := ids[0]
	for _, id := range ids {
		if idTime(id).Before(idTime(first)) {
			first = id
		}
	}
	// No attempt is older than its message: the earlier partitions need not be looked at.
	rows, err := q.Query(ctx, "SELECT "+attemptColumns+" FROM attempt a WHERE a.message_id = ANY ($1) AND a.id >= $2 ORDER BY a.id",
		ids, idAt(idTime(first).Add(-skew)))
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		a, err, decodeErr := scanAttempt(rows)
		if err != nil {
			return err
		}
		stored := l.byID[a.Message]
		stored.Attempts = append(stored.Attempts, a)
		blameMessage(stored, decodeErr)
	}
	return rows.Err()
}

const waitsQuery = "SELECT " + waitColumns + " FROM deferred d WHERE d.message_id = ANY ($1) ORDER BY d.message_id, d.destination"

func (l *loader) waits(ctx context.Context, q querier, ids []spool.ID) error {
	rows, err := q.Query(ctx, waitsQuery, ids)
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		w, err := scanWait(rows)
		if err != nil {
			return err
		}
		stored := l.byID[w.Message]
		stored.Waits = append(stored.Waits, w)
	}
	return rows.Err()
}

func waitsOf(ctx context.Context, tx pgx.Tx, id spool.ID) ([]spool.Wait, error) {
	rows, err := tx.Query(ctx, waitsQuery, []spool.ID{id})
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, func(row pgx.CollectableRow) (spool.Wait, error) { return scanWait(row) })
}

// assemble reads the content of a message that is kept in chunks.
func assemble(ctx context.Context, q querier, m *spool.Message) ([]byte, error) {
	content := make([]byte, 0, m.Size)
	for int64(len(content)) < m.Size {
		data, err := chunkAt(ctx, q, m.ID, int64(m.Owner), int64(len(content)))
		if err != nil {
			return nil, err
		}
		content = append(content, data[:min(int64(len(data)), m.Size-int64(len(content)))]...)
	}
	return content, nil
}
