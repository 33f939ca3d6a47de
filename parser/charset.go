package parser

import (
	"bytes"
	"strings"
	"unicode/utf8"

	"golang.org/x/text/encoding"
	"golang.org/x/text/encoding/charmap"
	"golang.org/x/text/encoding/htmlindex"
	"golang.org/x/text/encoding/ianaindex"
	"golang.org/x/text/encoding/korean"
	"golang.org/x/text/encoding/simplifiedchinese"
	"golang.org/x/text/encoding/unicode"
	"golang.org/x/text/encoding/unicode/utf32"
)

func windows1252(b []byte) string {
	return fromMap(charmap.Windows1252, b)
}

func decoded(enc encoding.Encoding, b []byte) (string, error) {
	if m, ok := enc.(*charmap.Charmap); ok {
		return fromMap(m, b), nil
	}
	out, err := enc.NewDecoder().Bytes(b)
	return string(out), err
}

// fromMap reads octets that stand for a character each.
func fromMap(m *charmap.Charmap, b []byte) string {
	size := len(b)
	for _, c := range b {
		if c >= utf8.RuneSelf {
			size++
		}
	}
	var out strings.Builder
	out.Grow(size)
	for _, c := range b {
		out.WriteRune(m.DecodeByte(c))
	}
	return out.String()
}

// decodeCharset reads octets in a declared charset. Whatever happens, the result is valid UTF-8.
func (r *reader) decodeCharset(name string, b []byte, where place) string {
	name = strings.TrimPrefix(lowerASCII(strings.Trim(name, " \t\"'")), "charset=") // some write it twice
	switch name {
	case "":
		return r.guess(string(b), where)
	case "us-ascii", "ascii", "ansi_x3.4-1968", "utf-8", "utf8", "unicode-1-1-utf-8":
		if utf8.Valid(b) {
			return strings.TrimPrefix(string(b), "\uFEFF")
		}
		if !strings.Contains(name, "utf") {
			return r.guess(string(b), where)
		}
		r.defect("invalid_text", warning, where, "octets that are not %s", name)
		return strings.ToValidUTF8(string(b), "\uFFFD")
	case "utf-7", "unicode-1-1-utf-7", "csunicode11utf7":
		text := decodeUTF7(b)
		if bytes.IndexByte(b, '+') >= 0 && text != string(b) { // clients in a browser do not know it
			r.defect("ambiguous_charset", severe, where, "%s, which some clients decode", name)
		}
		if strings.Contains(text, "\uFFFD") {
			r.defect("invalid_text", warning, where, "octets that are not %s", name)
		}
		return text
	case "iso-2022-kr", "csiso2022kr":
		b = shiftedKorean(b)
	}
	enc := charset(name)
	if enc == nil {
		r.defect("unknown_charset", warning, where, "%s", excerpt(name))
		if utf8.Valid(b) {
			return string(b)
		}
		text, _ := guess8bit(string(b))
		return text
	}
	out, err := decoded(enc, b)
	if err != nil || strings.Contains(out, "\uFFFD") {
		r.defect("invalid_text", warning, where, "octets that are not %s", excerpt(name))
	}
	return strings.TrimPrefix(strings.ToValidUTF8(out, "\uFFFD"), "\uFEFF")
}

// otherNames are names of charsets that the indexes lack, or mean something else by.
var otherNames = map[string]string{
	"cp932": "shift_jis", "ms932": "shift_jis", "windows-932": "shift_jis", "cp943c": "shift_jis", "ibm943": "shift_jis",
	"iso-2022-jp-ms": "iso-2022-jp", "cp50220": "iso-2022-jp", "cp50221": "iso-2022-jp", "iso-2022-jp-1": "iso-2022-jp",
	"cp949": "euc-kr", "ms949": "euc-kr", "cp936": "gbk", "ms936": "gbk", "cp950": "big5", "cp51932": "euc-jp",
	"cp874": "windows-874", "ibm874": "windows-874", "latin1": "windows-1252", "latin-1": "windows-1252", "ansi": "windows-1252",
	"utf8mb4": "utf-8", "cp65001": "utf-8", "cp1200": "utf-16le", "cp1201": "utf-16be", "ucs-2": "utf-16", "iso-10646-ucs-2": "utf-16",
}

// charset finds an encoding: as browsers name them (they read iso-8859-1 as windows-1252, as mail clients do), then as
// IANA does. It is nil where there is none.
func charset(name string) encoding.Encoding {
	for _, n := range []string{name, strings.TrimPrefix(name, "x-"), strings.ReplaceAll(name, "_", "-")} {
		if enc := exactCharset(n); enc != nil {
			return enc
		}
	}
	// windows1252, win-1252, cp1252, cp-1252
	digits := strings.TrimLeft(name, "abcdefghijklmnopqrstuvwxyz-_")
	switch strings.TrimRight(strings.TrimSuffix(name, digits), "-_") {
	case "windows", "win", "cp", "ansi", "ms":
		return exactCharset("windows-" + digits)
	}
	return nil
}

func exactCharset(name string) encoding.Encoding {
	if other, known := otherNames[name]; known {
		name = other
	}
	switch name {
	case "iso-2022-kr", "csiso2022kr":
		return korean.EUCKR
	case "hz-gb-2312":
		return simplifiedchinese.HZGB2312
	case "utf-16":
		return unicode.UTF16(unicode.BigEndian, unicode.UseBOM) // RFC 2781, 4.3
	case "utf-32":
		return utf32.UTF32(utf32.BigEndian, utf32.UseBOM)
	case "utf-32be":
		return utf32.UTF32(utf32.BigEndian, utf32.IgnoreBOM)
	case "utf-32le":
		return utf32.UTF32(utf32.LittleEndian, utf32.IgnoreBOM)
	}
	if enc, err := htmlindex.Get(name); err == nil && enc != encoding.Replacement {
		return enc
	}
	if enc, err := ianaindex.MIME.Encoding(name); err == nil {
		return enc
	}
	return nil
}

// shiftedKorean turns ISO-2022-KR into EUC-KR: what stands between SO and SI gets its high bit (RFC 1557).
func shiftedKorean(b []byte) []byte {
	b = bytes.ReplaceAll(b, []byte("\x1b$)C"), nil)
	out := make([]byte, 0, len(b))
	shifted := false
	for _, c := range b {
		switch {
		case c == 0x0e:
			shifted = true
		case c == 0x0f:
			shifted = false
		case shifted && c > ' ' && c < 0x7f:
			out = append(out, c|0x80)
		default:
			out = append(out, c)
		}
	}
	return out
}

// decodeUTF7 reads UTF-7 (RFC 2152). What it can't read it leaves as it is.
func decodeUTF7(b []byte) string {
	var out strings.Builder
	for i := 0; i < len(b); i++ {
		if b[i] != '+' {
			out.WriteString(strings.ToValidUTF8(string(b[i:i+1]), "\uFFFD"))
			continue
		}
		end := i + 1
		for end < len(b) && base64Values[b[end]] < 64 {
			end++
		}
		if end == i+1 { // "+-" is a plus sign
			out.WriteByte('+')
		} else {
			octets, _ := decodeBase64(b[i+1 : end])
			if s, err := charset("utf-16be").NewDecoder().Bytes(octets[:len(octets)&^1]); err == nil {
				out.Write(s)
			}
		}
		if i = end - 1; end < len(b) && b[end] == '-' {
			i = end
		}
	}
	return out.String()
}
