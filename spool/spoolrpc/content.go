package spoolrpc

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	spoolv1 "github.com/rohrpost/rohrpost/proto/gen/rohrpost/spool/v1"
	"github.com/rohrpost/rohrpost/spool"
)

// pieceSize is how much content goes into one response: below maxResponse once encoded.
const pieceSize = 128 << 10

// ReadContent reads the content of a job's message. A worker that does not read for SendTimeout loses the call, so that
// it does not keep a connection to the database.
func (s *Server) ReadContent(req *spoolv1.ReadContentRequest, stream spoolv1.SpoolService_ReadContentServer) error {
	if req.GetOffset() < 0 || req.GetLength() < 0 {
		return status.Error(codes.InvalidArgument, "offset and length must not be negative")
	}
	ctx, cancel := context.WithCancel(stream.Context())
	defer cancel()
	pieces := make(chan []byte)
	sent := make(chan error, 1)
	go func() {
		defer cancel() // what failed to be sent need not be read on
		sent <- sendPieces(ctx, stream, pieces)
	}()
	take := takePieces(ctx, pieces, s.sendTimeout)
	if err := s.engine.ReadContent(ctx, req.GetToken(), req.GetOffset(), req.GetLength(), take); err != nil {
		return s.contentError(ctx, err)
	}
	close(pieces)
	select {
	case err := <-sent:
		return err
	case <-time.After(s.sendTimeout):
		return errSlowWorker
	}
}

func (s *Server) contentError(ctx context.Context, err error) error {
	switch {
	case errors.Is(err, spool.ErrNotFound):
		return status.Error(codes.NotFound, "the token is not or no longer valid")
	case errors.Is(err, spool.ErrPastEnd):
		return status.Error(codes.InvalidArgument, "the offset lies behind the end of the content")
	case ctx.Err() != nil:
		return status.FromContextError(ctx.Err()).Err()
	}
	if st, ok := status.FromError(err); ok {
		return st.Err()
	}
	s.log.WarnContext(ctx, "content could not be read", slog.Any("error", err))
	return status.Error(codes.Unavailable, "content can't be read now")
}

func sendPieces(ctx context.Context, stream spoolv1.SpoolService_ReadContentServer, pieces <-chan []byte) error {
	for {
		select {
		case piece, more := <-pieces:
			if !more {
				return nil
			}
			if err := stream.Send(&spoolv1.ReadContentResponse{Data: piece}); err != nil {
				return err
			}
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// takePieces cuts content into pieces and hands each to the sender, for each of which it waits for timeout.
func takePieces(ctx context.Context, pieces chan<- []byte, timeout time.Duration) func([]byte) error {
	return func(content []byte) error {
		timer := time.NewTimer(timeout)
		defer timer.Stop()
		for piece := range slices.Chunk(content, pieceSize) {
			select {
			case pieces <- piece:
				timer.Reset(timeout)
			case <-timer.C:
				return errSlowWorker
			case <-ctx.Done():
				return ctx.Err()
			}
		}
		return nil
	}
}
