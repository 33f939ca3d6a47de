-- Days of messages go by dropping their partitions. What has not ended by then is kept here. docs/sql.md tells more.
-- +goose Up

-- Messages that outlived their day's partition, and their content.
CREATE TABLE message_kept (LIKE message INCLUDING DEFAULTS INCLUDING CONSTRAINTS INCLUDING STORAGE, PRIMARY KEY (id));
CREATE INDEX message_kept_owner ON message_kept (owner);
CREATE TABLE content_chunk_kept (
    LIKE content_chunk INCLUDING DEFAULTS INCLUDING CONSTRAINTS INCLUDING STORAGE, PRIMARY KEY (message_id, owner, at_offset)
);

-- All messages. While a day is on its way out, a message may stand here twice.
CREATE VIEW any_message AS
SELECT id, owner, sender, recipients, accepted_at, size, content_hash, envelope, edits, verdict, traceparent, tracestate,
       content, tx
FROM message
UNION ALL
SELECT id, owner, sender, recipients, accepted_at, size, content_hash, envelope, edits, verdict, traceparent, tracestate,
       content, tx
FROM message_kept;

CREATE VIEW any_chunk AS
SELECT message_id, owner, at_offset, seq, data FROM content_chunk
UNION ALL
SELECT message_id, owner, at_offset, seq, data FROM content_chunk_kept;

-- The working set changes all the time: it is vacuumed when a thousand rows are dead, and at once. Renewals of leases stay
-- in their page, without an entry in an index that would change with them.
ALTER TABLE deferred SET (autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_threshold = 1000,
    autovacuum_vacuum_cost_delay = 0, autovacuum_analyze_scale_factor = 0.1);
DROP INDEX incarnation_unadopted;
CREATE INDEX incarnation_unadopted ON incarnation (id) WHERE adopted_at IS NULL;
ALTER TABLE incarnation SET (fillfactor = 30, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 200);

CREATE OR REPLACE VIEW message_status AS
SELECT m.id,
       CASE WHEN o.message_id IS NOT NULL THEN 'ended'
            WHEN w.held THEN 'held'
            WHEN w.waiting THEN 'deferred'
            ELSE 'active' END AS state,
       m.sender, m.recipients, m.size, m.accepted_at, o.at AS ended_at, o.states, o.replies,
       w.next_at, w.last_reply, w.attempts,
       CASE WHEN o.message_id IS NULL THEN i.name END AS owner,
       s.subject, s.from_address, s.header_message_id
FROM any_message m
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

CREATE OR REPLACE VIEW journal AS
SELECT m.id AS message_id, m.accepted_at AS at, 'accepted' AS event, 'spool' AS stage,
       'from <' || m.sender || '>, ' || cardinality(m.recipients) || ' recipients, ' || m.size || ' octets' AS detail
FROM any_message m
WHERE NOT EXISTS (SELECT FROM attempt a WHERE a.message_id = m.id AND 'accepted' = ANY (a.journal_event))
  AND NOT EXISTS (SELECT FROM outcome o WHERE o.message_id = m.id AND 'accepted' = ANY (o.journal_event))
UNION ALL
SELECT a.message_id, j.at, j.event, j.stage, j.detail
FROM attempt a, unnest(a.journal_at, a.journal_event, a.journal_stage, a.journal_detail) AS j (at, event, stage, detail)
UNION ALL
SELECT o.message_id, j.at, j.event, j.stage, j.detail
FROM outcome o, unnest(o.journal_at, o.journal_event, o.journal_stage, o.journal_detail) AS j (at, event, stage, detail);

CREATE OR REPLACE VIEW spool_audit AS
WITH dead AS ( -- fenced, and its adoption is finished or should be by now
    SELECT id FROM incarnation WHERE adopted_at IS NOT NULL OR fenced_at < now() - interval '1 minute'
), nobody AS (
    SELECT m.id, m.owner FROM any_message m
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
FROM deferred d WHERE NOT EXISTS (SELECT FROM any_message m WHERE m.id = d.message_id)
UNION ALL
SELECT d.message_id, 'it has ended, but waits for ' || d.destination
FROM deferred d JOIN outcome o ON o.message_id = d.message_id;

-- +goose Down
DROP VIEW spool_audit, journal, message_status, any_chunk, any_message;
DROP TABLE content_chunk_kept, message_kept;
DROP INDEX incarnation_unadopted;
CREATE INDEX incarnation_unadopted ON incarnation (expires_at) WHERE adopted_at IS NULL;
ALTER TABLE deferred RESET (autovacuum_vacuum_scale_factor, autovacuum_vacuum_threshold, autovacuum_vacuum_cost_delay,
    autovacuum_analyze_scale_factor);
ALTER TABLE incarnation RESET (fillfactor, autovacuum_vacuum_scale_factor, autovacuum_vacuum_threshold);
