package pgserver

import (
	"bytes"
	"context"
	"log/slog"
	"strings"
	"sync"
)

// tailLines is how much of the log an error shows.
const tailLines = 5

// logWriter passes the server's lines on to a logger and keeps the last ones.
type logWriter struct {
	logger *slog.Logger

	mu   sync.Mutex
	rest []byte   // an unfinished line
	last []string // at most tailLines
}

// Write takes some of the server's output.
func (w *logWriter) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.rest = append(w.rest, p...)
	for {
		end := bytes.IndexByte(w.rest, '\n')
		if end < 0 {
			return len(p), nil
		}
		w.line(string(w.rest[:end]))
		w.rest = w.rest[end+1:]
	}
}

func (w *logWriter) line(text string) {
	w.last = append(w.last, text)
	if len(w.last) > tailLines {
		w.last = w.last[1:]
	}
	level := slog.LevelDebug
	if strings.HasPrefix(text, "PANIC:") {
		level = slog.LevelError
	}
	w.logger.Log(context.Background(), level, "postgres", "line", text)
}

func (w *logWriter) tail() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return strings.Join(w.last, " | ")
}
