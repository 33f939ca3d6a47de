package parser

import (
	"bytes"
	"fmt"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	mailv1 "github.com/rohrpost/rohrpost/proto/gen/rohrpost/mail/v1"
)

// TestReportFields: every field of the examples of RFC 3464 and RFC 5965 is read, in order.
func TestReportFields(t *testing.T) {
	t.Parallel()
	hits, all := 0, 0
	for _, path := range mails(t, corpus(t, "dsn-arf-kumomta"), ".eml") {
		all++
		content := readFile(t, path)
		report := Parse(content, Limits{}).GetReport()
		got := names(report.GetFields())
		for _, r := range report.GetRecipients() {
			got = append(got, names(r.GetFields())...)
		}
		if diff := cmp.Diff(reportLines(content), got); diff != "" {
			t.Errorf("%s:\n%s", filepath.Base(path), diff)
			continue
		}
		hits++
	}
	score(t, "dsn-arf-kumomta", "%d/%d", hits, all)
}

// TestHonestBounce: text that stands behind the fields of a bounce makes it no ambiguous mail, and takes nothing of the
// message's limits.
func TestHonestBounce(t *testing.T) {
	t.Parallel()
	const fields = "Reporting-MTA: dns; a\n\nFinal-Recipient: rfc822; b@c\nStatus: 5.1.1\n\n"
	const words = "Some words\nmore words\nand yet more\n"
	for name, c := range map[string]struct {
		content string
		kinds   []string
	}{
		"written for people": {"Return-Path: <>\n\n" + fields + words, nil},
		"a report":           {"Content-Type: message/delivery-status\n\n" + fields + words, []string{"malformed_report"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := check(t, crlf(c.content), Limits{HeaderCount: 3})
			if diff := cmp.Diff(c.kinds, kinds(m), cmpopts.EquateEmpty()); diff != "" {
				t.Errorf("defects: %s", diff)
			}
			if all := m.GetReport().GetRecipients(); len(all) != 1 || all[0].GetAddress() != "b@c" || all[0].GetStatus() != "5.1.1" {
				t.Errorf("recipients %v", all)
			}
		})
	}
}

// TestManyRecipientsFromText: what a text says is looked up for so many recipients, and for none beyond.
func TestManyRecipientsFromText(t *testing.T) {
	t.Parallel()
	var status strings.Builder
	for i := range 2 * maxRecipients {
		fmt.Fprintf(&status, "Final-Recipient: rfc822; %d@c\nAction: failed\n\n", i)
	}
	var text strings.Builder
	for i := range 2 * maxRecipients {
		fmt.Fprintf(&text, "<%d@c>: no such user\n", (i+maxRecipients)%(2*maxRecipients))
	}
	for _, r := range check(t, crlf("Content-Type: multipart/report; boundary=b\n\n--b\n\nMail could not be delivered:\n"+text.String()+
		"--b\nContent-Type: message/delivery-status\n\n"+status.String()+"--b--\n"), Limits{}).GetReport().GetRecipients() {
		if r.GetDiagnostic() != "" {
			t.Fatalf("%s: %s", r.GetAddress(), r.GetDiagnostic())
		}
	}
}

func names(headers []*mailv1.Header) []string {
	var out []string
	for _, h := range headers {
		out = append(out, h.GetName())
	}
	return out
}

// reportLines reads the names of a report's fields in a way of its own, from the lines of the file.
func reportLines(content []byte) []string {
	var out []string
	inPart, inBody := false, false
	for line := range strings.Lines(string(content)) {
		line = strings.TrimRight(line, "\r\n")
		lower := strings.ToLower(line)
		switch {
		case strings.HasPrefix(lower, "content-type: message/delivery-status"), strings.HasPrefix(lower, "content-type: message/feedback-report"):
			inPart = true
		case inPart && strings.HasPrefix(line, "--"):
			return out
		case inPart && line == "":
			inBody = true
		case inBody && line[0] != ' ' && line[0] != '\t':
			name, _, _ := strings.Cut(line, ":")
			out = append(out, strings.TrimSpace(name))
		}
	}
	return out
}

// TestBounces scores the number of recipients of real bounces and their status codes against Sisimai's: those that carry a delivery status,
// and all. What Sisimai made up itself (codes x.0.9nn) is compared with nothing.
func TestBounces(t *testing.T) {
	t.Parallel()
	folder := corpus(t, "bounces-sisimai")
	var hits, all [2]int
	for line := range bytes.Lines(readFile(t, filepath.Join(folder, "expected.jsonl"))) {
		var want struct {
			File   string
			Expect []struct{ Status, Reason string }
		}
		decodeJSON(t, line, &want)
		content := readFile(t, filepath.Join(folder, want.File))
		kind := 1
		if bytes.Contains(bytes.ToLower(content), []byte("content-type: message/delivery-status")) {
			kind = 0
		}
		all[kind]++
		report := Parse(content, Limits{}).GetReport()
		var wanted, got []string
		for _, e := range want.Expect {
			wanted = append(wanted, e.Status)
		}
		for _, r := range report.GetRecipients() {
			got = append(got, r.GetStatus())
		}
		if len(got) == 0 && report.GetFeedbackType() != "" {
			got = []string{""} // the report need not name the recipient
		}
		slices.Sort(wanted)
		slices.Sort(got)
		if slices.EqualFunc(wanted, got, func(w, g string) bool { return w == g || madeUp.MatchString(w) || w != "" && isGeneral(w) && g == "" }) {
			hits[kind]++
		} else {
			t.Logf("%s: got %v, want %v (%s)", want.File, got, wanted, want.Expect[0].Reason)
		}
	}
	score(t, "bounces-sisimai: number", "with a delivery status %d/%d", hits[0], all[0])
	score(t, "bounces-sisimai: number", "all %d/%d", hits[0]+hits[1], all[0]+all[1])
}

// reasons are the categories of those of Sisimai's reasons that a category stands for.
var reasons = map[string][]mailv1.BounceCategory{
	"userunknown": {mailv1.BounceCategory_BOUNCE_CATEGORY_BAD_ADDRESS},
	"hasmoved":    {mailv1.BounceCategory_BOUNCE_CATEGORY_BAD_ADDRESS},
	"hostunknown": {mailv1.BounceCategory_BOUNCE_CATEGORY_BAD_DOMAIN},
	"mailboxfull": {mailv1.BounceCategory_BOUNCE_CATEGORY_FULL},
	"systemfull":  {mailv1.BounceCategory_BOUNCE_CATEGORY_FULL},
	"exceedlimit": {mailv1.BounceCategory_BOUNCE_CATEGORY_TOO_LARGE},
	"suspend":     {mailv1.BounceCategory_BOUNCE_CATEGORY_INACTIVE_MAILBOX},
	// A queue that expires does so because the host cannot be reached.
	"expired":         {mailv1.BounceCategory_BOUNCE_CATEGORY_EXPIRED, mailv1.BounceCategory_BOUNCE_CATEGORY_ROUTING},
	"networkerror":    {mailv1.BounceCategory_BOUNCE_CATEGORY_EXPIRED, mailv1.BounceCategory_BOUNCE_CATEGORY_ROUTING},
	"authfailure":     {mailv1.BounceCategory_BOUNCE_CATEGORY_AUTHENTICATION},
	"blocked":         {mailv1.BounceCategory_BOUNCE_CATEGORY_POLICY},
	"badreputation":   {mailv1.BounceCategory_BOUNCE_CATEGORY_POLICY},
	"policyviolation": {mailv1.BounceCategory_BOUNCE_CATEGORY_POLICY},
	"spamdetected":    {mailv1.BounceCategory_BOUNCE_CATEGORY_POLICY, mailv1.BounceCategory_BOUNCE_CATEGORY_CONTENT},
	"norelaying":      {mailv1.BounceCategory_BOUNCE_CATEGORY_POLICY},
	"syntaxerror":     {mailv1.BounceCategory_BOUNCE_CATEGORY_PROTOCOL},
	"systemerror":     {mailv1.BounceCategory_BOUNCE_CATEGORY_SYSTEM},
}

// TestBounceCategories scores the categories against Sisimai's reasons, where those mean the same.
func TestBounceCategories(t *testing.T) {
	t.Parallel()
	folder := corpus(t, "bounces-sisimai")
	hits, all := 0, 0
	for line := range bytes.Lines(readFile(t, filepath.Join(folder, "expected.jsonl"))) {
		var want struct {
			File   string
			Expect []struct{ Reason string }
		}
		decodeJSON(t, line, &want)
		got := Parse(readFile(t, filepath.Join(folder, want.File)), Limits{}).GetReport().GetRecipients()
		wanted, known := reasons[want.Expect[0].Reason]
		if !known || len(got) != len(want.Expect) {
			continue
		}
		all++
		if slices.Contains(wanted, got[0].GetCategory()) {
			hits++
		} else {
			t.Logf("%s: %s is %v: %s %.100s", want.File, want.Expect[0].Reason, got[0].GetCategory(), got[0].GetStatus(), got[0].GetDiagnostic())
		}
	}
	score(t, "bounces-sisimai: category", "%d/%d", hits, all)
}

var madeUp = regexp.MustCompile(`^[45]\.0\.9[0-9]{2}$`)
