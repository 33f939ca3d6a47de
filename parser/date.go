package parser

import (
	"strings"
	"time"
)

// zones are the named zones of RFC 5322, 4.3, in minutes, and some that mail is full of.
var zones = map[string]int{
	"ut": 0, "gmt": 0, "utc": 0, "z": 0, "edt": -4 * 60, "est": -5 * 60, "cdt": -5 * 60, "cst": -6 * 60,
	"mdt": -6 * 60, "mst": -7 * 60, "pdt": -7 * 60, "pst": -8 * 60, "cet": 60, "cest": 120, "met": 60, "mest": 120,
	"bst": 60, "west": 60, "wet": 0, "eet": 120, "eest": 180, "msk": 180, "jst": 9 * 60,
}

var months = []string{"jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"}

// maxDate is how many octets of a date are looked at, without its comments.
const maxDate = 500

// date reads a date and time (RFC 5322, 3.3), with what RFC 5322, 4.3 calls obsolete and the order of asctime and ISO
// 8601. What it leaves out counts as zero, an unknown zone as UTC (4.3). odd is whether something was guessed.
func date(s string) (t time.Time, odd, ok bool) {
	d := dateReader{}
	s = withoutComments(s)
	if i := strings.LastIndexByte(s, ';'); i >= 0 { // the value of a Received field
		s, d.odd = s[i+1:], true
	}
	var lower [64]byte
	for rest := string(appendLower(lower[:0], s[:min(len(s), maxDate)])); ; {
		rest = strings.TrimLeft(rest, " \t,")
		if rest == "" {
			break
		}
		n := strings.IndexAny(rest, " \t,")
		if n < 0 {
			n = len(rest)
		}
		d.token(rest[:n])
		rest = rest[n:]
	}
	if d.month == 0 || d.day == 0 || !d.hasYear || d.numeric && !d.hasTime {
		return time.Time{}, false, false
	}
	// A leap second is the second after (RFC 5322, 3.3 allows 60).
	t = time.Date(d.year, time.Month(d.month), d.day, d.hour, d.minute, d.second, 0, time.FixedZone("", d.zone*60))
	if d.hour > 23 || d.minute > 59 || d.second > 60 || t.Day() != d.day && d.second < 60 || t.Year() < 0 || t.Year() > 9998 {
		return time.Time{}, false, false
	}
	return t, d.odd || d.numeric || !d.hasTime || !d.hasZone, true
}

type dateReader struct {
	year, month, day, hour, minute, second, zone int
	hasYear, hasTime, hasZone, odd               bool
	numeric                                      bool // whether the month was a number, which only a whole date may have
}

func (d *dateReader) token(s string) {
	n, digits := number(s)
	switch {
	case strings.Contains(s, ":") && !d.hasTime:
		d.time(s)
	case (s[0] == '+' || s[0] == '-') && len(s) >= 2:
		d.offset(s)
	case digits && d.day == 0 && n >= 1 && n <= 31 && len(s) <= 2:
		d.day = n
	case digits && d.day > 0 && d.month == 0 && n >= 1 && n <= 12 && len(s) <= 2:
		d.month, d.numeric = n, true
	case digits && len(s) > 1 && !d.hasYear && n >= 0 && n < 10000:
		d.setYear(n, len(s))
	case strings.Count(s, "-") == 2 || strings.Count(s, "/") == 2:
		d.joined(strings.FieldsFunc(s, func(r rune) bool { return r == '-' || r == '/' }))
	case d.month == 0 && monthOf(s) > 0:
		d.month = monthOf(s)
	case !d.hasTime: // the name of the day
	case !d.hasZone:
		d.named(s)
	}
}

// named reads a named zone, also with what Unix puts behind it, as in EST5EDT. An unknown one counts as UTC.
func (d *dateReader) named(s string) {
	if i := strings.IndexFunc(s, func(r rune) bool { return r < 'a' || r > 'z' }); i > 0 {
		s = s[:i]
	}
	zone, known := zones[s]
	d.zone, d.hasZone, d.odd = zone, true, d.odd || !known
}

// number reads up to nine digits.
func number(s string) (n int, ok bool) {
	if len(s) == 0 || len(s) > 9 {
		return 0, false
	}
	for i := range len(s) {
		if s[i] < '0' || s[i] > '9' {
			return 0, false
		}
		n = n*10 + int(s[i]-'0')
	}
	return n, true
}

func monthOf(s string) int {
	for i, m := range months {
		if strings.HasPrefix(s, m) {
			return i + 1
		}
	}
	return 0
}

// setYear follows RFC 5322, 4.3 for years of two and three digits.
func (d *dateReader) setYear(n, digits int) {
	switch {
	case digits <= 2 && n < 50:
		n += 2000
	case digits <= 3:
		n += 1900
	}
	d.odd = d.odd || digits < 4
	d.year, d.hasYear = n, true
}

// time reads hh:mm[:ss], with what may stand right behind it.
func (d *dateReader) time(s string) {
	if before, after, ok := strings.Cut(s, "t"); ok && strings.Count(before, "-") == 2 { // ISO 8601
		d.joined(strings.Split(before, "-"))
		s = after
	}
	if i := strings.IndexAny(s, "+-"); i > 0 {
		d.offset(s[i:])
		s = s[:i]
	} else if i := strings.IndexAny(s, "abcdefghijklmnopqrstuvwxyz"); i > 0 {
		d.named(s[i:])
		s = s[:i]
	}
	s, _, _ = strings.Cut(s, ".")
	numbers := [...]*int{&d.hour, &d.minute, &d.second}
	i := 0
	for part := range strings.SplitSeq(s, ":") {
		n, ok := number(part)
		if i >= len(numbers) || !ok {
			d.odd = true
			break
		}
		*numbers[i] = n
		i++
	}
	d.hasTime = true
}

// offset reads +hhmm, and +hh:mm, +hh.
func (d *dateReader) offset(s string) {
	sign := 1
	if s[0] == '-' {
		sign = -1
	}
	n, ok := number(strings.ReplaceAll(s[1:], ":", ""))
	if !ok || n > 9999 || d.hasZone {
		d.odd = true
		return
	}
	if len(s) <= 3 {
		n *= 100
	}
	d.zone, d.hasZone = sign*(n/100*60+n%100), true
}

// joined reads 11-Feb-1998 and 1998-02-11.
func (d *dateReader) joined(parts []string) {
	if len(parts) != 3 || d.hasYear {
		return
	}
	d.odd = true
	if len(parts[0]) == 4 {
		parts[0], parts[2] = parts[2], parts[0]
	}
	day, isDay := number(parts[0])
	year, isYear := number(parts[2])
	if !isDay || !isYear || year > 9999 {
		return
	}
	d.month = monthOf(parts[1])
	if n, ok := number(parts[1]); ok && n >= 1 && n <= 12 {
		d.month = n
	}
	d.day = day
	d.setYear(year, len(parts[2]))
}

// withoutComments makes each comment a space.
func withoutComments(s string) string {
	if strings.IndexByte(s, '(') < 0 {
		return s
	}
	var out strings.Builder
	out.Grow(len(s))
	for {
		i := strings.IndexByte(s, '(')
		if i < 0 {
			break
		}
		out.WriteString(s[:i])
		if end := commentEnd(s, i); end > 0 {
			out.WriteByte(' ')
			s = s[end:]
		} else {
			out.WriteByte('(')
			s = s[i+1:]
		}
	}
	out.WriteString(s)
	return out.String()
}
