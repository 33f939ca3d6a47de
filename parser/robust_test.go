package parser

import (
	"bytes"
	"fmt"
	"io"
	"math/rand/v2"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sync/errgroup"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/testing/protocmp"

	mailv1 "github.com/rohrpost/rohrpost/proto/gen/rohrpost/mail/v1"
)

// check asserts what holds for every result.
func check(t *testing.T, content []byte, limits Limits) *mailv1.ParsedMessage {
	t.Helper()
	m := Parse(content, limits)
	b, err := proto.Marshal(m) // fails for a string that is not UTF-8
	if err != nil {
		t.Fatalf("marshal: %v", err)
	}
	if limit := int(limits.withDefaults().ResultBytes); len(b) > limit {
		t.Errorf("a result of %d octets, want at most %d", len(b), limit)
	}
	if n := sizeAtMost(m); n < len(b) {
		t.Errorf("a result of %d octets, said to have %d at most", len(b), n)
	}
	if bytes.Contains([]byte(m.GetSubject()+m.GetMessageId()+m.GetText()), []byte{0}) {
		t.Error("NUL in a text")
	}
	if hasDefect(m, "internal_error") {
		t.Fatal(m.GetDefects())
	}
	if len(m.GetParts()) != 1 || m.GetParts()[0].GetPath() != "1" {
		t.Fatal("no root")
	}
	checkPart(t, m.GetParts()[0])
	streamed, err := ParseReader(&ragged{content: content}, int64(len(content)), limits)
	if err != nil {
		t.Fatal(err)
	}
	if !proto.Equal(m, streamed) {
		t.Errorf("read as a stream it is another mail:\n%s", cmp.Diff(m, streamed, protocmp.Transform()))
	}
	for _, d := range m.GetDefects() {
		if d.GetKind() == "" || d.GetSeverity() == mailv1.Severity_SEVERITY_UNSPECIFIED || len(d.GetDetail()) > maxDetail ||
			d.GetOffset() < -1 || d.GetOffset() > int64(len(content)) {
			t.Errorf("defect %v", d)
		}
	}
	return m
}

// ragged reads content in pieces of odd sizes.
type ragged struct {
	content []byte
	size    int
}

func (r *ragged) Read(p []byte) (int, error) {
	if len(r.content) == 0 {
		return 0, io.EOF
	}
	r.size = r.size%1021*7%1021 + 1
	n := copy(p[:min(len(p), r.size)], r.content)
	r.content = r.content[n:]
	return n, nil
}

func checkPart(t *testing.T, p *mailv1.Part) {
	t.Helper()
	if p.GetType() == "" || p.GetBodyOffset() < p.GetHeaderOffset() || p.GetRawSize() < 0 {
		t.Errorf("part %s: type %q, header at %d, body at %d", p.GetPath(), p.GetType(), p.GetHeaderOffset(), p.GetBodyOffset())
	}
	multipart, message := strings.HasPrefix(p.GetType(), "multipart/"), strings.HasPrefix(p.GetType(), "message/")
	if hashed := len(p.GetSha256()) > 0; hashed == multipart && !message && !p.GetUnparsed() {
		t.Errorf("part %s: type %s has a hash of %d octets", p.GetPath(), p.GetType(), len(p.GetSha256()))
	}
	for _, c := range p.GetParts() {
		checkPart(t, c)
	}
}

// TestCorpusMarshals: every message of the corpus gives a result that can be sent (case H1, H2).
func TestCorpusMarshals(t *testing.T) {
	t.Parallel()
	for _, folder := range []string{
		"mime4j-testmsgs", "mimetools-testmsgs", "stalwart-mime", "enmime-raw", "dsn-arf-kumomta", "bounces-sisimai",
		"dkimpy-vectors",
	} {
		t.Run(folder, func(t *testing.T) {
			t.Parallel()
			for _, path := range mails(t, corpus(t, folder), ".msg", ".eml", ".raw", ".message", ".mbox", "") {
				content := readFile(t, path)
				m := check(t, content, Limits{})
				if len(content) > 0 && m.GetSize() != int64(len(content)) {
					t.Errorf("%s: size %d", filepath.Base(path), m.GetSize())
				}
				// Smaller limits must hold as well.
				check(t, content, Limits{Depth: 2, Parts: 3, HeaderBytes: 1 << 10, HeaderCount: 5, TextBytes: 1 << 10, EncodedWords: 1, ResultBytes: 16 << 10})
			}
		})
	}
}

// TestLongLines: lines longer than what is looked at, of every kind and in every place of a header section, hurt no more in
// a stream than in memory.
func TestLongLines(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("x", 3000)
	lines := []string{"A: b", "A: " + long, "A:", " fold", " " + long, "junk", "junk" + long, "From me", "From " + long, "--b", "--b" + long, ""}
	random := rand.New(rand.NewPCG(3, 4))
	for range 3000 {
		content := ""
		if random.IntN(2) == 0 {
			content = "Content-Type: multipart/mixed; boundary=b\r\n\r\n--b\r\n"
		}
		for range random.IntN(8) {
			content += lines[random.IntN(len(lines))] + "\r\n"
		}
		check(t, []byte(content), small)
		check(t, []byte(content), Limits{LineBytes: 1 << 10, HeaderCount: 1})
	}
}

// TestDamage: no message fails that was cut anywhere or had octets changed (case H1, H3).
func TestDamage(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(1, 2))
	for _, path := range mails(t, filepath.Join(corpus(t, "mimetools-testmsgs")), ".msg") {
		content := readFile(t, path)
		if len(content) > 20_000 {
			content = content[:20_000]
		}
		for range 20 {
			check(t, content[:random.IntN(len(content)+1)], Limits{})
			damaged := bytes.Clone(content)
			for range 10 {
				damaged[random.IntN(len(damaged))] = byte(random.IntN(256))
			}
			check(t, damaged, Limits{})
		}
	}
}

// TestBombs: no content takes long or much memory (case H5).
func TestBombs(t *testing.T) {
	if testing.Short() {
		t.Skip("bombs take some seconds")
	}
	const mega = 1 << 20
	header := func(name, value string) string { return "Subject: x\r\n" + name + ": " + value + "\r\n\r\nbody\r\n" }
	multipart := "Content-Type: multipart/mixed; boundary=b\r\n\r\n"
	nestedBounds := &strings.Builder{}
	for i := range 2000 {
		fmt.Fprintf(nestedBounds, "Content-Type: multipart/mixed; boundary=%s%d\r\n\r\n--%[1]s%[2]d\r\n", strings.Repeat("b", 60), i)
	}
	for _, c := range []struct {
		name, content, kind string
	}{
		{"100 000 nested messages", strings.Repeat("Content-Type: message/rfc822\r\n\r\n", 100_000), "depth_limit"},
		{"a large body in 40 messages", strings.Repeat("Content-Type: message/rfc822\r\n\r\n", 40) + "\r\n" + strings.Repeat("0123456789abcdef\r\n", 4*mega/18), ""},
		{"a large body in 40 encoded messages", strings.Repeat("Content-Type: message/rfc822\r\nContent-Transfer-Encoding: quoted-printable\r\n\r\n", 40) +
			"\r\n" + strings.Repeat("0123456789abcdef\r\n", 4*mega/18), "decoded_bytes_limit"},
		{"octets of no charset", "\r\n" + strings.Repeat("\xa4\x41\xff", mega/3), "undeclared_charset"},
		{"a million empty parts", multipart + strings.Repeat("--b\r\n\r\n", 1_000_000) + "--b--\r\n", "part_limit"},
		{"nested multiparts", nestedBounds.String() + strings.Repeat("--"+strings.Repeat("b", 60)+"\r\n", 20_000), "depth_limit"},
		{"a million header fields", strings.Repeat("A: b\r\n", mega/6), "header_count_limit"},
		{"a long header field", header("X", strings.Repeat("x", mega)), "line_limit"},
		{"a folded header field", "X: a\r\n" + strings.Repeat(" b\r\n", mega/4) + "\r\n", "header_bytes_limit"},
		{"junk lines", "A: b\r\n" + strings.Repeat("junk\r\nA: b\r\n", mega/12), "header_count_limit"},
		{"encoded words", header("Subject", strings.Repeat("=?utf-8?q?a?= ", 17_000)), "encoded_word_limit"},
		{"open encoded words", header("X", strings.Repeat("=?a?q?", 40_000)), "malformed_encoded_word"},
		{"encoded words that share an end", header("X", strings.Repeat("=?a?x?", 40_000)+"?="), "malformed_encoded_word"},
		{"comments", header("To", strings.Repeat("(", 250_000)), "malformed_address"},
		{"many comments", header("To", strings.Repeat("(a)", 80_000)), ""},
		{"a field of many addresses", header("To", strings.Repeat("a@b,", 3*mega)), "line_limit"},
		{"a field of many ids", header("References", strings.Repeat("<a>", 4*mega)), "line_limit"},
		{"a field of many parameters", header("Content-Type", "a/b"+manyParams(10*mega)), "line_limit"},
		{"many parts of many parameters", multipart + strings.Repeat("--b\r\nContent-Type: a/b"+manyParams(200<<10)+"\r\n\r\n", 60), "ambiguous_parameter"},
		{"many parts of one parameter many times", multipart + strings.Repeat("--b\r\nContent-Type: a/b"+strings.Repeat(";zz=b", 1000)+"\r\n\r\n", 999), "ambiguous_parameter"},
		{"many parts of one piece many times", multipart + strings.Repeat("--b\r\nContent-Type: a/b"+strings.Repeat(";zz*=b", 1000)+"\r\n\r\n", 999), "ambiguous_parameter"},
		{"many parts of some parameters", multipart + strings.Repeat("--b\r\nContent-Type: a/b"+manyParams(90)+"\r\nContent-Disposition: a"+manyParams(90)+"\r\n\r\n", 999), "ambiguous_parameter"},
		{"many parts of some pieces", multipart + strings.Repeat("--b\r\nContent-Type: a/b"+continuations(16)+"\r\nContent-Disposition: a"+continuations(16)+"\r\n\r\n", 999), "ambiguous_parameter"},
		{"brackets", header("To", strings.Repeat("<", 250_000)), "malformed_address"},
		{"quotes", header("To", strings.Repeat(`"a`, 120_000)+`"`), "malformed_address"},
		{"odd quotes in brackets", header("To", strings.Repeat(`<a"b>,`, 40_000)), "malformed_address"},
		{"colons", header("To", "x@y"+strings.Repeat(":", 250_000)), ""},
		{"groups", header("To", strings.Repeat("a:", 120_000)), ""},
		{"commas", header("To", strings.Repeat("a@b,", 60_000)), "address_limit"},
		{"a dotted local part", header("To", folded("a.", 125_000)+"a@b"), ""},
		{"a dotted domain", header("To", "x@"+folded("a.", 125_000)+"a"), ""},
		{"quoted parentheses", header("To", "<"+folded(`\(`, 125_000)+"@b>"), "malformed_address"},
		{"nothing between commas", header("To", folded(",", 250_000)), ""},
		{"six fields of addresses", "From: " + folded("a,", 10_000) + "\r\nTo: " + folded("a,", 10_000) + "\r\nCc: " + folded("a,", 10_000) + "\r\n" +
			"Bcc: " + folded("a,", 10_000) + "\r\nReply-To: " + folded("a,", 10_000) + "\r\nSender: " + folded("a,", 10_000) + "\r\n\r\n", "address_limit"},
		{"words", header("To", strings.Repeat("a ", 120_000)), "malformed_address"},
		{"ids", header("References", strings.Repeat("<", 250_000)), "malformed_message_id"},
		{"parameters", header("Content-Type", "a/b"+strings.Repeat(`;a="x`, 50_000)), "ambiguous_parameter"},
		{"parameters without semicolons", header("Content-Type", "a/b "+strings.Repeat(`a=b `, 60_000)), "ambiguous_parameter"},
		{"a type of many words", header("Content-Type", strings.Repeat(`a `, 120_000)), "invalid_content_type"},
		{"continuations", header("Content-Type", "a/b"+continuations(12_000)), ""},
		{"hops", strings.Repeat("Received: from a by b; 1 Jan 2026 10:00 Z\r\n", 10_000), "header_count_limit"},
		{"a hop of comments", header("Received", strings.Repeat("(", 250_000)), "invalid_date"},
		{"a hop of words", header("Received", strings.Repeat("from by with id ", 15_000)), "invalid_date"},
		{"ids without brackets", header("References", folded("a ", 125_000)), "malformed_message_id"},
		{"many parts of many ids", multipart + strings.Repeat("--b\r\nContent-ID: "+strings.Repeat("a ", 4500)+"\r\n\r\n", 999), "malformed_message_id"},
		{"too many words in other octets", header("To", "\xff"+folded("[", 240_000)), "malformed_address"},
		{"keywords", header("Keywords", strings.Repeat("a,", 120_000)), ""},
		{"URIs", header("List-Post", strings.Repeat("<a>,", 60_000)), ""},
		{"folds in an encoded word", "Subject: =?utf-8?q?a\r\n" + strings.Repeat(" b\r\n", 40_000) + "\r\n", ""},
		{"a bounce of addresses", "Return-Path: <>\r\n\r\ncould not be delivered\r\n" + strings.Repeat("<a@b>: 550 5.1.1\r\n", 50_000), ""},
		{"a bounce of status fields", "Return-Path: <>\r\n\r\n" + strings.Repeat("final-recipient: ", 60_000) + ";\r\n" + strings.Repeat("Final-Recipient:\r\n", 1000), ""},
		{"a bounce of rules", "Return-Path: <>\r\n\r\nundelivered\r\n" + strings.Repeat("-- copy@b\r\n--\r\nb\r\n", 50_000), ""},
		{"a bounce of digits", "Return-Path: <>\r\n\r\ncould not be delivered\r\n<a@b>: " + strings.Repeat("5.1.", 200_000), ""},
		{"a report of groups", "Content-Type: message/delivery-status\r\n\r\n" + strings.Repeat("Final-Recipient: x; a\r\n\r\n", 20_000), "report_limit"},
		{"dates", header("Date", strings.Repeat("1 ", 120_000)), "invalid_date"},
		{"almost boundaries", multipart + "--b\r\n\r\n" + strings.Repeat("--\r\n--bb\r\n", mega/10), "ambiguous_boundary_prefix"},
		{"CRs before almost boundaries", multipart + strings.Repeat("\r--bb", mega/5), "ambiguous_bare_cr"},
		{"hyphens behind a CR in a stream of them", multipart + strings.Repeat("\r--", mega/3), "ambiguous_multipart"},
		{"parts behind the end", multipart + "--b--\r\n" + strings.Repeat("--b\r\n", mega/5), "ambiguous_epilogue"},
		{"almost uuencoded files", "\r\n" + strings.Repeat("begin 64\n", mega/9), ""},
		{"many texts", multipart + strings.Repeat("--b\r\n\r\n"+strings.Repeat("text ", 200)+"\r\n", 1000), "text_limit"},
		{"many texts in HTML", multipart + strings.Repeat("--b\r\nContent-Type: text/html\r\n\r\n<p><b>a</b>\r\n", 20_000), "part_limit"},
		{"lines of white space in a header section", "A: b\r\n" + strings.Repeat(" \r\n", mega/3), "ambiguous_header_end"},
		{"attributes", "Content-Type: text/html\r\n\r\n" + strings.Repeat("<a b='", mega/6), ""},
		{"hyphens in an HTML comment", "Content-Type: text/html\r\n\r\n<!--" + strings.Repeat("-!", mega/2), ""},
		{"raw text in HTML", "Content-Type: text/html\r\n\r\n" + strings.Repeat("<xmp></xm>", mega/10), ""},
		{"unclosed HTML", "Content-Type: text/html\r\n\r\n" + strings.Repeat("<a", mega/2), ""},
		{"scripts", "Content-Type: text/html\r\n\r\n" + strings.Repeat("<script><", mega/9), ""},
		{"scripts among ends of others", "Content-Type: text/html\r\n\r\n" + strings.Repeat("<script></x>", mega/12), ""},
		{"HTML comments", "Content-Type: text/html\r\n\r\n" + strings.Repeat("<!--", mega/4), ""},
		{"entities", "Content-Type: text/html\r\n\r\n" + strings.Repeat("&", mega), ""},
		{"UTF-7", "Content-Type: text/plain; charset=utf-7\r\n\r\n" + strings.Repeat("+A", mega/2), ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			content := []byte(c.content)
			m := frugal(t, content)
			check(t, content, Limits{})
			if c.kind != "" && !hasDefect(m, c.kind) {
				t.Errorf("no defect %s, but %v", c.kind, kinds(m))
			}
		})
	}
}

// frugal reads a message and asserts the bounds on its work: 20 times its size and 4 MB allocated, never more than 100 MB
// (case H5), and 1 s of processor time for each MB.
func frugal(t *testing.T, content []byte) *mailv1.ParsedMessage {
	t.Helper()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	start := cpuTime(t)
	m := Parse(content, Limits{})
	took := cpuTime(t) - start
	runtime.ReadMemStats(&after)
	if got, limit := after.TotalAlloc-before.TotalAlloc, raceFactor*uint64(min(20*len(content)+4<<20, 100<<20)); got > limit {
		t.Errorf("%d octets allocated for %d, want at most %d", got, len(content), limit)
	}
	// A tenth of a second is what the clock and others in the process may add.
	if limit := raceFactor * (time.Second*time.Duration(len(content))/(1<<20) + 100*time.Millisecond); took > limit {
		t.Errorf("took %v for %d octets, want at most %v", took, len(content), limit)
	}
	return m
}

// mailOf is a mail with an attachment of so many octets in base64, which is never in memory as a whole.
func mailOf(octets int) (io.Reader, int64) {
	const header = "Subject: s\r\nContent-Type: multipart/mixed; boundary=b\r\n\r\n--b\r\n\r\nHello.\r\n--b\r\n" +
		"Content-Type: application/x\r\nContent-Transfer-Encoding: base64\r\n\r\n"
	const line = "QUJDREVGR0hJSktMTU5PUFFSU1RVVldYWVphYmNkZWZnaGlqa2xtbm9wcXJzdHV2d3h5ejAx\r\n"
	const end = "--b--\r\n"
	n := octets / 54
	in := io.MultiReader(strings.NewReader(header), &repeated{line: line, left: n * len(line)}, strings.NewReader(end))
	return in, int64(len(header) + n*len(line) + len(end))
}

// repeated is a line over and over.
type repeated struct {
	line string
	left int
}

func (r *repeated) Read(p []byte) (int, error) {
	if r.left == 0 {
		return 0, io.EOF
	}
	n := 0
	for n < len(p) && r.left > 0 {
		at := (len(r.line) - r.left%len(r.line)) % len(r.line)
		k := copy(p[n:], r.line[at:])
		n += k
		r.left -= k
	}
	return n, nil
}

// TestLargeBodiesAreNotHeld: twenty mails of 30 MB at once take little memory (case H6).
func TestLargeBodiesAreNotHeld(t *testing.T) {
	mails, octets := 20, 30<<20
	if raceFactor > 1 {
		mails = 3
	}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	var all errgroup.Group
	for range mails {
		all.Go(func() error {
			in, size := mailOf(octets)
			m, err := ParseReader(in, size, Limits{Time: time.Hour})
			if err == nil && (m.GetText() != "Hello." || m.GetParts()[0].GetParts()[1].GetSize() != int64(octets/54*54)) {
				err = fmt.Errorf("text %q, parts %v", m.GetText(), m.GetParts()[0].GetParts())
			}
			return err
		})
	}
	if err := all.Wait(); err != nil {
		t.Fatal(err)
	}
	runtime.ReadMemStats(&after)
	if got := (after.TotalAlloc - before.TotalAlloc) / uint64(mails); got > raceFactor<<20 {
		t.Errorf("%d KiB allocated for each mail, want at most 1024", got>>10)
	}
}

// folded is something many times, in lines of at most 64 KB.
func folded(s string, times int) string {
	const perLine = 64_000
	n := perLine / len(s)
	line := strings.Repeat(s, n)
	return strings.Repeat(line+"\r\n ", times/n) + strings.Repeat(s, times%n)
}

func manyParams(size int) string {
	var out strings.Builder
	for i := 0; out.Len() < size; i++ {
		fmt.Fprintf(&out, ";a%d=b", i)
	}
	return out.String()
}

func continuations(n int) string {
	var out strings.Builder
	for i := range n {
		fmt.Fprintf(&out, "; a*%d*=b", n-i)
	}
	return out.String()
}

func hasDefect(m *mailv1.ParsedMessage, kind string) bool {
	for _, d := range m.GetDefects() {
		if d.GetKind() == kind {
			return true
		}
	}
	return false
}

func kinds(m *mailv1.ParsedMessage) []string {
	out := make([]string, 0, len(m.GetDefects()))
	for _, d := range m.GetDefects() {
		out = append(out, d.GetKind())
	}
	return out
}
