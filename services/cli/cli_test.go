package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/alecthomas/kong"
	"github.com/emersion/go-msgauth/dkim"
	"github.com/emersion/go-smtp"
	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/timestamppb"

	adminv1 "github.com/rohrpost/rohrpost/proto/gen/rohrpost/admin/v1"
	mailv1 "github.com/rohrpost/rohrpost/proto/gen/rohrpost/mail/v1"
	"github.com/rohrpost/rohrpost/services/process"
	"github.com/rohrpost/rohrpost/services/resolver"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const testID = "019a0000-0000-7000-8000-000000000001"

// commands are composed as cmd/rohrpost does it, so that the tags are tried too.
type commands struct {
	Send        Send        `cmd:""`
	Message     Message     `cmd:""`
	Destination Destination `cmd:""`
	Parse       Parse       `cmd:""`
	Health      Health      `cmd:""`
	Certs       Certs       `cmd:""`
	User        User        `cmd:""`
}

// run runs a command line.
func run(t *testing.T, in string, args ...string) (string, error) {
	t.Helper()
	parser, err := kong.New(&commands{}, kong.Name("rohrpost"), kong.Exit(func(int) { t.Error("kong wants to exit") }))
	if err != nil {
		t.Fatal(err)
	}
	parsed, err := parser.Parse(args)
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	parsed.BindTo(t.Context(), (*context.Context)(nil))
	err = parsed.Run(&IO{In: strings.NewReader(in), Out: &out})
	if err != nil && strings.Contains(err.Error(), "\n") {
		t.Errorf("an error of several lines: %q", err)
	}
	return out.String(), err
}

// sink is an SMTP server that notes what it gets.
type sink struct {
	mu      sync.Mutex
	from    string
	to      []string
	content string
	refuse  error // at the end of DATA
}

func (s *sink) NewSession(*smtp.Conn) (smtp.Session, error) { return s, nil }
func (s *sink) Reset()                                      {}
func (s *sink) Logout() error                               { return nil }

func (s *sink) Mail(from string, _ *smtp.MailOptions) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.from, s.to = from, nil
	return nil
}

func (s *sink) Rcpt(to string, _ *smtp.RcptOptions) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.to = append(s.to, to)
	return nil
}

func (s *sink) Data(r io.Reader) error {
	data, err := io.ReadAll(r)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.content = string(data)
	if err != nil {
		return err
	}
	if s.refuse == nil {
		return &smtp.SMTPError{Code: 250, EnhancedCode: smtp.EnhancedCode{2, 0, 0}, Message: "Ok: queued as " + testID}
	}
	return s.refuse // as it is: of a wrapped error the library makes 554 (case A1)
}

func startSink(t *testing.T) (*sink, string) {
	t.Helper()
	s := &sink{}
	server := smtp.NewServer(s)
	lis, err := process.Listen(t.Context(), "test", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- server.Serve(lis) }()
	t.Cleanup(func() {
		_ = server.Close()
		if err := <-done; err != nil && !errors.Is(err, smtp.ErrServerClosed) {
			t.Error(err)
		}
	})
	return s, lis.Addr().String()
}

func TestSendFile(t *testing.T) {
	s, addr := startSink(t)
	const mail = "From: A <a@one.test>\nTo: b@two.test\nCc: C <c@three.test>\n\n.dot\nend\n"
	out, err := run(t, mail, "send", "-", "--smtp", addr)
	if err != nil {
		t.Fatal(err)
	}
	if want := "250 2.0.0 Ok: queued as " + testID + "\nNext: rohrpost message show " + testID + "\n"; out != want {
		t.Errorf("got %q, want %q", out, want)
	}
	if s.from != "a@one.test" || strings.Join(s.to, " ") != "b@two.test c@three.test" {
		t.Errorf("envelope %s, %v", s.from, s.to)
	}
	if want := strings.ReplaceAll(mail, "\n", "\r\n"); s.content != want {
		t.Errorf("content %q", s.content)
	}
	out, err = run(t, mail, "send", "-", "--smtp", addr, "--from=", "--to", "x@y.test", "--data", "/a b")
	if err != nil || s.from != "" || strings.Join(s.to, " ") != "x@y.test" || !strings.Contains(out, "show --data '/a b' "+testID) {
		t.Errorf("%v: %s, %v, %s", err, s.from, s.to, out)
	}
}

func TestSendSamples(t *testing.T) {
	s, addr := startSink(t)
	dir := t.TempDir()
	key, err := MakeSampleKey(dir)
	if err != nil {
		t.Fatal(err)
	}
	if again, err := MakeSampleKey(dir); err != nil || !bytes.Equal(again.public, key.public) {
		t.Errorf("another key at the second start: %v", err)
	}
	cfg := resolver.DefaultConfig()
	cfg.Zone = key.Zone()
	dns, err := resolver.New(cfg, resolver.Options{})
	if err != nil {
		t.Fatal(err)
	}
	for sample, want := range map[string]struct {
		to    string
		valid bool
	}{
		"good": {sampleRecipient, true}, "attachment": {sampleRecipient, true}, "bad-dkim": {sampleRecipient, false}, "bounce": {sampleBounce, true},
	} {
		t.Run(sample, func(t *testing.T) {
			if _, err := run(t, "", "send", "--sample", sample, "--smtp", addr, "--data", dir); err != nil {
				t.Fatal(err)
			}
			if s.from != sampleSender || strings.Join(s.to, " ") != want.to {
				t.Errorf("envelope %s, %v", s.from, s.to)
			}
			results, err := dkim.VerifyWithOptions(strings.NewReader(s.content), &dkim.VerifyOptions{
				LookupTXT: func(name string) ([]string, error) { return dns.LookupTXT(t.Context(), name) },
			})
			if err != nil || len(results) != 1 || (results[0].Err == nil) != want.valid {
				t.Errorf("DKIM: %v %+v", err, results[0])
			}
			if bare := strings.ReplaceAll(s.content, "\r\n", ""); strings.ContainsAny(bare, "\r\n") {
				t.Error("a bare CR or LF")
			}
			for _, line := range strings.Split(s.content, "\r\n") {
				if len(line) > 998 {
					t.Errorf("a line of %d octets", len(line))
				}
			}
		})
	}
	t.Run("without key", func(t *testing.T) {
		if _, err := run(t, "", "send", "--sample", "good", "--smtp", addr, "--data", t.TempDir()); err != nil || strings.Contains(s.content, "DKIM-Signature") {
			t.Errorf("%v", err)
		}
		if _, err := run(t, "", "send", "--sample", "bad-dkim", "--smtp", addr, "--data", t.TempDir()); process.ExitCode(err) != process.ExitUsage {
			t.Errorf("got %v", err)
		}
	})
}

func TestSendErrors(t *testing.T) {
	s, addr := startSink(t)
	s.refuse = &smtp.SMTPError{Code: 451, EnhancedCode: smtp.EnhancedCode{4, 3, 0}, Message: "try later"}
	free := closedPort(t)
	for name, test := range map[string]struct {
		in   string
		args []string
		code int
		want string
	}{
		"nothing to send":   {args: []string{"send"}, code: 2, want: "--sample good"},
		"both":              {args: []string{"send", "x", "--sample", "good"}, code: 2, want: "not both"},
		"no such file":      {args: []string{"send", "absent.eml"}, code: 2, want: "absent.eml: no such file"},
		"no recipient":      {in: "Subject: x\n\n", args: []string{"send", "-"}, code: 2, want: "--to"},
		"nobody listens":    {args: []string{"send", "--sample", "good", "--smtp", free}, code: 1, want: "nothing listens on " + free},
		"temporary refusal": {args: []string{"send", "--sample", "good", "--smtp", addr}, code: 1, want: "try again later: end of DATA:"},
	} {
		_, err := run(t, test.in, test.args...)
		if process.ExitCode(err) != test.code || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: got %v", name, err)
		}
	}
}

// closedPort is an address on which nothing listens.
func closedPort(t *testing.T) string {
	t.Helper()
	lis, err := process.Listen(t.Context(), "test", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer lis.Close()
	return lis.Addr().String()
}

// fakeAdmin is an admin service with one message.
type fakeAdmin struct {
	adminv1.UnimplementedAdminServiceServer
	message *adminv1.Message
	asked   *adminv1.ListMessagesRequest

	suspensions []*adminv1.Suspension
}

func (f *fakeAdmin) ListMessages(_ context.Context, request *adminv1.ListMessagesRequest) (*adminv1.ListMessagesResponse, error) {
	f.asked = request
	if f.message == nil {
		return &adminv1.ListMessagesResponse{}, nil
	}
	return &adminv1.ListMessagesResponse{Messages: []*adminv1.MessageSummary{f.message.GetSummary()}}, nil
}

func (f *fakeAdmin) GetMessage(_ context.Context, request *adminv1.GetMessageRequest) (*adminv1.GetMessageResponse, error) {
	if request.GetId() != testID {
		return nil, status.Error(codes.NotFound, "no")
	}
	return &adminv1.GetMessageResponse{Message: f.message}, nil
}

// startAdmin serves with the token of a data folder and returns the flags that reach it.
func startAdmin(t *testing.T, admin *fakeAdmin, change func(*process.Server)) []string {
	t.Helper()
	dir := t.TempDir()
	token, err := process.MakeToken(dir)
	if err != nil {
		t.Fatal(err)
	}
	server, err := process.NewServer(process.ServerOptions{Token: token})
	if err != nil {
		t.Fatal(err)
	}
	adminv1.RegisterAdminServiceServer(server, admin)
	if change != nil {
		change(server)
	}
	lis, err := process.Listen(t.Context(), "test", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	serve(t, server, lis)
	if err := process.WriteAddress(dir, process.GRPCAddressFile, lis.Addr().String()); err != nil {
		t.Fatal(err)
	}
	return []string{"--data", dir} // the address is found there
}

func serve(t *testing.T, server *process.Server, lis net.Listener) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- process.ServeGRPC(ctx, server, lis, time.Second) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

func testMessage() *adminv1.Message {
	at := time.Date(2026, 11, 30, 11, 0, 0, 0, time.UTC)
	reply := &mailv1.Reply{Code: 550, EnhancedCode: "5.1.1", Text: "no\nsuch user"}
	return &adminv1.Message{
		Summary: &adminv1.MessageSummary{
			Id: testID, State: adminv1.MessageState_MESSAGE_STATE_ENDED, Subject: "Hi \x1b[31mred\u202e", Size: 42, ReceivedAt: timestamppb.New(at),
			Recipients: []*adminv1.RecipientStatus{
				{Address: "a@one.test", State: mailv1.RecipientState_RECIPIENT_STATE_DELIVERED},
				{Address: "b@two.test", State: mailv1.RecipientState_RECIPIENT_STATE_BOUNCED, LastReply: reply},
			},
		},
		Envelope: &mailv1.Envelope{
			Recipients: []*mailv1.Recipient{{Address: "a@one.test"}, {Address: "b@two.test"}},
			Reception:  &mailv1.Reception{ClientIp: "192.0.2.1", Helo: "client", Protocol: "ESMTP"},
		},
		Verdict: &mailv1.Verdict{Results: []*mailv1.CheckResult{{Check: "spf", Result: "pass"}}},
		Journal: []*mailv1.JournalEntry{
			{Time: timestamppb.New(at), Stage: "gateway", Event: "accepted"},
			{Time: timestamppb.New(at.Add(time.Second)), Stage: "deliver", Event: "bounced", Recipients: []int32{1}, Text: "550 5.1.1 no such user", Attempt: &mailv1.Attempt{
				Number: 1, Destination: "two.test", Route: "smtp", StartedAt: timestamppb.New(at), FinishedAt: timestamppb.New(at.Add(20 * time.Millisecond)),
				Results: []*mailv1.RecipientResult{{Recipient: 1, Status: mailv1.ResultStatus_RESULT_STATUS_PERMANENT, Reply: reply}},
			}},
		},
	}
}

func TestMessageShow(t *testing.T) {
	flags := startAdmin(t, &fakeAdmin{message: testMessage()}, nil)
	out, err := run(t, "", append([]string{"message", "show", testID}, flags...)...)
	if err != nil {
		t.Fatal(err)
	}
	want := `Message   ` + testID + `  ended
From      <>
Subject   Hi ` + "\ufffd[31mred\ufffd" + `
Received  2026-11-30 11:00:00 UTC, 42 octets, from 192.0.2.1 (client) by ESMTP
Check     spf pass

Recipients
  a@one.test  delivered
  b@two.test  bounced  550 5.1.1 no such user

Journal (UTC)
  2026-11-30 11:00:00.000  gateway  accepted
  2026-11-30 11:00:01.000  deliver  bounced b@two.test attempt 1 for two.test smtp in 20ms
                                    b@two.test  permanent  550 5.1.1 no such user
`
	if diff := cmp.Diff(want, out); diff != "" {
		t.Error(diff)
	}
	out, err = run(t, "", append([]string{"message", "show", testID, "--json"}, flags...)...)
	var decoded struct {
		Summary struct{ ID, State, Subject string }
	}
	if err != nil || json.Unmarshal([]byte(out), &decoded) != nil || decoded.Summary.ID != testID {
		t.Errorf("%v %s", err, out)
	}
	if strings.ContainsAny(out, "\x1b\u202e") || decoded.Summary.Subject != "Hi \x1b[31mred\u202e" {
		t.Errorf("subject %q in %q", decoded.Summary.Subject, out)
	}
}

func TestMessageLS(t *testing.T) {
	admin := &fakeAdmin{}
	flags := startAdmin(t, admin, nil)
	out, err := run(t, "", append([]string{"message", "ls"}, flags...)...)
	if err != nil || !strings.Contains(out, "rohrpost send --sample good") {
		t.Errorf("%v %s", err, out)
	}
	admin.message = testMessage()
	out, err = run(t, "", append([]string{"message", "ls", "--state", "held", "--limit", "3"}, flags...)...)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{testID + "  2026-11-30 11:00:00  ended  <>    a@one.test +1  Hi \ufffd[31mred\ufffd\n"} {
		if !strings.Contains(out, want) {
			t.Errorf("%q lacks %q", out, want)
		}
	}
	if admin.asked.GetState() != adminv1.MessageState_MESSAGE_STATE_HELD || admin.asked.GetPageSize() != 3 {
		t.Errorf("asked for %v", admin.asked)
	}
}

func TestQuestionsThatFail(t *testing.T) {
	flags := startAdmin(t, &fakeAdmin{}, nil)
	free := closedPort(t)
	wrong := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(wrong, []byte("another token, but long enough"), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, test := range map[string]struct {
		args []string
		code int
		want string
	}{
		"no such message": {args: append([]string{"message", "show", "x"}, flags...), code: 1, want: "there is no message x"},
		"bad limit":       {args: append([]string{"message", "ls", "--limit", "0"}, flags...), code: 2, want: "--limit"},
		"nobody listens":  {args: []string{"message", "ls", "--grpc", free, "--token-file", wrong}, code: 1, want: "nothing listens on " + free},
		"wrong token":     {args: append([]string{"message", "ls", "--token-file", wrong}, flags...), code: 1, want: "token is missing or wrong"},
		"no token":        {args: []string{"message", "ls", "--grpc", free, "--data", "/nowhere"}, code: 2, want: "no token in /nowhere"},
		"no certificates": {args: []string{"message", "ls", "--grpc", free, "--tls", "/nowhere"}, code: 2, want: "rohrpost certs"},
		"health, nobody":  {args: []string{"health", "--grpc", free}, code: 1, want: "nothing listens"},
		"TLS is wanted":   {args: append([]string{"health", "--tls", certs(t), "--grpc", process.ReadAddress(flags[1], process.GRPCAddressFile)}, flags...), code: 1, want: "--tls"},
	} {
		_, err := run(t, "", test.args...)
		if process.ExitCode(err) != test.code || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: got %v", name, err)
		}
	}
}

func certs(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	if _, err := run(t, "", "certs", dir, "--name", "mail.example"); err != nil {
		t.Fatal(err)
	}
	return dir
}

func TestHealth(t *testing.T) {
	var server *process.Server
	flags := startAdmin(t, &fakeAdmin{}, func(s *process.Server) { server = s })
	out, err := run(t, "", append([]string{"health"}, flags...)...)
	if err != nil || !strings.Contains(out, "is serving") {
		t.Errorf("%v %s", err, out)
	}
	server.SetServing(false)
	if _, err := run(t, "", append([]string{"health"}, flags...)...); process.ExitCode(err) != 1 || !strings.Contains(err.Error(), "not_serving") {
		t.Errorf("got %v", err)
	}
}

func TestHealthOverTLS(t *testing.T) {
	dir := certs(t)
	serverTLS, _, err := process.LoadTLS(process.TLSConfig{Dir: dir}, process.Gateway)
	if err != nil {
		t.Fatal(err)
	}
	server, err := process.NewServer(process.ServerOptions{TLS: serverTLS})
	if err != nil {
		t.Fatal(err)
	}
	lis, err := process.Listen(t.Context(), "test", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	serve(t, server, lis)
	if _, err := run(t, "", "health", "--grpc", lis.Addr().String(), "--tls", dir, "--as", "gateway"); err != nil {
		t.Error(err)
	}
	if _, err := run(t, "", "health", "--grpc", lis.Addr().String(), "--tls", dir); err == nil {
		t.Error("a gateway passes for a spool")
	}
}

func TestCerts(t *testing.T) {
	dir := t.TempDir()
	out, err := run(t, "", "certs", dir, "--service", "gateway")
	if err != nil || out != dir+": made ca, gateway\n" {
		t.Errorf("%v %q", err, out)
	}
	if out, err = run(t, "", "certs", dir, "--service", "gateway"); err != nil || !strings.Contains(out, "is there") {
		t.Errorf("%v %q", err, out)
	}
	if _, err = run(t, "", "certs", dir, "--service", "../x"); process.ExitCode(err) != 2 {
		t.Errorf("got %v", err)
	}
}

func (f *fakeAdmin) CommandMessage(_ context.Context, request *adminv1.CommandMessageRequest) (*adminv1.CommandMessageResponse, error) {
	if request.GetId() != testID {
		return nil, status.Error(codes.NotFound, "no")
	}
	return &adminv1.CommandMessageResponse{Done: true, Result: "done: " + request.GetCommand().String()}, nil
}

func TestMessageCommands(t *testing.T) {
	flags := startAdmin(t, &fakeAdmin{}, nil)
	for _, word := range []string{"hold", "release", "cancel", "retry", "bounce"} {
		out, err := run(t, "", append([]string{"message", word, testID}, flags...)...)
		if want := "done: COMMAND_" + strings.ToUpper(word); err != nil || !strings.Contains(out, want) {
			t.Errorf("%s: %q, %v; want %q", word, out, err, want)
		}
	}
	// One that fails does not keep the others from it.
	out, err := run(t, "", append([]string{"message", "cancel", "no", testID}, flags...)...)
	if err == nil || !strings.Contains(err.Error(), "1 of 2") || !strings.Contains(out, "no  there is no such message") ||
		!strings.Contains(out, testID+"  done") {
		t.Errorf("%q, %v", out, err)
	}
}
