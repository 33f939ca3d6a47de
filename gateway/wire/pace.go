package wire

import "time"

// pace is how fast content comes. Only the time that is spent waiting for the client counts against it, not that for a
// slow spool.
type pace struct {
	until  time.Time // the end of the total time; zero before the first wait
	waited time.Duration
	octets int64
}

// deadline tells how long the next octets are waited for.
func (p *pace) deadline(o *Options, now time.Time) time.Time {
	if p.until.IsZero() {
		p.until = now.Add(o.DataTotalTimeout)
	}
	patience := o.DataTimeout
	if o.MinRate > 0 {
		// A client may be slow for DataTimeout; beyond that each octet buys it some more time.
		credit := o.DataTimeout + time.Duration(float64(p.octets)/float64(o.MinRate)*float64(time.Second)) - p.waited
		patience = min(patience, credit)
	}
	if next := now.Add(patience); next.Before(p.until) {
		return next
	}
	return p.until
}

// add counts a wait and what it gave.
func (p *pace) add(asked time.Time, octets int) {
	p.waited += time.Since(asked)
	p.octets += int64(octets)
}
