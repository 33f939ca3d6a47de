package postgres_test

import (
	"bytes"
	"io"
	"net"
	"net/url"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/rohrpost/rohrpost/spool/pgserver/pgservertest"
)

// commitAction is what the proxy does with a COMMIT.
type commitAction int

const (
	pass       commitAction = iota
	loseReply               // let the server commit, and cut the client's connection before it learns of it
	loseCommit              // cut both connections without a COMMIT
	holdCommit              // cut the client's connection; the server gets the COMMIT when it is released
)

// proxy stands between a store and the server and does one thing to the next COMMIT.
type proxy struct {
	dir    string // of its socket
	target string

	mu      sync.Mutex
	action  commitAction
	release chan struct{}
	wg      sync.WaitGroup
}

func escaped(dir string) string { return url.QueryEscape(dir) }

func startProxy(t *testing.T, target string) *proxy {
	t.Helper()
	p := &proxy{dir: pgservertest.TempDir(t), target: target}
	listener, err := net.Listen("unix", filepath.Join(p.dir, ".s.PGSQL.5432")) //nolint:noctx // closed below
	if err != nil {
		t.Fatal(err)
	}
	p.wg.Go(func() {
		for {
			client, err := listener.Accept()
			if err != nil {
				return
			}
			p.wg.Go(func() { p.serve(client) })
		}
	})
	t.Cleanup(func() {
		_ = listener.Close()
		p.wg.Wait()
	})
	return p
}

// nextCommit says what becomes of the next COMMIT. Closing the channel releases one that is held.
func (p *proxy) nextCommit(action commitAction) chan<- struct{} {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.action, p.release = action, make(chan struct{})
	return p.release
}

func (p *proxy) take() (commitAction, <-chan struct{}) {
	p.mu.Lock()
	defer p.mu.Unlock()
	action := p.action
	p.action = pass
	return action, p.release
}

func (p *proxy) serve(client net.Conn) {
	defer func() { _ = client.Close() }()
	server, err := net.Dial("unix", p.target) //nolint:noctx // a local socket
	if err != nil {
		return
	}
	defer func() { _ = server.Close() }()
	answered := make(chan struct{}) // closed when no answer is passed on any more
	var deaf atomic.Bool            // says that the client learns of nothing
	p.wg.Go(func() {
		defer close(answered)
		pump(client, server, &deaf)
		_ = client.Close()
	})
	buffer := make([]byte, 1<<20)
	for {
		n, err := client.Read(buffer)
		if err != nil {
			return
		}
		action := pass
		var release <-chan struct{}
		if bytes.Contains(buffer[:n], []byte("commit\x00")) {
			action, release = p.take()
		}
		switch action {
		case loseReply:
			deaf.Store(true)
			_, _ = server.Write(buffer[:n])
			<-answered // the server has committed, and the client is cut off only now
			return
		case loseCommit:
			return
		case holdCommit:
			_ = client.Close()
			<-release
			_, _ = server.Write(buffer[:n])
			<-answered
			return
		case pass:
		}
		if _, err := server.Write(buffer[:n]); err != nil {
			return
		}
	}
}

// pump passes answers on until there are no more, or until the first that the client is not to learn of.
func pump(client io.Writer, server io.Reader, deaf *atomic.Bool) {
	buffer := make([]byte, 1<<20)
	for {
		n, err := server.Read(buffer)
		if err != nil || deaf.Load() {
			return
		}
		if _, err := client.Write(buffer[:n]); err != nil {
			return
		}
	}
}
