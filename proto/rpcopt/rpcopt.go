// Package rpcopt holds the gRPC settings that both ends of Rohrpost's streams share: flow-control windows, keepalives, size
// limits and the codec. Whoever serves or dials a Rohrpost service uses them, so that the two ends agree.
package rpcopt

import (
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/keepalive"
)

// Flow control: how many octets may be under way before the other side must have read. Fixed, so that the memory of a
// connection is known. The connection's window is that of four streams: one that is not read does not stop the others.
const (
	StreamWindow     = 1 << 20
	ConnectionWindow = 4 << 20
)

// MaxMessageSize is how large a gRPC message may be, in octets, encoded. The streams keep well below it: 256 KiB, or
// 1 MiB where a single frame cannot be divided.
const MaxMessageSize = 2 << 20

// Keepalives find a peer that is gone without a word within keepaliveTime + keepaliveTimeout.
const (
	keepaliveTime    = 20 * time.Second
	keepaliveTimeout = 10 * time.Second
	// keepaliveMinTime is how often a client may ping. It lies below keepaliveTime, so that no peer that uses
	// DialOptions is ever turned away.
	keepaliveMinTime = 10 * time.Second
)

// Reconnecting: at once, then less and less often, with jitter, so that a restarted spool is not met by all at once. Mail is
// refused meanwhile, so the waits stay short.
const (
	reconnectMin     = 100 * time.Millisecond
	reconnectMax     = time.Second
	reconnectTimeout = 5 * time.Second // of one try
	reconnectGrowth  = 1.6
	reconnectJitter  = 0.2
)

// ServerOptions are the options of a server. Credentials, interceptors and stats handlers come in addition.
func ServerOptions() []grpc.ServerOption {
	return []grpc.ServerOption{
		grpc.ForceServerCodecV2(codec{}),
		grpc.InitialWindowSize(StreamWindow),
		grpc.InitialConnWindowSize(ConnectionWindow),
		grpc.MaxRecvMsgSize(MaxMessageSize),
		grpc.KeepaliveParams(keepalive.ServerParameters{Time: keepaliveTime, Timeout: keepaliveTimeout}),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: keepaliveMinTime, PermitWithoutStream: true}),
	}
}

// DialOptions are the options of a client connection. Credentials, interceptors and stats handlers come in addition.
func DialOptions() []grpc.DialOption {
	return []grpc.DialOption{
		grpc.WithInitialWindowSize(StreamWindow),
		grpc.WithInitialConnWindowSize(ConnectionWindow),
		grpc.WithDefaultCallOptions(grpc.ForceCodecV2(codec{}), grpc.MaxCallRecvMsgSize(MaxMessageSize)),
		grpc.WithKeepaliveParams(keepalive.ClientParameters{
			Time: keepaliveTime, Timeout: keepaliveTimeout, PermitWithoutStream: true,
		}),
		grpc.WithConnectParams(grpc.ConnectParams{
			Backoff: backoff.Config{
				BaseDelay: reconnectMin, MaxDelay: reconnectMax, Multiplier: reconnectGrowth, Jitter: reconnectJitter,
			},
			MinConnectTimeout: reconnectTimeout,
		}),
	}
}
