package parser

import "strings"

// messageIDs reads message ids in angle brackets (RFC 5322, 3.6.4). Text without any is taken for ids without brackets.
// What stands between the brackets is left as it is, as ids are compared octet by octet.
func messageIDs(s string) (ids []string, odd bool) {
	rest := s
	for {
		_, after, ok := strings.Cut(rest, "<")
		if !ok {
			break
		}
		id, next, closed := strings.Cut(after, ">")
		if id = strings.TrimSpace(id); id != "" {
			ids = append(ids, strings.Clone(id))
		}
		odd = odd || !closed || id == ""
		rest = next
	}
	if len(ids) > 0 || strings.ContainsAny(s, "<>") {
		return ids, odd
	}
	for _, id := range strings.Fields(withoutComments(s)) {
		ids, odd = append(ids, strings.Clone(id)), true
	}
	return ids, odd
}
