-- The append-only spool. docs/sql.md tells what each table means and which invariants hold.
-- +goose Up

-- One row for each start of a spool.
CREATE TABLE incarnation (
    id            bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    name          text        NOT NULL CHECK (octet_length(name) BETWEEN 1 AND 255),
    address       text        NOT NULL,
    registered_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    expires_at    timestamptz NOT NULL,
    low_water     uuid        NOT NULL,
    fenced_at     timestamptz,
    adopted_at    timestamptz,
    CONSTRAINT incarnation_adopted_after_fenced CHECK (adopted_at IS NULL OR fenced_at IS NOT NULL)
);
CREATE INDEX incarnation_unadopted ON incarnation (expires_at) WHERE adopted_at IS NULL;

-- One row for each accepted message, never updated. Partitioned by day through the time in the UUIDv7.
CREATE TABLE message (
    id           uuid        NOT NULL PRIMARY KEY,
    owner        bigint      NOT NULL,
    sender       text        NOT NULL,
    recipients   text[]      NOT NULL CHECK (cardinality(recipients) > 0),
    accepted_at  timestamptz NOT NULL,
    size         bigint      NOT NULL CHECK (size >= 0),
    content_hash bytea       NOT NULL CHECK (octet_length(content_hash) IN (0, 32)),
    envelope     bytea       NOT NULL,
    edits        bytea,
    verdict      bytea,
    traceparent  text        NOT NULL,
    tracestate   text        NOT NULL,
    content      bytea,
    tx           xid8        NOT NULL DEFAULT pg_current_xact_id(),
    CONSTRAINT message_content_size CHECK (content IS NULL OR octet_length(content) = size)
) PARTITION BY RANGE (id);
ALTER TABLE message ALTER COLUMN content SET STORAGE MAIN;
CREATE INDEX message_tx ON message (tx);
CREATE INDEX message_owner ON message (owner, id); -- for adoption

-- Content that does not stand in the message's row. The owner belongs to the key: two spools may be given the same
-- message after a broken stream and cut it differently.
CREATE TABLE content_chunk (
    message_id uuid    NOT NULL,
    owner      bigint  NOT NULL,
    at_offset  bigint  NOT NULL CHECK (at_offset >= 0),
    seq        integer NOT NULL CHECK (seq >= 0),
    data       bytea   NOT NULL,
    PRIMARY KEY (message_id, owner, at_offset)
) PARTITION BY RANGE (message_id);
ALTER TABLE content_chunk ALTER COLUMN data SET STORAGE EXTERNAL;

-- Permits and results that do not end a message. Partitioned by their own time.
CREATE TABLE attempt (
    id               uuid        NOT NULL PRIMARY KEY,
    message_id       uuid        NOT NULL,
    kind             text        NOT NULL CHECK (kind IN ('permit', 'result', 'note')),
    destination      text        NOT NULL,
    number           integer     NOT NULL,
    token            bytea,
    recipients       integer[]   NOT NULL,
    ended_recipients integer[]   NOT NULL,
    ended_states     text[]      NOT NULL,
    ended_replies    text[]      NOT NULL,
    at               timestamptz NOT NULL,
    verdict          bytea,
    journal          bytea,
    journal_at       timestamptz[] NOT NULL,
    journal_event    text[]      NOT NULL,
    journal_stage    text[]      NOT NULL,
    journal_detail   text[]      NOT NULL,
    tx               xid8        NOT NULL DEFAULT pg_current_xact_id(),
    CONSTRAINT attempt_ended_states CHECK (ended_states <@ ARRAY[
        'delivered', 'bounced', 'expired', 'discarded', 'cancelled', 'quarantined', 'withdrawn']),
    CONSTRAINT attempt_ended_length CHECK (cardinality(ended_recipients) = cardinality(ended_states)
        AND cardinality(ended_states) = cardinality(ended_replies))
) PARTITION BY RANGE (id);
CREATE INDEX attempt_message ON attempt (message_id);
CREATE INDEX attempt_tx ON attempt (tx);

-- The one row that ends a message.
CREATE TABLE outcome (
    message_id     uuid        NOT NULL PRIMARY KEY,
    states         text[]      NOT NULL CHECK (cardinality(states) > 0),
    replies        text[]      NOT NULL,
    at             timestamptz NOT NULL,
    verdict        bytea,
    journal        bytea,
    journal_at     timestamptz[] NOT NULL,
    journal_event  text[]      NOT NULL,
    journal_stage  text[]      NOT NULL,
    journal_detail text[]      NOT NULL,
    tx             xid8        NOT NULL DEFAULT pg_current_xact_id(),
    CONSTRAINT outcome_states CHECK (states <@ ARRAY[
        'delivered', 'bounced', 'expired', 'discarded', 'cancelled', 'quarantined', 'withdrawn']),
    CONSTRAINT outcome_length CHECK (cardinality(states) = cardinality(replies))
) PARTITION BY RANGE (message_id);
CREATE INDEX outcome_tx ON outcome (tx);

-- What people look for, read from the header by the parser.
CREATE TABLE message_search (
    message_id        uuid NOT NULL PRIMARY KEY,
    subject           text NOT NULL,
    header_message_id text NOT NULL,
    from_address      text NOT NULL
) PARTITION BY RANGE (message_id);
CREATE INDEX message_search_header_id ON message_search (header_message_id, message_id) WHERE header_message_id <> '';

-- The waiting rows: the only message table that is updated.
CREATE TABLE deferred (
    message_id  uuid        NOT NULL,
    destination text        NOT NULL CHECK (destination <> ''),
    owner       bigint,
    reason      text        NOT NULL CHECK (reason IN ('retry', 'unknown', 'filter', 'hold', 'all')),
    recipients  integer[]   NOT NULL,
    attempts    integer     NOT NULL CHECK (attempts >= 0),
    next_at     timestamptz NOT NULL,
    expires_at  timestamptz NOT NULL,
    last_reply  text        NOT NULL,
    created_at  timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (message_id, destination),
    CONSTRAINT deferred_all CHECK ((reason = 'all') = (destination = '!all') AND (reason = 'all') = (cardinality(recipients) = 0))
) WITH (fillfactor = 80);
-- Due rows that nobody owns: by time for the first look, by destination so that a dead one can't hide the others.
CREATE INDEX deferred_due ON deferred (next_at) WHERE owner IS NULL;
CREATE INDEX deferred_destination ON deferred (destination, next_at) WHERE owner IS NULL;
CREATE INDEX deferred_owner ON deferred (owner) WHERE owner IS NOT NULL;

-- Where each message stands.
CREATE VIEW message_status AS
SELECT m.id,
       CASE WHEN o.message_id IS NOT NULL THEN 'ended'
            WHEN w.held THEN 'held'
            WHEN w.waiting THEN 'deferred'
            ELSE 'active' END AS state,
       m.sender, m.recipients, m.size, m.accepted_at, o.at AS ended_at, o.states, o.replies,
       w.next_at, w.last_reply, w.attempts,
       CASE WHEN o.message_id IS NULL THEN i.name END AS owner,
       s.subject, s.from_address, s.header_message_id
FROM message m
LEFT JOIN outcome o ON o.message_id = m.id
LEFT JOIN message_search s ON s.message_id = m.id
LEFT JOIN LATERAL (
    SELECT bool_or(d.reason = 'hold') AS held,
           bool_and(d.owner IS NULL OR d.next_at > now()) AS waiting,
           min(d.next_at) AS next_at, max(d.attempts) AS attempts, max(d.owner) AS owner, count(*) AS rows,
           (array_agg(d.last_reply ORDER BY d.attempts DESC) FILTER (WHERE d.last_reply <> ''))[1] AS last_reply
    FROM deferred d WHERE d.message_id = m.id
) w ON true
LEFT JOIN incarnation i ON i.id = CASE WHEN w.rows > 0 THEN w.owner ELSE m.owner END AND i.fenced_at IS NULL;

-- What waits for each destination.
CREATE VIEW queue_by_destination AS
SELECT d.destination,
       count(*) AS messages,
       sum(cardinality(d.recipients)) AS recipients,
       count(*) FILTER (WHERE d.owner IS NOT NULL) AS owned,
       count(*) FILTER (WHERE d.owner IS NULL AND d.next_at <= now()) AS due,
       min(d.next_at) AS next_at,
       now() - min(d.created_at) AS longest_wait,
       max(d.attempts) AS attempts,
       (array_agg(d.last_reply ORDER BY d.next_at DESC) FILTER (WHERE d.last_reply <> ''))[1] AS last_reply
FROM deferred d
GROUP BY d.destination;

-- What happened to each message, in order. The acceptance is told from the message's own row until its owner has written
-- what it knows about it.
CREATE VIEW journal AS
SELECT m.id AS message_id, m.accepted_at AS at, 'accepted' AS event, 'spool' AS stage,
       'from <' || m.sender || '>, ' || cardinality(m.recipients) || ' recipients, ' || m.size || ' octets' AS detail
FROM message m
WHERE NOT EXISTS (SELECT FROM attempt a WHERE a.message_id = m.id AND 'accepted' = ANY (a.journal_event))
  AND NOT EXISTS (SELECT FROM outcome o WHERE o.message_id = m.id AND 'accepted' = ANY (o.journal_event))
UNION ALL
SELECT a.message_id, j.at, j.event, j.stage, j.detail
FROM attempt a, unnest(a.journal_at, a.journal_event, a.journal_stage, a.journal_detail) AS j (at, event, stage, detail)
UNION ALL
SELECT o.message_id, j.at, j.event, j.stage, j.detail
FROM outcome o, unnest(o.journal_at, o.journal_event, o.journal_stage, o.journal_detail) AS j (at, event, stage, detail);

-- Whatever violates an invariant. It must be empty.
CREATE VIEW spool_audit AS
WITH dead AS ( -- fenced, and its adoption is finished or should be by now
    SELECT id FROM incarnation WHERE adopted_at IS NOT NULL OR fenced_at < now() - interval '1 minute'
), nobody AS (
    SELECT m.id, m.owner FROM message m
    WHERE NOT EXISTS (SELECT FROM outcome o WHERE o.message_id = m.id)
      AND NOT EXISTS (SELECT FROM deferred d WHERE d.message_id = m.id)
)
SELECT id AS message_id, 'no outcome, no waiting row, and its owner ' || owner || ' is gone' AS problem
FROM nobody n
WHERE n.owner IN (SELECT id FROM dead) OR NOT EXISTS (SELECT FROM incarnation i WHERE i.id = n.owner)
UNION ALL
SELECT d.message_id, 'its waiting rows have several owners'
FROM deferred d GROUP BY d.message_id HAVING count(DISTINCT coalesce(d.owner, 0)) > 1
UNION ALL
SELECT d.message_id, 'the owner ' || d.owner || ' of its waiting row for ' || d.destination || ' is gone'
FROM deferred d
WHERE d.owner IN (SELECT id FROM dead)
   OR d.owner IS NOT NULL AND NOT EXISTS (SELECT FROM incarnation i WHERE i.id = d.owner)
UNION ALL
SELECT d.message_id, 'a waiting row for ' || d.destination || ' without a message'
FROM deferred d WHERE NOT EXISTS (SELECT FROM message m WHERE m.id = d.message_id)
UNION ALL
SELECT d.message_id, 'it has ended, but waits for ' || d.destination
FROM deferred d JOIN outcome o ON o.message_id = d.message_id;

-- +goose Down
DROP VIEW spool_audit, journal, queue_by_destination, message_status;
DROP TABLE deferred, message_search, outcome, attempt, content_chunk, message, incarnation;
