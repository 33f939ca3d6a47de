package directoryrpc_test

import (
	"context"
	"net"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	"github.com/rohrpost/rohrpost/gateway/directoryrpc"
	directoryv1 "github.com/rohrpost/rohrpost/proto/gen/rohrpost/directory/v1"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// service is a directory as others would write it.
type service struct {
	directoryv1.UnimplementedDirectoryServiceServer
}

func (service) LookupRecipient(ctx context.Context, req *directoryv1.LookupRecipientRequest) (*directoryv1.LookupRecipientResponse, error) {
	switch req.GetAddress() {
	case "Ann@x.test":
		return &directoryv1.LookupRecipientResponse{Known: true, Aliases: []string{"a@x.test", "b@x.test"}}, nil
	case "many@x.test":
		return &directoryv1.LookupRecipientResponse{Known: true, Aliases: make([]string, 101)}, nil
	case "broken@x.test":
		return nil, status.Error(codes.Internal, "broken")
	case "slow@x.test":
		// Nothing but the deadline ends it: an answer here could reach the client before its own clock does.
		<-ctx.Done()
		return nil, status.FromContextError(ctx.Err()).Err()
	}
	return &directoryv1.LookupRecipientResponse{}, nil
}

func TestLookup(t *testing.T) {
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := grpc.NewServer()
	directoryv1.RegisterDirectoryServiceServer(server, service{})
	served := make(chan struct{})
	go func() { defer close(served); _ = server.Serve(l) }()
	conn, err := grpc.NewClient(l.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	c := directoryrpc.New(conn)
	entry, err := c.Lookup(t.Context(), "Ann@x.test")
	if err != nil || !entry.Known || strings.Join(entry.Aliases, " ") != "a@x.test b@x.test" {
		t.Errorf("ann: %v, %v", entry, err)
	}
	if entry, err := c.Lookup(t.Context(), "nobody@x.test"); err != nil || entry.Known {
		t.Errorf("nobody: %v, %v", entry, err)
	}
	for _, address := range []string{"many@x.test", "broken@x.test"} {
		if entry, err := c.Lookup(t.Context(), address); err == nil {
			t.Errorf("%s: %v, want an error", address, entry)
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, err := c.Lookup(ctx, "slow@x.test"); err == nil {
		t.Error("slow: no error")
	}
	server.Stop()
	<-served
	if _, err := c.Lookup(t.Context(), "Ann@x.test"); err == nil {
		t.Error("away: no error")
	}
}
