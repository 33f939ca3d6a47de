// Command smtp is an application that sends by plain SMTP and lets the message continue its own trace.
package main

import (
	"context"
	"flag"
	"fmt"
	"log"
	"net/smtp"
	"os"
	"strings"
	"time"

	"github.com/google/uuid"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"

	adminv1 "github.com/rohrpost/rohrpost/proto/gen/rohrpost/admin/v1"
)

func main() {
	gateway := flag.String("smtp", "127.0.0.1:2525", "address of the gateway")
	address := flag.String("grpc", "127.0.0.1:7025", "address of the spool")
	token := flag.String("token", "rohrpost-data/token", "file of the token")
	// An application with OpenTelemetry takes this from its current span: propagation.TraceContext{}.Inject.
	traceparent := flag.String("traceparent", "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01", "W3C trace context")
	flag.Parse()
	secret, err := os.ReadFile(*token)
	check(err)

	messageID := uuid.NewString() + "@a.example"
	mail := "From: shop@a.example\r\nTo: bob@b.example\r\nSubject: Your order\r\n" +
		"Date: " + time.Now().Format(time.RFC1123Z) + "\r\nMessage-ID: <" + messageID + ">\r\n" +
		"Traceparent: " + *traceparent + "\r\n\r\nIt is on its way.\r\n"
	check(smtp.SendMail(*gateway, nil, "shop@a.example", []string{"bob@b.example"}, []byte(mail)))

	conn, err := grpc.NewClient(*address, grpc.WithTransportCredentials(insecure.NewCredentials()))
	check(err)
	defer func() { _ = conn.Close() }()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	ctx = metadata.AppendToOutgoingContext(ctx, "authorization", "Bearer "+strings.TrimSpace(string(secret)))
	// net/smtp does not show the reply in which the id stands; the message's own Message-ID finds it as well.
	waited, err := adminv1.NewAdminServiceClient(conn).WaitMessage(ctx, &adminv1.WaitMessageRequest{
		By:    &adminv1.WaitMessageRequest_HeaderMessageId{HeaderMessageId: messageID},
		Until: []adminv1.MessageState{adminv1.MessageState_MESSAGE_STATE_ENDED},
	})
	check(err)
	m := waited.GetMessage().GetSummary()
	fmt.Println(m.GetId(), m.GetRecipients()[0].GetState(), "trace", m.GetTraceId())
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
