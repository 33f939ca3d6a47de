package parser

import (
	"fmt"
	"time"

	"github.com/rohrpost/rohrpost/proto/bytesize"
)

// Config is the section of the parser in the configuration file.
type Config struct {
	// Capacity is how many messages a parser reads at once, 1 to 1024; 0 means one per processor.
	Capacity int `yaml:"capacity"`
	// Nice is how far a parser that is a process of its own lowers its priority, as nice(1) counts, 0 to 19, on Linux: mail is
	// received first where CPU is short (promise P6). In `rohrpost up` the threads that parse do so, and there is one less than
	// processors, so that one is left for the rest; 0 changes nothing there. Default: 10.
	Nice int `yaml:"nice"`
	// Limits bound the work on one message.
	Limits Limits `yaml:"limits"`
}

// Limits bound the work on one message. What lies beyond one is left out and noted as a defect.
type Limits struct {
	// Depth is how many levels the MIME tree may have, the root included, 1 to 500.
	Depth int `yaml:"depth"`
	// Parts is how many parts the tree may have, the root included, 1 to 100000.
	Parts int `yaml:"parts"`
	// HeaderBytes is how many octets the header sections of all parts may have together, from 1 KiB.
	HeaderBytes bytesize.Size `yaml:"header_bytes"`
	// HeaderCount is how many header fields all parts may have together, from 1.
	HeaderCount int `yaml:"header_count"`
	// TextBytes is how many octets of the text, and again of the HTML, are kept, from 1 KiB.
	TextBytes bytesize.Size `yaml:"text_bytes"`
	// EncodedWords is how many encoded words (RFC 2047) are decoded, from 1.
	EncodedWords int `yaml:"encoded_words"`
	// LineBytes is how many octets of a line are looked at in a header section and where a boundary is expected, from
	// 1 KiB. The lines of bodies may be of any length.
	LineBytes bytesize.Size `yaml:"line_bytes"`
	// DecodedBytes is how many octets the messages may have together that stand encoded inside others, decoded, from
	// 1 KiB. Such messages are held in memory; other bodies are not, whatever their size.
	DecodedBytes bytesize.Size `yaml:"decoded_bytes"`
	// Time is how long the work on one message may take, from 1ms. What comes after is not looked at.
	Time time.Duration `yaml:"time"`
	// ResultBytes is how many octets the encoded result may have, 16 KiB to 512 KiB, which is what the protocol carries.
	ResultBytes bytesize.Size `yaml:"result_bytes"`
}

// DefaultConfig is what holds where the file says nothing.
func DefaultConfig() Config { return Config{Nice: 10, Limits: DefaultLimits()} }

// DefaultLimits are limits that real mail does not meet.
func DefaultLimits() Limits {
	return Limits{
		Depth:        50,
		Parts:        1000,
		HeaderBytes:  256 * bytesize.KiB,
		HeaderCount:  5000,
		TextBytes:    128 * bytesize.KiB,
		EncodedWords: 5000,
		LineBytes:    256 * bytesize.KiB,
		DecodedBytes: 16 * bytesize.MiB,
		Time:         30 * time.Second,
		ResultBytes:  maxResultBytes,
	}
}

// maxResultBytes is the most that a ParseResult may carry, see rohrpost.spool.v1.ParseResult.
const maxResultBytes = 512 * bytesize.KiB

// Validate checks the values. The error names the key and the mend.
func (c Config) Validate() error {
	if c.Capacity < 0 || c.Capacity > 1024 {
		return fmt.Errorf("parser.capacity is %d: set it between 1 and 1024, or to 0 for one per processor", c.Capacity)
	}
	if c.Nice < 0 || c.Nice > 19 {
		return fmt.Errorf("parser.nice is %d: set it between 0 and 19", c.Nice)
	}
	return c.Limits.Validate()
}

// Validate checks the values. The error names the key and the mend.
func (l Limits) Validate() error {
	for _, v := range []struct {
		key      string
		n        int64
		min, max int64
	}{
		{"depth", int64(l.Depth), 1, 500},
		{"parts", int64(l.Parts), 1, 100_000},
		{"header_bytes", int64(l.HeaderBytes), 1 << 10, 64 << 20},
		{"header_count", int64(l.HeaderCount), 1, 1_000_000},
		{"text_bytes", int64(l.TextBytes), 1 << 10, 64 << 20},
		{"encoded_words", int64(l.EncodedWords), 1, 1_000_000},
		{"line_bytes", int64(l.LineBytes), 1 << 10, 16 << 20},
		{"decoded_bytes", int64(l.DecodedBytes), 1 << 10, 1 << 30},
		{"result_bytes", int64(l.ResultBytes), 16 << 10, int64(maxResultBytes)},
	} {
		if v.n < v.min || v.n > v.max {
			return fmt.Errorf("parser.limits.%s is %d: set it between %d and %d", v.key, v.n, v.min, v.max)
		}
	}
	if l.Time < time.Millisecond || l.Time > time.Hour {
		return fmt.Errorf("parser.limits.time is %v: set it between 1ms and 1h", l.Time)
	}
	return nil
}

// withDefaults puts the default in the place of each limit that is not set.
func (l Limits) withDefaults() Limits {
	d := DefaultLimits()
	setDefault(&l.Depth, d.Depth)
	setDefault(&l.Parts, d.Parts)
	setDefault(&l.HeaderBytes, d.HeaderBytes)
	setDefault(&l.HeaderCount, d.HeaderCount)
	setDefault(&l.TextBytes, d.TextBytes)
	setDefault(&l.EncodedWords, d.EncodedWords)
	setDefault(&l.LineBytes, d.LineBytes)
	setDefault(&l.DecodedBytes, d.DecodedBytes)
	setDefault(&l.Time, d.Time)
	setDefault(&l.ResultBytes, d.ResultBytes)
	return l
}

func setDefault[T ~int | ~int64](v *T, d T) {
	if *v <= 0 {
		*v = d
	}
}
