package jsonapi

import (
	"encoding/json"
	"mime"
	"net/http"
	"strings"

	"github.com/rohrpost/rohrpost/services/process"
)

// The content types of the Connect protocol with JSON: of unary methods, and of streams.
const (
	typeUnary  = "application/json"
	typeStream = "application/connect+json"
)

// guard stands before the transcoder. It keeps pages of strangers out, bounds requests, and fills in what plain curl
// leaves out.
type guard struct {
	hosts   []string
	anyHost bool
	next    http.Handler
}

// ServeHTTP passes a request on, or tells what is wrong with it.
func (g *guard) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("X-Content-Type-Options", "nosniff")
	w.Header().Set("Cache-Control", "no-store")
	switch {
	case !g.anyHost && !process.KnownHost(r.Host, g.hosts):
		refuse(w, http.StatusMisdirectedRequest, "permission_denied",
			"this address is not called by that host name: call it by 127.0.0.1, or list the name in spool.http_hosts")
		return
	case !process.SameOrigin(r):
		refuse(w, http.StatusForbidden, "permission_denied", "requests from other origins are refused")
		return
	case r.Method != http.MethodPost:
		w.Header().Set("Allow", http.MethodPost)
		refuse(w, http.StatusMethodNotAllowed, "unimplemented", "use POST")
		return
	case encoded(r.Header):
		refuse(w, http.StatusUnsupportedMediaType, "invalid_argument", "compressed requests are not taken")
		return
	}
	// A page of a stranger can't send these types without asking first, which is refused above. (Fetch standard,
	// CORS-safelisted request-header.)
	switch kind, _, err := mime.ParseMediaType(r.Header.Get("Content-Type")); {
	case err == nil && kind == typeUnary:
		// Without this header the transcoder would look for a REST route.
		r.Header.Set("Connect-Protocol-Version", "1")
	case err == nil && kind == typeStream:
	default:
		refuse(w, http.StatusUnsupportedMediaType, "invalid_argument",
			"set the header Content-Type: application/json, or application/connect+json for a stream")
		return
	}
	if readBody(w, r) {
		g.next.ServeHTTP(&answer{ResponseWriter: w, control: http.NewResponseController(w)}, r)
	}
}

// encoded tells whether a request is compressed. A small one could be very large when it is not.
func encoded(header http.Header) bool {
	for _, name := range []string{"Content-Encoding", "Connect-Content-Encoding"} {
		if value := header.Get(name); value != "" && !strings.EqualFold(value, "identity") {
			return true
		}
	}
	return false
}

// refuse answers with an error as the Connect protocol writes it.
func refuse(w http.ResponseWriter, status int, code, message string) {
	body, err := json.Marshal(map[string]string{"code": code, "message": message})
	if err != nil {
		http.Error(w, message, status)
		return
	}
	w.Header().Set("Content-Type", typeUnary)
	w.WriteHeader(status)
	_, _ = w.Write(append(body, '\n')) // whoever asked is gone
}
