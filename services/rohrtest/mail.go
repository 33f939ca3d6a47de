package rohrtest

import (
	"bytes"
	"os"
	"path/filepath"
	"sort"
	"sync"

	"github.com/rohrpost/rohrpost/deliver"
)

// Mail returns the mails that were delivered to an address, in the order of their file names.
func (p *Pipeline) Mail(address string) [][]byte {
	p.t.Helper()
	names, err := filepath.Glob(filepath.Join(p.mail, filepath.FromSlash(deliver.Mailbox(address)), "new", "*"))
	if err != nil {
		p.t.Fatal(err)
	}
	sort.Strings(names)
	mails := make([][]byte, 0, len(names))
	for _, name := range names {
		mail, err := os.ReadFile(name) //nolint:gosec // a file of the test's own folder
		if err != nil {
			p.t.Fatal(err)
		}
		mails = append(mails, mail)
	}
	return mails
}

// lockedBuffer is a log that many write to. It keeps everything and shows the end.
type lockedBuffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

// Write implements io.Writer.
func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.Write(p)
}

// String returns everything.
func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.String()
}

const tailSize = 20 << 10

func (b *lockedBuffer) tail() string {
	s := b.String()
	if len(s) > tailSize {
		s = "…" + s[len(s)-tailSize:]
	}
	return s
}
