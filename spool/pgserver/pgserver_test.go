package pgserver_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"go.uber.org/goleak"

	"github.com/rohrpost/rohrpost/spool/pgserver"
	"github.com/rohrpost/rohrpost/spool/pgserver/pgservertest"
)

// childDir tells the test binary to be a process that starts a server and waits to be killed.
const childDir = "PGSERVER_TEST_DIR"

func TestMain(m *testing.M) {
	if dir := os.Getenv(childDir); dir != "" {
		serveForever(dir)
	}
	goleak.VerifyTestMain(m)
}

func serveForever(dir string) {
	server, err := pgserver.Start(context.Background(), pgserver.Config{Dir: dir})
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	fmt.Println("ready")
	<-server.Done()
	os.Exit(0)
}

func query(t *testing.T, server *pgserver.Server, sql string) string {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), server.URL("postgres"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close(t.Context()) }()
	var value string
	if err := conn.QueryRow(t.Context(), sql).Scan(&value); err != nil {
		t.Fatal(err)
	}
	return value
}

func exec1(t *testing.T, server *pgserver.Server, sql string) {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), server.URL("postgres"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close(t.Context()) }()
	if _, err := conn.Exec(t.Context(), sql); err != nil {
		t.Fatal(err)
	}
}

func TestLife(t *testing.T) {
	server := pgservertest.Start(t, nil)
	for setting, want := range map[string]string{
		"fsync": "on", "full_page_writes": "on", "synchronous_commit": "on", "listen_addresses": "",
	} {
		if got := query(t, server, "SHOW "+setting); got != want {
			t.Errorf("%s is %q, want %q", setting, got, want)
		}
	}
	if err := server.EnsureDatabase(t.Context(), "mail"); err != nil {
		t.Fatal(err)
	}
	if err := server.EnsureDatabase(t.Context(), "mail"); err != nil {
		t.Errorf("a second time: %v", err)
	}
	exec1(t, server, "CREATE TABLE kept AS SELECT 'here' AS word")
	url := server.URL("postgres")
	for name, end := range map[string]func() error{
		"Stop":      func() error { return server.Stop(t.Context()) },
		"Immediate": server.Immediate,
		"Kill":      server.Kill,
		"nothing":   func() error { return nil },
	} {
		if err := end(); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if err := server.Restart(t.Context()); err != nil {
			t.Fatalf("after %s: %v", name, err)
		}
		if got := query(t, server, "SELECT word FROM kept"); got != "here" {
			t.Errorf("after %s: %q", name, got)
		}
	}
	if server.URL("postgres") != url {
		t.Errorf("the URL changed from %s to %s", url, server.URL("postgres"))
	}
}

func TestSecondServerOnFolder(t *testing.T) {
	server := pgservertest.Start(t, nil)
	_, err := pgserver.Start(t.Context(), pgserver.Config{Dir: server.Dir()})
	if err == nil || !strings.Contains(err.Error(), "another PostgreSQL server") {
		t.Errorf("got %v, want an error that names the other server", err)
	}
}

// A server that is in its shutdown is waited for, for longer than one that goes on: here it archives for seconds.
func TestServerThatStops(t *testing.T) {
	server := pgservertest.Start(t, map[string]string{"fsync": "off", "archive_mode": "on", "archive_command": "sleep 6"})
	stopped := make(chan error, 1)
	go func() { stopped <- server.Stop(context.WithoutCancel(t.Context())) }()
	for lock := filepath.Join(server.Dir(), "postmaster.pid"); ; time.Sleep(time.Millisecond) {
		if content, err := os.ReadFile(lock); err == nil && strings.Contains(string(content), "stopping") {
			break
		}
		if len(stopped) > 0 {
			t.Fatal("it did not say that it stops")
		}
	}
	next, err := pgserver.Start(t.Context(), pgserver.Config{Dir: server.Dir()})
	if err := <-stopped; err != nil {
		t.Error(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	if err := next.Stop(t.Context()); err != nil {
		t.Error(err)
	}
}

// A kill -9 of the program must not leave a server behind that locks the folder.
func TestDiesWithProgram(t *testing.T) {
	dir := filepath.Join(pgservertest.TempDir(t), "data")
	cmd := exec.CommandContext(t.Context(), os.Args[0])
	cmd.Env = append(os.Environ(), childDir+"="+dir)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	line := make([]byte, 200)
	n, err := out.Read(line)
	if err != nil || string(line[:n]) != "ready\n" {
		t.Fatalf("the child said %q, %v", line[:n], err)
	}
	if err := cmd.Process.Signal(syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait()
	server, err := pgserver.Start(t.Context(), pgserver.Config{Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	if err := server.Stop(t.Context()); err != nil {
		t.Error(err)
	}
}

func TestStaleLockFile(t *testing.T) {
	server := pgservertest.Start(t, nil)
	if err := server.Kill(); err != nil {
		t.Fatal(err)
	}
	lock := filepath.Join(server.Dir(), "postmaster.pid")
	content, err := os.ReadFile(lock)
	if err != nil {
		t.Fatalf("the crash left no lock file: %v", err)
	}
	_, rest, _ := strings.Cut(string(content), "\n")
	// The dead server's number belongs to a stranger now: to this test.
	if err := os.WriteFile(lock, fmt.Appendf(nil, "%d\n%s", os.Getpid(), rest), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := server.Restart(t.Context()); err != nil {
		t.Error(err)
	}
}

func TestVersionMismatch(t *testing.T) {
	dir := filepath.Join(pgservertest.TempDir(t), "data")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	marker := filepath.Join(dir, "PG_VERSION")
	if err := os.WriteFile(marker, []byte("9\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	_, err := pgserver.Start(t.Context(), pgserver.Config{Dir: dir, NoFetch: true})
	if err == nil {
		t.Fatal("it started on a folder of version 9")
	}
	for _, want := range []string{"PostgreSQL 9", "only PostgreSQL 1", "pg_dumpall", dir} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("the error lacks %q: %v", want, err)
		}
	}
	if _, err := os.Stat(marker); err != nil {
		t.Errorf("data was deleted: %v", err)
	}
}

func TestForeignFolderIsLeftAlone(t *testing.T) {
	dir := pgservertest.TempDir(t)
	file := filepath.Join(dir, "letter.txt")
	if err := os.WriteFile(file, []byte("dear"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := pgserver.Start(t.Context(), pgserver.Config{Dir: dir}); err == nil || !strings.Contains(err.Error(), dir) {
		t.Errorf("got %v, want an error that names the folder", err)
	}
	if content, err := os.ReadFile(file); err != nil || string(content) != "dear" {
		t.Errorf("the file is %q, %v", content, err)
	}
}

func TestUnreachableFolder(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("needs root: only then the server has another user")
	}
	closed := filepath.Join(pgservertest.TempDir(t), "closed")
	_, err := pgserver.Start(t.Context(), pgserver.Config{Dir: filepath.Join(mkdir(t, closed, 0o700), "data")})
	if err == nil || !strings.Contains(err.Error(), "chmod o+x "+closed) {
		t.Errorf("got %v, want an error that names %s", err, closed)
	}
}

func mkdir(t *testing.T, dir string, mode os.FileMode) string {
	t.Helper()
	if err := os.Mkdir(dir, mode); err != nil {
		t.Fatal(err)
	}
	return dir
}

func TestLongPath(t *testing.T) {
	dir := filepath.Join(pgservertest.TempDir(t), strings.Repeat("long", 30), "data")
	server, err := pgserver.Start(t.Context(), pgserver.Config{Dir: dir, Settings: map[string]string{"fsync": "off"}})
	if err != nil {
		t.Fatal(err)
	}
	if got := query(t, server, "SELECT 'yes'"); got != "yes" {
		t.Error(got)
	}
	if err := server.Stop(t.Context()); err != nil {
		t.Error(err)
	}
}
