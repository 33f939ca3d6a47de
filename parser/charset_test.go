package parser

import (
	"strings"
	"testing"
	"unicode/utf8"
)

// TestCharsets reads texts in the charsets that mail comes in, under the names that it has for them.
func TestCharsets(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		names, octets, want, defect string
	}{
		{"utf-8 UTF8 utf_8 x-utf-8 utf8mb4", "\xef\xbb\xbf\xc3\xbc", "ü", ""},
		{"us-ascii ascii", "a\xc3\xbc", "aü", ""},
		{"us-ascii", "caf\xe9", "café", "undeclared_charset"},
		{"iso-8859-1 latin1 windows-1252 windows1252 cp1252 cp-1252 win-1252 iso8859-1", "\x80\xe9", "€é", ""},
		{"iso-8859-15", "\xa4", "€", ""},
		{"windows-1251 cp1251 x-cp1251", "\xcf", "П", ""},
		{"koi8-r", "\xf0", "П", ""},
		{"ibm437 cp437", "\x81", "ü", ""},
		{"windows-874 cp874 tis-620 iso-8859-11", "\xa1\xd2", "กา", ""},
		{"shift_jis cp932 windows-31j ms932 x-sjis", "\x87\x40\xfb\xfc\x81\x60\xb1", "①髙～ｱ", ""},
		{"iso-2022-jp cp50220 iso-2022-jp-ms", "\x1b$B-!\x1b(B \x1b(I1\x1b(B", "① ｱ", ""},
		{"euc-jp cp51932", "\xad\xa1", "①", ""},
		{"gb2312 gbk cp936 x-gbk", "\xc4\xe3", "你", ""},
		{"gb18030", "\xc4\xe3\x81\x39\xee\x39", "你㐀", ""},
		{"hz-gb-2312", "~{Dc~}", "你", ""},
		{"big5 cp950 big5-hkscs", "\xa7A", "你", ""},
		{"euc-kr cp949 ks_c_5601-1987", "\xb0\xa1", "가", ""},
		{"iso-2022-kr", "\x1b$)C\x0e0!\x0f a", "가 a", ""},
		{"utf-7 unicode-1-1-utf-7", "a+APw-b +- +2D3cqQ-", "aüb + 💩", "ambiguous_charset"},
		{"utf-16", "\xff\xfea\x00", "a", ""},
		{"utf-16", "\x00a", "a", ""},
		{"utf-16le", "a\x00", "a", ""},
		{"utf-32", "\x00\x00\x00a", "a", ""},
		{"utf-8", "a\xffb", "a\uFFFDb", "invalid_text"},
		{"shift_jis", "a\x81 b", "a\uFFFD b", "invalid_text"},
		{"unknown-8bit x-unknown default", "caf\xe9", "café", "unknown_charset"},
		{"unknown-8bit", "caf\xc3\xa9 \xff", "café \uFFFD", "unknown_charset"},
	} {
		for name := range strings.FieldsSeq(c.names) {
			r := newReader(DefaultLimits())
			got := r.decodeCharset(name, []byte(c.octets), place{})
			kind := ""
			for _, d := range r.out.GetDefects() {
				kind = d.GetKind()
			}
			if got != c.want || kind != c.defect {
				t.Errorf("%s %q: got %q (%s), want %q (%s)", name, c.octets, got, kind, c.want, c.defect)
			}
			if !utf8.ValidString(got) {
				t.Errorf("%s: not UTF-8", name)
			}
		}
	}
}

// TestGuess reads texts that name no charset.
func TestGuess(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ charset, text string }{
		{"windows-1252", "Grüße aus Köln, viele schöne Tage für dich, außerdem natürlich größer"},
		{"windows-1252", "It’s “fine” – really"},
		{"windows-1252", "ÄÖÜ"},
		{"windows-1251", "Здравствуйте! Высылаю вам отчет за прошлый месяц."},
		{"koi8-r", "Здравствуйте! Высылаю вам отчет за прошлый месяц."},
		{"windows-1251", "<html><body class=\"mail\"><p>Высылаю вам отчет.</p></body></html>"},
		{"shift_jis", "こんにちは。先月の報告書を送ります。よろしくお願いします。"},
		{"euc-jp", "こんにちは。先月の報告書を送ります。よろしくお願いします。"},
		{"gb18030", "您好，附件是上个月的报告，请查收。谢谢！"},
		{"big5", "您好，附件是上個月的報告，請查收。謝謝！"},
		{"euc-kr", "안녕하세요. 지난달 보고서를 보내드립니다. 감사합니다."},
	} {
		octets, err := charset(c.charset).NewEncoder().String(c.text)
		if err != nil {
			t.Fatal(err)
		}
		r := newReader(DefaultLimits())
		if got := r.guess(octets, place{}); got != c.text || !hasDefect(r.out, "undeclared_charset") {
			t.Errorf("%s: got %q, want %q", c.charset, got, c.text)
		}
	}
}
