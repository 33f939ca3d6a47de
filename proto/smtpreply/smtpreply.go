// Package smtpreply is the error contract of the pipeline: the one typed error that crosses the wire and becomes an
// SMTP reply.
//
// A part that wants the client to read something returns an [*Error]. Every other error is internal: [From] turns it
// into 451 4.3.0, so that an outage never bounces mail and no inner cause leaks (promise P1).
package smtpreply

import (
	"context"
	"errors"
	"fmt"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	mailv1 "github.com/rohrpost/rohrpost/proto/gen/rohrpost/mail/v1"
)

// Error is a reply on its way to the client. It is immutable and safe for concurrent use.
type Error struct {
	reply *mailv1.Reply
	cause error
}

// New makes a reply: code from 400 to 599 (RFC 5321, section 4.2), enhanced code such as "4.3.0" (RFC 3463) of the same
// class, and text that the client may see. It panics where the codes are out of range or contradict each other, since
// that is a mistake in the program.
func New(code int, enhanced, text string) *Error {
	if code < 400 || code > 599 || enhanced == "" || int(enhanced[0]-'0') != code/100 {
		panic(fmt.Sprintf("smtpreply: %d %s is not a refusal", code, enhanced))
	}
	return &Error{reply: &mailv1.Reply{Code: int32(code), EnhancedCode: enhanced, Text: text}}
}

// FromReply makes an error of a reply that came over the wire. A reply that is not a refusal (400 to 599) is not to be
// believed and becomes 451 4.3.0.
func FromReply(reply *mailv1.Reply) *Error {
	if reply.GetCode() < 400 || reply.GetCode() > 599 {
		return From(fmt.Errorf("peer sent reply code %d as a refusal", reply.GetCode()))
	}
	return &Error{reply: reply}
}

// Because returns the same reply with an inner cause, which goes to logs and never to the client.
func (e *Error) Because(cause error) *Error { return &Error{reply: e.reply, cause: cause} }

// Error tells the reply and the cause, for logs.
func (e *Error) Error() string {
	s := fmt.Sprintf("%d %s %s", e.reply.GetCode(), e.reply.GetEnhancedCode(), e.reply.GetText())
	if e.cause != nil {
		s += ": " + e.cause.Error()
	}
	return s
}

// Unwrap returns the inner cause.
func (e *Error) Unwrap() error { return e.cause }

// Reply returns what the client is told. The caller must not change it.
func (e *Error) Reply() *mailv1.Reply { return e.reply }

// Temporary tells whether the client should try again.
func (e *Error) Temporary() bool { return e.reply.GetCode() < 500 }

// GRPCStatus carries the reply as a status detail: UNAVAILABLE for a temporary one, FAILED_PRECONDITION otherwise.
func (e *Error) GRPCStatus() *status.Status {
	code := codes.FailedPrecondition
	if e.Temporary() {
		code = codes.Unavailable
	}
	st, err := status.New(code, e.reply.GetText()).WithDetails(e.reply)
	if err != nil {
		return status.New(code, e.reply.GetText())
	}
	return st
}

// From finds the reply in err: an [*Error] in its chain, or one carried in a gRPC status. Every other error, however
// it is spelt, is internal and becomes 451. It returns nil for nil.
func From(err error) *Error {
	if e := find(err); e != nil || err == nil {
		return e
	}
	return New(451, "4.3.0", "Temporary system problem, try again later").Because(err)
}

// OfMessage is [From] for an error that is about one message alone, such as a row that a database does not take: where it is
// internal it becomes 451 4.6.0. By 4.3.x a system says that it is not well, and that others should be asked.
func OfMessage(err error) *Error {
	if e := find(err); e != nil || err == nil {
		return e
	}
	return New(451, "4.6.0", "This message can't be taken now, try again later").Because(err)
}

// find is the reply in an error; nil where it is internal.
func find(err error) *Error {
	var e *Error
	if errors.As(err, &e) {
		return e
	}
	if st, ok := status.FromError(err); ok {
		for _, d := range st.Details() {
			if reply, ok := d.(*mailv1.Reply); ok {
				return FromReply(reply).Because(err)
			}
		}
	}
	if errors.Is(err, context.DeadlineExceeded) {
		return New(451, "4.4.2", "Taking too long, try again later").Because(err)
	}
	return nil
}
