package gateway_test

import (
	"bufio"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/rohrpost/rohrpost/gateway"
)

// ours says where our reply to a line of a dialogue differs in its class, and why.
var ours = map[string]string{
	// We don't parse content at the edge: parsing never fails a message (promise P5).
	"554 5.6.0 Error parsing message": "250 ",
	// The third refusal is told as such; the end of the session comes after more of them.
	"421 4.5.0 Too many errors, bye": "501 ",
	// An A-label that does not decode is for the resolver to find out.
	"501 5.1.8 Malformed sender domain (IDNA conversion failed)":      "501 5.1.7",
	"501 5.1.2 Malformed destination domain (IDNA conversion failed)": "501 5.1.3",
}

// TestChasquidDialogs plays the dialogues of chasquid's tests: replies must be of the same class.
func TestChasquidDialogs(t *testing.T) {
	for _, name := range []string{
		"auth_multi_dialog", "auth_not_tls", "auth_too_many_failures", "bad_data", "bad_data_dot", "bad_data_dot_2", "bad_data_dot_on_message_too_big", "bad_mail_from", "bad_rcpt_to", "data_dot_stuffing", "empty_helo", "helo",
		"line_too_long", "message_too_big", "sendmail", "unknown_command", "wrong_proto",
	} {
		t.Run(name, func(t *testing.T) {
			f, err := os.Open(filepath.Join(corpus(t, "smtp-dialogs-chasquid"), name+".cmy"))
			if err != nil {
				t.Fatal(err)
			}
			defer f.Close()
			s := startSubmission(t, func(c *gateway.Config) { c.MaxSize = 1 << 20 })
			var d *dialog
			for lines := bufio.NewScanner(f); lines.Scan(); {
				line, ok := strings.CutPrefix(lines.Text(), "c ")
				if !ok {
					continue
				}
				d = playLine(t, s, d, line)
			}
		})
	}
}

// playLine does what one line of a dialogue says.
func playLine(t *testing.T, s *submission, d *dialog, line string) *dialog {
	t.Helper()
	word, rest, _ := strings.Cut(line, " ")
	switch word {
	case "tcp_connect":
		return s.dialRaw(t)
	case "tls_connect":
		d = s.on(2).dialRaw(t)
		d.secure(s.tls)
		return d
	case "close":
		d.Close()
	case "->":
		d.send(strings.TrimPrefix(rest, " ") + "\r\n")
	case "~>":
		d.send(python(t, rest))
	case "<~", "<-":
		want, ok := ours[rest]
		if !ok {
			want = rest[:1]
		}
		d.want(want)
	case "<...":
		d.want(rest[:1])
	default:
		t.Fatalf("unknown line %q", line)
	}
	return d
}

var product = regexp.MustCompile(`^\(?'(.)' \* ([0-9]+) \+ ('.*?')\)?(?: \* ([0-9]+))?$`)

// python is the value of an expression as the dialogues have it: a string, or one repeated with another behind it.
func python(t *testing.T, expr string) string {
	t.Helper()
	if m := product.FindStringSubmatch(strings.TrimSpace(expr)); m != nil {
		count := func(s string) int {
			n, err := strconv.Atoi(s)
			if err != nil {
				t.Fatal(err)
			}
			return n
		}
		s := strings.Repeat(m[1], count(m[2])) + python(t, m[3])
		if m[4] != "" {
			s = strings.Repeat(s, count(m[4]))
		}
		return s
	}
	octets, err := strconv.Unquote(`"` + strings.Trim(expr, "'") + `"`)
	if err != nil {
		t.Fatal(err)
	}
	return octets
}
