// Command watch follows what happens to all messages. It keeps its place in a file, so that it misses nothing while it is
// away.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"log"
	"os"
	"os/signal"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	adminv1 "github.com/rohrpost/rohrpost/proto/gen/rohrpost/admin/v1"
)

func main() {
	address := flag.String("grpc", "127.0.0.1:7025", "address of the spool")
	token := flag.String("token", "rohrpost-data/token", "file of the token")
	place := flag.String("cursor", "watch.cursor", "file of the last event that was handled")
	flag.Parse()
	secret, err := os.ReadFile(*token)
	check(err)
	conn, err := grpc.NewClient(*address, grpc.WithTransportCredentials(insecure.NewCredentials()))
	check(err)
	defer func() { _ = conn.Close() }()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	ctx = metadata.AppendToOutgoingContext(ctx, "authorization", "Bearer "+strings.TrimSpace(string(secret)))
	for ctx.Err() == nil {
		err := watch(ctx, adminv1.NewAdminServiceClient(conn), *place)
		if code := status.Code(err); code != codes.Unavailable && code != codes.Canceled {
			log.Fatal(err)
		}
		select { // the spool was restarted: go on where we were
		case <-time.After(time.Second):
		case <-ctx.Done():
		}
	}
}

// watch handles events from the place that is kept in a file. An event may come twice, never not at all: the place is
// written after it was handled.
func watch(ctx context.Context, admin adminv1.AdminServiceClient, place string) error {
	cursor, err := os.ReadFile(place) //nolint:gosec // the user names the file
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	stream, err := admin.WatchEvents(ctx, &adminv1.WatchEventsRequest{Cursor: string(cursor)})
	if err != nil {
		return err
	}
	for {
		resp, err := stream.Recv()
		if err != nil {
			return err
		}
		if e := resp.GetEvent(); e != nil { // else a heartbeat, whose cursor counts as well
			fmt.Println(e.GetMessageId(), e.GetEntry().GetEvent(), e.GetEnded())
		}
		if err := os.WriteFile(place, []byte(resp.GetCursor()), 0o600); err != nil {
			return err
		}
	}
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
