// Package spool is the life of a message between its reception and its end: it makes messages durable, owns them, hands
// them to workers stage by stage, schedules their attempts and records how they ended.
//
// The package knows neither SQL nor gRPC: spool/postgres keeps what it writes, spool/spoolrpc puts it on the wire.
package spool
