package spoolsend

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"log/slog"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	sendv1 "github.com/rohrpost/rohrpost/proto/gen/rohrpost/send/v1"
	"github.com/rohrpost/rohrpost/proto/smtpreply"
	"github.com/rohrpost/rohrpost/spool"
)

// submitDeadline is how long the spool may take to make a message durable. A spool takes a message back whose deadline
// passes while it commits, after which a repeated call that had seen the row would have been told a lie: so it lies
// beyond every commit. How long a call waits is another matter.
const submitDeadline = 24 * time.Hour

// pieceSize is how much content an upload is given at a time, in octets.
const pieceSize = 256 << 10

var (
	errBusy  = smtpreply.New(451, "4.3.1", "Too busy, try again later")
	errAway  = smtpreply.New(451, "4.3.0", "Temporary system problem, try again later")
	errOther = status.Error(codes.AlreadyExists,
		"idempotency_key: it was used for another message: choose a new key for each message")
)

// SendMessage returns once the message is durable.
func (s *Server) SendMessage(ctx context.Context, req *sendv1.SendMessageRequest) (*sendv1.SendMessageResponse, error) {
	select {
	case s.calls <- struct{}{}:
		defer func() { <-s.calls }()
	default:
		return nil, errBusy.GRPCStatus().Err()
	}
	m, err := check(req)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, s.opts.Timeout)
	defer cancel()
	ctx, span := s.startSpan(ctx, req)
	resp, err := s.send(ctx, req, m)
	endSpan(span, err)
	return resp, err
}

// send reserves the key and submits the message that it stands for, unless that is durable already.
func (s *Server) send(ctx context.Context, req *sendv1.SendMessageRequest, m mail) (*sendv1.SendMessageResponse, error) {
	hello, ok := s.engine.Hello()
	if !ok {
		return nil, errAway.GRPCStatus().Err()
	}
	minted, hash := mintID(hello.Time), requestHash(req)
	id, kept, err := s.keys.ReserveKey(ctx, req.GetIdempotencyKey(), hash, minted)
	if err != nil {
		return nil, s.failure(ctx, minted, err)
	}
	if !bytes.Equal(hash, kept) {
		return nil, errOther
	}
	noteID(ctx, id)
	resp := &sendv1.SendMessageResponse{Id: id.String()}
	if id != minted {
		if resp.RepeatedCall, err = s.keys.HasMessage(ctx, id); err != nil {
			return nil, s.failure(ctx, id, err)
		}
		if resp.RepeatedCall {
			return resp, nil
		}
	}
	sub := s.submission(ctx, id, hello.Time, req, m)
	sub.Again = id != minted // the earlier call may still make it durable, on another spool
	if resp.RepeatedCall, err = s.submit(ctx, sub, req.GetContent()); err != nil {
		return nil, s.failure(ctx, id, err)
	}
	return resp, nil
}

// submit hands a message to the spool and waits until it is durable. It is true where another spool has made it durable,
// for an earlier call.
func (s *Server) submit(ctx context.Context, sub spool.Submission, content []byte) (byOther bool, err error) {
	var up upload
	if len(content) <= spool.InlineLimit {
		sub.Content = content
	} else if up, err = s.upload(ctx, sub.ID, content); err != nil {
		return false, err
	}
	answer := make(chan error, 1)
	s.engine.Submit(sub, up, func(_ spool.Receipt, err error) { answer <- err })
	look := time.NewTicker(s.poll)
	defer look.Stop()
	for {
		select {
		case err := <-answer:
			return false, err
		case <-ctx.Done():
			return false, ctx.Err()
		case <-look.C:
			// A spool that is given a message of another one knows that it is durable only when it owns it.
			if has, err := s.keys.HasMessage(ctx, sub.ID); err == nil && has {
				return true, nil
			}
		}
	}
}

// upload hands over content that is too large to stay in memory.
func (s *Server) upload(ctx context.Context, id spool.ID, content []byte) (upload, error) {
	up, err := s.engine.NewUpload(ctx, id, int64(len(content)))
	if err != nil {
		return nil, err
	}
	for len(content) > 0 {
		n := min(len(content), pieceSize)
		if err := up.Write(ctx, content[:n:n]); err != nil {
			up.Abort()
			return nil, err
		}
		content = content[n:]
	}
	return up, nil
}

// failure is what the caller is told of an error. Inner causes are logged and not told.
func (s *Server) failure(ctx context.Context, id spool.ID, err error) error {
	if ctx.Err() != nil {
		return status.Error(status.FromContextError(ctx.Err()).Code(),
			"the outcome is not known yet: call again with the same idempotency_key")
	}
	reply := smtpreply.From(err)
	if cause := reply.Unwrap(); cause != nil {
		s.opts.Logger.WarnContext(ctx, "message not taken", slog.String("message_id", id.String()), slog.Any("error", cause))
	}
	return reply.GRPCStatus().Err()
}

// requestHash tells whether two requests are for the same message. The trace context does not count: who tries again may
// do so in another span. Each part is preceded by its length, so that no two messages look alike.
func requestHash(req *sendv1.SendMessageRequest) []byte {
	h := sha256.New()
	part := func(p []byte) {
		var n [8]byte
		binary.BigEndian.PutUint64(n[:], uint64(len(p)))
		h.Write(n[:])
		h.Write(p)
	}
	part([]byte(req.GetSender()))
	part(req.GetContent())
	for _, r := range req.GetRecipients() {
		part([]byte(r))
	}
	if at := req.GetReleaseAt(); at != nil {
		part([]byte("release at " + at.AsTime().Format(time.RFC3339Nano)))
	}
	return h.Sum(nil)
}

// mintID makes a UUIDv7 of a time of the spool's clock. (RFC 9562, section 5.7.)
func mintID(at time.Time) spool.ID {
	var id spool.ID
	_, _ = rand.Read(id[:]) // never fails, see crypto/rand
	var ms [8]byte
	binary.BigEndian.PutUint64(ms[:], uint64(at.UnixMilli()))
	copy(id[:6], ms[2:])
	id[6] = id[6]&0x0f | 0x70 // version 7
	id[8] = id[8]&0x3f | 0x80 // variant
	return id
}
