package cli

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/alecthomas/kong"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	adminv1 "github.com/rohrpost/rohrpost/proto/gen/rohrpost/admin/v1"
	"github.com/rohrpost/rohrpost/services/process"
)

// MessageCommand is the commands `message hold`, `release`, `cancel`, `retry` and `bounce`: the subcommand's name is what is
// ordered.
type MessageCommand struct {
	Connection
	IDs []string `arg:"" name:"id" help:"The messages' ids."`
}

// Run orders the same about each message, and tells what came of it. It goes on behind a message for which that fails.
func (c *MessageCommand) Run(ctx context.Context, kctx *kong.Context, std *IO) error {
	return c.order(ctx, kctx.Selected().Name, std)
}

func (c *MessageCommand) order(ctx context.Context, word string, std *IO) error {
	command := adminv1.Command(adminv1.Command_value["COMMAND_"+strings.ToUpper(word)])
	if command == adminv1.Command_COMMAND_UNSPECIFIED {
		return process.Usage("there is no command %s", word)
	}
	failed := 0
	for _, id := range c.IDs {
		result, err := c.orderOne(ctx, id, command)
		if err != nil {
			failed++
			result = err.Error()
		}
		if _, err := fmt.Fprintf(std.Out, "%s  %s\n", clean(id), clean(result)); err != nil {
			return err
		}
	}
	if failed > 0 {
		return fmt.Errorf("%d of %d messages could not be ordered to %s", failed, len(c.IDs), word)
	}
	return nil
}

func (c *MessageCommand) orderOne(ctx context.Context, id string, command adminv1.Command) (result string, err error) {
	err = c.call(ctx, func(ctx context.Context, conn *grpc.ClientConn) error {
		response, err := adminv1.NewAdminServiceClient(conn).CommandMessage(ctx, &adminv1.CommandMessageRequest{Id: id, Command: command})
		switch {
		case status.Code(err) == codes.NotFound:
			return errors.New("there is no such message")
		case err == nil && !response.GetDone():
			result = "ordered; it is executed as soon as a spool owns the message"
		default:
			result = response.GetResult()
		}
		return err
	})
	return result, err
}
