package services

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/rohrpost/rohrpost/gateway"
	"github.com/rohrpost/rohrpost/services/process"
)

// reloader loads the configuration again when SIGHUP asks for it, and gives the gateway its section.
type reloader struct {
	*stage
	edge        *gateway.Gateway
	directories *directories
}

// onHangup runs until ctx ends.
func (r *reloader) onHangup(ctx context.Context) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-r.env.Hangups:
		}
		if err := r.reload(ctx); err != nil && ctx.Err() == nil {
			r.log.ErrorContext(ctx, "configuration not loaded, the old one stays; mend it and send SIGHUP again", "error", faults(err))
		}
	}
}

// reload changes nothing where it fails.
func (r *reloader) reload(ctx context.Context) error {
	cfg, err := r.env.Load()
	if err != nil {
		return err
	}
	later := r.later(cfg)
	if err := r.fit(cfg); err != nil {
		return err
	}
	if err := cfg.Validate(); err != nil {
		return err
	}
	directory, err := r.directories.at(cfg.Gateway.Accept.Directory)
	if err != nil {
		return err
	}
	addrs, err := r.edge.Reload(ctx, cfg.Gateway, directory)
	if err != nil {
		return err
	}
	if err := r.listening(cfg.Gateway.Listeners, addrs); err != nil {
		r.log.WarnContext(ctx, "commands look for the gateway at its old address", "error", err)
	}
	if len(later) > 0 {
		r.log.WarnContext(ctx, "takes effect at the next start", "keys", strings.Join(later, ", "))
	}
	r.log.InfoContext(ctx, "configuration loaded again", "listeners", fmt.Sprint(addrs))
	return nil
}

// later lists the keys of a configuration as it was loaded that no reload brings into force.
func (r *reloader) later(cfg *Config) []string {
	keys := slices.DeleteFunc(process.Changed(r.loaded, *cfg), func(key string) bool { return strings.HasPrefix(key, "gateway.") })
	if cfg.Gateway.Hostname != r.loaded.Gateway.Hostname {
		keys = append(keys, "gateway.hostname (as spools call this gateway)")
	}
	return keys
}

// faults is one line with all that is wrong.
func faults(err error) string { return strings.ReplaceAll(err.Error(), "\n", "; ") }

// ignoreHangups tells that a service has nothing to load again, and lives on.
func (s *stage) ignoreHangups(ctx context.Context) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-s.env.Hangups:
			s.log.InfoContext(ctx, "SIGHUP: only the gateway loads its configuration again; here all takes effect at the next start")
		}
	}
}
