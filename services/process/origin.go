package process

import (
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
)

// KnownHost tells whether a Host header, with or without port, names this machine's loopback or one of the given names,
// which have no port. It keeps out names that strangers let point to this machine (DNS rebinding).
func KnownHost(hostport string, names []string) bool {
	host := hostport
	if h, _, err := net.SplitHostPort(hostport); err == nil {
		host = h
	}
	host = strings.ToLower(strings.Trim(host, "[]"))
	return host == "localhost" || host == "127.0.0.1" || host == "::1" ||
		slices.ContainsFunc(names, func(known string) bool { return strings.EqualFold(known, host) })
}

// SameOrigin is false for a request of which a browser says that it came from another origin. Links from elsewhere carry no
// Origin and are fine.
func SameOrigin(r *http.Request) bool {
	origin := r.Header.Get("Origin")
	if origin == "" {
		return true
	}
	u, err := url.Parse(origin)
	return err == nil && u.Host != "" && strings.EqualFold(u.Host, r.Host)
}
