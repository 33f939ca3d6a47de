// Package console is the web page on which a person sees the messages of a running pipeline: a list, and one message
// with its journal. It asks the admin service and keeps nothing.
//
// It only reads: no request changes anything. Whoever reaches it sees it, which is why it listens on loopback, and why it
// answers only to host names that it knows: a page of a stranger must not read it by a name that points here.
package console

import (
	"bytes"
	"context"
	"embed"
	"fmt"
	"html/template"
	"log/slog"
	"net/http"
	"time"
	"unicode/utf8"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	adminv1 "github.com/rohrpost/rohrpost/proto/gen/rohrpost/admin/v1"
)

//go:embed pages/*.html
var pages embed.FS

//go:embed pages/style.css
var style []byte

// askTimeout bounds one question to the admin service.
const askTimeout = 5 * time.Second

// Options are what the console is given by its process.
type Options struct {
	// Logger gets what goes wrong. Nil means slog.Default.
	Logger *slog.Logger
}

// console is the handler behind the pages.
type console struct {
	cfg    Config
	admin  adminv1.AdminServiceClient
	logger *slog.Logger
	list   *template.Template
	show   *template.Template
	fault  *template.Template
}

// New makes the handler. It fails where the configuration is not valid.
func New(cfg Config, admin adminv1.AdminServiceClient, opts Options) (http.Handler, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	if opts.Logger == nil {
		opts.Logger = slog.Default()
	}
	c := &console{cfg: cfg, admin: admin, logger: opts.Logger}
	for name, t := range map[string]**template.Template{"list": &c.list, "message": &c.show, "fault": &c.fault} {
		parsed, err := template.ParseFS(pages, "pages/layout.html", "pages/"+name+".html")
		if err != nil {
			return nil, fmt.Errorf("console: %w", err)
		}
		*t = parsed
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /{$}", c.serveList)
	mux.HandleFunc("GET /messages/{id}", c.serveMessage)
	mux.HandleFunc("GET /style.css", serveStyle)
	mux.HandleFunc("GET /", func(w http.ResponseWriter, r *http.Request) {
		c.serveFault(w, r, http.StatusNotFound, "There is no such page.")
	})
	return c.guard(mux), nil
}

func serveStyle(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "text/css; charset=utf-8")
	w.Header().Set("Cache-Control", "max-age=300")
	_, _ = w.Write(style) // whoever asked is gone
}

func (c *console) serveList(w http.ResponseWriter, r *http.Request) {
	query := r.URL.Query()
	request := &adminv1.ListMessagesRequest{PageSize: c.cfg.PageSize, PageToken: query.Get("page")}
	filter := query.Get("state")
	if filter != "" {
		state, ok := stateOf(filter)
		if !ok {
			c.serveFault(w, r, http.StatusBadRequest, "The state must be active, deferred, held or ended.")
			return
		}
		request.State = state
	}
	if !utf8.ValidString(request.GetPageToken()) {
		c.serveError(w, r, status.Error(codes.InvalidArgument, "not UTF-8"))
		return
	}
	ctx, cancel := context.WithTimeout(r.Context(), askTimeout)
	defer cancel()
	response, err := c.admin.ListMessages(ctx, request)
	if err != nil {
		c.serveError(w, r, err)
		return
	}
	c.render(w, r, http.StatusOK, c.list, newListView(response, filter, request.GetPageToken() != ""))
}

func (c *console) serveMessage(w http.ResponseWriter, r *http.Request) {
	if !utf8.ValidString(r.PathValue("id")) { // gRPC could not carry it
		c.serveError(w, r, status.Error(codes.InvalidArgument, "not UTF-8"))
		return
	}
	ctx, cancel := context.WithTimeout(r.Context(), askTimeout)
	defer cancel()
	response, err := c.admin.GetMessage(ctx, &adminv1.GetMessageRequest{Id: r.PathValue("id")})
	if err != nil {
		c.serveError(w, r, err)
		return
	}
	c.render(w, r, http.StatusOK, c.show, newMessageView(response.GetMessage()))
}

// serveError says what went wrong without inner causes; those go to the log.
func (c *console) serveError(w http.ResponseWriter, r *http.Request, err error) {
	switch status.Code(err) {
	case codes.NotFound:
		c.serveFault(w, r, http.StatusNotFound, "There is no message of this id.")
	case codes.InvalidArgument:
		c.serveFault(w, r, http.StatusBadRequest, "This is not an id or a page that the spool knows.")
	case codes.Canceled:
		// Whoever asked is gone.
	default:
		c.logger.WarnContext(r.Context(), "the spool did not answer the console", slog.Any("error", err))
		w.Header().Set("Retry-After", "5")
		c.serveFault(w, r, http.StatusServiceUnavailable, "The spool does not answer now. Mail may still be flowing; try again in a moment.")
	}
}

func (c *console) serveFault(w http.ResponseWriter, r *http.Request, code int, text string) {
	c.render(w, r, code, c.fault, faultView{Title: http.StatusText(code), Text: text})
}

// render writes a page as a whole or not at all.
func (c *console) render(w http.ResponseWriter, r *http.Request, code int, t *template.Template, view any) {
	var page bytes.Buffer
	if err := t.ExecuteTemplate(&page, "layout", view); err != nil {
		c.logger.ErrorContext(r.Context(), "a page could not be written", slog.Any("error", err))
		http.Error(w, "internal error", http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.WriteHeader(code)
	_, _ = w.Write(page.Bytes()) // whoever asked is gone
}
