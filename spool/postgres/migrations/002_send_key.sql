-- What makes SendMessage safe to repeat. docs/sql.md tells what the table means.
-- +goose Up

-- One row for each idempotency key of the last two days: the message that it stands for.
CREATE TABLE send_key (
    key        text        NOT NULL PRIMARY KEY CHECK (octet_length(key) BETWEEN 1 AND 255),
    hash       bytea       NOT NULL CHECK (octet_length(hash) = 32),
    message_id uuid        NOT NULL,
    created_at timestamptz NOT NULL DEFAULT clock_timestamp()
);
CREATE INDEX send_key_created_at ON send_key (created_at);

-- +goose Down
DROP TABLE send_key;
