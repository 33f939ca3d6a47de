package postgres

import (
	"errors"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/rohrpost/rohrpost/spool"
)

// The SQLSTATEs that are told apart.
const (
	stateUniqueViolation = "23505"
	stateDiskFull        = "53100"
)

func sqlState(err error) string {
	var pgErr *pgconn.PgError
	if errors.As(err, &pgErr) {
		return pgErr.Code
	}
	return ""
}

// isDataError tells whether the rows themselves are at fault.
func isDataError(err error) bool {
	state := sqlState(err)
	return strings.HasPrefix(state, "22") || strings.HasPrefix(state, "23")
}

// isConflict tells whether the same transaction may succeed when it is tried again: deadlock, serialization failure.
func isConflict(err error) bool { return strings.HasPrefix(sqlState(err), "40") }

// isCorrupt tells whether a stored row can't be read: class XX is damaged data, class 22 a value that can't be converted.
func isCorrupt(err error) bool {
	state := sqlState(err)
	return strings.HasPrefix(state, "XX") || strings.HasPrefix(state, "22")
}

// classify gives an error of a statement, not of COMMIT, the class that callers look at. The transaction has not been
// committed. Errors that have their class already, and those in which the program is at fault, stay as they are.
func classify(err error) error {
	if err == nil || hasClass(err) {
		return err
	}
	var pgErr *pgconn.PgError
	if !errors.As(err, &pgErr) {
		return fmt.Errorf("%w: %w", spool.ErrUnavailable, err) // the connection, or no connection to be had
	}
	switch {
	case pgErr.Code == stateDiskFull:
		return fmt.Errorf("%w: %w", spool.ErrFull, err)
	case strings.HasPrefix(pgErr.Code, "08"), // connection exception
		strings.HasPrefix(pgErr.Code, "53"), // insufficient resources
		strings.HasPrefix(pgErr.Code, "57"), // operator intervention
		strings.HasPrefix(pgErr.Code, "58"), // system error
		pgErr.Code == "25006",               // read-only: a standby
		pgErr.Code == "55P03",               // lock not available
		strings.HasPrefix(pgErr.Code, "28"): // authorization
		return fmt.Errorf("%w: %w", spool.ErrUnavailable, err)
	default:
		return fmt.Errorf("postgres: %w", err)
	}
}

func hasClass(err error) bool {
	for _, class := range []error{
		spool.ErrFenced, spool.ErrCommitUnknown, spool.ErrNotFound, spool.ErrUnavailable, spool.ErrFull, ErrSchema, ErrUnsafe,
		errAlive, errIncomplete, errMissing,
	} {
		if errors.Is(err, class) {
			return true
		}
	}
	var row *spool.RowError
	return errors.As(err, &row)
}

// classifyCommit does the same for an error of COMMIT. An ERROR of the server means that it has rolled back; everything
// else (the connection broke, a FATAL such as 57P01, a deadline) leaves it open.
func classifyCommit(err error) error {
	var pgErr *pgconn.PgError
	if errors.As(err, &pgErr) && pgErr.SeverityUnlocalized == "ERROR" && !strings.HasPrefix(pgErr.Code, "57") {
		return classify(err)
	}
	return fmt.Errorf("%w: %w", spool.ErrCommitUnknown, err)
}
