package gateway_test

import (
	"strings"
	"testing"
	"time"

	"github.com/rohrpost/rohrpost/gateway"
)

func TestValidate(t *testing.T) {
	if err := gateway.DefaultConfig().Validate(); err != nil {
		t.Errorf("the default: %v", err)
	}
	for key, change := range map[string]func(*gateway.Config){
		"gateway.listeners":           func(c *gateway.Config) { c.Listeners = nil },
		"gateway.listeners[0].listen": func(c *gateway.Config) { c.Listeners[0].Listen = "2525" },
		"gateway.listeners[1].max_size": func(c *gateway.Config) {
			c.Listeners = append(c.Listeners, gateway.Listener{Listen: ":0", Limits: gateway.Limits{MaxSize: 1}})
		},
		"gateway.listeners[1].listen": func(c *gateway.Config) { c.Listeners = append(c.Listeners, c.Listeners[0]) },
		"gateway.accept.directory": func(c *gateway.Config) {
			c.Accept.Domains, c.Accept.Directory = patterns("ours.test"), "directory.internal"
		},
		"gateway.accept.domains":      func(c *gateway.Config) { c.Accept.Recipients = patterns("u@ours.test") },
		"gateway.hostname":            func(c *gateway.Config) { c.Hostname = "no name" },
		"gateway.max_size":            func(c *gateway.Config) { c.MaxSize = 1 },
		"gateway.max_recipients":      func(c *gateway.Config) { c.MaxRecipients = 99 },
		"gateway.max_recipients 1001": func(c *gateway.Config) { c.MaxRecipients = 1001 },
		"gateway.max_memory":          func(c *gateway.Config) { c.MaxMemory = 1 },
		"gateway.rates[0].per": func(c *gateway.Config) {
			c.Rates = []gateway.Rate{{Count: gateway.CountConnections, Per: gateway.PerUser, Limit: 1, Every: 1}}
		},
		"gateway.rates[0].limit": func(c *gateway.Config) {
			c.Rates = []gateway.Rate{{Count: gateway.CountBytes, Per: gateway.PerUser, Every: 1}}
		},
		"gateway.accept.directory_cache.known":   func(c *gateway.Config) { c.Accept.DirectoryCache.Known = 2 * time.Hour },
		"gateway.accept.directory_cache.unknown": func(c *gateway.Config) { c.Accept.DirectoryCache.Unknown = -1 },
		"gateway.accept.directory_cache.entries": func(c *gateway.Config) { c.Accept.DirectoryCache.Entries = 1 },
		"gateway.greylist.keep":                  func(c *gateway.Config) { c.Greylist.Keep = c.Greylist.Delay },
		"gateway.max_sessions":                   func(c *gateway.Config) { c.MaxSessions = 0 },
		"gateway.listeners[0].kind":              func(c *gateway.Config) { c.Listeners[0].Kind = "lmtp" },
		"gateway.listeners[0].tls:": func(c *gateway.Config) {
			c.Listeners[0].Kind, c.Auth.Users = gateway.KindSubmission, "x"
		},
		"gateway.tls.certificates[0]:": func(c *gateway.Config) { c.TLS.Certificates = []gateway.Certificate{{Cert: "x"}} },
		"gateway.tls.certificates":     func(c *gateway.Config) { c.TLS.ClientCA = "x" },
		"gateway.relay.certificates":   func(c *gateway.Config) { c.Relay.Certificates = patterns("*.hosts.test") },
		"gateway.auth.users": func(c *gateway.Config) {
			c.Listeners[0].Kind, c.TLS.Certificates = gateway.KindSubmission, []gateway.Certificate{{Cert: "x", Key: "x"}}
		},
		"gateway.auth.lockout":       func(c *gateway.Config) { c.Auth.Lockout = 0 },
		"gateway.greet_delay":        func(c *gateway.Config) { c.GreetDelay = time.Hour },
		"gateway.max_errors":         func(c *gateway.Config) { c.MaxErrors = -1 },
		"gateway.bare_newline":       func(c *gateway.Config) { c.BareNewline = "keep" },
		"gateway.timeouts.data":      func(c *gateway.Config) { c.Timeouts.Data = 0 },
		"gateway.timeouts.submit":    func(c *gateway.Config) { c.Timeouts.Submit = 10 * time.Minute },
		"gateway.timeouts.write -1s": func(c *gateway.Config) { c.Timeouts.Write = -time.Second },
	} {
		cfg := gateway.DefaultConfig()
		change(&cfg)
		err := cfg.Validate()
		if err == nil || !strings.HasPrefix(err.Error(), key+" ") || !strings.Contains(err.Error(), "give ") && !strings.Contains(err.Error(), "asks for") {
			t.Errorf("%s: %v, want an error that names the key and the mend", key, err)
		}
		if _, err := gateway.New(cfg, &fakeSpool{}, gateway.Options{}); err == nil {
			t.Errorf("%s: New takes it", key)
		}
	}
}
