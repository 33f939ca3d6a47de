package parser

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"io"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/rohrpost/rohrpost/proto/bytesize"
	mailv1 "github.com/rohrpost/rohrpost/proto/gen/rohrpost/mail/v1"
)

// crlf writes a message with the line ends of the wire.
func crlf(s string) []byte { return []byte(strings.ReplaceAll(s, "\n", "\r\n")) }

// TestCases are the cases H1 to H4 of parsing: what is odd hurts nothing beside it.
func TestCases(t *testing.T) {
	t.Parallel()
	const rest = "\n--b\nContent-Type: text/html\n\n<p>after</p>\n--b--\n"
	const multipart = "Subject: s\nContent-Type: multipart/mixed; boundary=b\n\n--b\n"
	long := strings.Repeat("b", 80)
	for _, c := range []struct {
		name, content string
		kinds         []string
		text          string
		parts         int
	}{
		{"case H1: a junk line in a part header", multipart + "Content-Type: text/plain\njunk\nX: y\n\nbody" + rest, []string{"malformed_header", "ambiguous_header_end"}, "body", 2},
		{"case H1: a line end of CR CR LF", "Subject: s\r\r\nX: y\r\r\n\r\r\nbody", []string{"ambiguous_line_end"}, "body", 0},
		{"case H1: two names on a line", "Subject From: x\nSubject: s\n\nbody", []string{"malformed_header", "ambiguous_header_end"}, "body", 0},
		{"case H1: no empty line", "Subject: s\nthe body starts\nwithout an empty line\n", []string{"malformed_header", "ambiguous_header_end"}, "the body starts\r\nwithout an empty line\r\n", 0},
		{"case H2: an unknown charset", "Subject: s\nContent-Type: text/plain; charset=x-none\n\ncaf\xc3\xa9 \xff", []string{"unknown_charset"}, "café \uFFFD", 0},
		{"case H2: octets of an unknown charset", "Subject: s\nContent-Type: text/plain; charset=x-none\n\ncaf\xe9", []string{"unknown_charset"}, "café", 0},
		{"octets without charset", "Subject: s\n\ncaf\xe9", []string{"undeclared_charset"}, "café", 0},
		{"case H2: an unknown encoding", "Subject: s\nContent-Transfer-Encoding: hexa\n\n6162", []string{"unknown_encoding"}, "6162", 0},
		{"case H3: no final boundary", multipart + "\nbody\n--b\nContent-Type: text/html\n\nlast", []string{"missing_end_boundary"}, "body", 2},
		{"case H3: no boundary at all", multipart[:len(multipart)-4] + "body", []string{"missing_start_boundary", "missing_end_boundary", "ambiguous_multipart"}, "body", 0},
		{"no boundary parameter", "Subject: s\nContent-Type: multipart/mixed\n\nbody", []string{"missing_boundary", "ambiguous_multipart"}, "body", 0},
		{"an encoded multipart", strings.Replace(multipart, "Subject", "Content-Transfer-Encoding: base64\nSubject", 1) + "\nbody" + rest, []string{"ambiguous_multipart_encoding"}, "body", 2},
		{"two content types", "Subject: s\nContent-Type: text/plain\nContent-Type: text/html\n\nbody", []string{"ambiguous_field"}, "body", 0},
		{"a long boundary", strings.NewReplacer("=b", "="+long, "--b", "--"+long).Replace(multipart + "\nbody" + rest), []string{"ambiguous_boundary_length"}, "body", 2},
		{"damaged quoted-printable", "Subject: s\nContent-Transfer-Encoding: quoted-printable\n\na=3D=ZZ \nb=\n", []string{"invalid_quoted_printable"}, "a==ZZ\r\nb", 0},
		{"damaged base64", "Subject: s\nContent-Transfer-Encoding: base64\n\nYWJjZ", []string{"invalid_base64"}, "abc", 0},
		{"joined base64", "Subject: s\nContent-Transfer-Encoding: base64\n\nYQ==YmM=", []string{"ambiguous_base64"}, "abc", 0},
		{"a mailbox's line", "From anna Mon Nov 30\nSubject: s\n\nbody", []string{"mbox_from_line"}, "body", 0},
		{"a bare CR in a field", "Subject: s\nX: a\rBcc: b\n\nbody", []string{"ambiguous_bare_cr"}, "body", 0},
		{"two encodings", "Subject: s\nContent-Transfer-Encoding: base64, quoted-printable\n\nYWJj", []string{"ambiguous_encoding"}, "abc", 0},
		{"a NUL in a field", "Subject: s\nX: a\x00b\n\nbody", []string{"ambiguous_nul"}, "body", 0},
		{"a NUL in a text", "Subject: s\n\nbo\x00dy", []string{"ambiguous_nul"}, "bo\uFFFDdy", 0},
		{"a bare CR in a text", "Subject: s\r\n\r\nbo\rdy", []string{"ambiguous_bare_cr"}, "bo\rdy", 0},
		{"two file names", multipart + "Content-Type: text/plain\n\nbody\n--b\nContent-Type: a/b; name=a.txt\nContent-Disposition: attachment; filename=a.exe\n\n--b--\n", []string{"ambiguous_filename"}, "body", 2},
		{"the same boundary inside", multipart + "Content-Type: multipart/mixed; boundary=b\n\n--b\n\nbody\n--b--\n--b--\n", []string{"ambiguous_boundary_twice"}, "body", 1},
		{"an encoded message", multipart + "\nbody\n--b\nContent-Type: message/rfc822\nContent-Transfer-Encoding: base64\n\nWDogeQ0KDQp6\n--b--\n", []string{"ambiguous_message_encoding"}, "body", 2},
		{"a cut header section", "Subject: s\nX: y\n", []string{"missing_body_separator"}, "", 0},
		{"uuencode without begin", "Subject: s\nContent-Transfer-Encoding: x-uuencode\n\n#86)C\nend\n", []string{"invalid_uuencode"}, "", 0},
		{"uuencode without end", "Subject: s\nContent-Transfer-Encoding: x-uuencode\n\nbegin 644 a\n#86)C\n", []string{"invalid_uuencode"}, "abc", 0},
		{"a short line of uuencode", "Subject: s\nContent-Transfer-Encoding: x-uuencode\n\nbegin 644 a\n#86)\n`\nend\n", []string{"invalid_uuencode"}, "ab@", 0},
		{"an extended parameter without charset", "Subject: s\nContent-Type: text/plain; x*=y\n\nbody", []string{"malformed_parameter"}, "body", 0},
		{"a charset in a later piece", "Subject: s\nContent-Type: text/plain; x*0*=utf-8''y; x*1*=utf-8'z\n\nbody", []string{"malformed_parameter"}, "body", 0},
		{"nothing odd", multipart + "\nbody" + rest, nil, "body", 2},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			content := []byte(c.content)
			if !strings.Contains(c.content, "\r") || strings.Contains(c.content, "a\rB") {
				content = crlf(c.content)
			}
			m := check(t, content, Limits{})
			if diff := cmp.Diff(c.kinds, kinds(m), cmp.Transformer("", func(s []string) string { return strings.Join(s, " ") })); diff != "" {
				t.Errorf("defects: %s", diff)
			}
			if m.GetText() != c.text || m.GetSubject() != "s" || len(m.GetParts()[0].GetParts()) != c.parts {
				t.Errorf("got text %q, subject %q, %d parts", m.GetText(), m.GetSubject(), len(m.GetParts()[0].GetParts()))
			}
		})
	}
}

// TestFileNames reads file names as they come (case H4: a quote inside swallows no parameters).
func TestFileNames(t *testing.T) {
	t.Parallel()
	for value, want := range map[string]string{
		`attachment; filename="a b.txt"; x=1`:                                              "a b.txt",
		`attachment; filename=a b.txt; x=1`:                                                "a b.txt",
		`attachment; filename="na"ïve.txt"; x=1`:                                           `na"ïve.txt`,
		`attachment; filename="=?iso-8859-1?Q?caf=E9"_1.txt?="; x=1`:                       `café" 1.txt`,
		`attachment; filename="open; x=1`:                                                  "open",
		`attachment; filename="C:\temp\a.txt"; x=1`:                                        `C:\temp\a.txt`,
		`attachment; filename="a\"b"; x=1`:                                                 `a"b`,
		`attachment; filename*=utf-8''%e2%82%ac%20rates; x=1`:                              "€ rates",
		`attachment; filename*0*=iso-8859-1''na%EF; filename*1="ve"; filename*2*=%21; x=1`: "naïve!",
		`attachment; filename*1=b; filename*0=a; filename*10=d; filename*2=c; x=1`:         "abcd",
		`attachment; filename=plain; filename*=utf-8''extended; x=1`:                       "extended",
		`attachment; filename="a" x=1`:                                                     "a",
		`attachment; filename="=?utf-8?B?5pel?= =?utf-8?B?5pys?="; x=1`:                    "日本",
	} {
		r := newReader(DefaultLimits())
		got := r.structured(value, place{})
		if got.value != "attachment" || got.params["filename"] != want {
			t.Errorf("%s: got %q %q, want %q", value, got.value, got.params["filename"], want)
		}
		if x := got.params["x"]; x != "1" && !strings.Contains(value, `"open`) {
			t.Errorf("%s: x is %q", value, x)
		}
	}
}

func TestAddresses(t *testing.T) {
	t.Parallel()
	address := func(name, addr, group string) *mailv1.Address {
		return &mailv1.Address{Name: name, Address: addr, Group: group}
	}
	for value, want := range map[string][]*mailv1.Address{
		`a@b.example, "C, D" <c@d.example>`:                     {address("", "a@b.example", ""), address("C, D", "c@d.example", "")},
		`Team: a@b.example, B <b@b.example>;, c@d.example`:      {address("", "a@b.example", "Team"), address("B", "b@b.example", "Team"), address("", "c@d.example", "")},
		`undisclosed-recipients:;`:                              nil,
		`a@b.example (Anna (B))`:                                {address("Anna (B)", "a@b.example", "")},
		`"a b"@c.example`:                                       {address("", `"a b"@c.example`, "")},
		`<@x.example,@y.example:a@b.example>`:                   {address("", "a@b.example", "")},
		`a @ b . example`:                                       {address("", "a@b.example", "")},
		`a@[192.0.2.1], b@[IPv6:2001:db8::1]`:                   {address("", "a@[192.0.2.1]", ""), address("", "b@[IPv6:2001:db8::1]", "")},
		`=?utf-8?Q?M=C3=BCller=2C_A?= <a@b.example>`:            {address("Müller, A", "a@b.example", "")},
		`Anna a@b.example`:                                      {address("Anna", "a@b.example", "")},
		`<a@b.example`:                                          {address("", "a@b.example", "")},
		`"open <a@b.example>, c@d.example`:                      {address("open", "a@b.example", ""), address("", "c@d.example", "")},
		`<"x>, d@e.example`:                                     {address("", `"x`, ""), address("", "d@e.example", "")},
		`local`:                                                 {address("", "local", "")},
		`用户@例子.example`:                                         {address("", "用户@例子.example", "")},
		`"a@b.example" <c@d.example>`:                           {address("a@b.example", "c@d.example", "")},
		`A <a@b.example> B <c@d.example>`:                       {address("A", "a@b.example", ""), address("B", "c@d.example", "")},
		`<>, ,`:                                                 nil,
		`=?utf-8?Q?a?= (=?utf-8?Q?comment?=) <b@c.example> (d)`: {address("a", "b@c.example", "")},
	} {
		got := newReader(DefaultLimits()).addresses(value, place{})
		if diff := cmp.Diff(text(want), text(got)); diff != "" {
			t.Errorf("%s:\n%s", value, diff)
		}
	}
}

func text(list []*mailv1.Address) []string {
	out := make([]string, 0, len(list))
	for _, a := range list {
		out = append(out, a.GetName()+"|"+a.GetAddress()+"|"+a.GetGroup())
	}
	return out
}

func TestWords(t *testing.T) {
	t.Parallel()
	for value, want := range map[string]string{
		"=?utf-8?q?a?= =?utf-8?q?b?= c":            "ab c",
		"=?utf-8?B?4oI=?= =?utf-8?B?rA==?=":        "€",
		"x=?utf-8?q?a?=y":                          "xay",
		"=?utf-8?q?a b?=":                          "a b",
		"=?utf-8*de?q?=C3=BC?=":                    "ü",
		"=?x-none?q?a=FF?=":                        "aÿ",
		"=?utf-8?x?a?=":                            "=?utf-8?x?a?=",
		"=?utf-8?q?open":                           "=?utf-8?q?open",
		"=?utf-8?B?w7w?=":                          "ü",
		"=?utf-8?q?a=0D=0ABcc:_x=00?=":             "a Bcc: x\uFFFD",
		"=?iso-2022-jp?B?GyRCRnxLXBsoQg==?=":       "日本",
		"=?iso-8859-1?q?=E9?= =?utf-8?q?=C3=A9?=":  "éé",
		"=? =?= ?= =??q?x?= =?utf-8?q??= =?utf-8?": "=? =?= ?= =??q?x?=  =?utf-8?",
		"=?cp932?B?h0A=?= =?iso-8859-15?q?=A4?=":   "①€",
	} {
		if got := newReader(DefaultLimits()).words(value, place{}); got != want {
			t.Errorf("%s: got %q, want %q", value, got, want)
		}
	}
}

func TestDates(t *testing.T) {
	t.Parallel()
	for value, want := range map[string]string{
		"Mon, 30 Nov 2026 10:00:00 +0100":    "2026-11-30T09:00:00Z",
		"30 Nov 26 10:00 EST":                "2026-11-30T15:00:00Z",
		"30 Nov 99 10:00 Z":                  "1999-11-30T10:00:00Z",
		"30 Nov 126 10:00:00 PDT":            "2026-11-30T17:00:00Z",
		"Mon, 30 Nov 2026 10:00:00 -0000":    "2026-11-30T10:00:00Z",
		"Mon, 30 Nov 2026 10:00:00 Q":        "2026-11-30T10:00:00Z",
		"Mon Nov 30 10:00:00 2026":           "2026-11-30T10:00:00Z",
		"2026-11-30T10:00:00+01:00":          "2026-11-30T09:00:00Z",
		"Mon (day), 30 Nov 2026 10:00 (t) Z": "2026-11-30T10:00:00Z",
		"Tue, 30 Jun 2015 23:59:60 +0000":    "2015-07-01T00:00:00Z",
		"31 Feb 2026 10:00:00 +0000":         "",
		"Mon, 30 Nov 2026 25:00:00 +0000":    "",
		"30 Nov 2026 10:00:00 Z (a; b)":      "2026-11-30T10:00:00Z",
		"yesterday":                          "",
		"":                                   "",
	} {
		got := ""
		if at, _, ok := date(value); ok {
			got = at.UTC().Format(time.RFC3339)
		}
		if got != want {
			t.Errorf("%s: got %q, want %q", value, got, want)
		}
	}
}

// TestOffsets: header, body and hash of a part are where and what it says.
func TestOffsets(t *testing.T) {
	t.Parallel()
	octets := bytes.Repeat([]byte{0, 1, 2, 254}, 50_000)
	content := crlf("Content-Type: multipart/mixed; boundary=b\n\npreamble\n--b\nContent-Transfer-Encoding: base64\n" +
		"Content-Type: application/x\n\n" + base64.StdEncoding.EncodeToString(octets) + "\n--b--\n")
	p := check(t, content, Limits{}).GetParts()[0].GetParts()[0]
	sum := sha256.Sum256(octets)
	if p.GetSize() != int64(len(octets)) || !bytes.Equal(p.GetSha256(), sum[:]) {
		t.Errorf("size %d, hash %x", p.GetSize(), p.GetSha256())
	}
	if !bytes.HasPrefix(content[p.GetHeaderOffset():], []byte("Content-Transfer")) {
		t.Errorf("header at %q", excerpt(content[p.GetHeaderOffset():]))
	}
	raw := content[p.GetBodyOffset() : p.GetBodyOffset()+p.GetRawSize()]
	if string(raw) != base64.StdEncoding.EncodeToString(octets) {
		t.Errorf("body %q…", excerpt(raw))
	}
}

// TestLimits: each limit is noted, and the message is read all the same.
func TestLimits(t *testing.T) {
	t.Parallel()
	content := crlf("Subject: =?utf-8?q?a?= =?utf-8?q?b?=\nX-A: " + strings.Repeat("a", 2000) + "\nX-B: b\nX-C: c\n" +
		"Content-Type: multipart/mixed; boundary=b\n\n--b\n\n" + strings.Repeat("text ", 1000) + "\n--b\nContent-Type: message/rfc822\n\nSubject: in\n\nx\n--b--\n")
	for kind, limits := range map[string]Limits{
		"depth_limit":        {Depth: 2},
		"part_limit":         {Parts: 2},
		"header_bytes_limit": {HeaderBytes: 1 << 10},
		"header_count_limit": {HeaderCount: 2},
		"text_limit":         {TextBytes: 1 << 10},
		"encoded_word_limit": {EncodedWords: 1},
		"result_limit":       {ResultBytes: 8 << 10},
		"line_limit":         {LineBytes: 1 << 10},
	} {
		m := check(t, content, limits)
		if !hasDefect(m, kind) {
			t.Errorf("%+v: no %s in %v", limits, kind, kinds(m))
		}
		unparsed := m.GetParts()[0].GetUnparsed() || m.GetParts()[0].GetParts()[len(m.GetParts()[0].GetParts())-1].GetUnparsed()
		if want := kind == "depth_limit" || kind == "part_limit"; unparsed != want {
			t.Errorf("%s: unparsed is %v", kind, unparsed)
		}
		if want := kind == "text_limit" || kind == "result_limit"; m.GetTextTruncated() != want {
			t.Errorf("%s: text truncated is %v", kind, m.GetTextTruncated())
		}
	}
	if m := check(t, content, Limits{}); len(m.GetDefects()) > 0 {
		t.Errorf("defects within the limits: %v", m.GetDefects())
	}
}

// TestDecodedLimit: an encoded message beyond the limit is not looked into, but hashed in full.
func TestDecodedLimit(t *testing.T) {
	t.Parallel()
	inner := crlf("Subject: in\n\n" + strings.Repeat("text ", 1000))
	content := crlf("Subject: s\nContent-Type: message/rfc822\nContent-Transfer-Encoding: base64\n\n" +
		base64.StdEncoding.EncodeToString(inner))
	sum := sha256.Sum256(inner)
	for limit, unparsed := range map[bytesize.Size]bool{4 << 10: true, 8 << 10: false} {
		m := check(t, content, Limits{DecodedBytes: limit})
		root := m.GetParts()[0]
		if root.GetUnparsed() != unparsed || hasDefect(m, "decoded_bytes_limit") != unparsed || (len(root.GetParts()) == 0) != unparsed {
			t.Errorf("%v: unparsed %v, %v", limit, root.GetUnparsed(), kinds(m))
		}
		if root.GetSize() != int64(len(inner)) || !bytes.Equal(root.GetSha256(), sum[:]) {
			t.Errorf("%v: %d octets, hash %x", limit, root.GetSize(), root.GetSha256())
		}
	}
}

// TestTimeLimit: what comes after the time is not looked at, and says so.
func TestTimeLimit(t *testing.T) {
	t.Parallel()
	content := crlf("Subject: s\nContent-Type: multipart/mixed; boundary=b\n" + strings.Repeat("\n--b\n\ntext", 100) + "\n--b--\n")
	for name, source := range map[string]func(*reader) *source{
		"in memory": func(r *reader) *source { return r.source(content, false) },
		"a stream":  func(r *reader) *source { return r.stream(&ragged{content: content}) },
	} {
		r := newReader(Limits{Time: 50 * time.Millisecond}.withDefaults())
		clock := time.Unix(0, 0)
		r.now = func() time.Time {
			clock = clock.Add(time.Millisecond)
			return clock
		}
		if err := r.read(source(r)); err != nil {
			t.Fatal(err)
		}
		root := r.out.GetParts()[0]
		if n := len(root.GetParts()); n == 0 || n == 100 || !hasDefect(r.out, "time_limit") {
			t.Errorf("%s: %d parts, %v", name, n, kinds(r.out))
		}
		if r.out.GetSubject() != "s" || name == "in memory" && !root.GetUnparsed() {
			t.Errorf("%s: subject %q, unparsed %v", name, r.out.GetSubject(), root.GetUnparsed())
		}
	}
}

// TestHashDepth: messages within messages are hashed on the outer levels alone, so that time stays linear.
func TestHashDepth(t *testing.T) {
	t.Parallel()
	m := check(t, crlf(strings.Repeat("Content-Type: message/rfc822\n\n", 5)+"Subject: in\n\ntext"), Limits{})
	p := m.GetParts()[0]
	for level := 1; len(p.GetParts()) > 0; level++ {
		if hashed := len(p.GetSha256()) > 0; hashed != (level <= maxHashed) {
			t.Errorf("level %d: hashed is %v", level, hashed)
		}
		p = p.GetParts()[0]
	}
	if sum := sha256.Sum256([]byte("text")); !bytes.Equal(p.GetSha256(), sum[:]) {
		t.Errorf("the text: %x", p.GetSha256())
	}
}

func TestValidate(t *testing.T) {
	t.Parallel()
	if err := DefaultConfig().Validate(); err != nil {
		t.Error(err)
	}
	for key, change := range map[string]func(*Config){
		"parser.capacity":             func(c *Config) { c.Capacity = -1 },
		"parser.nice":                 func(c *Config) { c.Nice = 20 },
		"parser.limits.depth":         func(c *Config) { c.Limits.Depth = 0 },
		"parser.limits.parts":         func(c *Config) { c.Limits.Parts = -1 },
		"parser.limits.header_bytes":  func(c *Config) { c.Limits.HeaderBytes = 1 },
		"parser.limits.header_count":  func(c *Config) { c.Limits.HeaderCount = 0 },
		"parser.limits.text_bytes":    func(c *Config) { c.Limits.TextBytes = 1 },
		"parser.limits.encoded_words": func(c *Config) { c.Limits.EncodedWords = 0 },
		"parser.limits.line_bytes":    func(c *Config) { c.Limits.LineBytes = 1 },
		"parser.limits.decoded_bytes": func(c *Config) { c.Limits.DecodedBytes = 0 },
		"parser.limits.time":          func(c *Config) { c.Limits.Time = 0 },
		"parser.limits.result_bytes":  func(c *Config) { c.Limits.ResultBytes = 1 << 20 },
	} {
		c := DefaultConfig()
		change(&c)
		if err := c.Validate(); err == nil || !strings.HasPrefix(err.Error(), key+" is ") {
			t.Errorf("%s: %v", key, err)
		}
	}
}

// TestExtract writes out every kind of part.
func TestExtract(t *testing.T) {
	t.Parallel()
	const inner = "Subject: in\r\nContent-Transfer-Encoding: quoted-printable\r\n\r\nd=C3=BC"
	const first = "\r\n--b\r\nContent-Transfer-Encoding: base64\r\n\r\n/wA=\r\n--b\r\nContent-Type: message/rfc822\r\n\r\n" + inner +
		"\r\n--b\r\nContent-Type: message/rfc822\r\nContent-Transfer-Encoding: base64\r\n\r\n"
	body := first + base64.StdEncoding.EncodeToString([]byte(inner)) + "\r\n--b--\r\n"
	content := "Content-Type: multipart/mixed; boundary=b\r\n\r\n" + body
	for path, want := range map[string]string{
		"1": body, "1.1": "\xff\x00", "1.2": inner, "1.2.1": "d\xc3\xbc", "1.3": inner, "1.3.1": "d\xc3\xbc",
	} {
		var out bytes.Buffer
		found, err := Extract(&ragged{content: []byte(content)}, -1, path, &out, Limits{})
		if !found || err != nil || out.String() != want {
			t.Errorf("%s: %q, %v, %v, want %q", path, out.String(), found, err, want)
		}
	}
	if found, err := Extract(strings.NewReader(content), int64(len(content)), "1.4", io.Discard, Limits{}); found || err != nil {
		t.Errorf("no part: %v, %v", found, err)
	}
	broken := errors.New("broken")
	if _, err := Extract(iotest.ErrReader(broken), 100, "1", io.Discard, Limits{}); !errors.Is(err, broken) {
		t.Errorf("a broken stream: %v", err)
	}
}

type panicking struct{}

func (panicking) Write([]byte) (int, error) { panic("planted") }

// TestOwnFault: a fault of the parser's own costs what can be read, and nothing else.
func TestOwnFault(t *testing.T) {
	t.Parallel()
	r := newReader(DefaultLimits())
	r.extract = &extraction{path: "1", out: panicking{}}
	if err := r.read(r.source([]byte("Subject: s\r\n\r\nbody"), false)); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"internal_error"}, kinds(r.out)); diff != "" || !r.out.GetParts()[0].GetUnparsed() {
		t.Errorf("%s%v", diff, r.out)
	}
	if detail := r.out.GetDefects()[0].GetDetail(); !strings.Contains(detail, "planted at cases_test.go:") {
		t.Errorf("detail %q", detail)
	}
	if _, err := Extract(strings.NewReader("\r\nbody"), -1, "1", panicking{}, Limits{}); err == nil {
		t.Error("no error")
	}
}

// emptyReads is a stream that neither gives anything nor ends.
type emptyReads struct{}

func (emptyReads) Read([]byte) (int, error) { return 0, nil }

func TestParseReader(t *testing.T) {
	t.Parallel()
	const content = "Subject: s\r\n\r\n"
	m, err := ParseReader(iotest.OneByteReader(strings.NewReader(content)), int64(len(content)), DefaultLimits())
	if err != nil || m.GetSubject() != "s" {
		t.Errorf("got %v, %v", m, err)
	}
	if _, err := ParseReader(emptyReads{}, -1, DefaultLimits()); !errors.Is(err, io.ErrNoProgress) {
		t.Errorf("a stream that gives nothing: %v", err)
	}
	m, err = ParseReader(strings.NewReader(content), 100, DefaultLimits())
	if !errors.Is(err, io.ErrUnexpectedEOF) || m.GetSubject() != "s" {
		t.Errorf("short: %v, %v, want what could be read", m, err)
	}
	if m, err := ParseReader(strings.NewReader(""), 0, DefaultLimits()); err != nil || m.GetSize() != 0 || len(m.GetParts()) != 1 {
		t.Errorf("empty (case C9): %v, %v", m, err)
	}
}
