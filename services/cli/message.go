package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"
	"unicode"
	"unicode/utf16"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	adminv1 "github.com/rohrpost/rohrpost/proto/gen/rohrpost/admin/v1"
	mailv1 "github.com/rohrpost/rohrpost/proto/gen/rohrpost/mail/v1"
	"github.com/rohrpost/rohrpost/services/process"
)

// Message is the command `message`.
type Message struct {
	LS   MessageLS   `cmd:"" name:"ls" help:"List messages, newest first."`
	Show MessageShow `cmd:"" help:"Show a message with its journal."`

	Hold    MessageCommand `cmd:"" help:"Keep messages until they are released or their hold ends."`
	Release MessageCommand `cmd:"" help:"Deliver what is held of messages, whatever the verdict was."`
	Cancel  MessageCommand `cmd:"" help:"End messages; nobody is told."`
	Retry   MessageCommand `cmd:"" help:"Try at once what waits for its next attempt."`
	Bounce  MessageCommand `cmd:"" help:"End messages and notify their senders."`
}

// MessageLS is the command `message ls`.
type MessageLS struct {
	Connection
	State string `enum:"any,active,deferred,held,ended" default:"any" help:"Only messages in this state: active, deferred, held or ended."`
	Limit int32  `default:"20" help:"How many at most, 1 to 1000."`
	JSON  bool   `name:"json" help:"Print JSON (rohrpost.admin.v1.ListMessagesResponse)."`
}

// Run lists messages.
func (c *MessageLS) Run(ctx context.Context, std *IO) error {
	if c.Limit < 1 || c.Limit > 1000 {
		return process.Usage("--limit: %d is out of range; use 1 to 1000", c.Limit)
	}
	request := &adminv1.ListMessagesRequest{PageSize: c.Limit}
	if c.State != "" && c.State != "any" {
		request.State = adminv1.MessageState(adminv1.MessageState_value["MESSAGE_STATE_"+strings.ToUpper(c.State)])
	}
	var response *adminv1.ListMessagesResponse
	err := c.call(ctx, func(ctx context.Context, conn *grpc.ClientConn) (err error) {
		response, err = adminv1.NewAdminServiceClient(conn).ListMessages(ctx, request)
		return err
	})
	if err != nil {
		return err
	}
	if c.JSON {
		return printJSON(std.Out, response)
	}
	if len(response.GetMessages()) == 0 {
		_, err := fmt.Fprintf(std.Out, "No messages. Send one: %s send --sample good\n", std.program())
		return err
	}
	table := tabwriter.NewWriter(std.Out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "ID\tRECEIVED (UTC)\tSTATE\tFROM\tTO\tSUBJECT") //nolint:errcheck // Flush tells
	for _, m := range response.GetMessages() {
		fmt.Fprintf(table, "%s\t%s\t%s\t%s\t%s\t%s\n", m.GetId(), timeText(m.GetReceivedAt().AsTime()), //nolint:errcheck // Flush tells
			stateWord(m.GetState()), sender(m.GetSender()), recipients(m), clean(cut(m.GetSubject(), 50)))
	}
	return table.Flush()
}

// MessageShow is the command `message show`.
type MessageShow struct {
	Connection
	ID   string `arg:"" help:"The message's id, as the 250 reply named it."`
	JSON bool   `name:"json" help:"Print JSON (rohrpost.admin.v1.Message)."`
}

// Run shows a message.
func (c *MessageShow) Run(ctx context.Context, std *IO) error {
	var message *adminv1.Message
	err := c.call(ctx, func(ctx context.Context, conn *grpc.ClientConn) error {
		response, err := adminv1.NewAdminServiceClient(conn).GetMessage(ctx, &adminv1.GetMessageRequest{Id: c.ID})
		if status.Code(err) == codes.NotFound {
			return fmt.Errorf("there is no message %s; `%s message ls` lists them", clean(c.ID), std.program())
		}
		message = response.GetMessage()
		return err
	})
	if err != nil {
		return err
	}
	if c.JSON {
		return printJSON(std.Out, message)
	}
	var out bytes.Buffer
	printMessage(&out, message)
	_, err = std.Out.Write(out.Bytes())
	return err
}

// printJSON prints with stable white space, which protojson does not promise, and with what could drive a terminal, or turn
// text around, as escapes.
func printJSON(w io.Writer, m proto.Message) error {
	data, err := protojson.Marshal(m)
	if err != nil {
		return fmt.Errorf("writing JSON: %w", err)
	}
	var out bytes.Buffer
	if err := json.Indent(&out, data, "", "  "); err != nil {
		return fmt.Errorf("writing JSON: %w", err)
	}
	out.WriteByte('\n')
	_, err = io.WriteString(w, escaped(out.String()))
	return err
}

// escaped writes the characters of JSON that don't print as \uXXXX. Such characters stand in strings alone.
func escaped(s string) string {
	var out strings.Builder
	for _, r := range s {
		switch {
		case r == '\n' || unicode.IsPrint(r):
			out.WriteRune(r)
		case r > 0xffff:
			high, low := utf16.EncodeRune(r)
			fmt.Fprintf(&out, `\u%04x\u%04x`, high, low)
		default:
			fmt.Fprintf(&out, `\u%04x`, r)
		}
	}
	return out.String()
}

// stateWord is the word of an enum value of states: MESSAGE_STATE_ENDED is "ended".
func stateWord(state fmt.Stringer) string {
	name := state.String()
	return strings.ToLower(name[strings.LastIndexByte(name, '_')+1:])
}

func sender(address string) string {
	if address == "" {
		return "<>"
	}
	return clean(address)
}

// recipients is the first recipient and how many more there are.
func recipients(m *adminv1.MessageSummary) string {
	list := m.GetRecipients()
	switch len(list) {
	case 0:
		return "-"
	case 1:
		return clean(list[0].GetAddress())
	default:
		return fmt.Sprintf("%s +%d", clean(list[0].GetAddress()), len(list)-1)
	}
}

func replyText(reply *mailv1.Reply) string {
	if reply == nil {
		return ""
	}
	return clean(strings.Join(strings.Fields(fmt.Sprintf("%d %s %s", reply.GetCode(), reply.GetEnhancedCode(), reply.GetText())), " "))
}

func timeText(t time.Time) string { return t.UTC().Format("2006-01-02 15:04:05") }

func cut(s string, runes int) string {
	if r := []rune(s); len(r) > runes {
		return string(r[:runes-1]) + "…"
	}
	return s
}
