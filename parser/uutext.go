package parser

import "bytes"

// uuFinder finds out whether a text holds a uuencoded file, which some readers show as an attachment. It gets the text in
// pieces.
type uuFinder struct {
	found bool
	tail  []byte // the last octets of the text so far, as many as the start of a file may have
	room  [maxUUBegin]byte
}

var uuBegin = []byte("\nbegin ")

// maxUUBegin is how many octets tell that a file starts: those of uuBegin, the mode, a space and one of the name.
const maxUUBegin = len("\nbegin 0644 x")

func (f *uuFinder) reset() {
	f.found = false
	f.tail = append(f.room[:0], '\n')
}

func (f *uuFinder) write(p []byte) {
	if f.found {
		return
	}
	var room [2 * maxUUBegin]byte
	joint := append(append(room[:0], f.tail...), p[:min(len(p), maxUUBegin)]...)
	f.found = beginsUU(joint) || beginsUU(p)
	if len(p) >= maxUUBegin {
		joint = p
	}
	f.tail = append(f.room[:0], joint[max(0, len(joint)-maxUUBegin):]...)
}

// beginsUU tells whether a line of p starts a file: "begin", its mode in octal, its name.
func beginsUU(p []byte) bool {
	for {
		i := bytes.Index(p, uuBegin)
		if i < 0 {
			return false
		}
		p = p[i+len(uuBegin):]
		n := 0
		for n < len(p) && '0' <= p[n] && p[n] <= '7' {
			n++
		}
		if (n == 3 || n == 4) && len(p) > n+1 && p[n] == ' ' && p[n+1] > ' ' {
			return true
		}
	}
}
