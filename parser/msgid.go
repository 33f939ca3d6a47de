package parser

import "strings"

// maxIDs is how many message ids of a field are read.
const maxIDs = 1000

// messageIDs reads message ids in angle brackets (RFC 5322, 3.6.4) and keeps as many as the limit. Text without any is taken
// for ids without brackets. What stands between the brackets is left as it is, as ids are compared octet by octet.
func messageIDs(s string, limit int) (ids []string, odd bool) {
	keep := func(id string) {
		if len(ids) < limit {
			ids = append(ids, strings.Clone(id))
		}
	}
	for rest := s; ; {
		_, after, ok := strings.Cut(rest, "<")
		if !ok {
			break
		}
		id, next, closed := strings.Cut(after, ">")
		if id = strings.TrimSpace(id); id != "" {
			keep(id)
		}
		odd = odd || !closed || id == ""
		rest = next
	}
	if len(ids) > 0 || strings.ContainsAny(s, "<>") {
		return ids, odd
	}
	for id := range strings.FieldsSeq(withoutComments(s)) {
		keep(id)
		odd = true
	}
	return ids, odd
}
