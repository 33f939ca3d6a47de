package parser

import (
	"path/filepath"
	"strings"
	"testing"
	"unicode/utf8"

	mailv1 "github.com/rohrpost/rohrpost/proto/gen/rohrpost/mail/v1"
)

// The fuzz targets look for content that breaks what holds for every result, or that costs more than its size allows. `make
// fuzz` runs them; their seeds are replayed by every `go test`. What they find goes to testdata/fuzz and is committed.

var small = Limits{Depth: 3, Parts: 4, HeaderBytes: 1 << 10, HeaderCount: 6, TextBytes: 1 << 10, EncodedWords: 2, LineBytes: 1 << 10, DecodedBytes: 1 << 10, ResultBytes: 16 << 10}

func FuzzParse(f *testing.F) {
	files, err := filepath.Glob(filepath.Join("testdata", "*.msg"))
	if err != nil {
		f.Fatal(err)
	}
	for _, path := range files {
		f.Add(readFile(f, path))
	}
	f.Fuzz(func(t *testing.T, content []byte) {
		frugal(t, content)
		check(t, content, Limits{})
		check(t, content, small)
	})
}

// fuzzField fuzzes the value of a field: it is read as part of a message, and by what reads such values.
func fuzzField(f *testing.F, name string, read func(r *reader, value string) []string, seeds ...string) {
	f.Helper()
	for _, seed := range seeds {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, value string) {
		content := []byte(name + ": " + value + "\r\n\r\nbody\r\n")
		frugal(t, content)
		check(t, content, Limits{})
		r := newReader(Limits{}.withDefaults())
		for _, s := range read(r, r.unfold([]byte(value), place{})) {
			if !utf8.ValidString(s) || strings.ContainsAny(s, "\x00\r\n") {
				t.Errorf("%q", s)
			}
		}
	})
}

func FuzzHeaderValue(f *testing.F) {
	fuzzField(f, "Received", func(r *reader, value string) []string {
		h := r.hop(value, place{})
		return append(uris(value), r.words(value, place{}), h.GetFrom(), h.GetAddress(), h.GetBy(), h.GetVia(), h.GetWith(), h.GetId(), h.GetFor())
	}, "from a (b [192.0.2.1]) by c with ESMTPS id d for <e@f>; Mon, 30 Nov 2026 10:00:00 +0100", "(qmail 1 invoked from network); 1 Jan 2026",
		"from [IPv6:::1] (x@[1.2.3.4]:25) by", "a\r\n b\r c =?utf-8?q?d\r\n e?=", "<https://a>, <mailto:b>")
}

func FuzzAddressList(f *testing.F) {
	fuzzField(f, "To", func(r *reader, value string) []string {
		var out []string
		for _, a := range r.addresses(value, place{}) {
			out = append(out, a.GetName(), a.GetAddress(), a.GetGroup(), a.GetComment())
		}
		return out
	}, `"A, B" <a@b>, c@d (e), f: g@h, <@i:j@k>;`, `<"x>`, `a@[1.2.3.4] (((`, `=?utf-8?q?=0D=0A?= <a@b>`, `a(b)@c . d`, "a@b,,;:")
}

func FuzzDate(f *testing.F) {
	fuzzField(f, "Date", func(_ *reader, value string) []string {
		if at, _, ok := date(value); ok {
			return []string{at.String()}
		}
		return nil
	}, "Mon, 30 Nov 2026 10:00:00 +0100", "Mon Nov 30 10:00:00 2026", "2026-11-30T10:00:00.5Z", "30-Nov-26 10:00 EST5EDT (x)", "; 20 11 79 05:34:27 -0300")
}

func FuzzContentType(f *testing.F) {
	fuzzField(f, "Content-Type", func(r *reader, value string) []string {
		v := r.structured(value, place{})
		var out []string
		for name, p := range v.params {
			out = append(out, name, p)
		}
		return out
	}, "multipart/mixed; boundary=b", `text/plain; charset="utf-8"; name*0*=utf-8''a%20; name*1="b"`, `a/b; x="a\"b" (c) y=d`, `a/b;x="`, "/;a=b", "a/b; 1 * 2 *=c")
}

func FuzzEncodedWord(f *testing.F) {
	fuzzField(f, "Subject", func(r *reader, value string) []string { return []string{r.words(value, place{})} },
		"=?utf-8?q?a_=C3=BC?= =?utf-8?B?w7w=?=", "=?iso-2022-jp?B?GyRCRnxLXBsoQg==?=", "=?utf-7?q?+AGE-?=", "=?iso-2022-kr?q?=1B$)C=0Eabc=0F?=",
		"=?x?x?x?==?=?", "=?gb18030?b?gTCBMA==?=", "=?hz-gb-2312?q?~{<:Ky2;SQ~}?=")
}

func FuzzDeliveryStatus(f *testing.F) {
	for _, seed := range []string{
		"Reporting-MTA: dns; a\n\nFinal-Recipient: rfc822; b@c\nAction: failed\nStatus: 5.1.1 (x)\nDiagnostic-Code: smtp; 550 5.1.1 no\n",
		"Feedback-Type: abuse\nOriginal-Rcpt-To: <a@b>\n", "could not be delivered\n\n  a@b\n    550 5.7.1 no\n--- a copy\n", "\n\n x\n:\n",
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, body string) {
		for _, header := range []string{
			"Content-Type: message/delivery-status", "Content-Type: message/feedback-report", "Return-Path: <>",
		} {
			content := []byte(header + "\r\n\r\n" + body)
			frugal(t, content)
			for _, one := range check(t, content, Limits{}).GetReport().GetRecipients() {
				if one.GetCategory() < 0 || one.GetCategory() > mailv1.BounceCategory_BOUNCE_CATEGORY_OTHER || len(one.GetDiagnostic()) > maxDiagnostic {
					t.Errorf("%v", one)
				}
			}
		}
	})
}
