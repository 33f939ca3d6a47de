package mail

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"testing"
)

func TestSized(t *testing.T) {
	for _, size := range []int{0, 400, 4 << 10, 64 << 10, 1 << 20} {
		m := Sized(size)
		msg := m.Make(nil, "run-1", "ann@a.example", "bob@b.example")
		if got := msg.Len(); size >= 400 && (got < size-100 || got > size+100) {
			t.Errorf("Sized(%d) made %d octets", size, got)
		}
		if id, err := Check(msg.Bytes()); id != "run-1" || err != nil {
			t.Errorf("Check of %d octets: %q %v", size, id, err)
		}
		other := m.Make(nil, "run-2", "ann@a.example", "bob@b.example")
		mixed := bytes.Join([][]byte{msg.Header, other.Body, other.Tail}, nil)
		if id, err := Check(mixed); id != "run-1" || !errors.Is(err, ErrHash) {
			t.Errorf("the header of one message with the body of another: %q %v", id, err)
		}
	}
}

func TestMakeInBufferOfCaller(t *testing.T) {
	m := Sized(1000)
	buf := make([]byte, 0, 4096)
	msg := m.Make(buf, "a-1", "x@a.example", "y@b.example")
	if id, err := Check(msg.Bytes()); id != "a-1" || err != nil {
		t.Errorf("Check: %q %v", id, err)
	}
	if &buf[:1][0] != &msg.Tail[0] {
		t.Error("the caller's buffer was not used")
	}
}

func TestCheck(t *testing.T) {
	good := Sized(2000).Make(nil, "id-1", "ann@a.example", "bob@b.example").Bytes()
	flip := func(i int) []byte {
		b := bytes.Clone(good)
		b[i] ^= 1
		return b
	}
	for _, c := range []struct {
		name    string
		content []byte
		id      string
		err     error
	}{
		{"as sent", good, "id-1", nil},
		{"trace fields before", append([]byte("Return-Path: <a@b>\r\nReceived: by x\r\n\twith y\r\n"), good...), "id-1", nil},
		{"bare LF on disk", bytes.ReplaceAll(good, []byte("\r\n"), []byte("\n")), "id-1", nil},
		{"an octet changed", flip(len(good) - 200), "id-1", ErrHash},
		{"the last line lost", good[:bytes.LastIndex(good, []byte("rohrload"))], "id-1", ErrHash},
		{"a line more", append(bytes.Clone(good), "x\r\n"...), "id-1", ErrHash},
		{"no hash", []byte(HeaderID + ": id-1\r\n\r\nbody\r\n"), "id-1", ErrNoHash},
		{"not ours", []byte("Subject: x\r\n\r\n" + HeaderID + ": in the body\r\n"), "", ErrNoID},
		{"empty", nil, "", ErrNoID},
	} {
		if id, err := Check(c.content); id != c.id || !errors.Is(err, c.err) {
			t.Errorf("%s: %q %v, want %q %v", c.name, id, err, c.id, c.err)
		}
	}
}

func TestWrap(t *testing.T) {
	for name, content := range map[string]string{
		"usual":             "From: a@b\r\nSubject: x\r\n\r\nbody\r\n.\r\n..two dots\r\n",
		"LF":                "From: a@b\nSubject: x\n\nbody\n",
		"bare CR":           "From: a@b\n\nbo\rdy\n",
		"no last line end":  "From: a@b\n\nbody",
		"no body":           "From: a@b\n",
		"no header":         "  just text, no header\n\nmore: text\n",
		"starts empty":      "\n\nbody\n",
		"of an mbox":        "From a@b Mon Nov 30 2026\nFrom: a@b\n\nbody\n",
		"eight bits":        "From: a@b\n\nb\xf6dy\n",
		"body of one space": "A: b\n\n ",
	} {
		m := Wrap([]byte(content))
		id, err := Check(m.Make(nil, "w-1", "", "").Bytes())
		if id != "w-1" || err != nil {
			t.Errorf("%s: %q %v", name, id, err)
		}
		if m.EightBit() != (name == "eight bits") {
			t.Errorf("%s: EightBit is %t", name, m.EightBit())
		}
		sent := m.Make(nil, "w-1", "", "").Bytes()
		if bytes.ContainsAny(bytes.ReplaceAll(sent, []byte("\r\n"), nil), "\r\n") {
			t.Errorf("%s: a line end that is not CRLF in %q", name, sent)
		}
	}
}

func TestFindID(t *testing.T) {
	for content, want := range map[string]string{
		"":                                  "",
		HeaderID + ": a\r\n":                "a",
		"x\r\n\r\n" + HeaderID + ": b\r\nx": "b",
		"x " + HeaderID + ": no\n" + HeaderID + ": c": "c",
		"x " + HeaderID + ": no\n":                    "",
	} {
		if got := FindID([]byte(content)); got != want {
			t.Errorf("FindID(%q) = %q, want %q", content, got, want)
		}
	}
}

func TestFolder(t *testing.T) {
	dir := t.TempDir()
	if _, err := Folder(dir); err == nil {
		t.Error("an empty folder is no error")
	}
	if err := os.Mkdir(filepath.Join(dir, "sub"), 0o700); err != nil {
		t.Fatal(err)
	}
	for name, content := range map[string]string{
		"a.eml": "A: b\n\nx\n", "sub/b": "A: b\n\ny\n", "empty": "", "nul": "A: b\n\n\x00\n",
		"long": "A: b\n\n" + string(bytes.Repeat([]byte("x"), maxLine+1)),
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	mails, err := Folder(dir)
	if err != nil || len(mails) != 2 {
		t.Errorf("Folder: %d mails, %v, want 2", len(mails), err)
	}
}

func TestCheckFor(t *testing.T) {
	two := Sized(500).Make(nil, "id-1", "ann@a.example", "bob@b.example", "cid@b.example").Bytes()
	real := Wrap([]byte(HeaderFor+": dan@b.example\n\nbody\n")).Make(nil, "id-2", "ann@a.example", "bob@b.example").Bytes()
	for _, c := range []struct {
		name, recipient string
		content         []byte
		err             error
	}{
		{"the first", "bob@b.example", two, nil},
		{"the second, in other letters", "Cid@B.example", two, nil},
		{"another", "dan@b.example", two, ErrFor},
		{"real mail", "eve@b.example", real, ErrFor},
		{"nobody is named", "eve@b.example", []byte("Subject: x\r\n\r\n" + HeaderFor + ": bob@b.example\r\n"), nil},
	} {
		if err := CheckFor(c.content, c.recipient); !errors.Is(err, c.err) {
			t.Errorf("%s: %v, want %v", c.name, err, c.err)
		}
	}
}
