-- A database that was restored to a time after a spool's start has its epoch, but fewer renewals than the spool knows of.
-- +goose Up
ALTER TABLE incarnation ADD COLUMN renewals bigint NOT NULL DEFAULT 0;

-- +goose Down
ALTER TABLE incarnation DROP COLUMN renewals;
