// Package directoryrpc asks a DirectoryService over gRPC for the gateway.
package directoryrpc

import (
	"context"
	"fmt"

	"google.golang.org/grpc"

	"github.com/rohrpost/rohrpost/gateway"
	directoryv1 "github.com/rohrpost/rohrpost/proto/gen/rohrpost/directory/v1"
)

// maxAliases is how many mailboxes may stand for one, see directory_service.proto.
const maxAliases = 100

// Client is a [gateway.Directory].
type Client struct {
	service directoryv1.DirectoryServiceClient
}

var _ gateway.Directory = (*Client)(nil)

// New makes a client. It does not wait for the connection.
func New(conn grpc.ClientConnInterface) *Client {
	return &Client{service: directoryv1.NewDirectoryServiceClient(conn)}
}

// Lookup implements gateway.Directory.
func (c *Client) Lookup(ctx context.Context, address string) (gateway.DirectoryEntry, error) {
	resp, err := c.service.LookupRecipient(ctx, &directoryv1.LookupRecipientRequest{Address: address})
	if err != nil {
		return gateway.DirectoryEntry{}, fmt.Errorf("asking the directory: %w", err)
	}
	if n := len(resp.GetAliases()); n > maxAliases {
		return gateway.DirectoryEntry{}, fmt.Errorf("directory gave %d aliases, at most %d are allowed", n, maxAliases)
	}
	return gateway.DirectoryEntry{Known: resp.GetKnown(), Aliases: resp.GetAliases()}, nil
}
