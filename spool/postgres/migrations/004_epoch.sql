-- A database that was restored from a backup has gone back in time: spools notice it by epochs that it lacks, and start held.
-- +goose Up

-- Chosen at random for each start, and remembered outside: a number of an incarnation may be given again after a restore.
ALTER TABLE incarnation ADD COLUMN epoch uuid NOT NULL DEFAULT gen_random_uuid();

-- One row for each time that the database was found to lack an epoch. Nothing is sent while resumed_at is null.
CREATE TABLE spool_hold (
    id         bigint      GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    spool      text        NOT NULL,
    reason     text        NOT NULL,
    held_at    timestamptz NOT NULL DEFAULT clock_timestamp(),
    resumed_at timestamptz
);
CREATE UNIQUE INDEX spool_hold_one ON spool_hold ((true)) WHERE resumed_at IS NULL;

-- +goose Down
DROP TABLE spool_hold;
ALTER TABLE incarnation DROP COLUMN epoch;
