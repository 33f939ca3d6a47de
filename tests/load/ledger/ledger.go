// Package ledger writes down, as JSON lines, what a load test attempted and what arrived, so that both can be compared
// later by whatever reads JSON, even where the writer was killed.
package ledger

import (
	"bufio"
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"time"
)

// Outcome is what the sender of a message was told.
type Outcome string

// The outcomes.
const (
	Accepted Outcome = "accepted" // a 2xx reply to the content
	Refused  Outcome = "refused"  // a 4xx or 5xx reply, to whatever command; the message is not with the server
	Unknown  Outcome = "unknown"  // the content was under way whole, or its last octets, and no reply was read
	Failed   Outcome = "failed"   // the connection broke before that
)

// Entry is one message that was attempted.
type Entry struct {
	ID         string    `json:"id"`                   // load id, as in [mail.HeaderID]
	MessageID  string    `json:"message_id,omitempty"` // the pipeline's id, as its 250 tells it; empty for other servers
	Outcome    Outcome   `json:"outcome"`
	Sender     string    `json:"sender"`
	Recipients []string  `json:"recipients,omitempty"` // those that the server took: at RCPT, by LMTP after the content too
	Rejected   []string  `json:"rejected,omitempty"`   // those that it refused, at either
	Reply      string    `json:"reply,omitempty"`      // the last reply in full, lines parted by LF; or why there was none
	Size       int       `json:"size"`                 // octets
	Start      time.Time `json:"start"`                // when it was to be sent
	End        time.Time `json:"end"`                  // when the outcome was known
}

// Arrival is one message that arrived for one recipient.
type Arrival struct {
	ID        string    `json:"id"`                   // load id; for a notification that of the message returned in it; may be empty
	MessageID string    `json:"message_id,omitempty"` // the id in the first Received field, where there is one
	Recipient string    `json:"recipient"`
	Sender    string    `json:"sender"`           // the reverse-path; empty for notifications
	Report    bool      `json:"report,omitempty"` // a notification about the message, not the message itself
	Protocol  string    `json:"protocol"`         // smtp, lmtp or http
	Reply     int       `json:"reply"`            // the code that was sent; 0 where the script let nothing go out
	Fault     string    `json:"fault,omitempty"`  // what is wrong with the content
	Size      int       `json:"size"`             // octets
	Raw       string    `json:"raw,omitempty"`    // the file of the content as it came, where it is kept
	Time      time.Time `json:"time"`             // when the content was there whole
}

// Accepted tells whether the next hop took responsibility, or would have if the reply had got through.
func (a Arrival) Accepted() bool { return a.Reply/100 == 2 }

// Writer appends records to a file. It may be used by many at once.
type Writer struct {
	mu   sync.Mutex
	file *os.File
	buf  bytes.Buffer
	enc  *json.Encoder
	err  error // the first that Write had
}

// Open opens a ledger, or makes it. What is there already stays.
func Open(path string) (*Writer, error) {
	file, err := os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644) //nolint:gosec // readable for those who judge
	if err != nil {
		return nil, fmt.Errorf("opening a ledger: %w", err)
	}
	w := &Writer{file: file}
	w.enc = json.NewEncoder(&w.buf)
	w.enc.SetEscapeHTML(false)
	return w, nil
}

// Write appends a record, an [Entry] or an [Arrival]. When it returns the record is with the operating system, so a kill of
// the writing process does not lose it; a fall of the machine may.
func (w *Writer) Write(record any) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.buf.Reset()
	err := w.enc.Encode(record)
	if err == nil {
		_, err = w.file.Write(w.buf.Bytes())
	}
	if err != nil {
		err = fmt.Errorf("writing a ledger: %w", err)
		w.err = cmp.Or(w.err, err)
	}
	return err
}

// Close closes the file. It tells also the first error that Write had: the ledger is not whole then.
func (w *Writer) Close() error {
	err := w.file.Close()
	return cmp.Or(w.err, err)
}

// Read reads all records of a ledger. A last line that was not written whole, as by a killed writer, is left out.
func Read[T any](path string) ([]T, error) {
	file, err := os.Open(path) //nolint:gosec // the caller names the file
	if err != nil {
		return nil, fmt.Errorf("reading a ledger: %w", err)
	}
	defer file.Close()
	var records []T
	for r, n := bufio.NewReader(file), 1; ; n++ {
		line, err := r.ReadBytes('\n')
		if errors.Is(err, io.EOF) {
			return records, nil
		}
		var record T
		if err == nil {
			err = json.Unmarshal(line, &record)
		}
		if err != nil {
			return nil, fmt.Errorf("reading a ledger: %s line %d: %w", path, n, err)
		}
		records = append(records, record)
	}
}
