package jsonapi

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"time"

	"golang.org/x/net/netutil"

	"github.com/rohrpost/rohrpost/proto/rpcopt"
)

// The limits of the HTTP server. An answer may take as long as it takes: WaitMessage waits and WatchEvents has no end.
const (
	maxConnections = 256
	headerTimeout  = 5 * time.Second
	bodyTimeout    = 30 * time.Second // for the whole request
	writeTimeout   = 30 * time.Second // for each piece of the answer
	idleTimeout    = time.Minute
	stopTimeout    = 3 * time.Second
	maxHeader      = 16 << 10
)

// ServeOptions is what Serve needs beside its listener. The zero value is fit for use.
type ServeOptions struct {
	// TLS, where not nil, is spoken over HTTP/1.1 and HTTP/2.
	TLS *tls.Config
	// Logger gets what goes wrong on connections, at level debug. Nil means slog.Default.
	Logger *slog.Logger
}

// Serve serves until ctx ends, then lets requests under way finish for a few seconds and cuts the rest off.
func Serve(ctx context.Context, handler http.Handler, lis net.Listener, opts ServeOptions) error {
	if opts.Logger == nil {
		opts.Logger = slog.Default()
	}
	server := &http.Server{
		ErrorLog:          slog.NewLogLogger(opts.Logger.Handler(), slog.LevelDebug),
		Handler:           handler,
		ReadHeaderTimeout: headerTimeout,
		IdleTimeout:       idleTimeout,
		MaxHeaderBytes:    maxHeader,
	}
	lis = netutil.LimitListener(lis, maxConnections)
	failed := make(chan error, 1)
	go func() {
		if opts.TLS == nil {
			failed <- server.Serve(lis)
			return
		}
		server.TLSConfig = opts.TLS.Clone()
		failed <- server.ServeTLS(lis, "", "")
	}()
	select {
	case err := <-failed:
		return err
	case <-ctx.Done():
	}
	stopCtx, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopTimeout)
	defer cancel()
	if err := server.Shutdown(stopCtx); err != nil {
		_ = server.Close() // whoever still waits has had its time
	}
	if err := <-failed; !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

// readBody takes a request's body whole: requests are single messages. The deadline holds no longer than that, for it
// would end the call. On an error it has answered.
func readBody(w http.ResponseWriter, r *http.Request) bool {
	control := http.NewResponseController(w)
	_ = control.SetReadDeadline(time.Now().Add(bodyTimeout)) // not supported only by tests' recorders
	data, err := io.ReadAll(http.MaxBytesReader(w, r.Body, rpcopt.MaxMessageSize))
	var large *http.MaxBytesError
	switch {
	case errors.As(err, &large):
		refuse(w, http.StatusRequestEntityTooLarge, "resource_exhausted", "the request is larger than 2 MiB")
		return false
	case err != nil:
		refuse(w, http.StatusRequestTimeout, "deadline_exceeded", "the request did not arrive whole and in time")
		return false
	}
	_ = control.SetReadDeadline(time.Time{})
	r.Body, r.ContentLength = io.NopCloser(bytes.NewReader(data)), int64(len(data))
	return true
}

// answer is the way back. Who does not read it is cut off.
type answer struct {
	http.ResponseWriter
	control *http.ResponseController
}

// Write writes a piece.
func (a *answer) Write(p []byte) (int, error) {
	_ = a.control.SetWriteDeadline(time.Now().Add(writeTimeout))
	return a.ResponseWriter.Write(p)
}

// Flush sends what was written.
func (a *answer) Flush() {
	_ = a.control.SetWriteDeadline(time.Now().Add(writeTimeout))
	_ = a.control.Flush() // whoever asked is gone
}
