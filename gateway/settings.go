package gateway

import (
	"context"
	"slices"
)

// settings are what the gateway makes of a configuration. They don't change: a reload makes new ones, and a session keeps
// those that it began with.
type settings struct {
	cfg        Config
	recipients *recipients
	auth       *authenticator // nil where no listener needs it
	meters     []meter
	ports      []*port // in the order of the listeners
}

// newSettings reads all files that cfg names. What the gateway remembers of clients is taken over from old settings, if
// there are any, as far as the rules that it was counted by are the same.
func (g *Gateway) newSettings(ctx context.Context, cfg Config, directory Directory, old *settings) (*settings, error) {
	if old == nil {
		old = &settings{}
	}
	set := &settings{cfg: cfg, meters: newMeters(cfg.Rates, old.meters)}
	var err error
	if cfg.needsUsers() {
		set.auth, err = newAuthenticator(cfg.Auth, g.checks, old.auth, g.warner(ctx, "users not read again, the old ones stay"))
		if err != nil {
			return nil, err
		}
	}
	set.recipients, err = newRecipients(cfg.Accept, directory, g.warner(ctx, "recipients not read again, the old ones stay"))
	if err != nil {
		return nil, err
	}
	for i, l := range cfg.Listeners {
		p, err := g.newPort(ctx, set, l)
		if err != nil {
			return nil, keyed(i, err)
		}
		set.ports = append(set.ports, p)
	}
	return set, nil
}

// newMeters takes over the buckets of old meters whose rates are still there.
func newMeters(rates []Rate, old []meter) []meter {
	old = slices.Clone(old)
	var meters []meter
	for _, r := range rates {
		m := meter{Rate: r}
		if i := slices.IndexFunc(old, func(o meter) bool { return o.Rate == r }); i >= 0 {
			m.buckets = old[i].buckets
			old = slices.Delete(old, i, i+1) // a rate that is given twice counts twice
		} else {
			m.buckets = newBuckets(int64(r.Limit), r.Every)
		}
		meters = append(meters, m)
	}
	return meters
}
