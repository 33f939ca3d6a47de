package spoolsend

import (
	"bytes"
	"fmt"
	"unicode/utf8"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	sendv1 "github.com/rohrpost/rohrpost/proto/gen/rohrpost/send/v1"
)

// The limits of a request, which send_service.proto tells.
const (
	maxKey        = 255
	maxRecipients = 1000
	maxContent    = 1 << 20
	// maxLine is the longest line of content, without its CRLF, as at the gateway. RFC 5322 says 998.
	maxLine = 64 << 10
	// maxHops is how many Received fields a message may have before it counts as looping. (RFC 5321, section 6.3.)
	maxHops = 100
)

// mail is what is found out about a message while it is checked.
type mail struct {
	utf8     bool // an address or the header section is not ASCII (RFC 6531)
	eightBit bool // the content is not ASCII
}

// check tells what is wrong with a request: an INVALID_ARGUMENT that names the field.
func check(req *sendv1.SendMessageRequest) (mail, error) {
	if err := checkKey(req.GetIdempotencyKey()); err != nil {
		return mail{}, err
	}
	if at := req.GetReleaseAt(); at != nil && !at.IsValid() {
		return mail{}, invalid("release_at: %v", at.CheckValid())
	}
	m, err := checkAddresses(req)
	if err != nil {
		return mail{}, err
	}
	content := req.GetContent()
	if err := checkLines(content); err != nil {
		return mail{}, err
	}
	header := headerOf(content)
	if !utf8.Valid(header) {
		return mail{}, invalid("content: the header section is not valid UTF-8 (RFC 6532, section 3.2); encode it by RFC 2047")
	}
	if hops := countReceived(header); hops > maxHops {
		return mail{}, invalid("content: %d Received fields: the message is looping", hops)
	}
	m.utf8 = m.utf8 || !isASCII(header)
	m.eightBit = !isASCII(content)
	return m, nil
}

func checkKey(key string) error {
	if key == "" || len(key) > maxKey {
		return invalid("idempotency_key: it has %d octets: give 1 to %d, such as a new UUID for each message", len(key), maxKey)
	}
	for i := range len(key) {
		if key[i] < ' ' || key[i] > '~' {
			return invalid("idempotency_key: octet %d is not printable ASCII", i)
		}
	}
	return nil
}

func checkAddresses(req *sendv1.SendMessageRequest) (mail, error) {
	var m mail
	if sender := req.GetSender(); sender != "" {
		if problem := addressProblem(sender); problem != "" {
			return m, invalid("sender: %q %s", shown(sender), problem)
		}
		m.utf8 = !isASCII(sender)
	}
	recipients := req.GetRecipients()
	if n := len(recipients); n == 0 || n > maxRecipients {
		return m, invalid("recipients: there are %d: give 1 to %d", n, maxRecipients)
	}
	for i, address := range recipients {
		if problem := addressProblem(address); problem != "" {
			return m, invalid("recipients[%d]: %q %s", i, shown(address), problem)
		}
		m.utf8 = m.utf8 || !isASCII(address)
	}
	return m, nil
}

// checkLines makes sure that every line ends with CRLF and that no CR or LF stands elsewhere (promise P7).
func checkLines(content []byte) error {
	switch n := len(content); {
	case n == 0:
		return invalid("content: it is empty")
	case n > maxContent:
		return invalid("content: it has %d octets: at most %d can be sent by this call; use SMTP for more", n, maxContent)
	}
	for at := 0; at < len(content); {
		end := bytes.IndexAny(content[at:], "\r\n")
		switch {
		case end < 0:
			return invalid("content: the last line does not end with CRLF")
		case end > maxLine:
			return invalid("content: the line at octet %d is longer than %d octets", at, maxLine)
		case content[at+end] == '\n':
			return invalid("content: bare LF at octet %d: every line must end with CRLF", at+end)
		case at+end+1 == len(content) || content[at+end+1] != '\n':
			return invalid("content: bare CR at octet %d: every line must end with CRLF", at+end)
		}
		at += end + 2
	}
	return nil
}

// headerOf is the header section of content whose lines are well-formed, without the empty line.
func headerOf(content []byte) []byte {
	if bytes.HasPrefix(content, []byte("\r\n")) {
		return nil
	}
	if end := bytes.Index(content, []byte("\r\n\r\n")); end >= 0 {
		return content[:end+2]
	}
	return content
}

func countReceived(header []byte) int {
	n := 0
	for line := range bytes.SplitSeq(header, []byte("\r\n")) {
		if name, _, ok := bytes.Cut(line, []byte(":")); ok && bytes.EqualFold(name, []byte("Received")) {
			n++
		}
	}
	return n
}

func isASCII[T string | []byte](s T) bool {
	for i := range len(s) {
		if s[i] >= utf8.RuneSelf {
			return false
		}
	}
	return true
}

// shown bounds an address that may be anything.
func shown(s string) string {
	const limit = 80
	if len(s) <= limit {
		return s
	}
	return s[:limit] + "…"
}

func invalid(format string, args ...any) error {
	return status.Error(codes.InvalidArgument, fmt.Sprintf(format, args...))
}
