package gateway_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/rohrpost/rohrpost/gateway"
)

// A session that had refusals leaves one line in the log, and an attribute on its span, that tell how often by which codes at
// which command. One that had none leaves nothing.
func TestRefusalsOfSession(t *testing.T) {
	for _, c := range []struct {
		name  string
		steps []step
		want  []string
		codes []string // on the spans of transactions with content
	}{
		{"none", []step{
			{"EHLO c.test", "250-"}, {"MAIL FROM:<a@a.test>", "250 "}, {"RCPT TO:<b@ours.test>", "250 "}, {"DATA", "354 "}, {"x\r\n.", "250 "},
		}, nil, nil},
		{"recipients", []step{
			{"EHLO c.test", "250-"},
			{"MAIL FROM:<a@a.test>", "250 "},
			{"RCPT TO:<b@else.test>", "550 5.7.1"},
			{"RCPT TO:<c@else.test>", "550 5.7.1"},
			{"RCPT TO:<bad@ours.test>", "250 "},
		}, []string{"RCPT 550 5.7.1: 2"}, nil},
		{"commands", []step{
			{"MAIL FROM:<a@a.test>", "503 5.5.1"}, {"EHLO", "501 5.5.4"}, {"SECRET word", "500 5.5.2"}, {"OTHER", "500 5.5.2"}, {"EHLO \x01", "500 5.5.2"},
		}, []string{"EHLO 501 5.5.4: 1", "MAIL 503 5.5.1: 1", "command 500 5.5.2: 2", "connection 500 5.5.2: 1"}, nil},
		{"content", []step{
			{"EHLO c.test", "250-"},
			{"MAIL FROM:<a@a.test>", "250 "},
			{"RCPT TO:<b@ours.test>", "250 "},
			{"DATA", "354 "},
			{"bare\nLF\r\n.", "554 5.6.0"},
			{"MAIL FROM:<a@a.test>", "250 "},
			{"RCPT TO:<b@ours.test>", "250 "},
			{"DATA", "354 "},
			{"away\r\n.", "451 4.3.0"},
		}, []string{"DATA 451 4.3.0: 1", "DATA 554 5.6.0: 1"}, []string{"5.6.0", "4.3.0"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			rec := &recorder{}
			spool := &fakeSpool{answer: func(_ context.Context, sub *gateway.Submission) error {
				if strings.HasPrefix(string(sub.Content), "away") {
					return errors.New("no spool")
				}
				return nil
			}}
			e := start(t, spool, startOptions{provider: rec, change: stranger})
			d := e.dial(t)
			for _, s := range c.steps {
				d.cmd(s.send, s.want)
			}
			d.cmd("QUIT", "221 ")
			d.wantClosed()
			var got []string
			waitFor(t, "the session's span", func() bool {
				for _, s := range rec.named("smtp.session") {
					got = s.attrs["rohrpost.smtp.refusals"].AsStringSlice()
					return true
				}
				return false
			})
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Errorf("span (-want +got):\n%s", diff)
			}
			var codes []string
			for _, s := range rec.named("smtp.transaction") {
				if code, refused := s.attrs["rohrpost.smtp.enhanced_code"]; refused {
					codes = append(codes, code.AsString())
				}
			}
			if !slices.Equal(codes, c.codes) {
				t.Errorf("transactions with the codes %v, want %v", codes, c.codes)
			}
			if n := strings.Count(e.logs.String(), "session had refusals"); n != min(len(c.want), 1) {
				t.Errorf("%d lines in the log", n)
			}
			if strings.Contains(e.logs.String(), "SECRET") {
				t.Error("the log says what the client made up")
			}
		})
	}
}
