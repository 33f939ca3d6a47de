package spoolrpc

import (
	"context"
	"errors"
	"io"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	spoolv1 "github.com/rohrpost/rohrpost/proto/gen/rohrpost/spool/v1"
	"github.com/rohrpost/rohrpost/spool"
)

func TestReadContent(t *testing.T) {
	content := slices.Repeat([]byte("0123456789"), 100_000)
	e := newFakeEngine()
	e.content = func(_ context.Context, token []byte, offset, length int64, take func([]byte) error) error {
		switch string(token) {
		case "t":
			return take(content[offset : offset+length])
		case "broken":
			return errors.New("secret")
		case "end":
			return spool.ErrPastEnd
		default:
			return spool.ErrNotFound
		}
	}
	client, _ := dial(t, e, Options{})
	for _, tt := range []struct {
		name           string
		token          string
		offset, length int64
		want           codes.Code
	}{
		{"all", "t", 0, 1_000_000, codes.OK},
		{"a part", "t", 7, 500_001, codes.OK},
		{"nothing", "t", 0, 0, codes.OK},
		{"stale token", "x", 0, 0, codes.NotFound},
		{"inner error", "broken", 0, 0, codes.Unavailable},
		{"offset behind the end", "end", 1, 0, codes.InvalidArgument},
		{"negative offset", "t", -1, 0, codes.InvalidArgument},
		{"negative length", "t", 0, -1, codes.InvalidArgument},
	} {
		t.Run(tt.name, func(t *testing.T) {
			stream, err := client.ReadContent(testContext(t), &spoolv1.ReadContentRequest{
				Token: []byte(tt.token), Offset: tt.offset, Length: tt.length,
			})
			if err != nil {
				t.Fatal(err)
			}
			var got []byte
			for {
				resp, err := stream.Recv()
				if errors.Is(err, io.EOF) {
					break
				}
				if err != nil {
					if status.Code(err) != tt.want || strings.Contains(err.Error(), "secret") {
						t.Errorf("got %v, want %v", err, tt.want)
					}
					return
				}
				if n := proto.Size(resp); n > maxResponse || len(resp.GetData()) == 0 {
					t.Errorf("a piece of %d octets", n)
				}
				got = append(got, resp.GetData()...)
			}
			if tt.want != codes.OK || string(got) != string(content[tt.offset:tt.offset+tt.length]) {
				t.Errorf("got %d octets and no error, want %v", len(got), tt.want)
			}
		})
	}
}

// A worker that stops reading does not keep the spool's connection to the database.
func TestReadContentSlowWorker(t *testing.T) {
	e := newFakeEngine()
	released := make(chan error, 1)
	e.content = func(_ context.Context, _ []byte, _, _ int64, take func([]byte) error) error {
		err := take(make([]byte, 16<<20))
		released <- err
		return err
	}
	client, _ := dial(t, e, Options{SendTimeout: 50 * time.Millisecond})
	stream, err := client.ReadContent(testContext(t), &spoolv1.ReadContentRequest{Token: []byte("t")})
	if err != nil {
		t.Fatal(err)
	}
	if err := within(t, "release", released); err == nil {
		t.Error("16 MiB went to somebody who does not read")
	}
	for err == nil {
		_, err = stream.Recv()
	}
	if status.Code(err) != codes.ResourceExhausted {
		t.Errorf("got %v, want ResourceExhausted", err)
	}
}
