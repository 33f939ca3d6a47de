//go:build compose

package compose

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/smtp"
	"net/url"
	"regexp"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	adminv1 "github.com/rohrpost/rohrpost/proto/gen/rohrpost/admin/v1"
)

var queuedAs = regexp.MustCompile(`[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[0-9a-f]{4}-[0-9a-f]{12}`)

// sendTimeout is how long a client of ours is patient: longer than the gateway is with its spool (gateway.timeouts.submit).
const sendTimeout = 2 * time.Minute

// contentSent is an error after the whole content: the client can't know whether the mail was accepted.
type contentSent struct{ error }

func (e contentSent) Unwrap() error { return e.error }

func sentWhole(err error) bool {
	var sent contentSent
	return errors.As(err, &sent)
}

// send sends a small mail by plain SMTP and returns its id.
func send(gateway, subject string) (string, error) {
	return sendText(gateway, subject, "\r\nHello.\r\n")
}

// sendText sends a mail whose header is followed by what is given: more fields or an empty line and a body.
func sendText(gateway, subject, rest string) (string, error) {
	c, err := open(gateway)
	if err != nil {
		return "", err
	}
	defer c.Close() //nolint:errcheck // after the reply there is nothing to lose
	if err := c.Mail("ann@a.example"); err != nil {
		return "", err
	}
	if err := c.Rcpt("bob@b.example"); err != nil {
		return "", err
	}
	if err := c.Text.PrintfLine("DATA"); err != nil {
		return "", err
	}
	if _, _, err := c.Text.ReadResponse(354); err != nil {
		return "", err
	}
	w := c.Text.DotWriter()
	_, err = fmt.Fprintf(w, "From: Ann <ann@a.example>\r\nTo: Bob <bob@b.example>\r\nSubject: %s\r\n"+
		"Message-ID: <%s@a.example>\r\nDate: Mon, 30 Nov 2026 12:00:00 +0000\r\n%s", subject, subject, rest)
	if err == nil {
		err = w.Close()
	}
	if err != nil {
		return "", err
	}
	// net/smtp hides the text of this reply, in which the id stands.
	_, text, err := c.Text.ReadResponse(250)
	if err != nil {
		return "", contentSent{err}
	}
	_ = c.Quit()
	id := queuedAs.FindString(text)
	if id == "" {
		return "", fmt.Errorf("no id in the reply %q", text)
	}
	return id, nil
}

// open opens a session.
func open(gateway string) (*smtp.Client, error) {
	conn, err := (&net.Dialer{Timeout: sendTimeout}).DialContext(context.Background(), "tcp", gateway)
	if err != nil {
		return nil, err
	}
	// A paused container takes connections and says nothing.
	err = conn.SetDeadline(time.Now().Add(sendTimeout))
	if err == nil {
		var c *smtp.Client
		if c, err = smtp.NewClient(conn, "localhost"); err == nil {
			return c, nil
		}
	}
	_ = conn.Close()
	return nil, err
}

// sendPatiently sends a mail again for as long as it is refused by 4yz. Where no reply came it gives up: a second mail would be
// another one.
func sendPatiently(gateway, subject, rest string) (string, error) {
	for deadline := time.Now().Add(patience); ; time.Sleep(100 * time.Millisecond) {
		id, err := sendText(gateway, subject, rest)
		if err == nil || sentWhole(err) && code(err)/100 != 4 || time.Now().After(deadline) {
			return id, err
		}
	}
}

// mustSend sends a mail that must be taken, if not at once.
func mustSend(t testing.TB, subject string) string {
	t.Helper()
	id, err := sendPatiently(pipeline.address("gateway"), subject, "\r\nHello.\r\n")
	if err != nil {
		t.Fatal(err)
	}
	return id
}

// wait waits by WaitMessage until a message is in a state. If that does not come, it shows what the journal says.
func wait(t testing.TB, admin adminv1.AdminServiceClient, id string, until adminv1.MessageState) *adminv1.Message {
	t.Helper()
	var message *adminv1.Message
	defer func() {
		if message == nil {
			now, err := admin.GetMessage(context.Background(), &adminv1.GetMessageRequest{Id: id})
			t.Logf("%s is %v (%v); the journal: %v", id, now.GetMessage().GetSummary(), err, now.GetMessage().GetJournal())
		}
	}()
	eventually(t, fmt.Sprintf("waiting for %s to be %v", id, until), func() error {
		ctx, cancel := context.WithTimeout(context.Background(), 15*time.Second)
		defer cancel()
		response, err := admin.WaitMessage(ctx, &adminv1.WaitMessageRequest{
			By: &adminv1.WaitMessageRequest_Id{Id: id}, Until: []adminv1.MessageState{until}, Timeout: durationpb.New(10 * time.Second),
		})
		message = response.GetMessage()
		return err
	})
	return message
}

// get asks for JSON.
func get(address string, into any) error {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	if err != nil {
		return err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("%s says %s", address, response.Status)
	}
	return json.NewDecoder(response.Body).Decode(into)
}

// copies asks Mailpit how many mails of a subject it has.
func copies(t testing.TB, subject string) int { return count(t, `subject:"`+subject+`"`) }

// count asks Mailpit how many mails match a query.
func count(t testing.TB, query string) int {
	t.Helper()
	var answer struct {
		MessagesCount int `json:"messages_count"`
	}
	address := "http://" + pipeline.address("mailpit") + "/api/v1/search?query=" + url.QueryEscape(query)
	eventually(t, "asking Mailpit", func() error { return get(address, &answer) })
	return answer.MessagesCount
}

func TestMailArrives(t *testing.T) {
	pipeline.tellLogs(t, "spool", "deliver")
	id := mustSend(t, "arrives")
	message := wait(t, adminv1.NewAdminServiceClient(pipeline.dial(t, "cli")), id, adminv1.MessageState_MESSAGE_STATE_ENDED)
	if got := copies(t, "arrives"); got != 1 {
		t.Errorf("Mailpit has %d mails, want 1; the journal: %v", got, message.GetJournal())
	}
}

// A mail that can't be delivered now is deferred, and delivered once its next hop is back.
func TestDeferredThenDelivered(t *testing.T) {
	pipeline.tellLogs(t, "spool", "deliver", "mailpit")
	admin := adminv1.NewAdminServiceClient(pipeline.dial(t, "cli"))
	pipeline.do(t, "stop", "mailpit")
	id := mustSend(t, "deferred")
	wait(t, admin, id, adminv1.MessageState_MESSAGE_STATE_DEFERRED)
	pipeline.do(t, "start", "mailpit")
	wait(t, admin, id, adminv1.MessageState_MESSAGE_STATE_ENDED)
	if got := copies(t, "deferred"); got != 1 {
		t.Errorf("Mailpit has %d mails, want 1", got)
	}
}

// The command of the README works as it stands there.
func TestCommandLine(t *testing.T) {
	out := pipeline.do(t, "run", "--rm", "-T", "cli", "send", "--sample", "good")
	id := queuedAs.FindString(out)
	if id == "" {
		t.Fatalf("no id in %q", out)
	}
	wait(t, adminv1.NewAdminServiceClient(pipeline.dial(t, "cli")), id, adminv1.MessageState_MESSAGE_STATE_ENDED)
	if out := pipeline.do(t, "run", "--rm", "-T", "cli", "message", "show", id); !regexp.MustCompile(`(?i)delivered`).MatchString(out) {
		t.Errorf("message show says %s", out)
	}
}
