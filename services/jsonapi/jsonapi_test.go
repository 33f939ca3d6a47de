package jsonapi_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/binary"
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	adminv1 "github.com/rohrpost/rohrpost/proto/gen/rohrpost/admin/v1"
	sendv1 "github.com/rohrpost/rohrpost/proto/gen/rohrpost/send/v1"
	"github.com/rohrpost/rohrpost/services/jsonapi"
	"github.com/rohrpost/rohrpost/services/process"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const token = "a secret of the tests"

// fake answers with what it was asked.
type fake struct {
	adminv1.UnimplementedAdminServiceServer
	sendv1.UnimplementedSendServiceServer
	waiting chan<- struct{} // told of each wait
}

func (fake) GetMessage(_ context.Context, req *adminv1.GetMessageRequest) (*adminv1.GetMessageResponse, error) {
	if req.GetId() == "none" {
		return nil, status.Error(codes.NotFound, "there is no such message")
	}
	return &adminv1.GetMessageResponse{Message: &adminv1.Message{Summary: &adminv1.MessageSummary{Id: req.GetId()}}}, nil
}

func (f fake) WaitMessage(ctx context.Context, _ *adminv1.WaitMessageRequest) (*adminv1.WaitMessageResponse, error) {
	f.waiting <- struct{}{}
	<-ctx.Done()
	return nil, status.FromContextError(ctx.Err()).Err()
}

func (fake) WatchEvents(_ *adminv1.WatchEventsRequest, s grpc.ServerStreamingServer[adminv1.WatchEventsResponse]) error {
	for _, cursor := range []string{"1", "2"} {
		if err := s.Send(&adminv1.WatchEventsResponse{Cursor: cursor}); err != nil {
			return err
		}
	}
	return nil
}

func (fake) SendMessage(ctx context.Context, req *sendv1.SendMessageRequest) (*sendv1.SendMessageResponse, error) {
	return &sendv1.SendMessageResponse{Id: process.Caller(ctx) + " " + string(req.GetContent())}, nil
}

// serve runs a handler until the test ends, and tells its address.
func serve(t *testing.T, auth process.ServerOptions, opts jsonapi.Options) string {
	t.Helper()
	address, _ := serveFake(t, fake{}, auth, opts)
	return address
}

func serveFake(t *testing.T, f fake, auth process.ServerOptions, opts jsonapi.Options) (address string, stop func()) {
	t.Helper()
	server, err := process.NewServer(auth)
	if err != nil {
		t.Fatal(err)
	}
	adminv1.RegisterAdminServiceServer(server, f)
	sendv1.RegisterSendServiceServer(server, f)
	opts.Services = []string{"rohrpost.admin.v1.AdminService", "rohrpost.send.v1.SendService"}
	opts.AnyHost = auth.TLS != nil
	handler, err := jsonapi.New(server.Server, opts)
	if err != nil {
		t.Fatal(err)
	}
	lis, err := process.Listen(t.Context(), "test", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() {
		done <- jsonapi.Serve(ctx, handler, lis, jsonapi.ServeOptions{TLS: auth.TLS, Logger: slog.New(slog.DiscardHandler)})
	}()
	stop = sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
		server.Stop()
	})
	t.Cleanup(stop)
	return lis.Addr().String(), stop
}

const (
	getMessage  = "/rohrpost.admin.v1.AdminService/GetMessage"
	sendMessage = "/rohrpost.send.v1.SendService/SendMessage"
)

// newRequest is a right one, as plain curl makes it.
func newRequest(t *testing.T, url, body string) *http.Request {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Authorization", "Bearer "+token)
	return req
}

func do(t *testing.T, client *http.Client, req *http.Request) (int, string) {
	t.Helper()
	resp, err := client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(body)
}

func newClient(t *testing.T, config *tls.Config) *http.Client {
	t.Helper()
	transport := &http.Transport{TLSClientConfig: config, ForceAttemptHTTP2: true}
	t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport, Timeout: 30 * time.Second}
}

func TestRequests(t *testing.T) {
	address := serve(t, process.ServerOptions{Token: token}, jsonapi.Options{Hosts: []string{"mail.example"}})
	client := newClient(t, nil)
	for name, test := range map[string]struct {
		path, body string
		change     func(*http.Request)
		code       int
		want       string
	}{
		"get":              {getMessage, `{"id":"x"}`, nil, 200, `"x"`},
		"send":             {sendMessage, `{"content":"aGk="}`, nil, 200, `"token hi"`},
		"fields by proto":  {sendMessage, `{"idempotency_key":"k"}`, nil, 200, `"token "`},
		"connect's header": {getMessage, `{"id":"x"}`, header("Connect-Protocol-Version", "1"), 200, `"x"`},
		"charset":          {getMessage, `{"id":"x"}`, header("Content-Type", "application/json; charset=utf-8"), 200, `"x"`},
		"configured host":  {getMessage, `{"id":"x"}`, host("mail.example:7026"), 200, `"x"`},
		"localhost":        {getMessage, `{"id":"x"}`, host("localhost:7026"), 200, `"x"`},
		"own origin":       {getMessage, `{"id":"x"}`, header("Origin", "http://"+address), 200, `"x"`},
		"not found":        {getMessage, `{"id":"none"}`, nil, 404, `"not_found"`},
		"misspelt field":   {getMessage, `{"ids":"x"}`, nil, 400, `ids`},
		"no JSON":          {getMessage, `id=x`, nil, 400, `"invalid_argument"`},
		"no token":         {getMessage, `{}`, header("Authorization", ""), 401, `"unauthenticated"`},
		"wrong token":      {getMessage, `{}`, header("Authorization", "Bearer wrong"), 401, `"unauthenticated"`},
		"rebound name":     {getMessage, `{}`, host("evil.example"), 421, `spool.http_hosts`},
		"other origin":     {getMessage, `{}`, header("Origin", "http://evil.example"), 403, `origins`},
		"null origin":      {getMessage, `{}`, header("Origin", "null"), 403, `origins`},
		"form":             {getMessage, `{}`, header("Content-Type", "application/x-www-form-urlencoded"), 415, `Content-Type`},
		"text":             {getMessage, `{}`, header("Content-Type", "text/plain"), 415, `Content-Type`},
		"compressed":       {getMessage, `{}`, header("Content-Encoding", "gzip"), 415, `compressed`},
		"GET":              {getMessage, ``, func(r *http.Request) { r.Method = http.MethodGet }, 405, `POST`},
		"not implemented":  {"/rohrpost.admin.v1.AdminService/ListMessages", `{}`, nil, 501, `"unimplemented"`},
		"for workers only": {"/rohrpost.spool.v1.SpoolService/ReadContent", `{}`, nil, 404, `no such method`},
		"health":           {"/grpc.health.v1.Health/Check", `{}`, nil, 404, `no such method`},
		"nothing":          {"/", `{}`, nil, 404, `no such method`},
		"large":            {getMessage, strings.Repeat(" ", 2<<20+1), nil, 413, `2 MiB`},
		"large, in chunks": {getMessage, strings.Repeat(" ", 2<<20+1), func(r *http.Request) { r.ContentLength = -1 }, 413, `2 MiB`},
	} {
		t.Run(name, func(t *testing.T) {
			req := newRequest(t, "http://"+address+test.path, test.body)
			if test.change != nil {
				test.change(req)
			}
			code, body := do(t, client, req)
			if code != test.code || !strings.Contains(body, test.want) || !json.Valid([]byte(body)) {
				t.Errorf("got %d %s, want %d with %q", code, body, test.code, test.want)
			}
		})
	}
}

func header(name, value string) func(*http.Request) {
	return func(r *http.Request) { r.Header.Set(name, value) }
}

func host(name string) func(*http.Request) { return func(r *http.Request) { r.Host = name } }

// The certificate decides over HTTP as it does over gRPC.
func TestCertificates(t *testing.T) {
	dir := t.TempDir()
	services := []string{process.Spool, process.Application, process.CLI, process.Parser}
	if _, err := process.MakeCertificates(dir, process.CertificateOptions{Services: services}); err != nil {
		t.Fatal(err)
	}
	load := func(service string) (server, client *tls.Config) {
		server, client, err := process.LoadTLS(process.TLSConfig{Dir: dir}, service)
		if err != nil {
			t.Fatal(err)
		}
		return server, client
	}
	serverTLS, _ := load(process.Spool)
	address := serve(t, process.ServerOptions{TLS: serverTLS}, jsonapi.Options{})
	for service, want := range map[string]map[string]int{
		process.Application: {getMessage: 403, sendMessage: 200},
		process.CLI:         {getMessage: 200, sendMessage: 200},
		process.Parser:      {getMessage: 403, sendMessage: 403},
	} {
		_, clientTLS := load(service)
		client := newClient(t, clientTLS)
		for path, code := range want {
			req := newRequest(t, "https://"+address+path, `{}`)
			req.Header.Del("Authorization")
			if got, body := do(t, client, req); got != code || code == 200 && path == sendMessage && !strings.Contains(body, service) {
				t.Errorf("%s %s: got %d %s, want %d", service, path, got, body, code)
			}
		}
	}
	_, clientTLS := load(process.CLI)
	clientTLS.Certificates = nil
	resp, err := newClient(t, clientTLS).Do(newRequest(t, "https://"+address+getMessage, `{}`))
	if err == nil {
		resp.Body.Close()
		t.Error("a caller without a certificate was answered")
	}
}

// A stream is framed: a flag and a length before each message. (Connect protocol, streaming RPCs.)
func TestStream(t *testing.T) {
	address := serve(t, process.ServerOptions{Token: token}, jsonapi.Options{})
	req := newRequest(t, "http://"+address+"/rohrpost.admin.v1.AdminService/WatchEvents", "\x00\x00\x00\x00\x02{}")
	req.Header.Set("Content-Type", "application/connect+json")
	_, body := do(t, newClient(t, nil), req)
	var got []string
	for b := []byte(body); len(b) >= 5; {
		n := binary.BigEndian.Uint32(b[1:])
		got, b = append(got, string(bytes.ReplaceAll(b[5:5+n], []byte(" "), nil))), b[5+n:]
	}
	if len(got) != 3 || got[0] != `{"cursor":"1"}` || got[1] != `{"cursor":"2"}` || strings.TrimSpace(got[2]) != "{}" {
		t.Errorf("got %q", got)
	}
}

// Who waits sees the deadline that it asked for, and no wait outlives the server.
func TestWaits(t *testing.T) {
	const wait = "/rohrpost.admin.v1.AdminService/WaitMessage"
	waiting := make(chan struct{}, 2)
	address, stop := serveFake(t, fake{waiting: waiting}, process.ServerOptions{Token: token}, jsonapi.Options{})
	client := newClient(t, nil)
	req := newRequest(t, "http://"+address+wait, `{}`)
	req.Header.Set("Connect-Timeout-Ms", "100")
	if code, body := do(t, client, req); code != http.StatusGatewayTimeout || !strings.Contains(body, "deadline_exceeded") {
		t.Errorf("got %d %s", code, body)
	}
	<-waiting
	ended := make(chan struct{})
	req = newRequest(t, "http://"+address+wait, `{}`)
	go func() {
		defer close(ended)
		if resp, err := client.Do(req); err == nil {
			_ = resp.Body.Close()
		}
	}()
	<-waiting
	stop()
	<-ended
}
