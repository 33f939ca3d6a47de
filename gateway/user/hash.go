package user

import (
	"crypto/rand"
	"crypto/subtle"
	"encoding/base64"
	"errors"
	"fmt"
	"strings"

	"golang.org/x/crypto/argon2"
	"golang.org/x/crypto/bcrypt"
)

// hash is what is kept of a password.
type hash interface {
	// matches compares in a time that does not depend on how much is right.
	matches(password string) bool
	// like returns a hash that no password matches and that takes as long.
	like() hash
}

// The parameters of new hashes: OWASP's first choice for Argon2id. Memory is in KiB.
const (
	argonMemory = 19 << 10
	argonTime   = 2
	argonLanes  = 1
	saltSize    = 16
	keySize     = 32

	maxArgonMemory = 256 << 10 // more would let a few clients take all memory
	maxArgonTime   = 32
	maxBcryptCost  = 15 // some 3 s, and each more takes twice as long
)

// Hash makes the hash of a password for the file: Argon2id in the PHC string format (RFC 9106).
func Hash(password string) string {
	h := newArgon()
	h.sum = h.compute(password)
	encode := base64.RawStdEncoding.EncodeToString
	return fmt.Sprintf("$argon2id$v=%d$m=%d,t=%d,p=%d$%s$%s", argon2.Version, h.memory, h.time, h.lanes, encode(h.salt), encode(h.sum))
}

func newArgon() argonHash {
	h := argonHash{memory: argonMemory, time: argonTime, lanes: argonLanes, salt: make([]byte, saltSize), sum: make([]byte, keySize)}
	_, _ = rand.Read(h.salt) // never fails, see crypto/rand
	return h
}

func dummyHash() hash { return newArgon().like() }

func parseHash(s string) (hash, error) {
	switch {
	case strings.HasPrefix(s, "$argon2id$"):
		return parseArgon(s)
	case strings.HasPrefix(s, "$2"):
		return parseBcrypt(s)
	}
	return nil, errors.New("the hash is neither argon2id nor bcrypt: make one with `rohrpost user add`")
}

// argonHash is Argon2id.
type argonHash struct {
	memory, time uint32
	lanes        uint8
	salt, sum    []byte
}

func parseArgon(s string) (hash, error) {
	bad := errors.New("the argon2id hash can't be read")
	f := strings.Split(s, "$") // "", argon2id, v=19, m=…, salt, sum
	if len(f) != 6 || f[2] != fmt.Sprintf("v=%d", argon2.Version) {
		return nil, bad
	}
	var h argonHash
	if n, err := fmt.Sscanf(f[3], "m=%d,t=%d,p=%d", &h.memory, &h.time, &h.lanes); n != 3 || err != nil {
		return nil, bad
	}
	if h.memory > maxArgonMemory || h.time < 1 || h.time > maxArgonTime || h.lanes < 1 {
		return nil, fmt.Errorf("the argon2id hash asks for too much: at most m=%d and t=%d", maxArgonMemory, maxArgonTime)
	}
	var err error
	if h.salt, err = base64.RawStdEncoding.DecodeString(f[4]); err != nil {
		return nil, bad
	}
	if h.sum, err = base64.RawStdEncoding.DecodeString(f[5]); err != nil || len(h.sum) < 16 {
		return nil, bad
	}
	return h, nil
}

func (h argonHash) compute(password string) []byte {
	return argon2.IDKey([]byte(password), h.salt, h.time, h.memory, h.lanes, uint32(len(h.sum)))
}

func (h argonHash) matches(password string) bool {
	return subtle.ConstantTimeCompare(h.compute(password), h.sum) == 1
}

func (h argonHash) like() hash {
	h.sum = make([]byte, len(h.sum))
	_, _ = rand.Read(h.sum) // never fails, see crypto/rand
	return h
}

func parseBcrypt(s string) (hash, error) {
	cost, err := bcrypt.Cost([]byte(s))
	if err != nil {
		return nil, errors.New("the bcrypt hash can't be read")
	}
	if cost > maxBcryptCost {
		return nil, fmt.Errorf("the bcrypt hash asks for too much: a cost of at most %d", maxBcryptCost)
	}
	return bcryptHash(s), nil
}

// bcryptHash is bcrypt, as htpasswd -B and others make it. Passwords count up to 72 octets.
type bcryptHash string

func (h bcryptHash) matches(password string) bool {
	return bcrypt.CompareHashAndPassword([]byte(h), []byte(password)) == nil
}

func (h bcryptHash) like() hash { return impossible{h} }

// impossible takes as long as another hash and matches nothing.
type impossible struct{ hash }

func (i impossible) matches(password string) bool {
	i.hash.matches(password)
	return false
}
