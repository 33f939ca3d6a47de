-- Rows that wait for the time before which a sender does not want its mail sent.
-- +goose Up
ALTER TABLE deferred DROP CONSTRAINT deferred_reason_check;
ALTER TABLE deferred ADD CONSTRAINT deferred_reason_check
    CHECK (reason IN ('retry', 'unknown', 'filter', 'schedule', 'hold', 'all'));

-- +goose Down
ALTER TABLE deferred DROP CONSTRAINT deferred_reason_check;
ALTER TABLE deferred ADD CONSTRAINT deferred_reason_check CHECK (reason IN ('retry', 'unknown', 'filter', 'hold', 'all'));
