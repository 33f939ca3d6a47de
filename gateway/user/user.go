// Package user knows the users who may submit mail: a file of names, password hashes and sender addresses.
//
// A line is a user: the name, the hash, and the patterns of the sender addresses that are the user's, separated by
// blanks. Empty lines and lines that start with # are skipped.
//
//	ann@example.org $argon2id$v=19$m=19456,t=2,p=1$c2FsdA$aGFzaA ann@example.org *.news.example.org
//
// Without patterns the name itself is the sender address. Names are compared without the case of ASCII letters.
package user

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/rohrpost/rohrpost/proto/mailbox"
	"github.com/rohrpost/rohrpost/proto/pattern"
)

// User is one who may submit mail.
type User struct {
	Name    string
	Senders []pattern.Pattern // the addresses that the user may send from
	hash    hash
}

// May tells whether the user may send from an address. The null reverse-path is nobody's and everybody's.
func (u *User) May(sender string) bool {
	if sender == "" {
		return true
	}
	for _, p := range u.Senders {
		if p.Match(sender) {
			return true
		}
	}
	return false
}

// List are the users of a file. It does not change and may be used by many goroutines.
type List struct {
	byName map[string]*User
	dummy  hash // is checked for names that nobody has, so that they take as long as others
}

// Load reads a file. The error names the line.
func Load(path string) (*List, error) {
	data, err := os.ReadFile(path) //nolint:gosec // the configuration names it
	if err != nil {
		return nil, fmt.Errorf("users: %w", err)
	}
	l := &List{byName: map[string]*User{}, dummy: dummyHash()}
	lines := bufio.NewScanner(strings.NewReader(string(data)))
	for number := 1; lines.Scan(); number++ {
		f := strings.Fields(lines.Text())
		if len(f) == 0 || strings.HasPrefix(f[0], "#") {
			continue
		}
		u, err := parse(f)
		if err == nil && l.byName[key(u.Name)] != nil {
			err = errors.New("the user stands there twice")
		}
		if err != nil {
			return nil, fmt.Errorf("users: %s, line %d: %w", path, number, err)
		}
		if len(l.byName) == 0 {
			l.dummy = u.hash.like()
		}
		l.byName[key(u.Name)] = u
	}
	return l, lines.Err()
}

func parse(f []string) (*User, error) {
	u := &User{Name: f[0]}
	if len(f) < 2 {
		return nil, errors.New("want a name, a hash and sender addresses")
	}
	var err error
	if u.hash, err = parseHash(f[1]); err != nil {
		return nil, err
	}
	u.Senders, err = senders(u.Name, f[2:])
	return u, err
}

// senders reads the patterns of a user's addresses.
func senders(name string, texts []string) ([]pattern.Pattern, error) {
	if len(texts) == 0 {
		if !mailbox.Valid(name) {
			return nil, fmt.Errorf("%q is no mail address: give the addresses that the user may send from", name)
		}
		texts = []string{name}
	}
	var list []pattern.Pattern
	for _, text := range texts {
		p, err := pattern.Parse(text)
		if err != nil {
			return nil, err
		}
		list = append(list, p)
	}
	return list, nil
}

// Check returns the user of a name where the password is the user's, nil otherwise. It takes tens of milliseconds of CPU
// and some 20 MB, for names that nobody has too.
func (l *List) Check(name, password string) *User {
	u := l.byName[key(name)]
	if u == nil {
		l.dummy.matches(password)
		return nil
	}
	if !u.hash.matches(password) {
		return nil
	}
	return u
}

// key folds ASCII letters alone: Unicode has letters whose lower case is ASCII.
func key(name string) string {
	return strings.Map(func(r rune) rune {
		if r >= 'A' && r <= 'Z' {
			return r + ('a' - 'A')
		}
		return r
	}, name)
}
