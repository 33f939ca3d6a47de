package parser

// lowerASCII makes the letters of ASCII small and leaves every octet where it is. [strings.ToLower] would make "i" of the
// Turkish "İ", a "multipart" of what no other reader takes for one, and longer strings of some letters.
func lowerASCII(s string) string {
	for i := range len(s) {
		if 'A' <= s[i] && s[i] <= 'Z' {
			b := []byte(s)
			for ; i < len(b); i++ {
				if 'A' <= b[i] && b[i] <= 'Z' {
					b[i] |= 0x20
				}
			}
			return string(b)
		}
	}
	return s
}

// isASCII tells whether a name is one in lower case, its letters of ASCII in either case.
func isASCII[T string | []byte](name T, lower string) bool {
	if len(name) != len(lower) {
		return false
	}
	for i := range len(name) {
		if name[i] != lower[i] && (name[i]|0x20 != lower[i] || !isLetter(name[i])) {
			return false
		}
	}
	return true
}

// appendLower appends a name with the letters of ASCII made small.
func appendLower[T string | []byte](out []byte, name T) []byte {
	for i := range len(name) {
		c := name[i]
		if 'A' <= c && c <= 'Z' {
			c |= 0x20
		}
		out = append(out, c)
	}
	return out
}

// indexASCII is where a text in lower case stands first, its letters of ASCII in either case; -1 where it does not.
func indexASCII(s, lower string) int {
	for i := 0; i+len(lower) <= len(s); i++ {
		if isASCII(s[i:i+len(lower)], lower) {
			return i
		}
	}
	return -1
}

func isLetter(c byte) bool { return 'a' <= c|0x20 && c|0x20 <= 'z' }

func isDigit(c byte) bool { return '0' <= c && c <= '9' }

func isSpace(c byte) bool { return c == ' ' || c == '\t' }
