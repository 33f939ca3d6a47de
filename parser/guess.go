package parser

import (
	"strings"
	"unicode/utf8"
)

// guess reads octets of which no charset is declared: UTF-8 where they are valid (RFC 6532), else what they look like.
func (r *reader) guess(s string, where place) string {
	if utf8.ValidString(s) {
		return s
	}
	text, name := guess8bit(s)
	r.defect("undeclared_charset", warning, where, "octets above 127 that are not UTF-8, read as %s: %s", name, excerpt(s))
	return text
}

// guess8bit reads octets that are not valid UTF-8: as damaged UTF-8 where most of those above 127 make characters of it,
// as they hardly do by chance; in a charset of Eastern Asia or Russia where they look like it; else as windows-1252.
func guess8bit(s string) (text, name string) {
	good, bad := 0, 0
	for i := 0; i < len(s); {
		c, size := utf8.DecodeRuneInString(s[i:])
		switch {
		case c == utf8.RuneError && size == 1:
			bad++
		case size > 1:
			good += size
		}
		i += size
	}
	if good > bad {
		return strings.ToValidUTF8(s, "\uFFFD"), "damaged UTF-8"
	}
	if name = looksLike(s); name != "" {
		if out, err := charset(name).NewDecoder().String(s); err == nil {
			return strings.ToValidUTF8(out, "\uFFFD"), name
		}
	}
	return windows1252([]byte(s)), "windows-1252"
}

// maxLook is how many octets above 127 are looked at.
const maxLook = 2000

// runs counts the octets above 127 of a text by what they may be.
type runs struct {
	letters, high int // of ASCII outside tags, and all above 127
	odd           int // runs of an odd number of octets above 127
	pairs         int // of two octets above 127 in a run, and of those
	kana, hangul  int // with the rows of EUC-JP's kana, of EUC-KR's syllables
	low           int // pairs whose second octet is a letter of ASCII, as in Big5
	frequent      int // pairs with the rows of Big5's frequent characters
	sjis          int // pairs with the rows of Shift_JIS's kana
	below         int // pairs whose first octet is below those of EUC and Big5
	c0, e0        int // octets from C0 on and from E0 on
}

// looksLike tells a charset that most of a text's letters make sense in, empty if there is none. In texts of the West only
// some letters are above 127.
func looksLike(s string) string {
	r := countRuns(s)
	if r.high < 12 || r.high*10 < (r.high+r.letters)*6 {
		return ""
	}
	switch {
	case r.sjis*5 >= r.pairs && r.below > 0:
		return "shift_jis"
	case r.low*10 >= r.pairs && r.below == 0 && r.frequent*2 >= r.pairs:
		return "big5"
	case r.odd > 0 && (r.c0+r.e0)*10 >= r.high*8:
		if r.e0 > r.c0 { // most letters are small
			return "windows-1251"
		}
		return "koi8-r"
	case r.odd > 0 || r.below > 0:
		return ""
	case r.kana*5 >= r.pairs:
		return "euc-jp"
	case r.hangul*10 >= r.pairs*7:
		return "euc-kr"
	}
	return "gb18030"
}

func countRuns(s string) runs {
	var r runs
	tag := false
	for i := 0; i < len(s) && r.high < maxLook; i++ {
		switch c := s[i]; {
		case c == '<' || c == '>':
			tag = c == '<'
		case c < 0x80:
			if !tag && isLetter(c) {
				r.letters++
			}
		default:
			i += r.run(s[i:]) - 1
		}
	}
	return r
}

// run counts a run of octets above 127, with the one behind it that may belong to its last pair, and tells its length.
func (r *runs) run(s string) int {
	n := 0
	for ; n < len(s) && s[n] >= 0x80; n++ {
		r.high++
		switch {
		case s[n] >= 0xe0:
			r.e0++
		case s[n] >= 0xc0:
			r.c0++
		}
	}
	r.odd += n % 2
	i := 0
	for ; i < n; i += 2 {
		if i+1 == len(s) {
			break
		}
		first, second := s[i], s[i+1]
		if second < 0x40 {
			break
		}
		r.pairs++
		switch {
		case first == 0x82 || first == 0x83:
			r.sjis++
			r.below++
		case first < 0xa1:
			r.below++
		case first == 0xa4 || first == 0xa5:
			r.kana++
		case first >= 0xb0 && first <= 0xc8:
			r.hangul++
		}
		if first >= 0xa4 && first <= 0xc6 {
			r.frequent++
		}
		if second < 0x80 {
			r.low++
			// What follows may be the rest of the run in pairs of this kind.
			for n = i + 2; n < len(s) && s[n] >= 0x80; n++ {
				r.high++
			}
		}
	}
	return max(n, i)
}
