package cli

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"text/tabwriter"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	adminv1 "github.com/rohrpost/rohrpost/proto/gen/rohrpost/admin/v1"
	"github.com/rohrpost/rohrpost/services/process"
)

// Destination is the command `destination`.
type Destination struct {
	Suspend DestinationSuspend `cmd:"" help:"Send nothing to some destinations for now; mail for them waits."`
	Resume  DestinationResume  `cmd:"" help:"Send to suspended destinations again."`
	List    DestinationList    `cmd:"" help:"List what is suspended, and for which destinations most messages wait."`
}

// DestinationSuspend is the command `destination suspend`.
type DestinationSuspend struct {
	Connection
	Pattern string `arg:"" help:"Which destinations: example.org, *.example.org for all below it, or *."`
	For     string `name:"for" placeholder:"TIME" help:"How long, such as 30m, 2h or 3d; without it until it is resumed."`
	Reason  string `name:"reason" placeholder:"TEXT" help:"Why, for whoever looks at it later."`
}

// Run suspends.
func (c *DestinationSuspend) Run(ctx context.Context, std *IO) error {
	request := &adminv1.SuspendDestinationRequest{Pattern: c.Pattern, Reason: c.Reason}
	if c.For != "" {
		length, err := process.ParseDuration(c.For)
		if err != nil || length <= 0 {
			return process.Usage("--for: %q is no time; write such as 30m, 2h or 3d", c.For)
		}
		request.Length = durationpb.New(length)
	}
	var suspended *adminv1.Suspension
	err := c.call(ctx, func(ctx context.Context, conn *grpc.ClientConn) error {
		response, err := adminv1.NewAdminServiceClient(conn).SuspendDestination(ctx, request)
		suspended = response.GetSuspension()
		return err
	})
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(std.Out, "%s is suspended %s.\n", clean(suspended.GetPattern()), untilText(suspended))
	return err
}

// DestinationResume is the command `destination resume`.
type DestinationResume struct {
	Connection
	Pattern string `arg:"" help:"The pattern that was suspended."`
}

// Run resumes.
func (c *DestinationResume) Run(ctx context.Context, std *IO) error {
	err := c.call(ctx, func(ctx context.Context, conn *grpc.ClientConn) error {
		_, err := adminv1.NewAdminServiceClient(conn).ResumeDestination(ctx, &adminv1.ResumeDestinationRequest{Pattern: c.Pattern})
		if status.Code(err) == codes.NotFound {
			return fmt.Errorf("%s is not suspended; `%s destination list` shows what is", clean(c.Pattern), std.program())
		}
		return err
	})
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(std.Out, "%s is resumed.\n", clean(c.Pattern))
	return err
}

// DestinationList is the command `destination list`.
type DestinationList struct {
	Connection
	Limit int32 `default:"20" help:"How many destinations at most, 1 to 1000."`
	JSON  bool  `name:"json" help:"Print JSON (rohrpost.admin.v1.ListDestinationsResponse)."`
}

// Run lists.
func (c *DestinationList) Run(ctx context.Context, std *IO) error {
	if c.Limit < 1 || c.Limit > 1000 {
		return process.Usage("--limit: %d is out of range; use 1 to 1000", c.Limit)
	}
	var response *adminv1.ListDestinationsResponse
	err := c.call(ctx, func(ctx context.Context, conn *grpc.ClientConn) (err error) {
		response, err = adminv1.NewAdminServiceClient(conn).ListDestinations(ctx, &adminv1.ListDestinationsRequest{Limit: c.Limit})
		return err
	})
	if err != nil {
		return err
	}
	if c.JSON {
		return printJSON(std.Out, response)
	}
	var out bytes.Buffer
	printSuspensions(&out, response.GetSuspensions())
	printQueues(&out, response.GetQueues())
	_, err = std.Out.Write(out.Bytes())
	return err
}

func printSuspensions(out *bytes.Buffer, list []*adminv1.Suspension) {
	if len(list) == 0 {
		out.WriteString("Nothing is suspended.\n")
		return
	}
	out.WriteString("Suspended (UTC)\n")
	printTable(out, func(w io.Writer) {
		for _, s := range list {
			by := s.GetBy()
			if by != "" {
				by = "by " + by
			}
			fmt.Fprintf(w, "  %s\t%s\tsince %s\t%s\n", clean(s.GetPattern()), untilText(s), timeText(s.GetSince().AsTime()), //nolint:errcheck // a buffer
				clean(spaced(by, s.GetReason())))
		}
	})
}

func printQueues(out *bytes.Buffer, list []*adminv1.DestinationQueue) {
	if len(list) == 0 {
		out.WriteString("\nNothing waits.\n")
		return
	}
	out.WriteString("\nWaiting (UTC)\n")
	printTable(out, func(w io.Writer) {
		fmt.Fprintln(w, "  DESTINATION\tMESSAGES\tDUE\tNEXT\tWAITING SINCE\tLAST REPLY") //nolint:errcheck // a buffer
		for _, q := range list {
			next := timeOrDash(q.GetNextAt())
			if q.GetSuspension() != nil {
				next = "suspended"
			}
			fmt.Fprintf(w, "  %s\t%d\t%d\t%s\t%s\t%s\n", clean(q.GetDestination()), q.GetMessages(), q.GetDue(), next, //nolint:errcheck // a buffer
				timeOrDash(q.GetWaitingSince()), clean(cut(q.GetLastReply(), 60)))
		}
	})
}

func printTable(out *bytes.Buffer, rows func(io.Writer)) {
	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	rows(table)
	_ = table.Flush() // a buffer
}

// suspensionText tells why a recipient's mail waits.
func suspensionText(s *adminv1.Suspension) string {
	text := "its destination is suspended " + untilText(s)
	if s.GetReason() != "" {
		text += ": " + s.GetReason()
	}
	return clean(text)
}

// untilText tells when a suspension ends.
func untilText(s *adminv1.Suspension) string {
	if s.GetUntil() == nil {
		return "until it is resumed"
	}
	return "until " + timeText(s.GetUntil().AsTime()) + " UTC"
}

func timeOrDash(t *timestamppb.Timestamp) string {
	if t == nil {
		return "-"
	}
	return timeText(t.AsTime().Truncate(time.Second))
}
