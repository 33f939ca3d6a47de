package judge

import (
	"context"
	"fmt"
	"regexp"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/rohrpost/rohrpost/tests/load/mail"
)

// Read reads every message of a database, in the order of ids.
func Read(ctx context.Context, conn *pgx.Conn) ([]*Message, error) {
	r := reader{conn: conn, messages: map[string]*Message{}}
	for _, step := range []func(context.Context) error{r.readMessages, r.readAttempts, r.readOutcomes, r.readWaits} {
		if err := step(ctx); err != nil {
			return nil, err
		}
	}
	return r.list, nil
}

type reader struct {
	conn     *pgx.Conn
	messages map[string]*Message
	list     []*Message
}

// query calls each for every row.
func (r *reader) query(ctx context.Context, sql string, each func(pgx.Rows) error) error {
	rows, err := r.conn.Query(ctx, sql)
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		if err := each(rows); err != nil {
			return err
		}
	}
	return rows.Err()
}

// readMessages reads the messages and puts the content of each together from its chunks. Those may overlap; where one begins
// behind the end of all before it, what is between is missing, whatever comes after.
func (r *reader) readMessages(ctx context.Context) error {
	return r.query(ctx, `
		SELECT m.id::text, m.owner, m.sender, m.recipients, m.accepted_at, coalesce(m.content, c.content, ''::bytea),
		       CASE WHEN m.content IS NOT NULL THEN m.size - octet_length(m.content)
		            ELSE greatest(m.size - coalesce(c.until, 0), 0) + coalesce(c.holes, 0) END
		FROM message m LEFT JOIN LATERAL (
			SELECT max(p.until) AS until, sum(greatest(p.at_offset - p.before, 0))::bigint AS holes,
			       string_agg(substr(p.data, greatest(p.before - p.at_offset, 0)::int + 1), ''::bytea ORDER BY p.at_offset) AS content
			FROM (
				SELECT data, at_offset, at_offset + octet_length(data) AS until,
				       coalesce(max(at_offset + octet_length(data)) OVER (ORDER BY at_offset ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING), 0) AS before
				FROM content_chunk WHERE message_id = m.id AND owner = m.owner
			) p
		) c ON m.content IS NULL
		ORDER BY m.id`, func(rows pgx.Rows) error {
		m := &Message{}
		var content []byte
		if err := rows.Scan(&m.ID, &m.Owner, &m.Sender, &m.Recipients, &m.Accepted, &content, &m.Missing); err != nil {
			return err
		}
		m.recognise(content)
		r.messages[m.ID] = m
		r.list = append(r.list, m)
		return nil
	})
}

// recognise reads from the content which mail a message is, and whether it is as it was sent.
func (m *Message) recognise(content []byte) {
	if m.isDSN() {
		m.LoadID = mail.FindID(content)
		for _, match := range finalRecipient.FindAllSubmatch(content, -1) {
			m.Reported = append(m.Reported, string(match[1]))
		}
		return
	}
	id, err := mail.Check(content)
	m.LoadID = id
	if err != nil {
		m.Fault = err.Error()
	}
}

// finalRecipient names a recipient in a notification. (RFC 3464, section 2.3.2.)
var finalRecipient = regexp.MustCompile(`(?mi)^Final-Recipient: *rfc822; *(\S+)`)

// of finds the message of a row; a row without a message is a message of its own, without recipients.
func (r *reader) of(id string) *Message {
	m := r.messages[id]
	if m == nil {
		m = &Message{ID: id}
		r.messages[id] = m
		r.list = append(r.list, m)
	}
	return m
}

// journalOf puts the columns of a journal together.
func journalOf(at []time.Time, names, stages, details []string) []Event {
	events := make([]Event, len(at))
	for i := range at {
		events[i] = Event{At: at[i], Name: names[i], Stage: stages[i], Detail: details[i]}
	}
	return events
}

// readAttempts reads in the order of transactions: an heir's come after all of the dead owner's, whatever their clocks said.
func (r *reader) readAttempts(ctx context.Context) error {
	return r.query(ctx, `
		SELECT message_id::text, kind, destination, number, coalesce(encode(token, 'hex'), ''), recipients,
		       ended_recipients, ended_states, journal_at, journal_event, journal_stage, journal_detail
		FROM attempt ORDER BY tx, id`, func(rows pgx.Rows) error {
		var id string
		var row Row
		var at []time.Time
		var names, stages, details []string
		err := rows.Scan(&id, &row.Kind, &row.Destination, &row.Number, &row.Token, &row.Recipients,
			&row.Ended, &row.States, &at, &names, &stages, &details)
		if err != nil {
			return err
		}
		row.Events = journalOf(at, names, stages, details)
		m := r.of(id)
		m.Rows = append(m.Rows, row)
		return nil
	})
}

func (r *reader) readOutcomes(ctx context.Context) error {
	return r.query(ctx, `
		SELECT message_id::text, states, journal_at, journal_event, journal_stage, journal_detail
		FROM outcome ORDER BY message_id`, func(rows pgx.Rows) error {
		var id string
		var o Outcome
		var at []time.Time
		var names, stages, details []string
		if err := rows.Scan(&id, &o.States, &at, &names, &stages, &details); err != nil {
			return err
		}
		o.Events = journalOf(at, names, stages, details)
		m := r.of(id)
		m.Outcomes = append(m.Outcomes, o)
		return nil
	})
}

func (r *reader) readWaits(ctx context.Context) error {
	return r.query(ctx, `
		SELECT message_id::text, destination, reason, owner, next_at, last_reply FROM deferred
		ORDER BY message_id, destination`, func(rows pgx.Rows) error {
		var id, destination, reason, reply string
		var owner *int64
		var next time.Time
		if err := rows.Scan(&id, &destination, &reason, &owner, &next, &reply); err != nil {
			return err
		}
		who := "nobody"
		if owner != nil {
			who = fmt.Sprint(*owner)
		}
		m := r.of(id)
		m.Waits = append(m.Waits, fmt.Sprintf("%s (%s, owner %s, until %s) %s", destination, reason, who, clock(next), reply))
		return nil
	})
}

// Unended counts the messages that have not ended.
func Unended(ctx context.Context, conn *pgx.Conn) (n int, err error) {
	err = conn.QueryRow(ctx, `SELECT count(*) FROM message m
		WHERE NOT EXISTS (SELECT FROM outcome o WHERE o.message_id = m.id)`).Scan(&n)
	return n, err
}

// Clients counts the connections of the services to the database, and names those of spools that no longer live.
func Clients(ctx context.Context, conn *pgx.Conn) (total int, dead []string, err error) {
	rows, err := conn.Query(ctx, `
		SELECT a.application_name, i.fenced_at IS NOT NULL FROM pg_stat_activity a
		LEFT JOIN incarnation i ON a.application_name = 'rohrpost-spool/' || i.id
		WHERE a.datname = current_database() AND a.pid <> pg_backend_pid() AND a.backend_type = 'client backend'`)
	if err != nil {
		return 0, nil, err
	}
	defer rows.Close()
	for rows.Next() {
		var name string
		var fenced bool
		if err := rows.Scan(&name, &fenced); err != nil {
			return 0, nil, err
		}
		total++
		if fenced {
			dead = append(dead, name)
		}
	}
	slices.Sort(dead)
	return total, dead, rows.Err()
}

// orphaned is content of which no message came.
const orphaned = `NOT EXISTS (SELECT FROM message m WHERE m.id = c.message_id AND m.owner = c.owner)`

// Orphans counts the chunks of content without a message.
func Orphans(ctx context.Context, conn *pgx.Conn) (n int, err error) {
	err = conn.QueryRow(ctx, "SELECT count(*) FROM content_chunk c WHERE "+orphaned).Scan(&n)
	return n, err
}

// AgeOrphans makes the chunks of content without a message older, by an interval of SQL, and returns how many there are. An
// id begins with the milliseconds of its time. (RFC 9562, section 5.7.)
func AgeOrphans(ctx context.Context, conn *pgx.Conn, by string) (int64, error) {
	tag, err := conn.Exec(ctx, `UPDATE content_chunk c SET message_id = (
			lpad(to_hex(('x' || substr(replace(c.message_id::text, '-', ''), 1, 12))::bit(48)::bigint
				- (extract(epoch FROM $1::interval) * 1000)::bigint), 12, '0')
			|| substr(replace(c.message_id::text, '-', ''), 13))::uuid
		WHERE `+orphaned, by)
	return tag.RowsAffected(), err
}
