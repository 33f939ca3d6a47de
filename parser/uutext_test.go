package parser

import "testing"

// TestUUFinder: the start of a file is found however the text comes in.
func TestUUFinder(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]bool{
		"begin 644 a":                     true,
		"some text\r\nbegin 0644 a.exe\r": true,
		"begin 64\nbegin 644 a\n":         true,
		"x begin 644 a":                   false,
		"begin 644 ":                      false,
		"begin 844 a":                     false,
		"begin 06440 a":                   false,
		"":                                false,
	} {
		for size := 1; size <= max(1, len(text)); size++ {
			var f uuFinder
			f.reset()
			for rest := []byte(text); len(rest) > 0; rest = rest[min(size, len(rest)):] {
				f.write(rest[:min(size, len(rest))])
			}
			if f.found != want {
				t.Errorf("%q in pieces of %d: %v", text, size, f.found)
			}
		}
	}
}
