package process

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"crypto/x509"
	"slices"
	"strings"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"

	adminv1 "github.com/rohrpost/rohrpost/proto/gen/rohrpost/admin/v1"
	sendv1 "github.com/rohrpost/rohrpost/proto/gen/rohrpost/send/v1"
	spoolv1 "github.com/rohrpost/rohrpost/proto/gen/rohrpost/spool/v1"
)

// The words by which services know each other. A stage's word is the same everywhere: folder, subcommand, compose
// service, certificate, service.name.
const (
	Gateway  = "gateway"
	Spool    = "spool"
	Parser   = "parser"
	Filter   = "filter"
	Deliver  = "deliver"
	Console  = "console"
	CLI      = "cli"
	Operator = "operator"
	// Application is a program that sends mail of its own and waits for what becomes of it; it is no service of ours.
	Application = "application"
)

// identityScheme is the scheme of the URI in a certificate that names a service: rohrpost://parser.
const identityScheme = "rohrpost"

// everyone means that a method needs no more than what the listener asks of everybody.
var everyone = []string{"*"}

// allowedPeers tells who may call a method. What is not listed nobody may call: a parser may not submit, register as
// deliver or administer.
func allowedPeers(method string) []string {
	service, _, _ := strings.Cut(strings.TrimPrefix(method, "/"), "/")
	switch {
	case method == spoolv1.SpoolService_Submit_FullMethodName:
		return []string{Gateway}
	case method == spoolv1.SpoolService_Work_FullMethodName, method == spoolv1.SpoolService_ReadContent_FullMethodName:
		return []string{Parser, Filter, Deliver} // Work looks at the stage as well: see workGuard
	case method == sendv1.SendService_SendMessage_FullMethodName:
		return []string{Application, CLI, Operator}
	case method == adminv1.AdminService_WaitMessage_FullMethodName:
		return []string{Application, Console, CLI, Operator}
	case service == adminv1.AdminService_ServiceDesc.ServiceName:
		return []string{Console, CLI, Operator}
	case service == "grpc.health.v1.Health", strings.HasPrefix(service, "grpc.reflection."):
		return everyone
	default:
		return nil
	}
}

// stageService is the word of the workers of a stage.
func stageService(stage spoolv1.Stage) string {
	switch stage {
	case spoolv1.Stage_STAGE_PARSER:
		return Parser
	case spoolv1.Stage_STAGE_FILTER:
		return Filter
	case spoolv1.Stage_STAGE_DELIVER:
		return Deliver
	default:
		return ""
	}
}

// identity is who called: the words of a certificate, or all of them.
type identity struct {
	names []string
	all   bool // the listener is trusted, or the call carried the token
	token bool // the call carried the token
}

// callerKey is the key of a call's identity in its context.
type callerKey struct{}

// Caller tells who makes a unary call, from its context: the words of a certificate, `token`, or nothing where the
// listener trusts everybody.
func Caller(ctx context.Context) string {
	id, _ := ctx.Value(callerKey{}).(identity)
	if id.token {
		return "token"
	}
	return strings.Join(id.names, ", ")
}

func (id identity) is(name string) bool { return id.all || slices.Contains(id.names, name) }

// authorizer decides who may call what.
type authorizer struct {
	trusted bool
	token   string
}

// authorize finds out who called and whether that one may.
func (a authorizer) authorize(ctx context.Context, method string) (identity, error) {
	allowed := allowedPeers(method)
	id, err := a.identify(ctx)
	if err != nil {
		if a.token != "" && strings.HasPrefix(method, "/grpc.health.v1.Health/") {
			return id, nil // says nothing that connecting does not say
		}
		return id, err
	}
	if slices.Equal(allowed, everyone) {
		return id, nil
	}
	if slices.ContainsFunc(allowed, id.is) {
		return id, nil
	}
	return id, status.Errorf(codes.PermissionDenied, "%s may not call %s", who(id), method)
}

func who(id identity) string {
	if len(id.names) == 0 {
		return "a peer without a service's name in its certificate"
	}
	return strings.Join(id.names, ", ")
}

func (a authorizer) identify(ctx context.Context) (identity, error) {
	if a.trusted {
		return identity{all: true}, nil
	}
	if p, ok := peer.FromContext(ctx); ok {
		if info, ok := p.AuthInfo.(credentials.TLSInfo); ok && len(info.State.VerifiedChains) > 0 {
			return identity{names: certificateNames(info.State.PeerCertificates[0])}, nil
		}
	}
	if a.token == "" {
		return identity{}, status.Error(codes.Unauthenticated, "no client certificate was given")
	}
	if md, ok := metadata.FromIncomingContext(ctx); ok {
		for _, value := range md.Get("authorization") {
			given, ok := strings.CutPrefix(value, bearer)
			if ok && sameToken(given, a.token) {
				return identity{all: true, token: true}, nil
			}
		}
	}
	return identity{}, status.Error(codes.Unauthenticated, "the token is missing or wrong; give the file `token` of the data folder by --data or --token-file")
}

// sameToken compares in a time that depends neither on the texts nor on their lengths.
func sameToken(a, b string) bool {
	x, y := sha256.Sum256([]byte(a)), sha256.Sum256([]byte(b))
	return subtle.ConstantTimeCompare(x[:], y[:]) == 1
}

// certificateNames are the services that a certificate speaks for: those of its rohrpost:// URIs, else the DNS names
// that are one word.
func certificateNames(cert *x509.Certificate) []string {
	var names []string
	for _, uri := range cert.URIs {
		if uri.Scheme == identityScheme && uri.Host != "" {
			names = append(names, uri.Host)
		}
	}
	if names != nil {
		return names
	}
	for _, name := range cert.DNSNames {
		if !strings.Contains(name, ".") && name != "localhost" {
			names = append(names, name)
		}
	}
	return names
}
