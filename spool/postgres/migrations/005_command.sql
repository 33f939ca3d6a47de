-- What operators order about messages: rows that the owner of the message executes. docs/sql.md tells more.
-- +goose Up
CREATE TABLE command (
    id         bigint      GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    message_id uuid        NOT NULL,
    verb       text        NOT NULL CHECK (verb IN ('hold', 'release', 'cancel', 'retry', 'bounce')),
    by_whom    text        NOT NULL,
    made_at    timestamptz NOT NULL DEFAULT clock_timestamp(),
    done_at    timestamptz,
    result     text        NOT NULL DEFAULT ''
);
CREATE INDEX command_open ON command (id) WHERE done_at IS NULL;

-- +goose Down
DROP TABLE command;
