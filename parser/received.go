package parser

import (
	"net/netip"
	"slices"
	"strings"

	"google.golang.org/protobuf/types/known/timestamppb"

	mailv1 "github.com/rohrpost/rohrpost/proto/gen/rohrpost/mail/v1"
)

// maxHops is how many Received fields are read. A host gives up on fewer (RFC 5321, 6.3).
const maxHops = 200

// readReceived reads a Received field (RFC 5321, 4.4), in the many forms that hosts give it.
func (r *reader) readReceived(value string, where place) {
	if r.out.Received == nil {
		r.out.Received = make([]*mailv1.Hop, 0, 4)
	}
	if len(r.out.Received) < maxHops {
		r.out.Received = append(r.out.Received, r.hop(value, where))
	}
}

func (r *reader) hop(value string, where place) *mailv1.Hop {
	room := r.hopRooms.next()
	p := hopReader{hop: &room.hop}
	clauses, stamp := cutStamp(value)
	p.read(clauses)
	if i := indexASCII(stamp, " for "); i >= 0 && p.hop.For == "" { // some put it behind the time
		p.read(stamp[i+1:])
		stamp = stamp[:i]
	}
	t, _, ok := date(stamp)
	room.time.Seconds, room.time.Nanos = t.Unix(), int32(t.Nanosecond())
	if ok && room.time.CheckValid() == nil {
		p.hop.Time = &room.time
	} else {
		r.once("invalid_date", warning, where, "no time in a Received field: %s", excerpt(value))
	}
	h := p.hop
	for _, s := range []*string{&h.From, &h.By, &h.Via, &h.With, &h.Id, &h.For} {
		*s = oneLine(cut(*s, maxHopWord))
	}
	return h
}

// hopRoom is a hop with its time.
type hopRoom struct {
	hop  mailv1.Hop
	time timestamppb.Timestamp
}

// maxHopWord is how many octets of a word are kept: more than a domain or a path may have (RFC 5321, 4.5.3.1).
const maxHopWord = 320

// cutStamp cuts a Received field at the semicolon before its time.
func cutStamp(s string) (clauses, stamp string) {
	for i := 0; i < len(s); i++ {
		switch s[i] {
		case '(':
			if end := commentEnd(s, i); end > 0 {
				i = end - 1
			}
		case ';':
			return s[:i], s[i+1:]
		}
	}
	return s, ""
}

// hopReader reads the clauses of a Received field. Each starts with its keyword; what stands in parentheses is a comment.
type hopReader struct {
	hop    *mailv1.Hop
	clause string // the keyword of the clause under way
	filled bool   // whether its value was read
	known  bool   // whether "with" named a protocol that is known
	fixed  bool   // whether the address stood in brackets
}

func (p *hopReader) read(s string) {
	// Some hosts put the clause into a comment: (from user@host).
	if rest, ok := strings.CutPrefix(s, "("); ok && len(rest) > 5 && strings.EqualFold(rest[:5], "from ") {
		if inner, after, ok := strings.Cut(rest, ")"); ok {
			s = inner + " " + after
		}
	}
	for i := 0; i < len(s); {
		switch {
		case isSpace(s[i]) || s[i] == ',':
			i++
		case s[i] == '(':
			end := commentEnd(s, i)
			if end == 0 {
				i++
				continue
			}
			p.comment(s[i+1 : end-1])
			i = end
		default:
			end := strings.IndexAny(s[i:], " \t(,")
			if end = i + end; end < i {
				end = len(s)
			}
			p.word(s[i:max(end, i+1)])
			i = max(end, i+1)
		}
	}
}

// hopWords are the keywords of the clauses.
var hopWords = []string{"from", "by", "via", "with", "id", "for"}

func (p *hopReader) word(w string) {
	if i := slices.IndexFunc(hopWords, func(keyword string) bool { return isASCII(w, keyword) }); i >= 0 {
		lower := hopWords[i]
		// A word is only a keyword where no value is due: a host may be called "with".
		if p.clause == "" || p.filled || lower != p.clause && lower != "id" {
			p.clause, p.filled = lower, false
			return
		}
	}
	if p.clause == "from" {
		p.address(w)
	}
	h := p.hop
	if p.filled {
		if p.clause == "with" {
			p.protocol(w)
		}
		return
	}
	p.filled = true
	bare := strings.Trim(w, "[]<>=:\"")
	switch p.clause {
	case "from":
		if !strings.HasPrefix(w, "[<") { // some put the sender's address there
			setFirst(&h.From, host(w))
		}
	case "by":
		setFirst(&h.By, host(w))
	case "via":
		setFirst(&h.Via, bare)
	case "id":
		setFirst(&h.Id, bare)
	case "for":
		if strings.Contains(bare, "@") {
			setFirst(&h.For, bare)
		}
	case "with":
		p.protocol(w)
	}
}

func setFirst(field *string, value string) {
	if *field == "" {
		*field = value
	}
}

// host is a domain or the address of a literal.
func host(w string) string {
	if ip, ok := address(w); ok {
		return ip.String()
	}
	return strings.Trim(w, "[]<>")
}

// protocols are the registered names (RFC 5321, 7.1; the registry of mail transmission types), longest first, and those
// that hosts use for themselves.
var protocols = []string{
	"UTF8SMTPSA", "UTF8LMTPSA", "UTF8SMTPA", "UTF8SMTPS", "UTF8LMTPA", "UTF8LMTPS", "UTF8SMTP", "UTF8LMTP",
	"ESMTPSA", "ESMTPA", "ESMTPS", "LMTPSA", "LMTPA", "LMTPS", "ESMTP", "SMTPS", "LMTP", "SMTP", "HTTPS", "HTTP", "MMS",
	"IMAP", "POP3", "LOCAL",
}

// protocol reads a word of the with clause.
func (p *hopReader) protocol(w string) {
	if p.known {
		return
	}
	upper := strings.ToUpper(strings.Trim(w, "[]"))
	for _, name := range protocols {
		i := strings.Index(upper, name)
		if i < 0 || len(name) > 4 && name != "ESMTP" && len(upper) > i+len(name) && isLetter(upper[i+len(name)]) {
			continue // SMTPSVC is no SMTPS
		}
		p.known = true
		if name == "ESMTP" && strings.HasPrefix(upper[i:], "ESMTP-TLS") {
			name = "ESMTPS"
		}
		p.hop.With = name
		return
	}
	if p.hop.With == "" {
		p.hop.With = upper
	}
}

// comment looks for the client's address.
func (p *hopReader) comment(s string) {
	if p.clause != "from" {
		return
	}
	for s != "" {
		n := strings.IndexAny(s, " \t(),;=@")
		if n < 0 {
			n = len(s)
		}
		p.address(s[:n])
		s = s[min(n+1, len(s)):]
	}
}

// address takes the client's address: one in brackets rather than another.
func (p *hopReader) address(w string) {
	open := strings.IndexByte(w, '[')
	bracketed := open >= 0 && strings.IndexByte(w[open:], ']') > 0
	if bracketed {
		w = w[open:]
	}
	if p.fixed && !bracketed || p.hop.Address != "" && !bracketed {
		return
	}
	if ip, ok := address(w); ok {
		p.hop.Address, p.fixed = ip.String(), bracketed
	}
}

// address reads an address literal (RFC 5321, 4.1.3), with what hosts put around it: brackets, a zone, a port.
func address(w string) (netip.Addr, bool) {
	w = strings.TrimLeft(w, "[")
	if i := strings.IndexByte(w, ']'); i >= 0 {
		w = w[:i]
	}
	if len(w) > 5 && strings.EqualFold(w[:5], "IPv6:") {
		w = w[5:]
	}
	if len(w) < 2 || unhex(w[0]) > 15 && w[0] != ':' || !strings.ContainsAny(w, ".:") {
		return netip.Addr{}, false // most words are names
	}
	if ip, err := netip.ParseAddr(w); err == nil {
		return ip.WithZone(""), true
	}
	if port, err := netip.ParseAddrPort(w); err == nil {
		return port.Addr().WithZone(""), true
	}
	return netip.Addr{}, false
}
