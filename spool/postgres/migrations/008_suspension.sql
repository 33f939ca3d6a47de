-- What operators suspend: destinations to which nothing is sent for now. docs/sql.md tells more.
-- +goose Up
CREATE TABLE suspension (
    pattern  text        NOT NULL PRIMARY KEY CHECK (octet_length(pattern) BETWEEN 1 AND 255),
    until_at timestamptz,
    reason   text        NOT NULL,
    by_whom  text        NOT NULL,
    since_at timestamptz NOT NULL DEFAULT clock_timestamp()
);

-- Rows whose time is up are claimed, though their destination is suspended.
CREATE INDEX deferred_expires ON deferred (expires_at) WHERE owner IS NULL;

-- +goose Down
DROP INDEX deferred_expires;
DROP TABLE suspension;
