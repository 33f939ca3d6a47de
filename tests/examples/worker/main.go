// Command worker is a filter of one's own: it holds messages from a domain for an operator to look at, and accepts the
// rest. It works beside the filters that are there, or in their place.
package main

import (
	"context"
	"flag"
	"log"
	"os"
	"os/signal"
	"strings"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	mailv1 "github.com/rohrpost/rohrpost/proto/gen/rohrpost/mail/v1"
	spoolv1 "github.com/rohrpost/rohrpost/proto/gen/rohrpost/spool/v1"
	"github.com/rohrpost/rohrpost/proto/rpcopt"
	"github.com/rohrpost/rohrpost/proto/worker"
)

func main() {
	address := flag.String("grpc", "127.0.0.1:7025", "address of the spool")
	token := flag.String("token", "rohrpost-data/token", "file of the token")
	suspect := flag.String("suspect", "suspect.example", "domain of senders whose mail is held")
	flag.Parse()
	secret, err := os.ReadFile(*token)
	check(err)
	dial := func(address string) (*grpc.ClientConn, error) {
		return grpc.NewClient(address, append(rpcopt.DialOptions(),
			grpc.WithTransportCredentials(insecure.NewCredentials()),
			grpc.WithPerRPCCredentials(bearer(strings.TrimSpace(string(secret)))))...)
	}
	conn, err := dial(*address)
	check(err)
	defer func() { _ = conn.Close() }()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	check(worker.Run(ctx, conn, spoolv1.Stage_STAGE_FILTER, 8, func(_ context.Context, job *worker.Job) (*spoolv1.Result, error) {
		return result(judge(job.GetEnvelope(), *suspect)), nil
	}, worker.WithName("example"), worker.WithDialer(dial)))
}

// judge decides about each recipient of a message. What the parser read is in job.GetFilter().GetParsed(), the content
// comes from job.Open.
func judge(envelope *mailv1.Envelope, suspect string) *mailv1.Verdict {
	decision := &mailv1.RecipientVerdict{Action: mailv1.Action_ACTION_ACCEPT}
	if strings.HasSuffix(envelope.GetSender(), "@"+suspect) {
		decision = &mailv1.RecipientVerdict{Action: mailv1.Action_ACTION_HOLD}
	}
	verdict := &mailv1.Verdict{}
	for range envelope.GetRecipients() {
		verdict.Recipients = append(verdict.Recipients, decision)
	}
	return verdict
}

func result(verdict *mailv1.Verdict) *spoolv1.Result {
	return &spoolv1.Result{Kind: &spoolv1.Result_Filter{Filter: &spoolv1.FilterResult{Verdict: verdict}}}
}

// bearer is the token of `rohrpost up`, sent with every call. Between machines use a certificate instead.
type bearer string

// GetRequestMetadata gives the header.
func (b bearer) GetRequestMetadata(context.Context, ...string) (map[string]string, error) {
	return map[string]string{"authorization": "Bearer " + string(b)}, nil
}

// RequireTransportSecurity is false on loopback.
func (b bearer) RequireTransportSecurity() bool { return false }

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
