// Package jsonapi serves unary and server-streaming methods of a gRPC server as JSON over HTTP, by the Connect protocol:
// POST /package.Service/Method with the request in JSON. Nothing else is needed to call it than curl.
//
// The requests reach the gRPC server's own handlers through its own interceptors, so that authorization is the same: the
// certificate of the connection, or the header `Authorization: Bearer` with the token.
package jsonapi

import (
	"fmt"
	"net/http"
	"slices"

	"connectrpc.com/connect"
	"connectrpc.com/vanguard"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"

	"github.com/rohrpost/rohrpost/proto/rpcopt"
)

// Options say who may call, and what.
type Options struct {
	// Services are the full names of the services to serve, such as rohrpost.send.v1.SendService.
	Services []string
	// Hosts are the names and addresses, without port, by which it may be called besides localhost, 127.0.0.1 and ::1.
	Hosts []string
	// AnyHost lets it be called by every name: where callers show a certificate, no page of a stranger can use theirs by a
	// name that it lets point here.
	AnyHost bool
}

// New makes a handler in front of a gRPC server, at which the services are registered. The server needs no listener of
// its own. Run the handler by [Serve], which knows its limits.
func New(server *grpc.Server, opts Options) (http.Handler, error) {
	var services []*vanguard.Service
	for _, name := range opts.Services {
		services = append(services, vanguard.NewService(name, server))
	}
	transcoder, err := vanguard.NewTranscoder(services,
		vanguard.WithDefaultServiceOptions(
			vanguard.WithTargetProtocols(vanguard.ProtocolGRPC),
			vanguard.WithTargetCodecs(vanguard.CodecProto),
			vanguard.WithNoTargetCompression(),
			vanguard.WithMaxMessageBufferBytes(rpcopt.MaxMessageSize),
		),
		vanguard.WithCodec(newCodec),
		vanguard.WithUnknownHandler(http.HandlerFunc(unknown)),
	)
	if err != nil {
		return nil, fmt.Errorf("jsonapi: %w", err)
	}
	return &guard{hosts: slices.Clone(opts.Hosts), anyHost: opts.AnyHost, next: transcoder}, nil
}

// codec reads JSON strictly: a misspelt field is told, not passed over.
type codec struct{ vanguard.JSONCodec }

func newCodec(res vanguard.TypeResolver) vanguard.Codec {
	c := codec{*vanguard.NewJSONCodec(res)}
	c.UnmarshalOptions.DiscardUnknown = false
	c.MarshalOptions.EmitUnpopulated = false
	return c
}

// Unmarshal reads a request. What it can't read is the caller's mistake.
func (c codec) Unmarshal(data []byte, msg proto.Message) error {
	if err := c.JSONCodec.Unmarshal(data, msg); err != nil {
		return connect.NewError(connect.CodeInvalidArgument, err)
	}
	return nil
}

func unknown(w http.ResponseWriter, _ *http.Request) {
	refuse(w, http.StatusNotFound, "unimplemented",
		"there is no such method here: POST to /rohrpost.send.v1.SendService/SendMessage, or to a method of rohrpost.admin.v1.AdminService")
}
