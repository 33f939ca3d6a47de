// Command go is an application that sends a message by one call and waits for what becomes of it.
package main

import (
	"context"
	"flag"
	"fmt"
	"log"
	"os"
	"strings"
	"time"

	"github.com/google/uuid"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"

	adminv1 "github.com/rohrpost/rohrpost/proto/gen/rohrpost/admin/v1"
	sendv1 "github.com/rohrpost/rohrpost/proto/gen/rohrpost/send/v1"
)

func main() {
	address := flag.String("grpc", "127.0.0.1:7025", "address of the spool")
	token := flag.String("token", "rohrpost-data/token", "file of the token")
	to := flag.String("to", "bob@b.example", "recipient")
	flag.Parse()
	secret, err := os.ReadFile(*token)
	check(err)
	conn, err := grpc.NewClient(*address, grpc.WithTransportCredentials(insecure.NewCredentials()))
	check(err)
	defer func() { _ = conn.Close() }()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	ctx = metadata.AppendToOutgoingContext(ctx, "authorization", "Bearer "+strings.TrimSpace(string(secret)))

	content := "From: Shop <shop@a.example>\r\nTo: " + *to + "\r\nSubject: Your order\r\n" +
		"Date: " + time.Now().Format(time.RFC1123Z) + "\r\nMessage-ID: <" + uuid.NewString() + "@a.example>\r\n\r\nIt is on its way.\r\n"
	// The key makes it safe to call again after any failure: keep it with the order.
	sent, err := sendv1.NewSendServiceClient(conn).SendMessage(ctx, &sendv1.SendMessageRequest{
		IdempotencyKey: uuid.NewString(), Sender: "shop@a.example", Recipients: []string{*to}, Content: []byte(content),
	})
	check(err)
	waited, err := adminv1.NewAdminServiceClient(conn).WaitMessage(ctx, &adminv1.WaitMessageRequest{
		By:    &adminv1.WaitMessageRequest_Id{Id: sent.GetId()},
		Until: []adminv1.MessageState{adminv1.MessageState_MESSAGE_STATE_ENDED},
	})
	check(err)
	for _, r := range waited.GetMessage().GetSummary().GetRecipients() {
		fmt.Println(sent.GetId(), r.GetAddress(), r.GetState(), r.GetLastReply().GetText())
	}
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
