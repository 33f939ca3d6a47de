package console

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/timestamppb"

	adminv1 "github.com/rohrpost/rohrpost/proto/gen/rohrpost/admin/v1"
	mailv1 "github.com/rohrpost/rohrpost/proto/gen/rohrpost/mail/v1"
)

const (
	testID = "019a0000-0000-7000-8000-000000000001"
	evil   = `<script>alert(1)</script>"'><img src=x onerror=alert(2)>`
)

// fakeAdmin answers from memory.
type fakeAdmin struct {
	adminv1.AdminServiceClient
	list    *adminv1.ListMessagesResponse
	asked   *adminv1.ListMessagesRequest
	message *adminv1.Message
	err     error
}

func (f *fakeAdmin) ListMessages(_ context.Context, request *adminv1.ListMessagesRequest, _ ...grpc.CallOption) (*adminv1.ListMessagesResponse, error) {
	f.asked = request
	return f.list, f.err
}

func (f *fakeAdmin) GetMessage(_ context.Context, request *adminv1.GetMessageRequest, _ ...grpc.CallOption) (*adminv1.GetMessageResponse, error) {
	if f.err == nil && request.GetId() != testID {
		return nil, status.Error(codes.NotFound, "no")
	}
	return &adminv1.GetMessageResponse{Message: f.message}, f.err
}

// evilMessage holds a stranger's text wherever a stranger can put some.
func evilMessage() *adminv1.Message {
	at := timestamppb.New(time.Date(2026, 11, 30, 12, 0, 0, 0, time.FixedZone("", 3600)))
	reply := &mailv1.Reply{Code: 550, EnhancedCode: "5.1.1", Text: evil}
	return &adminv1.Message{
		Summary: &adminv1.MessageSummary{
			Id: testID, State: adminv1.MessageState_MESSAGE_STATE_ENDED, Sender: evil, Subject: evil, HeaderMessageId: evil,
			ReceivedAt: at, Size: 42,
			Recipients: []*adminv1.RecipientStatus{
				{Address: evil, State: mailv1.RecipientState_RECIPIENT_STATE_BOUNCED, LastReply: reply, NextAt: at},
			},
		},
		Envelope: &mailv1.Envelope{
			Sender: evil, Recipients: []*mailv1.Recipient{{Address: evil}},
			Reception: &mailv1.Reception{Helo: evil, ClientIp: "192.0.2.1", AuthenticatedUser: evil, Gateway: evil},
		},
		Verdict: &mailv1.Verdict{
			Recipients: []*mailv1.RecipientVerdict{{Rule: evil, Tags: []string{evil}}},
			Results:    []*mailv1.CheckResult{{Check: "dkim", Result: "fail", Property: evil, Detail: evil}},
		},
		Parsed: &mailv1.ParsedMessage{
			Parts: []*mailv1.Part{{Path: "1", Parts: []*mailv1.Part{{Path: "1.1", Filename: evil, Type: evil}}}}, Attachments: []string{"1.1"},
			Defects: []*mailv1.Defect{{Kind: "odd", Detail: evil}},
		},
		Journal: []*mailv1.JournalEntry{{
			Time: at, Stage: "deliver", Event: "bounced", Text: evil, Worker: evil, Recipients: []int32{0, 7, -1},
			Attempt: &mailv1.Attempt{Destination: evil, Remote: evil, Results: []*mailv1.RecipientResult{{Status: mailv1.ResultStatus_RESULT_STATUS_PERMANENT, Reply: reply}}},
		}},
	}
}

func newConsole(t *testing.T, admin *fakeAdmin, change func(*Config)) http.Handler {
	t.Helper()
	cfg := DefaultConfig()
	if change != nil {
		change(&cfg)
	}
	handler, err := New(cfg, admin, Options{Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	return handler
}

func get(t *testing.T, handler http.Handler, path string, change func(*http.Request)) *httptest.ResponseRecorder {
	t.Helper()
	request := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "http://127.0.0.1:8025"+path, nil)
	if change != nil {
		change(request)
	}
	recorder := httptest.NewRecorder()
	handler.ServeHTTP(recorder, request)
	return recorder
}

func TestTextOfStrangersIsEscaped(t *testing.T) {
	message := evilMessage()
	handler := newConsole(t, &fakeAdmin{
		message: message,
		list:    &adminv1.ListMessagesResponse{Messages: []*adminv1.MessageSummary{message.GetSummary()}, NextPageToken: evil},
	}, nil)
	for _, path := range []string{"/", "/messages/" + testID} {
		response := get(t, handler, path, nil)
		body := response.Body.String()
		if response.Code != http.StatusOK || strings.Count(body, "&lt;script&gt;") < 3 {
			t.Errorf("%s: %d %s", path, response.Code, body)
		}
		for _, bad := range []string{"<script", "<img", `"'>`} {
			if strings.Contains(body, bad) {
				t.Errorf("%s holds %s", path, bad)
			}
		}
		if policy := response.Header().Get("Content-Security-Policy"); !strings.Contains(policy, "default-src 'none'") || strings.Contains(policy, "script-src") {
			t.Errorf("%s: policy %q", path, policy)
		}
	}
}

func TestPagesSayWhatThereIs(t *testing.T) {
	message := evilMessage()
	message.Summary.Subject, message.Summary.Sender = "Grüße\u202efdp", ""
	admin := &fakeAdmin{message: message, list: &adminv1.ListMessagesResponse{
		Messages: []*adminv1.MessageSummary{message.GetSummary()}, NextPageToken: "a&b",
	}}
	handler := newConsole(t, admin, nil)
	for path, wants := range map[string][]string{
		"/": {
			"Grüße\ufffdfdp", "&lt;&gt;", "2026-11-30 11:00:00 UTC", `class="state ended"`, `href="/messages/` + testID, `href="/?page=a%26b"`,
		},
		"/?state=held&page=x": {`href="/?page=a%26b&amp;state=held"`, `href="/?state=held" aria-current="page"`, ">Newest<"},
		"/messages/" + testID: {
			"bounced", "550 5.1.1", "2026-11-30 11:00:00.000 UTC", "recipient 7", "recipient -1", "42 octets", "192.0.2.1", "permanent",
		},
		"/style.css": {"color-scheme"},
	} {
		body := get(t, handler, path, nil).Body.String()
		for _, want := range wants {
			if !strings.Contains(body, want) {
				t.Errorf("%s lacks %q:\n%s", path, want, body)
			}
		}
	}
	get(t, handler, "/?state=held&page=x", nil)
	if admin.asked.GetState() != adminv1.MessageState_MESSAGE_STATE_HELD || admin.asked.GetPageToken() != "x" || admin.asked.GetPageSize() != 50 {
		t.Errorf("asked for %v", admin.asked)
	}
}

func TestEmptyStates(t *testing.T) {
	handler := newConsole(t, &fakeAdmin{list: &adminv1.ListMessagesResponse{}}, nil)
	for path, want := range map[string]string{
		"/": "rohrpost send --sample good", "/?state=held": "No messages in this state", "/?page=x": "No more messages",
	} {
		if body := get(t, handler, path, nil).Body.String(); !strings.Contains(body, want) {
			t.Errorf("%s lacks %q", path, want)
		}
	}
}

func TestFaults(t *testing.T) {
	for name, test := range map[string]struct {
		path string
		err  error
		code int
	}{
		"no such message":   {path: "/messages/x", code: http.StatusNotFound},
		"no such page":      {path: "/other", code: http.StatusNotFound},
		"no such state":     {path: "/?state=" + "unspecified", code: http.StatusBadRequest},
		"bad page":          {path: "/?page=x", err: status.Error(codes.InvalidArgument, "secret"), code: http.StatusBadRequest},
		"an id of octets":   {path: "/messages/%ff", err: errors.New("secret"), code: http.StatusBadRequest},
		"a page of octets":  {path: "/?page=%ff", err: errors.New("secret"), code: http.StatusBadRequest},
		"spool is away":     {path: "/", err: status.Error(codes.Unavailable, "secret"), code: http.StatusServiceUnavailable},
		"any other failure": {path: "/messages/" + testID, err: errors.New("secret"), code: http.StatusServiceUnavailable},
	} {
		response := get(t, newConsole(t, &fakeAdmin{list: &adminv1.ListMessagesResponse{}, err: test.err}, nil), test.path, nil)
		if response.Code != test.code || strings.Contains(response.Body.String(), "secret") {
			t.Errorf("%s: %d %s", name, response.Code, response.Body)
		}
	}
}

func TestOnlyKnownHostsAndOriginsAreAnswered(t *testing.T) {
	handler := newConsole(t, &fakeAdmin{list: &adminv1.ListMessagesResponse{}}, func(c *Config) { c.Hosts = []string{"mail.example"} })
	for name, test := range map[string]struct {
		host, origin, method string
		code                 int
	}{
		"address":                    {host: "127.0.0.1:8025", code: http.StatusOK},
		"another port":               {host: "127.0.0.1:80", code: http.StatusOK},
		"name":                       {host: "LocalHost:8025", code: http.StatusOK},
		"IPv6":                       {host: "[::1]:8025", code: http.StatusOK},
		"listed":                     {host: "mail.example", code: http.StatusOK},
		"rebound name":               {host: "evil.example:8025", code: http.StatusMisdirectedRequest},
		"name that starts like ours": {host: "localhost.evil.example", code: http.StatusMisdirectedRequest},
		"no host":                    {host: "", code: http.StatusMisdirectedRequest},
		"same origin":                {host: "localhost:8025", origin: "http://localhost:8025", code: http.StatusOK},
		"other origin":               {host: "localhost:8025", origin: "http://evil.example", code: http.StatusForbidden},
		"other port's origin":        {host: "localhost:8025", origin: "http://localhost:3000", code: http.StatusForbidden},
		"null origin":                {host: "localhost:8025", origin: "null", code: http.StatusForbidden},
		"POST":                       {host: "localhost:8025", method: http.MethodPost, code: http.StatusMethodNotAllowed},
		"HEAD":                       {host: "localhost:8025", method: http.MethodHead, code: http.StatusOK},
	} {
		response := get(t, handler, "/", func(r *http.Request) {
			r.Host = test.host
			if test.origin != "" {
				r.Header.Set("Origin", test.origin)
			}
			if test.method != "" {
				r.Method = test.method
			}
		})
		if response.Code != test.code {
			t.Errorf("%s: got %d, want %d", name, response.Code, test.code)
		}
	}
}

func TestUnknownFailureGoesToTheLog(t *testing.T) {
	var log bytes.Buffer
	handler, err := New(DefaultConfig(), &fakeAdmin{err: errors.New("inner cause")}, Options{Logger: slog.New(slog.NewTextHandler(&log, nil))})
	if err != nil {
		t.Fatal(err)
	}
	get(t, handler, "/", nil)
	if !strings.Contains(log.String(), "inner cause") {
		t.Errorf("the log says %q", log.String())
	}
}

func TestValidate(t *testing.T) {
	for name, test := range map[string]struct {
		cfg  Config
		want string
	}{
		"default":       {cfg: DefaultConfig()},
		"IPv6 loopback": {cfg: Config{Listen: "[::1]:1", PageSize: 1}},
		"allowed":       {cfg: Config{Listen: ":8025", AllowRemote: true, PageSize: 1}},
		"every address": {cfg: Config{Listen: ":8025", PageSize: 1}, want: "console.allow_remote"},
		"remote":        {cfg: Config{Listen: "192.0.2.1:8025", PageSize: 1}, want: "console.allow_remote"},
		"no port":       {cfg: Config{Listen: "localhost", PageSize: 1}, want: "console.listen"},
		"page size":     {cfg: Config{Listen: "localhost:1"}, want: "console.page_size"},
	} {
		err := test.cfg.Validate()
		if (err == nil) != (test.want == "") || err != nil && !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: got %v", name, err)
		}
	}
}
