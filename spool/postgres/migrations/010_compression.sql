-- Content is compressed where the server can do it by LZ4, so that two mails and more stand in a page. PostgreSQL first moves all
-- other columns out of a row that is too long, unless they are to stay in it as well. docs/performance.md has what that costs.
-- +goose Up
ALTER TABLE message
    ALTER COLUMN sender SET STORAGE MAIN,
    ALTER COLUMN recipients SET STORAGE MAIN,
    ALTER COLUMN content_hash SET STORAGE PLAIN,
    ALTER COLUMN envelope SET STORAGE MAIN,
    ALTER COLUMN edits SET STORAGE MAIN,
    ALTER COLUMN verdict SET STORAGE MAIN,
    ALTER COLUMN traceparent SET STORAGE MAIN,
    ALTER COLUMN tracestate SET STORAGE MAIN;
-- +goose StatementBegin
DO $$
BEGIN
    ALTER TABLE message ALTER COLUMN content SET COMPRESSION lz4;
EXCEPTION WHEN feature_not_supported THEN
    NULL;
END $$;
-- +goose StatementEnd

-- +goose Down
ALTER TABLE message
    ALTER COLUMN sender SET STORAGE EXTENDED,
    ALTER COLUMN recipients SET STORAGE EXTENDED,
    ALTER COLUMN content_hash SET STORAGE EXTENDED,
    ALTER COLUMN envelope SET STORAGE EXTENDED,
    ALTER COLUMN edits SET STORAGE EXTENDED,
    ALTER COLUMN verdict SET STORAGE EXTENDED,
    ALTER COLUMN traceparent SET STORAGE EXTENDED,
    ALTER COLUMN tracestate SET STORAGE EXTENDED,
    ALTER COLUMN content SET COMPRESSION default;
