package gatewayrpc

import (
	"sync/atomic"
	"time"

	spoolv1 "github.com/rohrpost/rohrpost/proto/gen/rohrpost/spool/v1"
)

// clock is the spool's time as far as it is known here.
type clock struct{ last atomic.Pointer[reading] }

type reading struct {
	spool time.Time // what the spool said
	here  time.Time // when it was heard, with the monotonic clock
}

func (c *clock) hear(hello *spoolv1.SpoolHello) {
	if hello.GetTime().IsValid() && hello.GetTime() != nil {
		c.last.Store(&reading{spool: hello.GetTime().AsTime(), here: time.Now()})
	}
}

func (c *clock) now() time.Time {
	r := c.last.Load()
	if r == nil {
		return time.Now()
	}
	return r.spool.Add(time.Since(r.here))
}
