package gateway_test

import (
	"strings"
	"testing"
	"time"

	"github.com/rohrpost/rohrpost/gateway"
)

// manyLines is content that is streamed.
var manyLines = strings.Repeat(strings.Repeat("x", 998)+"\r\n", 300)

// hold begins a message that is streamed, without its end.
func (d *dialog) hold() {
	d.t.Helper()
	d.envelope()
	d.cmd("DATA", "354 ")
	d.send(manyLines)
}

// Content of all sessions together is bounded: a message that finds no room waits until another one ends.
func TestMemoryIsBounded(t *testing.T) {
	e := start(t, &fakeSpool{begun: make(chan struct{}, 10)}, startOptions{change: func(c *gateway.Config) {
		c.MaxMemory, c.Timeouts.Memory = 1<<20, time.Minute // room for two streamed messages
	}})
	first, second, third := e.dial(t), e.dial(t), e.dial(t)
	first.hold()
	second.hold()
	<-e.spool.begun
	<-e.spool.begun
	third.hold()
	third.send(".\r\n")
	select {
	case <-e.spool.begun:
		t.Fatal("a third message is held")
	case <-time.After(4 * short):
	}
	small := e.dial(t)
	small.envelope() // commands need no room
	first.send(".\r\n")
	first.want("250 ")
	third.want("250 ")
	second.send(".\r\n")
	second.want("250 ")
	if n := len(e.spool.all()); n != 3 {
		t.Errorf("%d messages stored", n)
	}
}
