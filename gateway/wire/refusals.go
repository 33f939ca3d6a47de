package wire

import (
	"bytes"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// maxRefusals is how many kinds of refusals are told apart in a session.
const maxRefusals = 32

// knownVerbs are the commands by whose name refusals are counted; what else a client says goes nowhere.
var knownVerbs = []string{"EHLO", "HELO", "MAIL", "RCPT", "DATA", "BDAT", "RSET", "NOOP", "QUIT", "VRFY", "EXPN", "HELP", "AUTH", "STARTTLS"}

// countRefusal counts a reply, by its last line, where it refuses something: a code of 400 or more. (RFC 5321, section 4.2.)
func (c *Conn) countRefusal(line []byte) {
	if len(line) < 3 || line[0] != '4' && line[0] != '5' || bytes.HasPrefix(line, []byte(stops)) {
		return
	}
	stage := "connection"
	switch {
	case slices.Contains(knownVerbs, c.verb):
		stage = c.verb
	case c.verb != "":
		stage = "command"
	}
	kind := stage + " " + string(line[:3])
	if words := strings.Fields(string(line)); len(words) > 1 && strings.Count(words[1], ".") == 2 && len(words[1]) <= len("5.999.999") {
		kind += " " + words[1]
	}
	if c.refusals == nil {
		c.refusals = map[string]int{}
	}
	if _, known := c.refusals[kind]; !known && len(c.refusals) >= maxRefusals {
		kind = "other"
	}
	c.refusals[kind]++
}

// Refusals tells what the client was refused until now, other than by the server's stop: how often by which codes at which
// command, such as "RCPT 550 5.7.1: 3", in alphabetical order. What was refused before or outside any command stands under
// "connection", unknown commands under "command". It may be called in Owner.Closed, and by the session's goroutine.
func (c *Conn) Refusals() []string {
	var list []string
	for _, kind := range slices.Sorted(maps.Keys(c.refusals)) {
		list = append(list, fmt.Sprintf("%s: %d", kind, c.refusals[kind]))
	}
	return list
}
