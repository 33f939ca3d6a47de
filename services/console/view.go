package console

import (
	"encoding/hex"
	"fmt"
	"net/url"
	"strings"
	"time"
	"unicode"

	"google.golang.org/protobuf/types/known/timestamppb"

	adminv1 "github.com/rohrpost/rohrpost/proto/gen/rohrpost/admin/v1"
	mailv1 "github.com/rohrpost/rohrpost/proto/gen/rohrpost/mail/v1"
)

// The views are what the templates print. They hold text of strangers, which the templates escape.

type faultView struct{ Title, Text string }

type listView struct {
	Title    string
	Filters  []filterView
	Messages []rowView
	Next     string // link to the next page; empty on the last
	Later    bool   // this is not the first page
	Filtered bool
}

type filterView struct {
	Name, Link string
	Current    bool
}

type rowView struct {
	ID, Received, State, Sender, Recipients, Subject string
}

func newListView(response *adminv1.ListMessagesResponse, filter string, later bool) listView {
	view := listView{Title: "Messages", Later: later, Filtered: filter != ""}
	for _, name := range []string{"", "active", "deferred", "held", "ended"} {
		f := filterView{Name: name, Link: "/?state=" + name, Current: name == filter}
		if name == "" {
			f.Name, f.Link = "all", "/"
		}
		view.Filters = append(view.Filters, f)
	}
	for _, m := range response.GetMessages() {
		view.Messages = append(view.Messages, rowView{
			ID: m.GetId(), Received: timeText(m.GetReceivedAt(), time.DateTime), State: stateWord(m.GetState()),
			Sender: sender(m.GetSender()), Recipients: recipients(m), Subject: visible(m.GetSubject()),
		})
	}
	if token := response.GetNextPageToken(); token != "" {
		query := url.Values{"page": {token}}
		if filter != "" {
			query.Set("state", filter)
		}
		view.Next = "/?" + query.Encode()
	}
	return view
}

type messageView struct {
	Title       string
	ID, State   string
	Subject     string
	Facts       []factView
	Recipients  []recipientView
	Checks      []checkView
	Attachments []string
	Defects     []string
	Journal     []entryView
}

type factView struct{ Name, Value string }

type recipientView struct{ Address, State, Reply, Next, Rule string }

type checkView struct{ Check, Result, Detail string }

type entryView struct {
	Time, Stage, Event, About, Text, Trace string
	Results                                []resultView
}

type resultView struct{ Address, Status, Reply string }

func newMessageView(m *adminv1.Message) messageView {
	summary := m.GetSummary()
	view := messageView{
		Title: "Message " + summary.GetId(), ID: summary.GetId(), State: stateWord(summary.GetState()),
		Subject: visible(summary.GetSubject()), Facts: facts(m),
	}
	verdicts := m.GetVerdict().GetRecipients()
	for i, r := range summary.GetRecipients() {
		row := recipientView{
			Address: visible(r.GetAddress()), State: stateWord(r.GetState()),
			Reply: replyText(r.GetLastReply()), Next: timeText(r.GetNextAt(), time.DateTime),
		}
		if i < len(verdicts) {
			row.Rule = visible(strings.Join(append(verdicts[i].GetTags(), verdicts[i].GetRule()), " "))
		}
		view.Recipients = append(view.Recipients, row)
	}
	for _, check := range m.GetVerdict().GetResults() {
		view.Checks = append(view.Checks, checkView{
			Check: visible(check.GetCheck()), Result: visible(check.GetResult()),
			Detail: visible(spaced(check.GetProperty(), check.GetDetail())),
		})
	}
	view.Attachments = attachments(m.GetParsed())
	for _, d := range m.GetParsed().GetDefects() {
		view.Defects = append(view.Defects, visible(spaced(d.GetKind(), d.GetPart(), d.GetDetail())))
	}
	for _, entry := range m.GetJournal() {
		view.Journal = append(view.Journal, newEntryView(m, entry))
	}
	return view
}

func facts(m *adminv1.Message) []factView {
	summary, reception := m.GetSummary(), m.GetEnvelope().GetReception()
	all := []factView{
		{"From", sender(summary.GetSender())},
		{"Received", timeText(summary.GetReceivedAt(), time.DateTime)},
		{"Ended", timeText(summary.GetEndedAt(), time.DateTime)},
		{"Client", visible(spaced(reception.GetClientIp(), reception.GetHelo(), reception.GetProtocol(), reception.GetTls()))},
		{"User", visible(reception.GetAuthenticatedUser())},
		{"Gateway", visible(reception.GetGateway())},
		{"Size", fmt.Sprintf("%d octets", summary.GetSize())},
		{"Message-ID", visible(summary.GetHeaderMessageId())},
		{"Trace", visible(summary.GetTraceId())},
	}
	var given []factView
	for _, fact := range all {
		if fact.Value != "" {
			given = append(given, fact)
		}
	}
	return given
}

func newEntryView(m *adminv1.Message, entry *mailv1.JournalEntry) entryView {
	view := entryView{
		Time: timeText(entry.GetTime(), "2006-01-02 15:04:05.000"), Stage: visible(entry.GetStage()),
		Event: visible(entry.GetEvent()), Trace: visible(entry.GetTraceId()),
	}
	var about []string
	for _, i := range entry.GetRecipients() {
		about = append(about, address(m, i))
	}
	view.About = strings.Join(about, ", ")
	attempt := ""
	if a := entry.GetAttempt(); a != nil {
		attempt = spaced(fmt.Sprintf("attempt %d", a.GetNumber()), "for", a.GetDestination(), a.GetRoute(), a.GetRemote(), a.GetTls())
		for _, result := range a.GetResults() {
			view.Results = append(view.Results, resultView{
				Address: address(m, result.GetRecipient()), Status: stateWord(result.GetStatus()), Reply: replyText(result.GetReply()),
			})
		}
	}
	worker := ""
	if entry.GetWorker() != "" {
		worker = "by " + entry.GetWorker()
	}
	view.Text = visible(spaced(attempt, entry.GetText(), worker))
	return view
}

// attachments names the parts that are attachments.
func attachments(parsed *mailv1.ParsedMessage) []string {
	byPath := make(map[string]*mailv1.Part)
	var walk func(parts []*mailv1.Part)
	walk = func(parts []*mailv1.Part) {
		for _, p := range parts {
			byPath[p.GetPath()] = p
			walk(p.GetParts())
		}
	}
	walk(parsed.GetParts())
	var list []string
	for _, path := range parsed.GetAttachments() {
		p := byPath[path]
		name := p.GetFilename()
		if name == "" {
			name = "part " + path
		}
		list = append(list, visible(fmt.Sprintf("%s, %s, %d octets, SHA-256 %s", name, p.GetType(), p.GetSize(), hex.EncodeToString(p.GetSha256()))))
	}
	return list
}

// stateOf reads the word of a message's state.
func stateOf(word string) (adminv1.MessageState, bool) {
	state := adminv1.MessageState_value["MESSAGE_STATE_"+strings.ToUpper(word)]
	return adminv1.MessageState(state), state != 0
}

// stateWord is the word of an enum value: MESSAGE_STATE_ENDED is "ended".
func stateWord(state fmt.Stringer) string {
	name := state.String()
	return strings.ToLower(name[strings.LastIndexByte(name, '_')+1:])
}

func sender(address string) string {
	if address == "" {
		return "<>"
	}
	return visible(address)
}

func address(m *adminv1.Message, index int32) string {
	list := m.GetEnvelope().GetRecipients()
	if index < 0 || int(index) >= len(list) {
		return fmt.Sprintf("recipient %d", index)
	}
	return visible(list[index].GetAddress())
}

// recipients is the first recipient and how many more there are.
func recipients(m *adminv1.MessageSummary) string {
	list := m.GetRecipients()
	switch len(list) {
	case 0:
		return ""
	case 1:
		return visible(list[0].GetAddress())
	default:
		return fmt.Sprintf("%s and %d more", visible(list[0].GetAddress()), len(list)-1)
	}
}

func replyText(reply *mailv1.Reply) string {
	if reply == nil {
		return ""
	}
	return visible(spaced(fmt.Sprint(reply.GetCode()), reply.GetEnhancedCode(), reply.GetText()))
}

// timeText is a time in UTC, empty where there is none.
func timeText(t *timestamppb.Timestamp, layout string) string {
	if t == nil {
		return ""
	}
	return t.AsTime().UTC().Format(layout) + " UTC"
}

// visible replaces characters that a person would not see, or that turn text around (such as U+202E).
func visible(s string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case unicode.IsSpace(r):
			return ' '
		case unicode.IsPrint(r):
			return r
		default:
			return unicode.ReplacementChar
		}
	}, s)
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
