package peers

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/rohrpost/rohrpost/tests/load/stack"
)

// ErrNoPostfix means that Debian's package is not installed.
var ErrNoPostfix = errors.New("Postfix is not installed: apt-get install postfix, and choose No configuration")

// Postfix is an instance of Debian's Postfix with a configuration, queue and port of its own; the system's own instance is
// neither read nor touched. It is durable as it comes (a message is synced to disk before its 250) and tuned: as many
// processes as its work can use, no artificial delays, no lookups. It logs wherever a syslog daemon runs: no setting of it ends that.
func Postfix(ctx context.Context, o Options) (*Server, error) {
	if os.Getuid() != 0 {
		return nil, errors.New("postfix: only root can start it")
	}
	if _, err := os.Stat("/usr/sbin/postfix"); err != nil {
		return nil, ErrNoPostfix
	}
	address, err := stack.FreePort(ctx)
	if err != nil {
		return nil, err
	}
	dir := filepath.Join(o.Dir, "postfix")
	if err := postfixFolders(dir); err != nil {
		return nil, err
	}
	if err := postfixFiles(dir, address, o.Next); err != nil {
		return nil, err
	}
	begun := time.Now()
	if err := postfix(ctx, dir, "start"); err != nil {
		return nil, err
	}
	stop := func(ctx context.Context) (time.Duration, error) {
		begun := time.Now()
		err := postfix(ctx, dir, "stop")
		return time.Since(begun), err
	}
	up, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	if err := stack.Greeted(up, address); err != nil {
		_, stopErr := stop(context.WithoutCancel(ctx))
		return nil, errors.Join(err, stopErr)
	}
	return &Server{
		SMTP: address, Startup: time.Since(begun), Stop: stop, Versions: map[string]string{"Postfix": postfixVersion(ctx)},
		Groups: func() map[string][]int {
			text, err := os.ReadFile(filepath.Join(dir, "queue", "pid", "master.pid")) //nolint:gosec // a folder of our own
			if err != nil {
				return nil
			}
			pid, err := strconv.Atoi(strings.TrimSpace(string(text)))
			if err != nil {
				return nil
			}
			return map[string][]int{"server": {pid}}
		},
	}, nil
}

func postfixFolders(dir string) error {
	owner, err := user.Lookup("postfix")
	if err != nil {
		return fmt.Errorf("postfix: %w", err)
	}
	uid, err := strconv.Atoi(owner.Uid)
	if err != nil {
		return fmt.Errorf("postfix: %w", err)
	}
	for _, name := range []string{"", "conf", "queue", "data"} {
		if err := os.MkdirAll(filepath.Join(dir, name), 0o755); err != nil { //nolint:gosec // Postfix's own user must get in
			return fmt.Errorf("postfix: %w", err)
		}
	}
	if err := os.Chown(filepath.Join(dir, "data"), uid, -1); err != nil {
		return fmt.Errorf("postfix: %w", err)
	}
	return nil
}

// postfixMain is main.cf. (postconf(5).)
const postfixMain = `compatibility_level = 3.6
queue_directory = %[1]s/queue
data_directory = %[1]s/data
myhostname = mx.b.example
mydestination =
local_recipient_maps =
alias_maps =
mynetworks = 127.0.0.0/8
inet_interfaces = loopback-only
inet_protocols = ipv4
smtp_dns_support_level = disabled
smtpd_peername_lookup = no
smtpd_recipient_restrictions = permit_mynetworks, reject
smtpd_client_restrictions = %[2]s
smtpd_client_connection_count_limit = 0
smtpd_error_sleep_time = 0
default_process_limit = 300
in_flow_delay = 0
message_size_limit = 60000000
queue_minfree = 0
default_transport = smtp:%[3]s
relay_transport = smtp:%[3]s
default_destination_concurrency_limit = 100
initial_destination_concurrency = 50
smtp_connection_cache_on_demand = yes
smtp_tls_security_level = none
smtputf8_enable = no
`

// postfixMaster is master.cf with what this instance needs; nothing runs in a chroot. (master(5).)
const postfixMaster = `%s inet n - n - - smtpd
pickup unix n - n 60 1 pickup
cleanup unix n - n - 0 cleanup
qmgr unix n - n 300 1 qmgr
tlsmgr unix - - n 1000? 1 tlsmgr
rewrite unix - - n - - trivial-rewrite
bounce unix - - n - 0 bounce
defer unix - - n - 0 bounce
trace unix - - n - 0 bounce
verify unix - - n - 1 verify
flush unix n - n 1000? 0 flush
proxymap unix - - n - - proxymap
smtp unix - - n - - smtp
relay unix - - n - - smtp
error unix - - n - - error
retry unix - - n - - error
discard unix - - n - - discard
local unix - n n - - local
anvil unix - - n - 1 anvil
scache unix - - n - 1 scache
`

func postfixFiles(dir, address, next string) error {
	hold, via := "check_client_access static:HOLD", "[127.0.0.1]:1"
	if next != "" {
		host, port, err := net.SplitHostPort(next)
		if err != nil {
			return fmt.Errorf("postfix: %w", err)
		}
		hold, via = "", "["+host+"]:"+port
	}
	for name, text := range map[string]string{
		"main.cf": fmt.Sprintf(postfixMain, dir, hold, via), "master.cf": fmt.Sprintf(postfixMaster, address),
	} {
		if err := os.WriteFile(filepath.Join(dir, "conf", name), []byte(text), 0o644); err != nil { //nolint:gosec // Postfix's own user must read it
			return fmt.Errorf("postfix: %w", err)
		}
	}
	return nil
}

func postfix(ctx context.Context, dir, command string) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	out, err := exec.CommandContext(ctx, "/usr/sbin/postfix", "-c", filepath.Join(dir, "conf"), command).CombinedOutput() //nolint:gosec // our own folder
	if err != nil {
		return fmt.Errorf("postfix %s: %w\n%s", command, err, out)
	}
	return nil
}

// postfixVersion is the version that is installed; empty where that is not known.
func postfixVersion(ctx context.Context) string {
	out, err := exec.CommandContext(ctx, "/usr/sbin/postconf", "-h", "-d", "mail_version").Output()
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(out))
}
