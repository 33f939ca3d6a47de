package deliver_test

import (
	"errors"
	"io"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/google/go-cmp/cmp"

	"github.com/rohrpost/rohrpost/deliver"
	mailv1 "github.com/rohrpost/rohrpost/proto/gen/rohrpost/mail/v1"
)

func TestApply(t *testing.T) {
	const mail = "From: a@b.test\r\nAuthentication-Results: mx.test; spf=pass\r\nSubject: x\r\n\r\nAuthentication-Results: mx.test; body\r\n"
	long := strings.Repeat("y", 200_000)
	for _, c := range []struct {
		name, content string
		edits         []*mailv1.Edit
		want          string
	}{
		{"none", mail, nil, mail},
		{"prepend", "A: 1\r\n\r\nb\r\n", []*mailv1.Edit{prepend("X", "1"), prepend("Y", "2\r\n\tmore")}, "Y: 2\r\n\tmore\r\nX: 1\r\nA: 1\r\n\r\nb\r\n"},
		{"prepend to nothing (case C9)", "", []*mailv1.Edit{prepend("X", "1")}, "X: 1\r\n"},
		{"prepend to a body alone", "\r\nb\r\n", []*mailv1.Edit{prepend("X", "1")}, "X: 1\r\n\r\nb\r\n"},
		{"remove by name and prefix", mail, []*mailv1.Edit{remove("authentication-results", "MX.test;")}, "From: a@b.test\r\nSubject: x\r\n\r\nAuthentication-Results: mx.test; body\r\n"},
		{"another prefix stays", mail, []*mailv1.Edit{remove("Authentication-Results", "other.test;")}, mail},
		{"empty prefix", "A: 1\r\nB: 2\r\na:3\r\n\r\n", []*mailv1.Edit{remove("A", "")}, "B: 2\r\n\r\n"},
		{"folded", "A: mx\r\n .test;\r\n\tmore\r\nB: 2\r\n\r\nx", []*mailv1.Edit{remove("A", "mx .test")}, "B: 2\r\n\r\nx"},
		{"value on the next line", "A:\r\n  \r\n mx.test\r\nB: 2\r\n\r\n", []*mailv1.Edit{remove("A", "mx.test")}, "B: 2\r\n\r\n"},
		{"blank before the colon", "A \t: mx.test\r\nB: 2\r\n\r\n", []*mailv1.Edit{remove("A", "mx.test")}, "B: 2\r\n\r\n"},
		{"value ends before the prefix does", "A: mx\r\nB: 2\r\n\r\n", []*mailv1.Edit{remove("A", "mx.test")}, "A: mx\r\nB: 2\r\n\r\n"},
		{"remove, then prepend", "A: 1\r\n\r\n", []*mailv1.Edit{remove("A", ""), prepend("A", "2")}, "A: 2\r\n\r\n"},
		{"prepend, then remove", "A: 1\r\n\r\n", []*mailv1.Edit{prepend("A", "2"), remove("A", "")}, "\r\n"},
		{"prepend, then remove another", "A: 1\r\n\r\n", []*mailv1.Edit{prepend("A", "2"), remove("A", "1")}, "A: 2\r\n\r\n"},
		{"junk line", "A: 1\r\njunk\r\n more\r\nB: 2\r\n\r\n", []*mailv1.Edit{remove("B", ""), remove("junk", "")}, "A: 1\r\njunk\r\n more\r\n\r\n"},
		{"no empty line", "A: 1\r\nB: 2", []*mailv1.Edit{remove("B", "")}, "A: 1\r\n"},
		{"last field stays", "A: 1\r\nB: 2", []*mailv1.Edit{remove("B", "3")}, "A: 1\r\nB: 2"},
		{"long field is removed", "A: " + long + "\r\nB: 2\r\n\r\n", []*mailv1.Edit{remove("A", "y")}, "B: 2\r\n\r\n"},
		{"long field stays", "A: " + long + "\r\nB: 2\r\n\r\n", []*mailv1.Edit{remove("A", "z")}, "A: " + long + "\r\nB: 2\r\n\r\n"},
		{"hidden behind much white space", "A:" + strings.Repeat(" \r\n", 50_000) + " mx.test\r\nB: 2\r\n\r\n", []*mailv1.Edit{remove("A", "mx.test")}, "B: 2\r\n\r\n"},
		{"long line without a colon", long + "\r\nB: 2\r\n\r\n", []*mailv1.Edit{remove("B", "")}, long + "\r\n\r\n"},
		{"two removals", "A: 1\r\nB: 2\r\nC: 3\r\n\r\n", []*mailv1.Edit{remove("C", "3"), remove("A", "")}, "B: 2\r\n\r\n"},
		{"Kelvin sign is no k", "K: 1\r\n\u212a: 2\r\n\r\n", []*mailv1.Edit{remove("K", "")}, "\u212a: 2\r\n\r\n"},
	} {
		t.Run(c.name, func(t *testing.T) {
			if diff := cmp.Diff(c.want, edited(t, c.content, c.edits...)); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
			r, err := deliver.Apply(iotest.OneByteReader(strings.NewReader(c.content)), c.edits)
			if err != nil {
				t.Fatal(err)
			}
			if got, err := io.ReadAll(iotest.OneByteReader(r)); err != nil || string(got) != c.want {
				t.Errorf("octet by octet: %d octets, %v, want %d", len(got), err, len(c.want))
			}
		})
	}
}

func TestApplyRefuses(t *testing.T) {
	for name, edit := range map[string]*mailv1.Edit{
		"unknown kind":    {},
		"no name":         prepend("", "x"),
		"colon in name":   prepend("A:", "x"),
		"CRLF in name":    prepend("A\r\nB", "x"),
		"new field":       prepend("A", "x\r\nBcc: y"),
		"end of header":   prepend("A", "x\r\n\r\nbody"),
		"bare CR":         prepend("A", "x\ry"),
		"bare LF":         prepend("A", "x\n y"),
		"CRLF at the end": prepend("A", "x\r\n"),
		"NUL":             prepend("A", "x\x00"),
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := deliver.Apply(strings.NewReader(""), []*mailv1.Edit{edit}); !errors.Is(err, deliver.ErrEdit) {
				t.Errorf("Apply: %v, want ErrEdit", err)
			}
		})
	}
}

func TestApplyKeepsReadError(t *testing.T) {
	r, err := deliver.Apply(io.MultiReader(strings.NewReader("A: 1\r\nB"), iotest.ErrReader(errNo)), []*mailv1.Edit{remove("A", "")})
	if err != nil {
		t.Fatal(err)
	}
	if got, err := io.ReadAll(r); !errors.Is(err, errNo) {
		t.Errorf("read %q, %v, want the reader's error", got, err)
	}
}
