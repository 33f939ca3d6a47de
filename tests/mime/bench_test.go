//go:build unix

// Package mime compares the parser with other readers of mail in Go, in the same run on the same mails: speed,
// allocations, what they make of each message, and how the speed scales with workers. The mails are those of the shared
// corpus that lies beside the repository; without it, the tests and benchmarks on it are skipped.
//
//	go test -run '^$' -bench . -benchmem -count 5 ./tests/mime
package mime

import (
	"bytes"
	"encoding/base64"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/emersion/go-message"
	_ "github.com/emersion/go-message/charset" // go-message reads charsets only with it
	"github.com/jhillyerd/enmime/v2"

	"github.com/rohrpost/rohrpost/parser"
)

// folders are the parts of the corpus that hold whole mails.
var folders = []string{
	"mime4j-testmsgs", "mimetools-testmsgs", "enmime-raw", "stalwart-mime/rfc", "dsn-arf-kumomta", "bounces-sisimai/eml",
}

// corpus reads the mails. Those in the way of upstream's tests on purpose (no mail at all) are among them.
func corpus(t testing.TB) map[string][]byte {
	t.Helper()
	base := filepath.Join("..", "..", "..", "shared", "corpus")
	if _, err := os.Stat(base); err != nil {
		t.Skip("the shared corpus is absent")
	}
	mails := map[string][]byte{}
	for _, folder := range folders {
		err := filepath.WalkDir(filepath.Join(base, folder), func(path string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() || !slices.Contains([]string{".msg", ".eml", ".raw"}, filepath.Ext(path)) {
				return err
			}
			content, err := os.ReadFile(path)
			name, _ := filepath.Rel(base, path)
			mails[name] = content
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	return mails
}

// reader reads a mail with all its bodies decoded.
type reader struct {
	name string
	read func(content []byte) error
}

var readers = []reader{
	{"rohrpost", func(content []byte) error {
		parser.Parse(content, parser.Limits{})
		return nil
	}},
	{"enmime", func(content []byte) error {
		_, err := enmime.ReadEnvelope(bytes.NewReader(content))
		return err
	}},
	{"go-message", func(content []byte) error {
		entity, err := message.Read(bytes.NewReader(content))
		if err != nil && !message.IsUnknownCharset(err) && !message.IsUnknownEncoding(err) {
			return err
		}
		return readAll(entity, 0)
	}},
}

// readAll reads the parts of an entity to their ends.
func readAll(entity *message.Entity, depth int) error {
	if depth > 50 {
		return errors.New("too deep")
	}
	parts := entity.MultipartReader()
	if parts == nil {
		_, err := io.Copy(io.Discard, entity.Body)
		return err
	}
	for {
		part, err := parts.NextPart()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil && !message.IsUnknownCharset(err) && !message.IsUnknownEncoding(err) {
			return err
		}
		if err := readAll(part, depth+1); err != nil {
			return err
		}
	}
}

// cpu measures the processor time of a benchmark: it says the same on a busy machine, as the time of day does not. It
// counts the garbage collector too.
func cpu(b *testing.B, octets int64) (stop func()) {
	b.Helper()
	used := func() time.Duration {
		var usage syscall.Rusage
		if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
			b.Fatal(err)
		}
		return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
	}
	before := used()
	return func() {
		b.ReportMetric(float64(octets)*float64(b.N)/1e6/(used()-before).Seconds(), "MB/cpu-s")
	}
}

// BenchmarkCorpus reads every mail of the corpus once; MB/s are those of the mails as they stand. What stops with an error
// reads less of a mail than there is.
func BenchmarkCorpus(b *testing.B) {
	mails := corpus(b)
	total := int64(0)
	for _, content := range mails {
		total += int64(len(content))
	}
	for _, r := range readers {
		b.Run(r.name, func(b *testing.B) {
			b.SetBytes(total)
			b.ReportAllocs()
			failed := 0
			stop := cpu(b, total)
			for b.Loop() {
				failed = 0
				for _, content := range mails {
					if r.read(content) != nil {
						failed++
					}
				}
			}
			stop()
			b.ReportMetric(float64(failed), "failed")
		})
	}
}

// attachment is a mail with a text and an attachment of 10 MB in base64.
func attachment() []byte {
	octets := make([]byte, 10<<20)
	for i := range octets {
		octets[i] = byte(i * 7 >> 3)
	}
	encoded := base64.StdEncoding.EncodeToString(octets)
	var out strings.Builder
	out.WriteString("From: a@example.org\r\nSubject: s\r\nMIME-Version: 1.0\r\nContent-Type: multipart/mixed; boundary=b\r\n\r\n--b\r\n\r\n" +
		"Hello.\r\n--b\r\nContent-Type: application/octet-stream\r\nContent-Transfer-Encoding: base64\r\n\r\n")
	for len(encoded) > 0 {
		n := min(76, len(encoded))
		out.WriteString(encoded[:n] + "\r\n")
		encoded = encoded[n:]
	}
	out.WriteString("--b--\r\n")
	return []byte(out.String())
}

// BenchmarkAttachment reads a mail with a large attachment; the parser from memory, as the others, and as a stream, as a
// worker does.
func BenchmarkAttachment(b *testing.B) {
	content := attachment()
	streamed := reader{"rohrpost-stream", func(content []byte) error {
		_, err := parser.ParseReader(bytes.NewReader(content), int64(len(content)), parser.Limits{})
		return err
	}}
	for _, r := range append(slices.Clone(readers), streamed) {
		b.Run(r.name, func(b *testing.B) {
			b.SetBytes(int64(len(content)))
			b.ReportAllocs()
			stop := cpu(b, int64(len(content)))
			for b.Loop() {
				if err := r.read(content); err != nil {
					b.Fatal(err)
				}
			}
			stop()
		})
	}
}
