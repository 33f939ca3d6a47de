package gateway_test

import (
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/rohrpost/rohrpost/gateway"
)

// deliverData sends a body by DATA, as it is, and returns the reply.
func deliverData(t *testing.T, e *edge, raw string) string {
	t.Helper()
	d := e.dial(t)
	d.envelope()
	d.cmd("DATA", "354 ")
	d.send(raw)
	reply := d.reply()
	d.cmd("QUIT", "221 ") // nothing of the content was read as commands
	return reply
}

func TestContentOfData(t *testing.T) {
	long := strings.Repeat("x", 64<<10)
	for _, c := range []struct{ name, raw, reply, content string }{
		{"plain", "S: x\r\n\r\nhello\r\n.\r\n", "250 2.0.0 Ok: queued as ", "S: x\r\n\r\nhello\r\n"},
		{"case C9 empty", ".\r\n", "250 ", ""},
		{"case C9 no body", "S: x\r\n.\r\n", "250 ", "S: x\r\n"},
		{"case C9 blank line", "\r\n.\r\n", "250 ", "\r\n"},
		{"case D12 dots", "..x\r\n.y\r\n...\r\nz.\r\n.\r\n", "250 ", ".x\r\ny\r\n..\r\nz.\r\n"},
		{"case D1 CR CR LF before end mark", "x\r\r\n.\r\n", "554 5.6.0 bare CR at octet 1", ""},
		{"case D14 CR CR LF", "x\r\r\ny\r\n.\r\n", "554 5.6.0 bare CR", ""},
		{"case D2 dot CR X", ".\rX\r\n.\r\n", "554 5.6.0 bare CR at octet 0", ""},
		{"case D4 LF only", "a\nb\n\r\n.\r\n", "554 5.6.0 bare LF at octet 1", ""},
		{"case D3 LF . CRLF", "a\n.\r\nMAIL FROM:<c@d.test>\r\n.\r\n", "554 5.6.0 bare LF", ""},
		{"NUL and 8 bit", "a\x00\xff\r\n.\r\n", "250 ", "a\x00\xff\r\n"},
		{"case G2 1200 octets in a line", long[:1200] + "\r\n.\r\n", "250 ", long[:1200] + "\r\n"},
		{"case G2 64 KiB in a line", long + "\r\n.\r\n", "250 ", long + "\r\n"},
		{"case G2 over 64 KiB in a line", long + "x\r\n.\r\n", "554 5.6.0 Line longer than 65536 octets", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			e := start(t, &fakeSpool{}, startOptions{})
			if reply := deliverData(t, e, c.raw); !strings.HasPrefix(reply, c.reply) {
				t.Fatalf("reply %q, want %q", reply, c.reply)
			}
			got := e.spool.all()
			if !strings.HasPrefix(c.reply, "250") {
				if len(got) != 0 {
					t.Fatalf("refused, but %d messages were stored", len(got))
				}
				return
			}
			if len(got) != 1 || got[0].content != c.content {
				t.Errorf("stored %v, want %.80q", got, c.content)
			}
		})
	}
}

// Case D13: nothing is unstuffed in BDAT. Case D14: the same rules of line ends as in DATA.
func TestContentOfBDAT(t *testing.T) {
	for _, c := range []struct {
		name    string
		chunks  []string
		replies []string
		content string
	}{
		{"case D13 dots", []string{".\r\n..\r\n.\r\n", "\r\n.\r\n"}, []string{"250 2.0.0 Continue", "250 2.0.0 Ok: queued as "}, ".\r\n..\r\n.\r\n\r\n.\r\n"},
		{"CRLF over two chunks", []string{"a\r", "\nb\r\n"}, []string{"250 ", "250 "}, "a\r\nb\r\n"},
		{"empty last chunk", []string{"a\r\n", ""}, []string{"250 ", "250 "}, "a\r\n"},
		{"empty", []string{""}, []string{"250 "}, ""},
		{"no CRLF at the end", []string{"a\r\nb"}, []string{"250 "}, "a\r\nb\r\n"},
		{"case D14 bare CR at the end", []string{"a\r"}, []string{"554 5.6.0 bare CR at octet 1"}, ""},
		{"case D3 bare LF", []string{"a\nb"}, []string{"554 5.6.0 bare LF at octet 1"}, ""},
		{"bare LF, then another chunk", []string{"a\nb\r\n", "c\r\n"}, []string{"", "503 5.5.1"}, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			e := start(t, &fakeSpool{}, startOptions{})
			d := e.dial(t)
			d.envelope()
			for i, chunk := range c.chunks {
				last := ""
				if i == len(c.chunks)-1 {
					last = " LAST"
				}
				d.send(fmt.Sprintf("BDAT %d%s\r\n%s", len(chunk), last, chunk))
				got := d.reply()
				if i == len(c.chunks)-1 && c.replies[0] == "" && strings.HasPrefix(got, "554") {
					continue // the fault was told one chunk later
				}
				if !strings.HasPrefix(got, c.replies[i]) {
					t.Fatalf("chunk %d: reply %q, want %q", i, got, c.replies[i])
				}
			}
			d.cmd("QUIT", "221 ")
			got := e.spool.all()
			if strings.HasPrefix(c.replies[len(c.replies)-1], "250") {
				if len(got) != 1 || got[0].content != c.content {
					t.Errorf("stored %v, want %q", got, c.content)
				}
			} else if len(got) != 0 {
				t.Errorf("refused, but stored %v", got)
			}
		})
	}
}

// Case D3: none of the known sequences ends the message.
func TestSmugglingSequences(t *testing.T) {
	raw, err := os.ReadFile(corpus(t, "smtp-smuggling/sequences.json"))
	if err != nil {
		t.Fatal(err)
	}
	var set struct {
		Sequences []struct{ Name, Hex string } `json:"must_not_end_data"`
	}
	if err := json.Unmarshal(raw, &set); err != nil || len(set.Sequences) != 12 {
		t.Fatalf("%d sequences, %v", len(set.Sequences), err)
	}
	for _, policy := range []gateway.BareNewline{gateway.BareNewlineReject, gateway.BareNewlineNormalize} {
		e := start(t, &fakeSpool{}, startOptions{change: func(c *gateway.Config) { c.BareNewline = policy }})
		for _, seq := range set.Sequences {
			t.Run(string(policy)+"/"+seq.Name, func(t *testing.T) {
				octets, err := hex.DecodeString(seq.Hex)
				if err != nil {
					t.Fatal(err)
				}
				before := len(e.spool.all())
				reply := deliverData(t, e, "S: x\r\n\r\nfirst"+string(octets)+
					"MAIL FROM:<evil@x.test>\r\nRCPT TO:<victim@x.test>\r\nDATA\r\nsecond\r\n.\r\n")
				got := e.spool.all()[before:]
				clean := strings.Contains(seq.Name, "NUL")
				if policy == gateway.BareNewlineReject && !clean {
					if !strings.HasPrefix(reply, "554 5.6.0 bare") || len(got) != 0 {
						t.Fatalf("reply %q and %d messages, want a refusal", reply, len(got))
					}
					return
				}
				if !strings.HasPrefix(reply, "250 ") || len(got) != 1 {
					t.Fatalf("reply %q and %d messages, want one", reply, len(got))
				}
				rest := strings.ReplaceAll(got[0].content, "\r\n", "")
				if strings.ContainsAny(rest, "\r\n") || !strings.HasSuffix(got[0].content, "second\r\n") {
					t.Errorf("stored %q", got[0].content)
				}
			})
		}
	}
}

// Large messages are streamed; what is wrong with them takes them back. Case A6: nothing is cut.
func TestLargeContent(t *testing.T) {
	line := strings.Repeat("x", 998) + "\r\n"
	body := strings.Repeat(line, 400)
	for _, c := range []struct{ name, raw, reply string }{
		{"whole", body, "250 "},
		{"case D3 bare LF at the end", body + "\n\r\n", "554 5.6.0 bare LF at octet 400000"},
		{"case A6 one octet over max_size", body + body[:99_000] + "x" + line, "552 5.3.4"},
	} {
		t.Run(c.name, func(t *testing.T) {
			e := start(t, &fakeSpool{}, startOptions{change: func(c *gateway.Config) { c.MaxSize = 500_000 }})
			if reply := deliverData(t, e, c.raw+".\r\n"); !strings.HasPrefix(reply, c.reply) {
				t.Fatalf("reply %q, want %q", reply, c.reply)
			}
			got := e.spool.all()
			if c.reply == "250 " {
				if len(got) != 1 || got[0].content != c.raw || got[0].sub.Stream == nil {
					t.Error("content has changed, or was not streamed")
				}
			} else if len(got) != 0 || e.spool.withdraw != 1 {
				t.Errorf("%d stored, %d withdrawn, want 0 and 1", len(got), e.spool.withdraw)
			}
		})
	}
}

// Case A6: by SIZE and by BDAT, too. (RFC 1870.)
func TestMaxSize(t *testing.T) {
	e := start(t, &fakeSpool{}, startOptions{change: func(c *gateway.Config) { c.MaxSize = 64 << 10 }})
	d := e.dial(t)
	d.cmd("EHLO client.test", "250-")
	d.cmd("MAIL FROM:<a@client.test> SIZE=65537", "552 5.3.4")
	d.cmd("MAIL FROM:<a@client.test> SIZE=65536", "250 ")
	d.cmd("RCPT TO:<b@x.test>", "250 ")
	line := strings.Repeat("x", 1022) + "\r\n"
	d.send("BDAT 32768\r\n" + strings.Repeat(line, 32))
	d.want("250 ")
	d.send("BDAT 32769 LAST\r\n" + strings.Repeat(line, 32) + "x")
	d.want("552 5.3.4")
	d.cmd("NOOP", "250 ")
	if n := len(e.spool.all()); n != 0 {
		t.Errorf("%d messages stored", n)
	}
}
