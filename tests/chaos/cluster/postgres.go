//go:build linux

package cluster

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/rohrpost/rohrpost/tests/chaos/schedule"
)

// postgres is the database server. It has its own way of starting, since pgserver's has no TCP, and what has no network
// can't be partitioned.
type postgres struct {
	proc *Process
	node *node
	data string
}

// role is the superuser; database is what the services use.
const (
	role     = "rohrpost"
	database = "rohrpost"
)

// startPostgres makes the data folder on the disks and starts the server.
func (c *Cluster) startPostgres(ctx context.Context) (*postgres, error) {
	bin, err := findBinaries()
	if err != nil {
		return nil, err
	}
	as, uid, gid, err := unprivileged()
	if err != nil {
		return nil, err
	}
	p := &postgres{node: c.net.nodes[schedule.Postgres], data: filepath.Join(c.disks[DiskData].path, "pg")}
	wal := filepath.Join(c.disks[DiskWAL].path, "pg")
	for _, dir := range []string{p.data, wal} {
		if err := os.Mkdir(dir, 0o700); err != nil {
			return nil, err
		}
		if err := os.Chown(dir, uid, gid); err != nil {
			return nil, err
		}
	}
	hba := filepath.Join(c.dir, "pg_hba.conf")
	if err := os.WriteFile(hba, []byte("host all all "+Host+"/24 trust\n"), 0o644); err != nil { //nolint:gosec // it is read by the server's user
		return nil, err
	}
	p.proc = &Process{
		Name: schedule.Postgres, Word: schedule.Postgres, node: p.node, user: as, note: c.note,
		log: filepath.Join(c.dir, "logs", "postgres.log"), env: []string{"PATH=/usr/bin:/bin", "LC_ALL=C"},
		args: []string{
			filepath.Join(bin, "initdb"), "--pgdata=" + p.data, "--waldir=" + wal, "--wal-segsize=1", "--username=" + role,
			"--encoding=UTF8", "--locale=C", "--data-checksums", "--auth=trust", "--no-sync", "--no-instructions",
		},
	}
	if err := p.proc.launch(); err != nil {
		return nil, err
	}
	select {
	case <-p.proc.exited:
	case <-ctx.Done():
		p.proc.kill()
		return nil, fmt.Errorf("initdb does not end: %w", context.Cause(ctx))
	}
	if !p.proc.cmd.ProcessState.Success() {
		text, _ := p.proc.Log()
		return nil, fmt.Errorf("initdb failed: %s", text)
	}
	p.proc.args = []string{
		filepath.Join(bin, "postgres"), "-D", p.data, "-c", "listen_addresses=" + p.node.address, "-c", "unix_socket_directories=",
		"-c", "hba_file=" + hba, "-c", "log_line_prefix=%m [%p] %a ", "-c", "max_connections=100",
		// A small log of many files, each of them a new one, so that a full disk is felt at once.
		"-c", "min_wal_size=2MB", "-c", "max_wal_size=48MB", "-c", "checkpoint_timeout=30s", "-c", "wal_recycle=off",
		// A client whose machine is gone is noticed soon.
		"-c", "tcp_keepalives_idle=5", "-c", "tcp_keepalives_interval=2", "-c", "tcp_keepalives_count=3", "-c", "tcp_user_timeout=15000",
	}
	if err := p.proc.Start(); err != nil {
		return nil, err
	}
	if err := p.wait(ctx); err != nil {
		return nil, err
	}
	return p, p.exec(ctx, "postgres", "CREATE DATABASE "+database)
}

func (p *postgres) url() string { return p.urlOf(database) }

func (p *postgres) urlOf(name string) string {
	return "postgres://" + role + "@" + p.node.address + ":5432/" + name + "?connect_timeout=3"
}

func (p *postgres) connect(ctx context.Context) (*pgx.Conn, error) { return pgx.Connect(ctx, p.url()) }

// wait waits until the server takes connections.
func (p *postgres) wait(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	for {
		err := p.exec(ctx, "postgres", "SELECT 1")
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("PostgreSQL does not come up: %w", err)
		case <-time.After(50 * time.Millisecond):
		}
	}
}

func (p *postgres) exec(ctx context.Context, name, statement string) error {
	conn, err := pgx.Connect(ctx, p.urlOf(name))
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close(context.WithoutCancel(ctx)) }()
	_, err = conn.Exec(ctx, statement)
	return err
}

// terminate ends every client's connection.
func (p *postgres) terminate(ctx context.Context) error {
	return p.exec(ctx, "postgres", `SELECT pg_terminate_backend(pid) FROM pg_stat_activity
		WHERE backend_type = 'client backend' AND pid <> pg_backend_pid()`)
}

// findBinaries finds the newest server of Debian's folders.
func findBinaries() (string, error) {
	found, _ := filepath.Glob("/usr/lib/postgresql/*/bin/initdb")
	if len(found) == 0 {
		return "", fmt.Errorf("no PostgreSQL server is installed: apt-get install postgresql")
	}
	version := func(path string) int {
		n, _ := strconv.Atoi(strings.Split(path, "/")[4])
		return n
	}
	newest := slices.MaxFunc(found, func(a, b string) int { return version(a) - version(b) })
	return filepath.Dir(newest), nil
}

// unprivileged is the user of the server, which refuses to run as root: another where we are root; where root is only what
// we are called in our own namespace, nobody new but another name for ourselves.
func unprivileged() (as *syscall.SysProcAttr, uid, gid int, err error) {
	mapping, err := os.ReadFile("/proc/self/uid_map")
	if err != nil {
		return nil, 0, 0, err
	}
	if fields := strings.Fields(string(mapping)); len(fields) == 3 && fields[2] == "1" {
		one := []syscall.SysProcIDMap{{ContainerID: 1000, HostID: 0, Size: 1}}
		return &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWUSER, UidMappings: one, GidMappings: one}, 0, 0, nil
	}
	for _, name := range []string{"postgres", "nobody"} {
		u, err := user.Lookup(name)
		if err != nil {
			continue
		}
		uid, uidErr := strconv.Atoi(u.Uid)
		gid, gidErr := strconv.Atoi(u.Gid)
		return &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}}, uid, gid, errors.Join(uidErr, gidErr)
	}
	return nil, 0, 0, errors.New("there is neither a user postgres nor nobody to run PostgreSQL as")
}
