package deliver

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"path"
	"regexp"
	"strings"
)

// maxName is how long a name of a folder may be. Most file systems allow 255 octets.
const maxName = 200

// Mailbox returns the folder of a recipient below the path of its route, `<domain>/<local part>`, with slashes.
//
// Both names are in lower case (of ASCII). Octets other than a-z, 0-9 and -_.+=~ are written as %XX, and so is a leading
// dot; so no address leads out of the folder, and no two mailboxes share one. A name longer than 200 octets is cut and
// ends with "%~" and a hash of the whole; a missing part is "%none". Quotes that a local part does not need are left out.
func Mailbox(address string) string {
	local, domain := splitAddress(address)
	return path.Join(safeName(domain), safeName(unquote(local)))
}

func safeName(s string) string {
	if s == "" {
		return "%none"
	}
	const digits = "0123456789ABCDEF"
	var sb strings.Builder
	for i := 0; i < len(s); i++ {
		c := lower(s[i])
		plain := 'a' <= c && c <= 'z' || '0' <= c && c <= '9' || strings.IndexByte("-_+=~", c) >= 0 || c == '.' && i > 0
		if plain {
			sb.WriteByte(c)
			continue
		}
		sb.WriteByte('%')
		sb.WriteByte(digits[c>>4])
		sb.WriteByte(digits[c&15])
	}
	name := sb.String()
	if len(name) <= maxName {
		return name
	}
	sum := sha256.Sum256([]byte(name))
	return name[:maxName-66] + "%~" + hex.EncodeToString(sum[:])
}

// unquote takes the quotes off a local part: "ann" and ann are one mailbox. (RFC 5321, section 4.1.2.)
func unquote(local string) string {
	if len(local) < 2 || local[0] != '"' || local[len(local)-1] != '"' {
		return local
	}
	var sb strings.Builder
	for inner := local[1 : len(local)-1]; inner != ""; inner = inner[1:] {
		if inner[0] == '\\' && len(inner) > 1 {
			inner = inner[1:]
		}
		sb.WriteByte(inner[0])
	}
	return sb.String()
}

var plainID = regexp.MustCompile(`^[0-9A-Za-z-]{1,64}$`)

// fileName returns the name of a message's file in a mailbox: the message id, a dot and 16 hexadecimal digits that
// stand for the recipient.
func fileName(messageID, address string) string {
	if !plainID.MatchString(messageID) {
		sum := sha256.Sum256([]byte(messageID))
		messageID = hex.EncodeToString(sum[:])
	}
	sum := sha256.Sum256([]byte(Mailbox(address)))
	return messageID + "." + hex.EncodeToString(sum[:8])
}

func randomName() string { return strings.ToLower(rand.Text()) }
