package console

import (
	"net/http"

	"github.com/rohrpost/rohrpost/services/process"
)

// guard keeps pages of strangers out: a name that they let point to this machine (DNS rebinding), requests from other
// origins, frames, and scripts, should any text get past the templates.
func (c *console) guard(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		header := w.Header()
		header.Set("Content-Security-Policy",
			"default-src 'none'; style-src 'self'; form-action 'none'; base-uri 'none'; frame-ancestors 'none'")
		header.Set("Cross-Origin-Resource-Policy", "same-origin")
		header.Set("Cross-Origin-Opener-Policy", "same-origin")
		header.Set("X-Content-Type-Options", "nosniff")
		header.Set("Referrer-Policy", "no-referrer")
		header.Set("Cache-Control", "no-store")
		if !process.KnownHost(r.Host, c.cfg.Hosts) {
			http.Error(w, "this console does not answer to that host name; call it by 127.0.0.1, or list the name in console.hosts",
				http.StatusMisdirectedRequest)
			return
		}
		if !process.SameOrigin(r) {
			http.Error(w, "requests from other origins are refused", http.StatusForbidden)
			return
		}
		if r.Method != http.MethodGet && r.Method != http.MethodHead {
			header.Set("Allow", "GET, HEAD")
			http.Error(w, "the console only reads", http.StatusMethodNotAllowed)
			return
		}
		next.ServeHTTP(w, r)
	})
}
