package process

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// Profiles show mail: only this machine may ask for them, and no page of another site through its browser.
func TestDebug(t *testing.T) {
	for host, want := range map[string]int{
		"127.0.0.1:6060": http.StatusOK, "localhost": http.StatusOK, "evil.example": http.StatusForbidden,
	} {
		r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+host+"/debug/pprof/goroutine?debug=1", http.NoBody)
		w := httptest.NewRecorder()
		debugHandler().ServeHTTP(w, r)
		if w.Code != want || w.Code == http.StatusOK && !strings.Contains(w.Body.String(), "goroutine profile") {
			t.Errorf("%s: %d %.80s, want %d", host, w.Code, w.Body, want)
		}
	}
	for listen, ok := range map[string]bool{"": true, "127.0.0.1:6060": true, "[::1]:0": true, "0.0.0.0:6060": false, ":6060": false} {
		err := DebugConfig{Listen: listen}.Validate()
		if (err == nil) != ok || err != nil && !strings.Contains(err.Error(), "debug.listen") {
			t.Errorf("%q: %v", listen, err)
		}
	}
}
