package spooladmin

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"
	"google.golang.org/protobuf/testing/protocmp"
	"google.golang.org/protobuf/types/known/timestamppb"

	adminv1 "github.com/rohrpost/rohrpost/proto/gen/rohrpost/admin/v1"
	mailv1 "github.com/rohrpost/rohrpost/proto/gen/rohrpost/mail/v1"
	"github.com/rohrpost/rohrpost/spool"
)

const (
	active    = mailv1.RecipientState_RECIPIENT_STATE_ACTIVE
	deferred  = mailv1.RecipientState_RECIPIENT_STATE_DEFERRED
	held      = mailv1.RecipientState_RECIPIENT_STATE_HELD
	delivered = mailv1.RecipientState_RECIPIENT_STATE_DELIVERED
	bounced   = mailv1.RecipientState_RECIPIENT_STATE_BOUNCED
)

var (
	testID = uuid.MustParse("019a0000-0000-7000-8000-000000000001")
	noon   = time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)
)

// record is a message to a@t and b@t that was accepted and nothing more.
func record() *spool.Record {
	rec := &spool.Record{}
	rec.ID, rec.Accepted, rec.Size = testID, noon, 5
	rec.Envelope = &mailv1.Envelope{Sender: "s@t", Recipients: []*mailv1.Recipient{{Address: "a@t"}, {Address: "b@t"}}}
	return rec
}

func entry(event string) *mailv1.JournalEntry {
	return &mailv1.JournalEntry{Event: event, Time: timestamppb.New(noon)}
}

func reply(code int32) *mailv1.Reply { return &mailv1.Reply{Code: code} }

// stands is a recipient's status in a table: state, code of the last reply, whether a time is set.
type stands struct {
	State mailv1.RecipientState
	Code  int32
	Next  bool
}

func TestStates(t *testing.T) {
	later := noon.Add(time.Hour)
	outcome := &spool.Outcome{Message: testID, Time: noon, Recipients: []spool.RecipientEnd{
		{Recipient: 0, State: delivered}, {Recipient: 1, State: bounced, Reply: reply(550)},
	}}
	wait := func(reason spool.WaitReason, recipients ...int32) spool.Wait {
		return spool.Wait{Reason: reason, Recipients: recipients, NextAt: later, LastReply: reply(451)}
	}
	attempt := spool.Attempt{
		Ended: []spool.RecipientEnd{{Recipient: 0, State: delivered, Reply: reply(250)}},
		Journal: []*mailv1.JournalEntry{{Attempt: &mailv1.Attempt{Results: []*mailv1.RecipientResult{
			{Recipient: 1, Reply: reply(450)}, {Recipient: 9, Reply: reply(450)}, {Recipient: -1},
		}}}},
	}
	for _, tt := range []struct {
		name  string
		edit  func(rec *spool.Record)
		live  *spool.Live
		state adminv1.MessageState
		want  []stands
	}{
		{"accepted", func(*spool.Record) {}, nil, adminv1.MessageState_MESSAGE_STATE_ACTIVE, []stands{{State: active}, {State: active}}},
		{
			"one deferred", func(r *spool.Record) { r.Waits = []spool.Wait{wait(spool.WaitRetry, 1)} }, nil,
			adminv1.MessageState_MESSAGE_STATE_ACTIVE,
			[]stands{{State: active}, {deferred, 451, true}},
		},
		{
			"one deferred, one held",
			func(r *spool.Record) { r.Waits = []spool.Wait{wait(spool.WaitUnknown, 1), wait(spool.WaitHold, 0)} }, nil,
			adminv1.MessageState_MESSAGE_STATE_DEFERRED,
			[]stands{{held, 451, true}, {deferred, 451, true}},
		},
		{
			"held", func(r *spool.Record) { r.Waits = []spool.Wait{wait(spool.WaitHold, 0, 1)} }, nil,
			adminv1.MessageState_MESSAGE_STATE_HELD,
			[]stands{{held, 451, true}, {held, 451, true}},
		},
		{
			"filtered again later", func(r *spool.Record) { r.Waits = []spool.Wait{wait(spool.WaitFilter, 0, 1)} }, nil,
			adminv1.MessageState_MESSAGE_STATE_DEFERRED,
			[]stands{{deferred, 451, true}, {deferred, 451, true}},
		},
		{
			"waits for an owner", func(r *spool.Record) { r.Waits = []spool.Wait{wait(spool.WaitAll)} }, nil,
			adminv1.MessageState_MESSAGE_STATE_ACTIVE,
			[]stands{{State: active}, {State: active}},
		},
		{
			"a row names a recipient that does not exist",
			func(r *spool.Record) { r.Waits = []spool.Wait{wait(spool.WaitHold, -1, 2)} }, nil,
			adminv1.MessageState_MESSAGE_STATE_ACTIVE,
			[]stands{{State: active}, {State: active}},
		},
		{
			"one delivered, one tried", func(r *spool.Record) { r.Attempts = []spool.Attempt{attempt} }, nil,
			adminv1.MessageState_MESSAGE_STATE_ACTIVE,
			[]stands{{delivered, 250, false}, {active, 450, false}},
		},
		{
			"one delivered, one deferred",
			func(r *spool.Record) {
				r.Attempts, r.Waits = []spool.Attempt{attempt}, []spool.Wait{wait(spool.WaitRetry, 0, 1)}
			}, nil,
			adminv1.MessageState_MESSAGE_STATE_DEFERRED,
			[]stands{{delivered, 250, false}, {deferred, 451, true}},
		},
		{
			"ended", func(r *spool.Record) { r.Outcome = outcome }, nil,
			adminv1.MessageState_MESSAGE_STATE_ENDED,
			[]stands{{State: delivered}, {bounced, 550, false}},
		},
		{
			"the owner knows better than a waiting row", func(r *spool.Record) { r.Waits = []spool.Wait{wait(spool.WaitRetry, 0, 1)} },
			&spool.Live{Recipients: []spool.RecipientStatus{{State: active}, {State: deferred, NextAt: later, LastReply: reply(452)}}},
			adminv1.MessageState_MESSAGE_STATE_ACTIVE,
			[]stands{{active, 451, false}, {deferred, 452, true}},
		},
		{
			"a durable end counts more than what the owner said before",
			func(r *spool.Record) { r.Outcome = outcome },
			&spool.Live{Recipients: []spool.RecipientStatus{{State: active}, {State: deferred, NextAt: later}, {State: held}}},
			adminv1.MessageState_MESSAGE_STATE_ENDED,
			[]stands{{State: delivered}, {bounced, 550, false}},
		},
		{
			"ended in memory is not ended yet", func(*spool.Record) {},
			&spool.Live{Recipients: []spool.RecipientStatus{{State: delivered}, {State: delivered}}},
			adminv1.MessageState_MESSAGE_STATE_ACTIVE,
			[]stands{{State: delivered}, {State: delivered}},
		},
		{
			"undecodable and held", func(r *spool.Record) {
				r.Envelope, r.Err, r.Waits = nil, spool.ErrNotFound, []spool.Wait{wait(spool.WaitHold)}
			}, nil,
			adminv1.MessageState_MESSAGE_STATE_HELD,
			[]stands{},
		},
		{
			"undecodable", func(r *spool.Record) { r.Envelope = nil }, &spool.Live{},
			adminv1.MessageState_MESSAGE_STATE_ACTIVE,
			[]stands{},
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			rec := record()
			tt.edit(rec)
			sum := summary(rec, tt.live)
			got := []stands{}
			for _, r := range sum.GetRecipients() {
				got = append(got, stands{r.GetState(), r.GetLastReply().GetCode(), r.GetNextAt() != nil})
			}
			if sum.GetState() != tt.state {
				t.Errorf("state %v, want %v", sum.GetState(), tt.state)
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestSummary(t *testing.T) {
	rec := record()
	rec.Trace = &mailv1.TraceContext{Traceparent: "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"}
	rec.Search = spool.Search{Subject: "Hi", HeaderMessageID: "x@t"}
	rec.Envelope.Reception = &mailv1.Reception{ReceivedAt: timestamppb.New(noon.Add(-time.Second))}
	rec.Outcome = &spool.Outcome{Time: noon.Add(time.Second)}
	want := &adminv1.MessageSummary{
		Id: testID.String(), State: adminv1.MessageState_MESSAGE_STATE_ENDED, Sender: "s@t",
		Recipients: []*adminv1.RecipientStatus{{Address: "a@t", State: active}, {Address: "b@t", State: active}},
		Subject:    "Hi", HeaderMessageId: "x@t", Size: 5,
		ReceivedAt: timestamppb.New(noon.Add(-time.Second)), EndedAt: timestamppb.New(noon.Add(time.Second)),
		TraceId: "0af7651916cd43dd8448eb211c80319c",
	}
	if diff := cmp.Diff(want, summary(rec, nil), protocmp.Transform()); diff != "" {
		t.Error(diff)
	}
	rec.Envelope.Reception, rec.Trace = nil, &mailv1.TraceContext{Traceparent: "00-bad"}
	got := summary(rec, nil)
	if !got.GetReceivedAt().AsTime().Equal(noon) || got.GetTraceId() != "" {
		t.Errorf("without reception and trace: %v", got)
	}
}

func TestMessage(t *testing.T) {
	early, late := &mailv1.Verdict{Edits: []*mailv1.Edit{{}}}, &mailv1.Verdict{}
	rows := func(rec *spool.Record) {
		rec.Attempts = []spool.Attempt{
			{Journal: []*mailv1.JournalEntry{entry("accepted"), entry("filtered")}, Verdict: late},
			{Journal: []*mailv1.JournalEntry{entry("deferred")}},
		}
	}
	live := &spool.Live{
		Journal: []*mailv1.JournalEntry{entry("deferred"), entry("permitted")},
		Parsed:  &mailv1.ParsedMessage{Subject: "x"}, Verdict: late,
	}
	for _, tt := range []struct {
		name    string
		edit    func(rec *spool.Record)
		live    *spool.Live
		journal []string
		verdict *mailv1.Verdict
	}{
		{"accepted", func(*spool.Record) {}, nil, nil, nil},
		{"verdict with the message", func(r *spool.Record) { r.Verdict = early }, nil, nil, early},
		{"rows", rows, nil, []string{"accepted", "filtered", "deferred"}, late},
		{"live alone", func(*spool.Record) {}, live, []string{"deferred", "permitted"}, late},
		{"live behind rows, none twice", rows, live, []string{"accepted", "filtered", "deferred", "permitted"}, late},
		{
			"ended meanwhile", func(r *spool.Record) {
				rows(r)
				r.Outcome = &spool.Outcome{Journal: []*mailv1.JournalEntry{entry("permitted"), entry("delivered")}, Verdict: early}
			}, live, []string{"accepted", "filtered", "deferred", "permitted", "delivered"}, early,
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			rec := record()
			tt.edit(rec)
			msg := message(rec, tt.live)
			var journal []string
			for _, e := range msg.GetJournal() {
				journal = append(journal, e.GetEvent())
			}
			if diff := cmp.Diff(tt.journal, journal); diff != "" {
				t.Error(diff)
			}
			if diff := cmp.Diff(tt.verdict, msg.GetVerdict(), protocmp.Transform()); diff != "" {
				t.Error(diff)
			}
			if (tt.live != nil) != (msg.GetParsed() != nil) {
				t.Errorf("parsed %v", msg.GetParsed())
			}
		})
	}
}
