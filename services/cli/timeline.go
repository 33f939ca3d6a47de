package cli

import (
	"bytes"
	"fmt"
	"strings"
	"time"

	adminv1 "github.com/rohrpost/rohrpost/proto/gen/rohrpost/admin/v1"
	mailv1 "github.com/rohrpost/rohrpost/proto/gen/rohrpost/mail/v1"
)

// printMessage prints a message for a person: what it is, where each recipient stands, what happened.
func printMessage(out *bytes.Buffer, m *adminv1.Message) {
	summary, reception := m.GetSummary(), m.GetEnvelope().GetReception()
	fmt.Fprintf(out, "Message   %s  %s\n", summary.GetId(), stateWord(summary.GetState()))
	fmt.Fprintf(out, "From      %s\n", sender(summary.GetSender()))
	if summary.GetSubject() != "" {
		fmt.Fprintf(out, "Subject   %s\n", clean(summary.GetSubject()))
	}
	if summary.GetHeaderMessageId() != "" {
		fmt.Fprintf(out, "Header-ID <%s>\n", clean(summary.GetHeaderMessageId()))
	}
	fmt.Fprintf(out, "Received  %s UTC, %d octets", timeText(summary.GetReceivedAt().AsTime()), summary.GetSize())
	if reception.GetClientIp() != "" {
		fmt.Fprintf(out, ", from %s (%s) by %s", reception.GetClientIp(), clean(reception.GetHelo()), reception.GetProtocol())
	}
	out.WriteByte('\n')
	if summary.GetTraceId() != "" {
		fmt.Fprintf(out, "Trace     %s\n", summary.GetTraceId())
	}
	for _, result := range m.GetVerdict().GetResults() {
		fmt.Fprintf(out, "Check     %s\n", clean(spaced(result.GetCheck(), result.GetResult(), result.GetProperty(), result.GetDetail())))
	}
	out.WriteString("\nRecipients\n")
	for i, r := range summary.GetRecipients() {
		fmt.Fprintf(out, "  %s  %s%s\n", clean(r.GetAddress()), stateWord(r.GetState()), recipientDetail(m, i, r))
	}
	out.WriteString("\nJournal (UTC)\n")
	for _, entry := range m.GetJournal() {
		printEntry(out, m, entry)
	}
	if len(m.GetJournal()) == 0 {
		out.WriteString("  nothing yet\n")
	}
}

// recipientDetail is the last reply about a recipient, when it is tried again, and the rule that decided about it.
func recipientDetail(m *adminv1.Message, i int, r *adminv1.RecipientStatus) string {
	var parts []string
	if reply := replyText(r.GetLastReply()); reply != "" {
		parts = append(parts, reply)
	}
	if s := r.GetSuspension(); s != nil {
		parts = append(parts, suspensionText(s))
	} else if r.GetNextAt() != nil {
		parts = append(parts, "next at "+timeText(r.GetNextAt().AsTime())+" UTC")
	}
	if verdicts := m.GetVerdict().GetRecipients(); i < len(verdicts) {
		if rule := verdicts[i].GetRule(); rule != "" {
			parts = append(parts, "rule "+clean(rule))
		}
		if tags := verdicts[i].GetTags(); len(tags) > 0 {
			parts = append(parts, "tags "+clean(strings.Join(tags, ",")))
		}
	}
	if len(parts) == 0 {
		return ""
	}
	return "  " + strings.Join(parts, "; ")
}

func printEntry(out *bytes.Buffer, m *adminv1.Message, entry *mailv1.JournalEntry) {
	attempt := entry.GetAttempt()
	results, said := attempt.GetResults(), entry.GetText()
	if len(results) == 1 && said == replyText(results[0].GetReply()) {
		said = "" // it follows with the result
	}
	fmt.Fprintf(out, "  %s  %-8s %s\n", entry.GetTime().AsTime().UTC().Format("2006-01-02 15:04:05.000"), clean(entry.GetStage()),
		clean(spaced(entry.GetEvent(), names(m, entry.GetRecipients()), attemptText(attempt), said)))
	for _, result := range results {
		fmt.Fprintf(out, "  %25s%-8s %s  %s  %s\n", "", "", clean(name(m, result.GetRecipient())), stateWord(result.GetStatus()), replyText(result.GetReply()))
	}
}

func attemptText(a *mailv1.Attempt) string {
	if a == nil {
		return ""
	}
	took := ""
	if a.GetStartedAt() != nil && a.GetFinishedAt() != nil {
		took = "in " + a.GetFinishedAt().AsTime().Sub(a.GetStartedAt().AsTime()).Round(time.Millisecond).String()
	}
	return spaced(fmt.Sprintf("attempt %d", a.GetNumber()), "for "+a.GetDestination(), a.GetRoute(), a.GetRemote(), a.GetTls(), took)
}

// names are the addresses of recipients; nothing where the entry is about all.
func names(m *adminv1.Message, indexes []int32) string {
	var list []string
	for _, i := range indexes {
		if len(list) == 3 {
			list = append(list, fmt.Sprintf("and %d more", len(indexes)-3))
			break
		}
		list = append(list, name(m, i))
	}
	return strings.Join(list, ", ")
}

func name(m *adminv1.Message, index int32) string {
	list := m.GetEnvelope().GetRecipients()
	if index < 0 || int(index) >= len(list) {
		return fmt.Sprintf("recipient %d", index)
	}
	return list[index].GetAddress()
}

// spaced joins what is not empty.
func spaced(parts ...string) string {
	var given []string
	for _, part := range parts {
		if part != "" {
			given = append(given, part)
		}
	}
	return strings.Join(given, " ")
}
