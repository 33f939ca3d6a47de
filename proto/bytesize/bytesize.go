// Package bytesize is how the configuration writes numbers of octets: `512`, `64 KiB`, `50MB`, `1GiB`.
package bytesize

import (
	"fmt"
	"math"
	"strconv"
	"strings"
)

// Size is a number of octets, not negative.
type Size int64

// The units, in octets.
const (
	KiB Size = 1 << 10
	MiB Size = 1 << 20
	GiB Size = 1 << 30
)

var units = map[string]float64{
	"": 1, "b": 1,
	"kb": 1e3, "mb": 1e6, "gb": 1e9, "tb": 1e12,
	"kib": 1 << 10, "mib": 1 << 20, "gib": 1 << 30, "tib": 1 << 40,
	"k": 1 << 10, "m": 1 << 20, "g": 1 << 30, "t": 1 << 40,
}

// Parse reads a size: a number, then a unit (none or B; KB, MB, GB, TB by 1000; KiB, MiB, GiB, TiB or K, M, G, T by
// 1024), without case. The error names the text.
func Parse(s string) (Size, error) {
	text := strings.ToLower(strings.TrimSpace(s))
	digits := strings.TrimRight(text, "abcdefghijklmnopqrstuvwxyz ")
	unit, known := units[strings.TrimSpace(text[len(digits):])]
	n, err := strconv.ParseFloat(digits, 64)
	if err != nil || !known || n < 0 || n*unit > math.MaxInt64/2 || math.IsNaN(n) {
		return 0, fmt.Errorf("size %q: want a number and a unit, such as 64KiB or 50MB", s)
	}
	return Size(n * unit), nil
}

// UnmarshalText reads a size from a configuration file.
func (s *Size) UnmarshalText(text []byte) (err error) {
	*s, err = Parse(string(text))
	return err
}

// MarshalText writes the size as String does.
func (s Size) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// String writes the size in the largest unit that divides it, by 1024 if one does.
func (s Size) String() string {
	for _, u := range []struct {
		size Size
		name string
	}{{GiB, "GiB"}, {MiB, "MiB"}, {KiB, "KiB"}, {1e9, "GB"}, {1e6, "MB"}, {1e3, "KB"}} {
		if s >= u.size && s%u.size == 0 {
			return strconv.FormatInt(int64(s/u.size), 10) + u.name
		}
	}
	return strconv.FormatInt(int64(s), 10)
}
