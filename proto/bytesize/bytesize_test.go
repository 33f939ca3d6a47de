package bytesize_test

import (
	"testing"

	"github.com/rohrpost/rohrpost/proto/bytesize"
)

func TestParse(t *testing.T) {
	for s, want := range map[string]bytesize.Size{
		"0": 0, "512": 512, "64KiB": 64 << 10, "64 kib": 64 << 10, "50MB": 50e6, "1.5 GiB": 3 << 29, "2G": 2 << 30,
	} {
		got, err := bytesize.Parse(s)
		if err != nil || got != want {
			t.Errorf("Parse(%q) = %d, %v, want %d", s, got, err, want)
		}
		if back, err := bytesize.Parse(got.String()); err != nil || back != got {
			t.Errorf("Parse(%q) = %d, %v, want %d", got.String(), back, err, got)
		}
	}
	for _, s := range []string{"", "x", "-1", "10 miles", "1e30", "nan", "MB"} {
		if got, err := bytesize.Parse(s); err == nil {
			t.Errorf("Parse(%q) = %d, want an error", s, got)
		}
	}
}
