// Package cli holds the commands by which people and scripts use a running pipeline: send a mail, look at messages, check
// health, make certificates. Each command is a struct with tags for kong and a Run method; cmd/rohrpost composes them.
//
// What messages contain is text of strangers: it is printed without control characters, so that it can't drive the
// terminal.
package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"
	"unicode"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/rohrpost/rohrpost/services/process"
)

// IO is what a command reads and writes.
type IO struct {
	In  io.Reader
	Out io.Writer
	// Program is how the user calls the program, for hints that can be pasted; empty means `rohrpost`.
	Program string
}

func (s *IO) program() string {
	if s.Program == "" {
		return "rohrpost"
	}
	return s.Program
}

const (
	defaultData = "rohrpost-data"
	defaultGRPC = "127.0.0.1:7025"
)

// callTimeout bounds one question to a pipeline.
const callTimeout = 10 * time.Second

// Connection says where the pipeline answers and how the caller makes itself known: by the token of the data folder, or
// by certificates.
type Connection struct {
	GRPC      string `name:"grpc" env:"ROHRPOST_GRPC" placeholder:"HOST:PORT" help:"Address of the admin service; by default that of 'rohrpost up' in the data folder, else 127.0.0.1:7025."`
	Data      string `name:"data" default:"rohrpost-data" env:"ROHRPOST_DATA" placeholder:"DIR" help:"Data folder of 'rohrpost up', which holds the token."`
	TokenFile string `name:"token-file" env:"ROHRPOST_TOKEN_FILE" placeholder:"FILE" help:"File of the token, in place of the data folder's."`
	TLS       string `name:"tls" env:"ROHRPOST_TLS_DIR" placeholder:"DIR" help:"Folder of certificates made by 'rohrpost certs'; then no token is needed."`
}

// dial makes the connection. as is the service whose certificate is shown, server the one that is expected to answer.
func (c Connection) dial(as, server string) (*grpc.ClientConn, error) {
	if c.TLS != "" {
		_, client, err := process.LoadTLS(process.TLSConfig{Dir: c.TLS}, as)
		if err != nil {
			return nil, err
		}
		client.ServerName = server
		return process.Dial(c.address(), process.DialOptions{TLS: client})
	}
	path := c.TokenFile
	if path == "" {
		path = filepath.Join(c.dataDir(), process.TokenFile)
	}
	token, err := process.ReadToken(path)
	if errors.Is(err, fs.ErrNotExist) {
		if c.TokenFile != "" {
			return nil, process.Usage("there is no token file %s; `rohrpost up` makes one in its data folder", path)
		}
		return nil, process.Usage("there is no token in %s; start `rohrpost up` there, or name its data folder with --data", c.dataDir())
	}
	if errors.Is(err, fs.ErrPermission) {
		return nil, fmt.Errorf("the token %s can't be read; run this as the user who runs `rohrpost up`", path)
	}
	if err != nil {
		return nil, err
	}
	return process.Dial(c.address(), process.DialOptions{Token: token})
}

// address is where the admin service listens: as given, else as the data folder says, else the default.
func (c Connection) address() string {
	if c.GRPC != "" {
		return c.GRPC
	}
	if address := process.ReadAddress(c.dataDir(), process.GRPCAddressFile); address != "" && c.TLS == "" {
		return address
	}
	return defaultGRPC
}

func (c Connection) dataDir() string {
	if c.Data == "" {
		return defaultData
	}
	return c.Data
}

// call runs a question within its time and puts what goes wrong into words.
func (c Connection) call(ctx context.Context, ask func(context.Context, *grpc.ClientConn) error) error {
	conn, err := c.dial(process.CLI, process.Spool)
	if err != nil {
		return err
	}
	defer conn.Close() //nolint:errcheck // nothing is lost by it
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	return c.explain(ask(ctx, conn))
}

// explain turns a gRPC status into a line for a person.
func (c Connection) explain(err error) error {
	st, ok := status.FromError(err)
	if err == nil || !ok {
		return err
	}
	message := clean(st.Message())
	switch st.Code() {
	case codes.Unavailable:
		switch {
		case strings.Contains(message, "connection refused"):
			return fmt.Errorf("nothing listens on %s: is `rohrpost up` running? (--grpc names another address)", c.address())
		case strings.Contains(message, "tls:") || strings.Contains(message, "handshake") || strings.Contains(message, "EOF"):
			return fmt.Errorf("%s does not accept how we connect: give certificates with --tls, or none (%s)", c.address(), message)
		default:
			return fmt.Errorf("%s can't answer now: %s", c.address(), message)
		}
	case codes.DeadlineExceeded:
		return fmt.Errorf("%s did not answer in time; is it a Rohrpost admin address?", c.address())
	case codes.Unauthenticated, codes.PermissionDenied:
		return fmt.Errorf("%s refuses: %s", c.address(), message)
	case codes.Unimplemented:
		return fmt.Errorf("%s serves no admin service; name the address of `rohrpost up` or of a spool with --grpc", c.address())
	case codes.InvalidArgument:
		return process.Usage("%s", message)
	default:
		return fmt.Errorf("%s: %s", c.address(), message)
	}
}

// clean replaces what could drive a terminal, or turn text around, in text of strangers.
func clean(s string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r == '\n' || r == '\t':
			return ' '
		case unicode.IsPrint(r):
			return r
		default:
			return unicode.ReplacementChar
		}
	}, s)
}

// readInput reads a file, or standard input where its name is "-".
func readInput(name string, in io.Reader, limit int64) ([]byte, error) {
	if name != "-" {
		file, err := os.Open(name) //nolint:gosec // the user names it
		if err != nil {
			var pathErr *fs.PathError
			if errors.As(err, &pathErr) {
				err = pathErr.Err
			}
			return nil, process.Usage("%s: %w; name a file with a mail in it, or - for standard input", name, err)
		}
		defer file.Close()
		in = file
	}
	data, err := io.ReadAll(io.LimitReader(in, limit+1))
	if err != nil {
		return nil, process.Usage("%s: %w", name, err)
	}
	if int64(len(data)) > limit {
		return nil, process.Usage("%s is larger than %d octets", name, limit)
	}
	return data, nil
}
