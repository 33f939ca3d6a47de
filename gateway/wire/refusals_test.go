package wire

import (
	"fmt"
	"strings"
	"testing"
)

// However many codes there are, a bounded number of them is told apart, and none is lost.
func TestRefusalsAreBounded(t *testing.T) {
	c, _ := scripted(strings.NewReader(""))
	c.verb = "DATA"
	for i := range 500 {
		c.countRefusal(fmt.Appendf(nil, "550 5.7.%d No", i))
	}
	c.countRefusal([]byte("250 2.0.0 Ok"))
	c.countRefusal([]byte(stops + "mx.test Service shutting down"))
	list := c.Refusals()
	if len(list) > maxRefusals+1 {
		t.Errorf("%d kinds", len(list))
	}
	if last, want := list[len(list)-1], fmt.Sprintf("other: %d", 500-maxRefusals); last != want {
		t.Errorf("%q, want %q", last, want)
	}
}
