-- What is noted of messages that a verdict refused before they were durable. docs/sql.md tells more.
-- +goose Up

-- One row for each, written some time after its client was told. Partitioned by day through the time in the UUIDv7.
CREATE TABLE refusal (
    message_id        uuid        NOT NULL PRIMARY KEY,
    refused_at        timestamptz NOT NULL,
    client            text        NOT NULL,
    sender            text        NOT NULL,
    recipients        text[]      NOT NULL,
    recipient_sum     integer     NOT NULL,
    size              bigint      NOT NULL,
    reply             text        NOT NULL,
    rule              text        NOT NULL,
    subject           text        NOT NULL,
    from_address      text        NOT NULL,
    header_message_id text        NOT NULL,
    traceparent       text        NOT NULL
) PARTITION BY RANGE (message_id);

-- What was refused, by whom and with which reply.
CREATE VIEW refused AS
SELECT r.message_id AS id, r.refused_at, r.client, r.sender, r.recipients, r.recipient_sum, r.size, r.reply, r.rule,
       r.subject, r.from_address, r.header_message_id, r.traceparent
FROM refusal r;

-- +goose Down
DROP VIEW refused;
DROP TABLE refusal;
