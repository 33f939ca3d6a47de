package wire_test

import (
	"bytes"
	"fmt"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	mailv1 "github.com/rohrpost/rohrpost/proto/gen/rohrpost/mail/v1"
	spoolv1 "github.com/rohrpost/rohrpost/proto/gen/rohrpost/spool/v1"
	"github.com/rohrpost/rohrpost/proto/wire"
)

// What goes through the streams for 32 mails of 4 KB.
const batch = 32

func envelope() *mailv1.Envelope {
	return &mailv1.Envelope{
		Sender:     "alice@sender.example",
		Recipients: []*mailv1.Recipient{{Address: "bob@recipient.example"}},
		Reception: &mailv1.Reception{
			ReceivedAt: timestamppb.New(time.Unix(1_790_000_000, 123_456_789)), ClientIp: "192.0.2.17", Helo: "client.sender.example",
			Protocol: "ESMTPS", Tls: "TLSv1.3 TLS_AES_128_GCM_SHA256", Gateway: "mx1.recipient.example", SessionId: "01996b2f1c2d",
		},
		BodyType: mailv1.BodyType_BODY_TYPE_8BITMIME,
	}
}

func edits() []*mailv1.Edit {
	return []*mailv1.Edit{{Kind: &mailv1.Edit_Prepend{Prepend: &mailv1.HeaderField{
		Name: "Received", Value: "from client.sender.example ([192.0.2.17])\r\n\tby mx1.recipient.example with ESMTPS id " +
			"01996b2f-1c2d-7000-8000-0123456789ab;\r\n\tTue, 1 Dec 2026 15:00:00 +0000",
	}}}}
}

func trace() *mailv1.TraceContext {
	return &mailv1.TraceContext{Traceparent: "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"}
}

var content = bytes.Repeat([]byte("A line of a mail, as long as such lines are, and ended.\r\n"), 72)

func parsed() *mailv1.ParsedMessage {
	p := &mailv1.ParsedMessage{
		Subject: "A subject", MessageId: "1@sender.example", Text: string(content[:3000]), Size: int64(len(content)),
		From: []*mailv1.Address{{Name: "Alice", Address: "alice@sender.example"}},
		To:   []*mailv1.Address{{Name: "Bob", Address: "bob@recipient.example"}},
		Parts: []*mailv1.Part{{
			Path: "1", Type: "text/plain", Params: map[string]string{"charset": "utf-8"}, Charset: "utf-8", Encoding: "8bit",
			Sha256: make([]byte, 32), Size: 3000, BodyOffset: 1000, RawSize: 3000,
		}},
	}
	for i := range 10 {
		value := fmt.Sprintf("the value of field %d as it stands", i)
		p.Headers = append(p.Headers, &mailv1.Header{Name: "X-Field", Value: value, Raw: []byte(" " + value)})
	}
	return p
}

func frames() map[string]wire.Message {
	submit, work, results := &spoolv1.SubmitRequest{}, &spoolv1.WorkResponse{}, &spoolv1.WorkRequest{}
	const id = "01996b2f-1c2d-7000-8000-0123456789ab"
	for range batch {
		submit.Frames = append(submit.Frames, &spoolv1.SubmitFrame{Kind: &spoolv1.SubmitFrame_Message{Message: &spoolv1.SubmitMessage{
			Begin: &spoolv1.SubmitBegin{
				Id: id, Envelope: envelope(), Edits: edits(), Trace: trace(), Deadline: durationpb.New(59 * time.Second),
			},
			Content: content,
		}}})
		work.Frames = append(work.Frames, &spoolv1.SpoolFrame{Kind: &spoolv1.SpoolFrame_Job{Job: &spoolv1.Job{
			Token: make([]byte, 40), MessageId: id, Envelope: envelope(), Edits: edits(), Trace: trace(),
			Lease: durationpb.New(time.Minute), ContentSize: int64(len(content)), Content: content,
			Work: &spoolv1.Job_Filter{Filter: &spoolv1.FilterWork{Parsed: parsed()}},
		}}})
		results.Frames = append(results.Frames, &spoolv1.WorkerFrame{Kind: &spoolv1.WorkerFrame_Result{Result: &spoolv1.Result{
			Token: make([]byte, 40), Kind: &spoolv1.Result_Parse{Parse: &spoolv1.ParseResult{Parsed: parsed()}},
		}}})
	}
	return map[string]wire.Message{"submit": submit, "jobs": work, "results": results}
}

func BenchmarkFrames(b *testing.B) {
	for name, m := range frames() {
		encoded, err := wire.Marshal(m)
		if err != nil {
			b.Fatal(err)
		}
		buf := make([]byte, 0, len(encoded))
		for how, f := range map[string]func(){
			"size/wire":     func() { _ = wire.Size(m) },
			"size/protobuf": func() { _ = proto.Size(m) },
			"write/wire":    func() { _ = wire.Fill(buf[:wire.Size(m)], m) },
			"write/protobuf": func() {
				_ = proto.Size(m)
				_, _ = proto.MarshalOptions{UseCachedSize: true}.MarshalAppend(buf, m)
			},
			"read/wire":     func() { _ = wire.Unmarshal(encoded, m.ProtoReflect().New().Interface()) },
			"read/protobuf": func() { _ = proto.Unmarshal(encoded, m.ProtoReflect().New().Interface()) },
		} {
			b.Run(name+"/"+how, func(b *testing.B) {
				b.ReportAllocs()
				b.SetBytes(int64(len(encoded)))
				for b.Loop() {
					f()
				}
			})
		}
	}
}
