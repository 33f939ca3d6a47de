package cli

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/rohrpost/rohrpost/gateway/user"
	"github.com/rohrpost/rohrpost/services/process"
)

func TestUserAdd(t *testing.T) {
	dir := t.TempDir()
	out, err := run(t, "long enough\n", "user", "add", "ann@a.test", "--sender", "a.test", "--sender", "*.a.test", "--data", dir)
	if err != nil || !strings.Contains(out, "ann@a.test may submit mail now") {
		t.Fatalf("%q, %v", out, err)
	}
	l, err := user.Load(filepath.Join(dir, process.UsersFile))
	if err != nil {
		t.Fatal(err)
	}
	ann := l.Check("ann@a.test", "long enough")
	if ann == nil || !ann.May("x@b.a.test") || ann.May("x@b.test") {
		t.Errorf("user %v", ann)
	}
	if strings.Contains(out, "long enough") {
		t.Errorf("the password is told: %q", out)
	}
	for name, c := range map[string]struct {
		in   string
		args []string
		want string
	}{
		"short":      {"short\n", []string{"user", "add", "bob@a.test", "--data", dir}, "too short"},
		"none":       {"", []string{"user", "add", "bob@a.test", "--data", dir}, "too short"},
		"no address": {"long enough\n", []string{"user", "add", "bob", "--data", dir}, "is no mail address"},
		"no folder":  {"long enough\n", []string{"user", "add", "bob@a.test", "--file", filepath.Join(dir, "none", "users")}, "users:"},
	} {
		if _, err := run(t, c.in, c.args...); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
	}
}
