package user_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/crypto/bcrypt"

	"github.com/rohrpost/rohrpost/gateway/user"
)

func load(t *testing.T, content string) (*user.List, error) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "users")
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	return user.Load(path)
}

func TestCheck(t *testing.T) {
	old, err := bcrypt.GenerateFromPassword([]byte("older"), bcrypt.MinCost)
	if err != nil {
		t.Fatal(err)
	}
	l, err := load(t, "# users\n\nann@a.test "+user.Hash("secret")+"\nbob "+string(old)+" bob@a.test\n")
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name, password string
		ok             bool
	}{
		{"ann@a.test", "secret", true},
		{"ANN@A.test", "secret", true},
		{"ann@a.test", "Secret", false},
		{"ann@a.test", "", false},
		{"bob", "older", true},
		{"bob", "secret", false},
		{"bob@a.test", "older", false},
		{"\u212Aim", "", false}, // the Kelvin sign is no k
		{"", "", false},
	} {
		if got := l.Check(c.name, c.password); (got != nil) != c.ok {
			t.Errorf("Check(%q, %q): %v", c.name, c.password, got)
		}
	}
}

// A name that nobody has takes about as long as a wrong password, whatever the kind of hash.
func TestUnknownNameTakesAsLong(t *testing.T) {
	old, err := bcrypt.GenerateFromPassword([]byte("older"), 8)
	if err != nil {
		t.Fatal(err)
	}
	for name, content := range map[string]string{"argon2id": "ann@a.test " + user.Hash("secret"), "bcrypt": "ann@a.test " + string(old)} {
		l, err := load(t, content)
		if err != nil {
			t.Fatal(err)
		}
		took := func(who string, least time.Duration) time.Duration {
			began := time.Now()
			l.Check(who, "wrong")
			return min(least, time.Since(began))
		}
		known, unknown := time.Hour, time.Hour
		alike := func() bool { return unknown >= known/10 && known >= unknown/10 }
		for range 20 { // the least counts: a busy machine makes either late now and then
			if known, unknown = took("ann@a.test", known), took("nobody", unknown); alike() {
				break
			}
		}
		if !alike() {
			t.Errorf("%s: a known name takes %s, an unknown one %s", name, known, unknown)
		}
	}
}

// A file that can't be read names the line.
func TestBadFiles(t *testing.T) {
	good := user.Hash("x")
	for content, want := range map[string]string{
		"ann@a.test":                 "line 1: want a name, a hash",
		"\nann " + good:              "line 2: \"ann\" is no mail address",
		"ann secret":                 "neither argon2id nor bcrypt",
		"ann $2y$nonsense":           "bcrypt hash can't be read",
		"ann $argon2id$v=19$m=1,t=1": "argon2id hash can't be read",
		"ann@a.test " + strings.Replace(good, "m=19456", "m=9999999", 1): "asks for too much",
		"ann@a.test $2y$31$" + strings.Repeat("a", 53):                   "a cost of at most",
		"ann@a.test " + good + " *x":                                     "pattern",
		"ann@a.test " + good + "\nANN@a.test " + good:                    "line 2: the user stands there twice",
	} {
		if _, err := load(t, content); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.40q: %v, want %q", content, err, want)
		}
	}
	if _, err := user.Load(filepath.Join(t.TempDir(), "none")); err == nil {
		t.Error("a missing file is no error")
	}
}

// Add makes the file, keeps other lines, replaces the user, and refuses what could not be read again.
func TestAdd(t *testing.T) {
	path := filepath.Join(t.TempDir(), "users")
	add := func(name, password string, senders ...string) {
		t.Helper()
		if err := user.Add(path, name, password, senders); err != nil {
			t.Fatal(err)
		}
	}
	add("ann@a.test", "one")
	info, err := os.Stat(path)
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("mode %v, %v", info.Mode(), err)
	}
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, append([]byte("# ours\n"), data...), 0o600); err != nil {
		t.Fatal(err)
	}
	add("bob", "two", "bob@a.test", "b.test")
	add("ANN@a.test", "three")
	l, err := user.Load(path)
	if err != nil {
		t.Fatal(err)
	}
	if l.Check("ann@a.test", "one") != nil || l.Check("ann@a.test", "three") == nil {
		t.Error("the password was not replaced")
	}
	if bob := l.Check("bob", "two"); bob == nil || !bob.May("x@b.test") || bob.May("bob@c.test") {
		t.Errorf("bob: %v", bob)
	}
	if data, err := os.ReadFile(path); err != nil || !strings.HasPrefix(string(data), "# ours\n") {
		t.Errorf("the comment is gone: %q, %v", data, err)
	}
	if err := user.Add(path, "ann", "x", nil); err == nil {
		t.Error("Add takes a name that is no address, without one to send from")
	}
	for _, name := range []string{"", "a b", "#x", "a\nb", "a\u00a0b", "a\x00b", "a\u0085"} {
		if err := user.Add(path, name, "x", []string{"a.test"}); err == nil {
			t.Errorf("Add takes the name %q", name)
		}
	}
	for _, pattern := range []string{`"a b"@a.test`, " a.test", "a.test\n#"} {
		if err := user.Add(path, "eve", "x", []string{pattern}); err == nil {
			t.Errorf("Add takes the pattern %q", pattern)
		}
	}
	if _, err := user.Load(path); err != nil {
		t.Errorf("the file can't be read any more: %v", err)
	}
}
