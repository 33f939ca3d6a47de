package parser

import (
	"bytes"
	"crypto/sha256"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestViews: what two readers read in two ways is read as the widespread clients do, and says so.
func TestViews(t *testing.T) {
	t.Parallel()
	const multipart = "Content-Type: multipart/mixed; boundary=b\n\n"
	for _, c := range []struct {
		name, content string
		kinds         string
		text, html    string
	}{
		{"a line of white space in a header section", "Subject: s\n \nContent-Type: text/html\n\n<p>x", "ambiguous_header_end", "x", "<p>x"},
		{"a line that is no field among fields", "Subject: s\njunk\nContent-Type: text/html\n\n<p>x", "malformed_header ambiguous_header_end", "x", "<p>x"},
		{"a line that is no field behind fields", "Subject: s\njunk\n\nx", "malformed_header ambiguous_header_end", "x", ""},
		{"white space before a colon", "Subject: s\nContent-Type : text/html\n\n<p>x", "space_before_colon ambiguous_header_end", "x", "<p>x"},
		{"a part of one line", multipart + "--b\nhello\n--b--\n", "malformed_header ambiguous_header_end", "hello", ""},
		{"a part of a field and a line", multipart + "--b\nContent-Type: text/html\n<p>x\n--b--\n", "malformed_header ambiguous_header_end", "x", "<p>x"},
		{"a content of a field and a line", "Subject: s\nx", "malformed_header ambiguous_header_end", "x", ""},
		{"a content of one line", "x", "malformed_header ambiguous_header_end", "x", ""},
		{"a comment with a parameter in it", "Content-Type: multipart/mixed (; boundary=x); boundary=b\n\n--b\n\nx\n--b--\n", "ambiguous_comment ambiguous_parameter", "x", ""},
		{"a comment with a parameter in it behind another", "Content-Type: multipart/mixed; boundary=\"b\" (; boundary=x)\n\n--b\n\nx\n--b--\n", "ambiguous_comment ambiguous_parameter", "x", ""},
		{"a comment inside a type", "Content-Type: text/(c)html\n\n<p>x", "ambiguous_comment", "x", "<p>x"},
		{"an open comment in a type", "Content-Type: text/(html\n\n<p>x", "ambiguous_parameter", "x", "<p>x"},
		{"a backslash in a boundary", `Content-Type: multipart/mixed; boundary="a\b"` + "\n\n--ab\n\nx\n--ab--\n", "ambiguous_parameter", "x", ""},
		{"a backslash in a charset", `Content-Type: text/plain; charset="utf\-\8"` + "\n\n\u00fc", "ambiguous_parameter", "\u00fc", ""},
		{"a space at the end of a boundary", `Content-Type: multipart/mixed; boundary="b "` + "\n\n--b \n\nx\n--b --\n", "ambiguous_boundary_value", "x", ""},
		{"an octet above 127 in a boundary", "Content-Type: multipart/mixed; boundary=\u00fc\n\n--\u00fc\n\nx\n--\u00fc--\n", "ambiguous_boundary_value", "x", ""},
		{"a boundary in pieces", "Content-Type: multipart/mixed; boundary*0=a; boundary*1=b\n\n--ab\n\nx\n--ab--\n", "ambiguous_boundary_value", "x", ""},
		{"a boundary with a comment at its end", "Content-Type: multipart/mixed; boundary=a(c)\n\n--a(c)\n\nx\n--a(c)--\n", "ambiguous_parameter", "x", ""},
		{"a boundary with quotes at its end", `Content-Type: multipart/mixed; boundary=a"b"` + "\n\n--a\"b\"\n\nx\n--a\"b\"--\n", "ambiguous_parameter", "x", ""},
		{"a boundary with a comma", "Content-Type: multipart/mixed; boundary=a,b\n\n--a,b\n\nx\n--a,b--\n", "ambiguous_parameter", "x", ""},
		{"a path for a file name", `Content-Disposition: attachment; filename="C:\a.e\xe"` + "\n\nx", "ambiguous_parameter", "", ""},
		{"an encoding with a comment", "Content-Transfer-Encoding: base64 (7bit)\n\neA==", "ambiguous_encoding", "x", ""},
		{"an encoding in quotes", "Content-Transfer-Encoding: \"base64\"\n\neA==", "ambiguous_encoding", "x", ""},
		{"an encoding with a semicolon", "Content-Transfer-Encoding: base64;\n\neA==", "ambiguous_encoding", "x", ""},
		{"a delimiter that ends another", "Content-Type: multipart/mixed; boundary=A\n\n--A\nContent-Type: multipart/mixed; boundary=A--\n\n--A--\n\nx\n--A----\n--A--\n", "ambiguous_boundary_twice", "x", ""},
		{"a delimiter with what may be text behind it", "Content-Type: multipart/mixed; boundary=\"A x\"\n\n--A x\nContent-Type: multipart/mixed; boundary=A\n\n--A\n\nx\n--A--\n--A x\n\n\n--A x--\n", "", "x", ""},
		{"a delimiter with what may be text behind it inside", "Content-Type: multipart/mixed; boundary=\"A x\"\n\n--A x\nContent-Type: multipart/mixed; boundary=A\n\n--A\n\nx\n--A x--\n", "missing_end_boundary ambiguous_boundary_twice", "x", ""},
		{"parts behind the end", multipart + "--b\n\nx\n--b--\n--b\nContent-Type: a/b\n\ny\n--b--\n", "ambiguous_epilogue", "x", ""},
		{"a bare CR before a boundary in a preamble", "Content-Type: multipart/mixed; boundary=b\r\n\r\np\r--b\r\n--b\r\n\r\nx\r\n--b--\r\n", "ambiguous_bare_cr", "x", ""},
		{"a bare CR before a boundary in octets", "Content-Type: multipart/mixed; boundary=b\r\n\r\n--b\r\nContent-Type: a/b\r\n\r\nAAA\r--b\r\r\r\n--b--\r\n", "ambiguous_bare_cr", "", ""},
		{"a bare CR in octets", "Content-Type: multipart/mixed; boundary=b\r\n\r\n--b\r\nContent-Type: a/b\r\n\r\nAAA\r--c\r\r\n--b--\r\n", "", "", ""},
		{"a NUL in base64", "Content-Transfer-Encoding: base64\n\neAB5\n", "ambiguous_nul", "x\uFFFDy", ""},
		{"a uuencoded file in a text", "Subject: s\n\nbegin 644 a.exe\n#86)C\n`\nend", "ambiguous_uuencode", "begin 644 a.exe\r\n#86)C\r\n`\r\nend", ""},
		{"a uuencoded file in an encoded text", "Content-Transfer-Encoding: quoted-printable\n\nx\nbe=\ngin 0644 a\n", "ambiguous_uuencode", "x\r\nbegin 0644 a\r\n", ""},
		{"no uuencoded file", "Subject: s\n\nbegin 644\nbegin 99 x\n begin 644 x\nbegin 64 x\n", "", "begin 644\r\nbegin 99 x\r\n begin 644 x\r\nbegin 64 x\r\n", ""},
		{"a text beside a uuencoded file", "Content-Transfer-Encoding: x-uuencode\n\ntext\nbegin 644 a\n#86)C\n`\nend\n", "ambiguous_uuencode", "abc", ""},
		{"two uuencoded files", "Content-Transfer-Encoding: x-uuencode\n\nbegin 644 a\n#86)C\n`\nend\n\nbegin 644 b\n#86)C\n`\nend\n", "ambiguous_uuencode", "abc", ""},
		{"a letter that is small in ASCII alone in a type", "Content-Type: mult\u0130part/mixed; boundary=b\n\n--b\n\nx\n--b--\n", "invalid_content_type ambiguous_content_type", "--b\r\n\r\nx\r\n--b--\r\n", ""},
		{"a letter that is small in ASCII alone in an encoding", "Content-Transfer-Encoding: quoted-pr\u0130ntable\n\n=41", "unknown_encoding ambiguous_encoding", "=41", ""},
		{"a word behind a type", "Content-Type: text/html foo; charset=utf-8\n\n<p>x", "ambiguous_parameter", "x", "<p>x"},
		{"white space around the slash of a type", "Content-Type: text / html\n\n<p>x", "", "x", "<p>x"},
		{"two types", "Content-Type: text/plain, text/html\n\nx", "ambiguous_parameter invalid_content_type ambiguous_content_type", "x", ""},
		{"a type with a second slash", "Content-Type: text/html/plain\n\n<p>x", "invalid_content_type ambiguous_content_type", "x", "<p>x"},
		{"a type in quotes", "Content-Type: \"text/html\"\n\nx", "invalid_content_type ambiguous_content_type", "x", ""},
		{"a multipart without subtype", "Content-Type: multipart/; boundary=b\n\n--b\n\nx\n--b--\n", "invalid_content_type ambiguous_content_type", "--b\r\n\r\nx\r\n--b--\r\n", ""},
		{"a type alone", "Content-Type: text\n\nx", "invalid_content_type", "x", ""},
		{"a fold in a boundary", "Content-Type: multipart/mixed; boundary=\"a\n b\"\n\n--a b\n\nx\n--a b--\n", "ambiguous_boundary_value", "x", ""},
		{"a fold before a boundary", "Content-Type: multipart/mixed;\n boundary=\n \"a b\"\n\n--a b\n\nx\n--a b--\n", "", "x", ""},
		{"a backslash twice in a boundary", `Content-Type: multipart/mixed; boundary="a\\b"` + "\n\n--a\\b\n\nx\n--a\\b--\n", "ambiguous_parameter", "x", ""},
		{"a disposition without semicolon", "Content-Disposition: attachment filename=a.exe\n\nx", "ambiguous_parameter", "", ""},
		{"a word behind a disposition", "Content-Disposition: attachment foo\n\nx", "ambiguous_parameter", "", ""},
		{"a disposition of a parameter alone", "Content-Disposition: filename=a.exe\n\nx", "ambiguous_parameter", "x", ""},
		{"a NUL in a file name", "Content-Disposition: attachment; filename*=utf-8''a%00b\n\nx", "ambiguous_nul", "", ""},
		{"a NUL in an encoded word", "Subject: =?utf-8?q?a=00b?=\n\nx", "ambiguous_nul", "x", ""},
		{"a NUL before a delimiter", "Content-Type: multipart/mixed; boundary=b\n\n--b\nContent-Type: a/b\n\nx\n\x00--b\n\ny\n--b--\n", "ambiguous_nul", "", ""},
		{"a character outside base64", "Content-Transfer-Encoding: base64\n\nYW!Jj\n", "ambiguous_base64", "abc", ""},
		{"octets that are not UTF-7", "Content-Type: text/plain; charset=utf-7\n\na+2AA-\xff", "ambiguous_charset invalid_text", "a\uFFFD\uFFFD", ""},
		{"UTF-7", "Content-Type: text/html; charset=utf-7\n\n+ADw-p>x", "ambiguous_charset", "x", "<p>x"},
		{"UTF-7 that is ASCII", "Content-Type: text/plain; charset=utf-7\n\n1 & 1", "", "1 & 1", ""},
		{"UTF-7 in an encoded word", "Subject: =?utf-7?q?+AGE-?=\n\nx", "ambiguous_charset", "x", ""},
		{"an encoding that is nearly base64", "Content-Transfer-Encoding: base-64\n\neA==", "unknown_encoding ambiguous_encoding", "eA==", ""},
		{"an encoding that is nearly quoted-printable", "Content-Transfer-Encoding: quoted printable\n\n=41", "unknown_encoding ambiguous_encoding", "=41", ""},
		{"an encoding that is nearly another", "Content-Transfer-Encoding: x-uuencoded\n\nx", "unknown_encoding ambiguous_encoding", "x", ""},
		{"an encoding that is nearly none", "Content-Transfer-Encoding: 8bits\n\nx", "unknown_encoding", "x", ""},
		{"a header section behind an empty line", "\nSubject: s\n\nx", "ambiguous_header_end", "Subject: s\r\n\r\nx", ""},
		{"a header section behind two empty lines", "\n\nSubject: s\n\nx", "ambiguous_header_end", "\r\nSubject: s\r\n\r\nx", ""},
		{"a text behind an empty line", "\nDear Anna: x\n", "", "Dear Anna: x\r\n", ""},
		{"a field in a part without header section", multipart + "--b\n\nSubject: s\n--b--\n", "", "Subject: s", ""},
		{"an empty line in a nested message", multipart + "--b\nContent-Type: message/rfc822\n\n\nSubject: s\n\nx\n--b--\n", "ambiguous_header_end", "", ""},
		{"an encoded word in a file name", "Content-Disposition: attachment; filename=\"=?utf-8?q?a=2Eexe?=\"\n\nx", "ambiguous_encoded_parameter", "", ""},
		{"an encoded word in an extended file name", "Content-Disposition: attachment; filename*0=\"=?utf-8?q?a\"; filename*1=\"=2Eexe?=\"\n\nx", "malformed_encoded_word ambiguous_encoded_parameter", "", ""},
		{"no encoded word in a file name", "Content-Disposition: attachment; filename=\"=?a.exe\"\n\nx", "", "", ""},
		{"two ids", "Message-ID: <a@b> <c@d>\n\nx", "ambiguous_message_id", "x", ""},
		{"a word before an id", "Message-ID: a <c@d>\n\nx", "ambiguous_message_id", "x", ""},
		{"two ids without brackets", "Message-ID: a@b c@d\n\nx", "malformed_message_id ambiguous_message_id", "x", ""},
		{"a comment beside an id", "Message-ID: (x) <a(b)@c> (<d@e>)\n\nx", "", "x", ""},
		{"two fields of ids", "Message-ID: <a@b>\nMessage-ID: <c@d>\n\nx", "ambiguous_field", "x", ""},
		{"two ids of a part", "Content-ID: <a@b> <c@d>\n\nx", "ambiguous_message_id", "x", ""},
		{"two texts", multipart + "--b\n\nx\n--b\n\n\n--b\n\ny\n\n--b\n\nz\n--b--\n", "", "x\ny\r\nz", ""},
		{"two texts in HTML", multipart + "--b\nContent-Type: text/html\n\n<p>x<!--\n--b\nContent-Type: text/html\n\n<p>y\n--b--\n", "", "x\ny", "<p>x<!--\n<p>y"},
		{"a footer", multipart + "--b\nContent-Type: multipart/alternative; boundary=c\n\n--c\n\nx\n--c\nContent-Type: text/html\n\n<p>x\n--c--\n--b\n\nfooter\n--b--\n", "", "x\nfooter", "<p>x"},
		{"two texts to choose from", "Content-Type: multipart/alternative; boundary=b\n\n--b\n\nx\n--b\n\ny\n--b--\n", "ambiguous_alternative", "x\ny", ""},
		{"two texts in HTML to choose from", "Content-Type: multipart/alternative; boundary=b\n\n--b\nContent-Type: text/html\n\nx\n--b\nContent-Type: multipart/related; boundary=c\n\n--c\nContent-Type: text/html\n\ny\n--c--\n--b--\n", "ambiguous_alternative", "x\ny", "x\ny"},
		{"a multipart without boundary in base64", "Content-Type: multipart/mixed\nContent-Transfer-Encoding: base64\n\neA==\n", "missing_boundary ambiguous_multipart", "x", ""},
		{"a multipart that only ends", multipart + "x\n--b--\ny", "missing_start_boundary ambiguous_multipart", "x\r\n--b--\r\ny", ""},
		{"a multipart inside without parts", multipart + "--b\nContent-Type: multipart/alternative; boundary=c\n\nx\n--b\n\ny\n--b--\n", "missing_start_boundary missing_end_boundary ambiguous_multipart", "x\ny", ""},
		{"a multipart that is cut in its header section", multipart + "--b\nContent-Type: multipart/mixed; boundary=c\nx\n--b\n\ny\n--b--\n", "ambiguous_multipart malformed_header ambiguous_header_end", "x\ny", ""},
		{"a multipart of white space", multipart + "\n \n", "missing_start_boundary missing_end_boundary", "", ""},
		{"a preamble", multipart + "x\n--b\n\ny\n--b--\nz\n", "", "y", ""},
		{"a preamble in base64", "Content-Type: multipart/mixed; boundary=b\nContent-Transfer-Encoding: base64\n\nx\n--b--\n", "ambiguous_multipart_encoding missing_start_boundary ambiguous_multipart", "x\r\n--b--\r\n", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			content := []byte(c.content)
			if !strings.Contains(c.content, "\r") {
				content = crlf(c.content)
			}
			m := check(t, content, Limits{})
			if diff := cmp.Diff(c.kinds, strings.Join(kinds(m), " ")); diff != "" {
				t.Errorf("defects: %s", diff)
			}
			if m.GetText() != c.text || m.GetHtml() != c.html {
				t.Errorf("got text %q, HTML %q", m.GetText(), m.GetHtml())
			}
		})
	}
}

// TestBodyWithoutHeader: a part that is a line without header section is counted and hashed as any other, folds included.
func TestBodyWithoutHeader(t *testing.T) {
	t.Parallel()
	for _, body := range []string{"hello http://evil.example", "hello" + strings.Repeat("\r\n more", 1000)} {
		content := "Content-Type: multipart/mixed; boundary=b\r\n\r\n--b\r\n" + body + "\r\n--b--\r\n"
		p := check(t, []byte(content), Limits{}).GetParts()[0].GetParts()[0]
		sum := sha256.Sum256([]byte(body))
		if size := int64(len(body)); p.GetRawSize() != size || p.GetSize() != size || !bytes.Equal(p.GetSha256(), sum[:]) {
			t.Errorf("sizes %d and %d, want %d; hash %x", p.GetRawSize(), p.GetSize(), size, p.GetSha256())
		}
	}
}

// TestPieces: what is odd about the pieces of a parameter is read as well as can be, and says so.
func TestPieces(t *testing.T) {
	t.Parallel()
	for value, want := range map[string]string{
		"filename*0=a.; filename*2=exe":       "a.exe",
		"filename*1=a.exe":                    "a.exe",
		"filename*0=a.; filename*01=exe":      "a.exe",
		"filename*0=a.; filename*1x=exe":      "a.",
		"filename**=utf-8''a.exe":             "a.exe",
		"filename*0*=utf-8''a.; filename*1=b": "a.b",
	} {
		r := newReader(DefaultLimits())
		got := r.structured("attachment; "+value, place{}).params["filename"]
		if odd := hasDefect(r.out, "ambiguous_parameter"); got != want || odd != (want != "a.b") {
			t.Errorf("%s: got %q, want %q; noted is %v", value, got, want, odd)
		}
	}
}

// TestNoPartIsNowhere: each leaf is a text, an attachment, an inline part or a report.
func TestNoPartIsNowhere(t *testing.T) {
	t.Parallel()
	content := "Content-Type: multipart/mixed; boundary=b\n"
	for _, header := range []string{
		"X: text", "Content-Type: text/html", "X: text", "Content-Type: text/calendar", "Content-Type: text/plain; name=a",
		"Content-Type: a/b", "Content-Disposition: attachment", "Content-Type: image/png\nContent-Disposition: inline",
		"Content-Type: text/html; name=a", "Content-Type: text/x\nContent-Disposition: inline",
	} {
		content += "\n--b\n" + header + "\n\ntext"
	}
	m := check(t, crlf(content+"\n--b--\n"), Limits{})
	if diff := cmp.Diff([]string{"1.5", "1.6", "1.7", "1.9"}, m.GetAttachments()); diff != "" {
		t.Errorf("attachments: %s", diff)
	}
	if diff := cmp.Diff([]string{"1.4", "1.8", "1.10"}, m.GetInlines()); diff != "" {
		t.Errorf("inlines: %s", diff)
	}
	if m.GetText() != "text\ntext" || m.GetHtml() != "text" {
		t.Errorf("text %q, HTML %q", m.GetText(), m.GetHtml())
	}
}

// TestTextsWithinLimit: many texts take no more memory and room than one.
func TestTextsWithinLimit(t *testing.T) {
	t.Parallel()
	part := "--b\n\n" + strings.Repeat("0123456789", 50) + "\n"
	content := crlf("Content-Type: multipart/mixed; boundary=b\n\n" + strings.Repeat(part, 200) + "--b--\n")
	limits := Limits{TextBytes: 1 << 10}.withDefaults()
	m := check(t, content, limits)
	if got := kinds(m); len(m.GetText()) < 1<<10 || len(m.GetText()) > 1<<10+200 || !m.GetTextTruncated() || !slices.Equal(got, []string{"text_limit"}) {
		t.Errorf("a text of %d octets, truncated %v, %v", len(m.GetText()), m.GetTextTruncated(), got)
	}
	r := newReader(limits)
	if err := r.read(r.source(content, false)); err != nil {
		t.Fatal(err)
	}
	kept := 0
	for _, n := range r.texts[0].shown {
		kept += len(n.kept)
	}
	if kept > 4<<10 {
		t.Errorf("%d octets kept", kept)
	}
}

// TestParameterOfDispositionAlone: a file name counts also where no disposition stands before it.
func TestParameterOfDispositionAlone(t *testing.T) {
	t.Parallel()
	for _, value := range []string{"filename=a.exe", "attachment filename=a.exe", "attachment foo filename=a.exe"} {
		p := check(t, crlf("Content-Disposition: "+value+"\n\nx"), Limits{}).GetParts()[0]
		if want := value[:max(0, strings.Index(value, " "))]; p.GetFilename() != "a.exe" || p.GetDisposition() != want {
			t.Errorf("%s: got %q, %q", value, p.GetDisposition(), p.GetFilename())
		}
	}
}

// TestAddressViews: where readers take different addresses from a field it says so.
func TestAddressViews(t *testing.T) {
	t.Parallel()
	for value, want := range map[string]string{
		"a@b.example c@d.example":                  "a@b.example !",
		"x a@b.example c@d.example":                "a@b.example !",
		"<a@b.example> <c@d.example>":              "a@b.example c@d.example !",
		"a@b.example <c@d.example>":                "c@d.example !",
		"<a@b.example>c@d.example":                 "a@b.example !",
		"<@x.example,@y.example:a@b.example>":      "a@b.example !",
		"a@b.example@c.example":                    "a@b.example@c.example !",
		`"x <a@b.example>`:                         "a@b.example !",
		"=?utf-8?q?a=40b?=":                        " !",
		"A <a@b.example>":                          "a@b.example",
		`"c@d.example" <a@b.example>`:              "a@b.example",
		"A@b.example <a@B.example>":                "a@B.example",
		"'a@b.example' <a@b.example>, c@d.example": "a@b.example c@d.example",
		`"a@b"@c.example`:                          `"a@b"@c.example`,
		"a@b.example (c@d.example)":                "a@b.example",
		"local":                                    "local",
		"T: a@b.example, c@d.example;":             "a@b.example c@d.example",
		"a@b.example;c@d.example":                  "a@b.example c@d.example !",
		"A <a@b.example>; C <c@d.example>":         "a@b.example c@d.example !",
		"T: a@b.example;; c@d.example":             "a@b.example c@d.example !",
		"a@b.example;":                             "a@b.example",
		";a@b.example":                             "a@b.example",
		"T:; a@b.example, : c@d.example;":          "a@b.example c@d.example",
	} {
		m := check(t, crlf("From: "+value+"\n\n"), Limits{})
		var got []string
		for _, a := range m.GetFrom() {
			got = append(got, a.GetAddress())
		}
		if hasDefect(m, "ambiguous_address") {
			got = append(got, "!")
		}
		if diff := cmp.Diff(want, strings.Join(got, " ")); diff != "" {
			t.Errorf("%s: %s", value, diff)
		}
	}
}
