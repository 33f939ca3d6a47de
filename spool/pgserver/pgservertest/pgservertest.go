// Package pgservertest gives tests a PostgreSQL of their own: one server for each test process, and a fresh database for
// each test.
package pgservertest

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/rohrpost/rohrpost/spool/pgserver"
)

// shared is the server of the test process. Tests have no other place to hang it on than the package.
var shared struct {
	mu     sync.Mutex
	server *pgserver.Server
	dir    string
	serial atomic.Int64
}

// stopTimeout bounds the shutdown of a server. It ends with a checkpoint, which takes its time on a disk that is busy.
const stopTimeout = time.Minute

// Main runs the tests of a package and stops the server after them. Call it in TestMain, and exit with its result:
//
//	func TestMain(m *testing.M) { os.Exit(pgservertest.Main(m)) }
func Main(m *testing.M) int {
	code := m.Run()
	if err := Stop(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return code
}

// Stop stops the server, if a test has started it, and removes its folder. Main calls it.
func Stop() error {
	shared.mu.Lock()
	defer shared.mu.Unlock()
	if shared.server == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), stopTimeout)
	defer cancel()
	err := shared.server.Stop(ctx)
	shared.server = nil
	if removeErr := os.RemoveAll(shared.dir); err == nil {
		err = removeErr
	}
	return err
}

// Server gives the server of the test process and starts it at the first call. It is not durable (fsync is off); start
// one by [Start] to test what outlives a crash.
func Server(t testing.TB) *pgserver.Server {
	t.Helper()
	shared.mu.Lock()
	defer shared.mu.Unlock()
	if shared.server != nil {
		return shared.server
	}
	dir, err := tempDir()
	if err != nil {
		t.Fatal(err)
	}
	server, err := pgserver.Start(t.Context(), pgserver.Config{
		Dir:      filepath.Join(dir, "data"),
		Settings: map[string]string{"fsync": "off", "full_page_writes": "off"},
	})
	if err != nil {
		_ = os.RemoveAll(dir)
		t.Fatal(err)
	}
	shared.server, shared.dir = server, dir
	return server
}

// Start starts a server for one test alone, with settings over the durable defaults, and stops it at the test's end.
func Start(t testing.TB, settings map[string]string) *pgserver.Server {
	t.Helper()
	server, err := pgserver.Start(t.Context(), pgserver.Config{Dir: filepath.Join(TempDir(t), "data"), Settings: settings})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), stopTimeout)
		defer cancel()
		if err := server.Stop(ctx); err != nil {
			t.Error(err)
		}
	})
	return server
}

// NewDatabase makes an empty database for a test and returns its URL. It goes with the server: to drop one costs a
// checkpoint, more than to make it.
func NewDatabase(t testing.TB) string {
	t.Helper()
	return CopyDatabase(t, "template1")
}

// CopyDatabase makes a database for a test from a template that nobody is connected to, and returns its URL.
func CopyDatabase(t testing.TB, template string) string {
	t.Helper()
	server := Server(t)
	name := fmt.Sprintf("test_%d", shared.serial.Add(1))
	exec(t, server, "CREATE DATABASE "+name+" TEMPLATE "+pgx.Identifier{template}.Sanitize())
	return server.URL(name)
}

// TempDir makes a folder that the server's user can reach, which one from t.TempDir is not if the tests run as root. It is
// removed at the test's end.
func TempDir(t testing.TB) string {
	t.Helper()
	dir, err := tempDir()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	return dir
}

func tempDir() (string, error) {
	dir, err := os.MkdirTemp("", "rohrpost-test-")
	if err != nil {
		return "", err
	}
	return dir, os.Chmod(dir, 0o711) //nolint:gosec // the server's user must get through
}

// exec runs one statement that no transaction may contain.
func exec(t testing.TB, server *pgserver.Server, statement string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	conn, err := pgx.Connect(ctx, server.URL("postgres"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close(context.WithoutCancel(ctx)) }()
	if _, err := conn.Exec(ctx, statement); err != nil {
		t.Fatalf("%s: %v", statement, err)
	}
}
