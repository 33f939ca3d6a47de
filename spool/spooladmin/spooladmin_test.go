package spooladmin

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"
	"google.golang.org/protobuf/types/known/durationpb"

	adminv1 "github.com/rohrpost/rohrpost/proto/gen/rohrpost/admin/v1"
	mailv1 "github.com/rohrpost/rohrpost/proto/gen/rohrpost/mail/v1"
	"github.com/rohrpost/rohrpost/proto/rpcopt"
	"github.com/rohrpost/rohrpost/spool"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// fakeReader holds records, newest first, and events whose cursors are their positions.
type fakeReader struct {
	mu      sync.Mutex
	records []*spool.Record
	events  []spool.StoredEvent
	err     error
	asked   chan struct{} // told of each question, if there is room
	lists   int
}

func newFakeReader(records ...*spool.Record) *fakeReader {
	return &fakeReader{records: records, asked: make(chan struct{}, 1)}
}

func (r *fakeReader) lock() func() {
	r.mu.Lock()
	select {
	case r.asked <- struct{}{}:
	default:
	}
	return r.mu.Unlock
}

func (r *fakeReader) List(_ context.Context, before spool.ID, limit int) ([]*spool.Record, error) {
	defer r.lock()()
	r.lists++
	var out []*spool.Record
	for _, rec := range r.records {
		if rec.ID.String() < before.String() && len(out) < limit {
			out = append(out, rec)
		}
	}
	return out, r.err
}

func (r *fakeReader) Get(_ context.Context, id spool.ID) (*spool.Record, error) {
	defer r.lock()()
	for _, rec := range r.records {
		if rec.ID == id && r.err == nil {
			return rec, nil
		}
	}
	return nil, cmp.Or(r.err, spool.ErrNotFound)
}

func (r *fakeReader) FindByHeaderMessageID(_ context.Context, headerID string) (spool.ID, error) {
	defer r.lock()()
	for _, rec := range r.records {
		if rec.Search.HeaderMessageID == headerID {
			return rec.ID, r.err
		}
	}
	return uuid.Nil, cmp.Or(r.err, spool.ErrNotFound)
}

func (r *fakeReader) Events(_ context.Context, cursor string, limit int) ([]spool.StoredEvent, string, error) {
	defer r.lock()()
	if r.err != nil {
		return nil, "", r.err
	}
	if cursor == "" {
		return nil, strconv.Itoa(len(r.events)), nil
	}
	from, err := strconv.Atoi(cursor)
	if err != nil {
		return nil, "", fmt.Errorf("events: %w", spool.ErrBadCursor)
	}
	to := min(len(r.events), from+limit)
	return r.events[from:to], strconv.Itoa(to), nil
}

func (r *fakeReader) change(f func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	f()
}

func dial(t *testing.T, reader spool.Reader, live func(spool.ID) (spool.Live, bool)) adminv1.AdminServiceClient {
	t.Helper()
	listener := bufconn.Listen(1 << 16)
	gs := grpc.NewServer(rpcopt.ServerOptions()...)
	opts := Options{Logger: slog.New(slog.DiscardHandler), Heartbeat: 30 * time.Millisecond}
	adminv1.RegisterAdminServiceServer(gs, New(reader, live, opts))
	served := make(chan struct{})
	go func() {
		defer close(served)
		_ = gs.Serve(listener)
	}()
	conn, err := grpc.NewClient("passthrough:bufconn", append(rpcopt.DialOptions(),
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return listener.DialContext(ctx) }),
	)...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = conn.Close()
		gs.Stop()
		<-served
	})
	return adminv1.NewAdminServiceClient(conn)
}

func testContext(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	t.Cleanup(cancel)
	return ctx
}

// many makes n records, newest first; each third is held.
func many(n int) []*spool.Record {
	var out []*spool.Record
	for i := n; i > 0; i-- {
		rec := record()
		rec.ID = uuid.MustParse(fmt.Sprintf("019a0000-0000-7000-8000-%012d", i))
		if i%3 == 0 {
			rec.Waits = []spool.Wait{{Reason: spool.WaitHold, Recipients: []int32{0, 1}}}
		}
		out = append(out, rec)
	}
	return out
}

func TestListMessages(t *testing.T) {
	for _, tt := range []struct {
		name     string
		n        int
		size     int32
		state    adminv1.MessageState
		pages    []int // lengths
		maxLists int
	}{
		{"none", 0, 10, 0, []int{0}, 1},
		{"default size", 120, 0, 0, []int{50, 50, 20}, 3},
		{"last page is full", 20, 10, 0, []int{10, 10}, 2},
		{"one page", 7, 10, 0, []int{7}, 1},
		{"by state", 60, 8, adminv1.MessageState_MESSAGE_STATE_HELD, []int{8, 8, 4}, 12},
		{"by state, a page that ends within the last read", 6, 3, adminv1.MessageState_MESSAGE_STATE_ACTIVE, []int{3, 1}, 3},
		{"a state that nothing has", 100, 10, adminv1.MessageState_MESSAGE_STATE_ENDED, []int{0}, 10},
		{"much to look through", 12000, 1000, adminv1.MessageState_MESSAGE_STATE_DEFERRED, []int{0, 0, 0}, 12},
	} {
		t.Run(tt.name, func(t *testing.T) {
			reader := newFakeReader(many(tt.n)...)
			client := dial(t, reader, nil)
			req := &adminv1.ListMessagesRequest{PageSize: tt.size, State: tt.state}
			var pages []int
			var ids []string
			for {
				resp, err := client.ListMessages(testContext(t), req)
				if err != nil {
					t.Fatal(err)
				}
				pages = append(pages, len(resp.GetMessages()))
				for _, m := range resp.GetMessages() {
					ids = append(ids, m.GetId())
				}
				if req.PageToken = resp.GetNextPageToken(); req.PageToken == "" {
					break
				}
			}
			if !slices.Equal(pages, tt.pages) {
				t.Errorf("pages of %v, want %v", pages, tt.pages)
			}
			var want []string
			for _, rec := range reader.records {
				if tt.state == 0 || summary(rec, nil).GetState() == tt.state {
					want = append(want, rec.ID.String())
				}
			}
			if !slices.Equal(ids, want) {
				t.Errorf("listed %d messages, want %d, each once, newest first", len(ids), len(want))
			}
			if reader.lists > tt.maxLists {
				t.Errorf("the store was asked %d times", reader.lists)
			}
		})
	}
}

func TestBadRequests(t *testing.T) {
	client := dial(t, newFakeReader(), nil)
	ctx := testContext(t)
	list := func(req *adminv1.ListMessagesRequest) error {
		_, err := client.ListMessages(ctx, req)
		return err
	}
	wait := func(req *adminv1.WaitMessageRequest) error {
		_, err := client.WaitMessage(ctx, req)
		return err
	}
	byID := &adminv1.WaitMessageRequest_Id{Id: testID.String()}
	for name, err := range map[string]error{
		"page too large":    list(&adminv1.ListMessagesRequest{PageSize: 1001}),
		"page negative":     list(&adminv1.ListMessagesRequest{PageSize: -1}),
		"unknown state":     list(&adminv1.ListMessagesRequest{State: 99}),
		"page token":        list(&adminv1.ListMessagesRequest{PageToken: "!"}),
		"page token length": list(&adminv1.ListMessagesRequest{PageToken: "YWJj"}),
		"get without id": func() error {
			_, err := client.GetMessage(ctx, &adminv1.GetMessageRequest{})
			return err
		}(),
		"wait for nothing":       wait(&adminv1.WaitMessageRequest{}),
		"wait for a bad id":      wait(&adminv1.WaitMessageRequest{By: &adminv1.WaitMessageRequest_Id{Id: "x"}}),
		"wait for empty header":  wait(&adminv1.WaitMessageRequest{By: &adminv1.WaitMessageRequest_HeaderMessageId{HeaderMessageId: "<>"}}),
		"wait for no state":      wait(&adminv1.WaitMessageRequest{By: byID, Until: []adminv1.MessageState{0}}),
		"wait for unknown state": wait(&adminv1.WaitMessageRequest{By: byID, Until: []adminv1.MessageState{99}}),
		"wait negative":          wait(&adminv1.WaitMessageRequest{By: byID, Timeout: durationpb.New(-1)}),
	} {
		if status.Code(err) != codes.InvalidArgument {
			t.Errorf("%s: %v, want InvalidArgument", name, err)
		}
	}
}

func TestGetMessage(t *testing.T) {
	reader := newFakeReader(record())
	live := func(id spool.ID) (spool.Live, bool) {
		return spool.Live{Journal: []*mailv1.JournalEntry{entry("accepted")}}, id == testID
	}
	client := dial(t, reader, live)
	get := func(id string) (*adminv1.GetMessageResponse, error) {
		return client.GetMessage(testContext(t), &adminv1.GetMessageRequest{Id: id})
	}
	resp, err := get(testID.String())
	if err != nil || resp.GetMessage().GetSummary().GetId() != testID.String() || len(resp.GetMessage().GetJournal()) != 1 {
		t.Errorf("got %v, %v", resp, err)
	}
	if _, err := get(uuid.NewString()); status.Code(err) != codes.NotFound {
		t.Errorf("got %v, want NotFound", err)
	}
	for want, inner := range map[codes.Code]error{
		codes.Unavailable: fmt.Errorf("get: %w", spool.ErrUnavailable), codes.Internal: errors.New("secret"),
	} {
		reader.change(func() { reader.err = inner })
		if _, err := get(testID.String()); status.Code(err) != want || strings.Contains(err.Error(), "secret") {
			t.Errorf("got %v, want %v", err, want)
		}
	}
}

func TestWaitMessage(t *testing.T) {
	byID := &adminv1.WaitMessageRequest_Id{Id: testID.String()}
	byHeader := &adminv1.WaitMessageRequest_HeaderMessageId{HeaderMessageId: "<x@t>"}
	ended := []adminv1.MessageState{adminv1.MessageState_MESSAGE_STATE_HELD, adminv1.MessageState_MESSAGE_STATE_ENDED}
	for _, tt := range []struct {
		name string
		req  *adminv1.WaitMessageRequest
		want adminv1.MessageState
	}{
		{"known", &adminv1.WaitMessageRequest{By: byID}, adminv1.MessageState_MESSAGE_STATE_ACTIVE},
		{"ended", &adminv1.WaitMessageRequest{By: byID, Until: ended}, adminv1.MessageState_MESSAGE_STATE_ENDED},
		{"ended by header", &adminv1.WaitMessageRequest{By: byHeader, Until: ended}, adminv1.MessageState_MESSAGE_STATE_ENDED},
	} {
		t.Run(tt.name, func(t *testing.T) {
			reader := newFakeReader()
			client := dial(t, reader, nil)
			type answer struct {
				resp *adminv1.WaitMessageResponse
				err  error
			}
			got := make(chan answer, 1)
			ctx := testContext(t)
			go func() {
				resp, err := client.WaitMessage(ctx, tt.req)
				got <- answer{resp, err}
			}()
			<-reader.asked // it waits for a message that is not known yet
			rec := record()
			rec.Search.HeaderMessageID = "x@t"
			reader.change(func() { reader.records = []*spool.Record{rec} })
			if len(tt.req.GetUntil()) > 0 {
				<-reader.asked
				<-reader.asked
				done := *rec
				done.Outcome = &spool.Outcome{}
				select {
				case a := <-got:
					t.Fatalf("answered too early: %v, %v", a.resp, a.err)
				default:
				}
				reader.change(func() { reader.records = []*spool.Record{&done} })
			}
			a := <-got
			if a.err != nil || a.resp.GetMessage().GetSummary().GetState() != tt.want {
				t.Errorf("got %v, %v, want %v", a.resp, a.err, tt.want)
			}
		})
	}
	t.Run("time-out", func(t *testing.T) {
		client := dial(t, newFakeReader(record()), nil)
		_, err := client.WaitMessage(testContext(t), &adminv1.WaitMessageRequest{
			By: byID, Until: ended, Timeout: durationpb.New(50 * time.Millisecond),
		})
		if status.Code(err) != codes.DeadlineExceeded {
			t.Errorf("got %v, want DeadlineExceeded", err)
		}
	})
	t.Run("database away", func(t *testing.T) {
		reader := newFakeReader()
		reader.err = spool.ErrUnavailable
		go func() {
			<-reader.asked
			<-reader.asked
			rec := record()
			rec.Search.HeaderMessageID = "x@t"
			reader.change(func() { reader.err, reader.records = nil, []*spool.Record{rec} })
		}()
		_, err := dial(t, reader, nil).WaitMessage(testContext(t), &adminv1.WaitMessageRequest{By: byHeader})
		if err != nil {
			t.Errorf("the wait did not outlive it: %v", err)
		}
	})
}

func TestWatchEvents(t *testing.T) {
	row := func(cursor int, ended bool, events ...string) spool.StoredEvent {
		ev := spool.StoredEvent{Cursor: strconv.Itoa(cursor), Message: testID, Ended: ended}
		for _, e := range events {
			ev.Journal = append(ev.Journal, entry(e))
		}
		return ev
	}
	reader := newFakeReader()
	reader.events = []spool.StoredEvent{row(1, false, "accepted"), row(2, false, "permitted", "deferred"), row(3, false)}
	client := dial(t, reader, nil)
	ctx, cancel := context.WithCancel(testContext(t))
	defer cancel()
	// receive tells the next n events as "cursor event", heartbeats left out.
	receive := func(stream adminv1.AdminService_WatchEventsClient, n int) (got []string) {
		for len(got) < n {
			resp, err := stream.Recv()
			if err != nil {
				t.Fatal(err)
			}
			if ev := resp.GetEvent(); ev != nil {
				got = append(got, strings.TrimSpace(fmt.Sprint(resp.GetCursor(), " ", ev.GetEntry().GetEvent())))
			}
		}
		return got
	}
	fromNow, err := client.WatchEvents(ctx, &adminv1.WatchEventsRequest{})
	if err != nil {
		t.Fatal(err)
	}
	for range 2 { // at once, and again when nothing happens
		if beat, err := fromNow.Recv(); err != nil || beat.GetEvent() != nil || beat.GetCursor() != "3" {
			t.Fatalf("got %v, %v, want a heartbeat", beat, err)
		}
	}
	fromStart, err := client.WatchEvents(ctx, &adminv1.WatchEventsRequest{Cursor: "0"})
	if err != nil {
		t.Fatal(err)
	}
	// "permitted" is not the last of its row: who resumes from there must get the row again.
	if got, want := receive(fromStart, 4), []string{"1 accepted", "1 permitted", "2 deferred", "3"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	reader.change(func() {
		reader.events = append(reader.events, row(4, true, "accepted", "filtered", "delivered"))
		for i := range 2 * maxEvents {
			reader.events = append(reader.events, row(5+i, false, "accepted"))
		}
	})
	for _, stream := range []adminv1.AdminService_WatchEventsClient{fromNow, fromStart} {
		got := receive(stream, 1+2*maxEvents)
		if got[0] != "4 delivered" || got[len(got)-1] != fmt.Sprintf("%d accepted", 4+2*maxEvents) {
			t.Errorf("got %q … %q", got[0], got[len(got)-1])
		}
	}
}

func TestWatchEventsErrors(t *testing.T) {
	for _, tt := range []struct {
		name, cursor string
		err          error
		want         codes.Code
	}{
		{"bad cursor", "x", nil, codes.InvalidArgument},
		{"long cursor", strings.Repeat("1", maxCursor+1), nil, codes.InvalidArgument},
		{"database away", "0", spool.ErrUnavailable, codes.Unavailable},
	} {
		t.Run(tt.name, func(t *testing.T) {
			reader := newFakeReader()
			reader.err = tt.err
			stream, err := dial(t, reader, nil).WatchEvents(testContext(t), &adminv1.WatchEventsRequest{Cursor: tt.cursor})
			if err != nil {
				t.Fatal(err)
			}
			if _, err := stream.Recv(); status.Code(err) != tt.want {
				t.Errorf("got %v, want %v", err, tt.want)
			}
		})
	}
}
