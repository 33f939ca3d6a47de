package spoolsend

import (
	"bytes"
	"context"
	"errors"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.opentelemetry.io/otel/trace/noop"
	"go.uber.org/goleak"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/timestamppb"

	mailv1 "github.com/rohrpost/rohrpost/proto/gen/rohrpost/mail/v1"
	sendv1 "github.com/rohrpost/rohrpost/proto/gen/rohrpost/send/v1"
	"github.com/rohrpost/rohrpost/proto/smtpreply"
	"github.com/rohrpost/rohrpost/spool"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// fake is a spool and a key store that do what the test says.
type fake struct {
	mu        sync.Mutex
	away      bool
	submit    func(sub spool.Submission, done func(spool.Receipt, error)) // nil: accept at once
	keyErr    error
	keys      map[string]kept
	durable   map[spool.ID]bool
	submitted []spool.Submission
	uploaded  bytes.Buffer
	aborted   int
}

type kept struct {
	id   spool.ID
	hash []byte
}

var now = time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)

func newFake(t *testing.T) (*fake, *Server) {
	t.Helper()
	f := &fake{keys: map[string]kept{}, durable: map[spool.ID]bool{}}
	s := newServer(f, f, Options{
		Hostname: "mx.example", Caller: func(context.Context) string { return "application" },
		TracerProvider: noop.NewTracerProvider(), Timeout: 20 * time.Second,
	})
	s.poll = time.Millisecond
	return f, s
}

func (f *fake) Hello() (spool.Hello, bool) { return spool.Hello{Name: "s", Time: now}, !f.away }

func (f *fake) Submit(sub spool.Submission, _ upload, done func(spool.Receipt, error)) {
	f.mu.Lock()
	f.submitted = append(f.submitted, sub)
	f.mu.Unlock()
	if f.submit != nil {
		f.submit(sub, done)
		return
	}
	f.setDurable(sub.ID)
	done(spool.Receipt{}, nil)
}

func (f *fake) setDurable(id spool.ID) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.durable[id] = true
}

func (f *fake) NewUpload(context.Context, spool.ID, int64) (upload, error) { return f, nil }

func (f *fake) Write(_ context.Context, p []byte) error {
	if len(p) > 256<<10 {
		return errors.New("piece too large")
	}
	f.uploaded.Write(p)
	return nil
}

func (f *fake) Abort() { f.aborted++ }

func (f *fake) ReserveKey(_ context.Context, key string, hash []byte, id spool.ID) (spool.ID, []byte, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.keyErr != nil {
		return spool.ID{}, nil, f.keyErr
	}
	if _, known := f.keys[key]; !known {
		f.keys[key] = kept{id, hash}
	}
	return f.keys[key].id, f.keys[key].hash, nil
}

func (f *fake) HasMessage(_ context.Context, id spool.ID) (bool, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.durable[id], nil
}

func request() *sendv1.SendMessageRequest {
	return &sendv1.SendMessageRequest{
		IdempotencyKey: "k", Sender: "ann@a.example", Recipients: []string{"bob@b.example"},
		Content: []byte("Subject: hi\r\n\r\nBody\r\n"),
	}
}

func TestSendMessage(t *testing.T) {
	f, s := newFake(t)
	ctx := peer.NewContext(t.Context(), &peer.Peer{Addr: &net.TCPAddr{IP: net.ParseIP("2001:db8::1"), Port: 7}})
	resp, err := s.SendMessage(ctx, request())
	if err != nil || resp.GetRepeatedCall() {
		t.Fatal(resp, err)
	}
	sub := f.submitted[0]
	if sub.ID.String() != resp.GetId() || sub.ID.Version() != 7 || string(sub.Content) != "Subject: hi\r\n\r\nBody\r\n" {
		t.Errorf("submitted %+v", sub)
	}
	sec, _ := sub.ID.Time().UnixTime()
	if sec != now.Unix() {
		t.Errorf("the id's time is %d, want the spool's", sec)
	}
	r := sub.Envelope.GetReception()
	if r.GetClientIp() != "2001:db8::1" || r.GetProtocol() != "GRPC" || r.GetGateway() != "mx.example" ||
		r.GetAuthenticatedUser() != "application" || !r.GetReceivedAt().AsTime().Equal(now) {
		t.Errorf("reception: %v", r)
	}
	want := "from [IPv6:2001:db8::1] ([IPv6:2001:db8::1])\r\n\tby mx.example (Rohrpost) with GRPC\r\n\tid " + resp.GetId() +
		"\r\n\tfor <bob@b.example>;\r\n\tMon, 30 Nov 2026 12:00:00 +0000"
	if got := sub.Edits[0].GetPrepend(); got.GetName() != "Received" || got.GetValue() != want {
		t.Errorf("Received: %q", got)
	}
	if sub.Envelope.GetSmtputf8() || sub.Envelope.GetBodyType() != mailv1.BodyType_BODY_TYPE_UNSPECIFIED {
		t.Errorf("envelope: %v", sub.Envelope)
	}
	if time.Until(sub.Deadline) < 12*time.Hour {
		t.Errorf("the spool may take the message back from %s on", sub.Deadline)
	}
}

func TestReceivedHidesRecipientsFromEachOther(t *testing.T) {
	f, s := newFake(t)
	req := request()
	req.Recipients = append(req.Recipients, "cid@b.example")
	if _, err := s.SendMessage(t.Context(), req); err != nil {
		t.Fatal(err)
	}
	value := f.submitted[0].Edits[0].GetPrepend().GetValue()
	if strings.Contains(value, "for") || !strings.HasPrefix(value, "by mx.example") {
		t.Errorf("Received: %q", value)
	}
}

func TestWhatTheNextHopMustSupport(t *testing.T) {
	for name, test := range map[string]struct {
		change   func(*sendv1.SendMessageRequest)
		utf8     bool
		eightBit bool
	}{
		"sender":    {func(r *sendv1.SendMessageRequest) { r.Sender = "añn@a.example" }, true, false},
		"recipient": {func(r *sendv1.SendMessageRequest) { r.Recipients[0] = "bob@bücher.example" }, true, false},
		"header":    {func(r *sendv1.SendMessageRequest) { r.Content = []byte("Subject: ü\r\n\r\n") }, true, true},
		"body":      {func(r *sendv1.SendMessageRequest) { r.Content = []byte("A: b\r\n\r\n\xfc\r\n") }, false, true},
	} {
		f, s := newFake(t)
		req := request()
		test.change(req)
		if _, err := s.SendMessage(t.Context(), req); err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		env := f.submitted[0].Envelope
		if env.GetSmtputf8() != test.utf8 || (env.GetBodyType() == mailv1.BodyType_BODY_TYPE_8BITMIME) != test.eightBit {
			t.Errorf("%s: %v", name, env)
		}
	}
}

func TestLargeContentIsUploaded(t *testing.T) {
	f, s := newFake(t)
	req := request()
	req.Content = bytes.Repeat([]byte("0123456789abcd\r\n"), 40<<10)
	if _, err := s.SendMessage(t.Context(), req); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(f.uploaded.Bytes(), req.GetContent()) || f.submitted[0].Content != nil {
		t.Errorf("uploaded %d octets of %d", f.uploaded.Len(), len(req.GetContent()))
	}
}

func TestRepeatedCallSendsOnce(t *testing.T) {
	f, s := newFake(t)
	first, err := s.SendMessage(t.Context(), request())
	if err != nil {
		t.Fatal(err)
	}
	again := request()
	again.Trace = &mailv1.TraceContext{Traceparent: "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"}
	second, err := s.SendMessage(t.Context(), again)
	if err != nil || second.GetId() != first.GetId() || !second.GetRepeatedCall() || len(f.submitted) != 1 {
		t.Errorf("got %v %v, %d submissions", second, err, len(f.submitted))
	}
}

func TestKeyOfAnotherMessage(t *testing.T) {
	for name, change := range map[string]func(*sendv1.SendMessageRequest){
		"sender":     func(r *sendv1.SendMessageRequest) { r.Sender = "" },
		"recipients": func(r *sendv1.SendMessageRequest) { r.Recipients = append(r.Recipients, "cid@b.example") },
		"content":    func(r *sendv1.SendMessageRequest) { r.Content = []byte("Subject: ho\r\n\r\nBody\r\n") },
		"release":    func(r *sendv1.SendMessageRequest) { r.ReleaseAt = timestamppb.Now() },
	} {
		f, s := newFake(t)
		if _, err := s.SendMessage(t.Context(), request()); err != nil {
			t.Fatal(err)
		}
		other := request()
		change(other)
		if _, err := s.SendMessage(t.Context(), other); status.Code(err) != codes.AlreadyExists || len(f.submitted) != 1 {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// A call that failed is made good by the next one, under the same id.
func TestCallAfterFailure(t *testing.T) {
	f, s := newFake(t)
	f.submit = func(_ spool.Submission, done func(spool.Receipt, error)) {
		done(spool.Receipt{}, smtpreply.New(452, "4.3.1", "Insufficient system storage").Because(errors.New("secret")))
	}
	_, err := s.SendMessage(t.Context(), request())
	st := status.Convert(err)
	if st.Code() != codes.Unavailable || strings.Contains(st.Message(), "secret") || smtpreply.From(err).Reply().GetCode() != 452 {
		t.Errorf("got %v", err)
	}
	f.submit = nil
	resp, err := s.SendMessage(t.Context(), request())
	if err != nil || resp.GetRepeatedCall() || f.submitted[0].ID != f.submitted[1].ID {
		t.Errorf("got %v %v", resp, err)
	}
	// The first may be durable after all, so no verdict may refuse it any more (promise P3).
	if f.submitted[0].Again || !f.submitted[1].Again {
		t.Errorf("submitted again: %v, then %v", f.submitted[0].Again, f.submitted[1].Again)
	}
}

// The message may be on its way to being durable at another spool: that it is there is all that this one must know.
func TestMessageOfAnotherSpool(t *testing.T) {
	f, s := newFake(t)
	f.submit = func(sub spool.Submission, _ func(spool.Receipt, error)) { f.setDurable(sub.ID) }
	resp, err := s.SendMessage(t.Context(), request())
	if err != nil || !resp.GetRepeatedCall() {
		t.Errorf("got %v %v", resp, err)
	}
}

// A caller that gives up is not told that nothing was sent.
func TestCallerGivesUp(t *testing.T) {
	f, s := newFake(t)
	ctx, cancel := context.WithCancel(t.Context())
	f.submit = func(spool.Submission, func(spool.Receipt, error)) { cancel() }
	_, err := s.SendMessage(ctx, request())
	if status.Code(err) != codes.Canceled || !strings.Contains(err.Error(), "not known yet") {
		t.Errorf("got %v", err)
	}
	s.opts.Timeout, f.submit = 5*time.Millisecond, func(spool.Submission, func(spool.Receipt, error)) {}
	if _, err := s.SendMessage(t.Context(), request()); status.Code(err) != codes.DeadlineExceeded {
		t.Errorf("got %v", err)
	}
}

func TestSpoolTakesNothing(t *testing.T) {
	f, s := newFake(t)
	f.away = true
	if _, err := s.SendMessage(t.Context(), request()); status.Code(err) != codes.Unavailable || len(f.keys) != 0 {
		t.Errorf("no incarnation: %v", err)
	}
	f.away, f.keyErr = false, spool.ErrCommitUnknown
	if _, err := s.SendMessage(t.Context(), request()); status.Code(err) != codes.Unavailable || len(f.submitted) != 0 {
		t.Errorf("no key: %v", err)
	}
	for range maxCalls {
		s.calls <- struct{}{}
	}
	if _, err := s.SendMessage(t.Context(), request()); smtpreply.From(err).Reply().GetEnhancedCode() != "4.3.1" {
		t.Errorf("too many calls: %v", err)
	}
}

func TestTraceIsContinued(t *testing.T) {
	const own, metadatas = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", "00-1af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	for name, test := range map[string]struct{ request, metadata, want string }{
		"none":             {"", "", ""},
		"request":          {own, "", own},
		"metadata":         {"", metadatas, metadatas},
		"both":             {own, metadatas, own},
		"request unusable": {"00-zz", metadatas, ""},
	} {
		f, s := newFake(t)
		ctx := metadata.NewIncomingContext(t.Context(), metadata.Pairs("traceparent", test.metadata))
		req := request()
		req.Trace = &mailv1.TraceContext{Traceparent: test.request}
		if _, err := s.SendMessage(ctx, req); err != nil {
			t.Fatal(err)
		}
		if got := f.submitted[0].Trace.GetTraceparent(); got != test.want {
			t.Errorf("%s: %q, want %q", name, got, test.want)
		}
	}
}

func TestInvalidRequests(t *testing.T) {
	long := strings.Repeat("x", 65)
	for name, test := range map[string]struct {
		change func(*sendv1.SendMessageRequest)
		want   string
	}{
		"no key":             {func(r *sendv1.SendMessageRequest) { r.IdempotencyKey = "" }, "idempotency_key"},
		"long key":           {func(r *sendv1.SendMessageRequest) { r.IdempotencyKey = strings.Repeat("k", 256) }, "256 octets"},
		"control in key":     {func(r *sendv1.SendMessageRequest) { r.IdempotencyKey = "a\x00b" }, "octet 1"},
		"sender":             {func(r *sendv1.SendMessageRequest) { r.Sender = "Ann <ann@a.example>" }, "sender"},
		"sender with CRLF":   {func(r *sendv1.SendMessageRequest) { r.Sender = "a@b.example\r\nRCPT TO:<c@d.example>" }, "sender"},
		"no recipients":      {func(r *sendv1.SendMessageRequest) { r.Recipients = nil }, "there are 0"},
		"many recipients":    {func(r *sendv1.SendMessageRequest) { r.Recipients = slices.Repeat(r.Recipients, 1001) }, "there are 1001"},
		"no domain":          {func(r *sendv1.SendMessageRequest) { r.Recipients[0] = "bob" }, "recipients[0]"},
		"empty recipient":    {func(r *sendv1.SendMessageRequest) { r.Recipients[0] = "" }, "recipients[0]"},
		"long local part":    {func(r *sendv1.SendMessageRequest) { r.Recipients[0] = long + "@b.example" }, "too long"},
		"no content":         {func(r *sendv1.SendMessageRequest) { r.Content = nil }, "empty"},
		"large content":      {func(r *sendv1.SendMessageRequest) { r.Content = make([]byte, 1<<20+1) }, "1048577 octets"},
		"case D bare LF":     {func(r *sendv1.SendMessageRequest) { r.Content = []byte("A: b\r\n\nx\r\n") }, "bare LF at octet 6"},
		"case D bare CR":     {func(r *sendv1.SendMessageRequest) { r.Content = []byte("A: b\rc\r\n") }, "bare CR at octet 4"},
		"CR at the end":      {func(r *sendv1.SendMessageRequest) { r.Content = []byte("A: b\r") }, "bare CR at octet 4"},
		"no CRLF at the end": {func(r *sendv1.SendMessageRequest) { r.Content = []byte("A: b\r\n\r\nx") }, "last line"},
		"long line":          {func(r *sendv1.SendMessageRequest) { r.Content = append(make([]byte, 64<<10+1), "\r\n"...) }, "longer than"},
		"header not UTF-8":   {func(r *sendv1.SendMessageRequest) { r.Content = []byte("A: \xfc\r\n\r\n") }, "UTF-8"},
		"release_at":         {func(r *sendv1.SendMessageRequest) { r.ReleaseAt = &timestamppb.Timestamp{Nanos: -1} }, "release_at"},
		"loop":               {func(r *sendv1.SendMessageRequest) { r.Content = bytes.Repeat([]byte("received: x\r\n"), 101) }, "looping"},
	} {
		f, s := newFake(t)
		req := request()
		test.change(req)
		_, err := s.SendMessage(t.Context(), req)
		if status.Code(err) != codes.InvalidArgument || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: got %v, want %q", name, err, test.want)
		}
		if len(f.keys) != 0 {
			t.Errorf("%s: a key was reserved", name)
		}
	}
}

func TestAddresses(t *testing.T) {
	for address, ok := range map[string]bool{
		"bob@b.example": true, `"bob smith"@b.example`: true, `"a\"b"@b.example`: true, "bob@[192.0.2.1]": true,
		"bob@[IPv6:2001:db8::1]": true, "bob+tag@b_c.example": true, "b.o.b@b.example": true, "bob@localhost": true,
		"bob@": false, "@b.example": false, "b..b@b.example": false, ".b@b.example": false, "b@b..example": false,
		"b@-b.example": false, "b@b.example.": false, "b b@b.example": false, "<b@b.example>": false, `"b@b.example`: false,
		`"b\"@b.example`: false, "b@[192.0.2.256]": false, "b@[IPv6:192.0.2.1]": false, "b@[IPv6:fe80::1%eth0]": false,
		"b@b.exam ple": false, "b\xff@b.example": false, "b@b.example\n": false,
	} {
		if problem := addressProblem(address); (problem == "") != ok {
			t.Errorf("%q: %q", address, problem)
		}
	}
}
