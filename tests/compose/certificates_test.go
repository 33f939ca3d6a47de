//go:build compose

package compose

import (
	"context"
	"net"
	"path/filepath"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	adminv1 "github.com/rohrpost/rohrpost/proto/gen/rohrpost/admin/v1"
	spoolv1 "github.com/rohrpost/rohrpost/proto/gen/rohrpost/spool/v1"
	"github.com/rohrpost/rohrpost/services/process"
)

// Each service may do its own work with its certificate and nothing else.
func TestWrongCertificateIsRefused(t *testing.T) {
	services := []string{"gateway", "parser", "filter", "deliver", "console", "cli", "spool"}
	may := map[string]map[string]bool{
		"submit":  {"gateway": true},
		"parser":  {"parser": true},
		"filter":  {"filter": true},
		"deliver": {"deliver": true},
		"read":    {"parser": true, "filter": true, "deliver": true},
		"admin":   {"console": true, "cli": true},
	}
	calls := map[string]func(context.Context, *grpc.ClientConn) error{
		"submit": submit, "read": readContent, "admin": list,
		"parser": register(spoolv1.Stage_STAGE_PARSER), "filter": register(spoolv1.Stage_STAGE_FILTER),
		"deliver": register(spoolv1.Stage_STAGE_DELIVER),
	}
	for _, service := range services {
		conn := pipeline.dial(t, service)
		for name, call := range calls {
			ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
			err := call(ctx, conn)
			cancel()
			refused := status.Code(err) == codes.PermissionDenied
			if refused == may[name][service] {
				t.Errorf("%s calls %s: %v, want allowed %v", service, name, err, may[name][service])
			}
		}
	}
}

func submit(ctx context.Context, conn *grpc.ClientConn) error {
	stream, err := spoolv1.NewSpoolServiceClient(conn).Submit(ctx)
	if err != nil {
		return err
	}
	_ = stream.CloseSend()
	_, err = stream.Recv()
	return err
}

// register registers a worker with no credits: it takes no job from anyone.
func register(stage spoolv1.Stage) func(context.Context, *grpc.ClientConn) error {
	return func(ctx context.Context, conn *grpc.ClientConn) error {
		stream, err := spoolv1.NewSpoolServiceClient(conn).Work(ctx)
		if err != nil {
			return err
		}
		_ = stream.Send(&spoolv1.WorkRequest{Frames: []*spoolv1.WorkerFrame{{
			Kind: &spoolv1.WorkerFrame_Register{Register: &spoolv1.Register{Stage: stage, Worker: "test"}},
		}}})
		_ = stream.CloseSend()
		_, err = stream.Recv()
		return err
	}
}

func readContent(ctx context.Context, conn *grpc.ClientConn) error {
	stream, err := spoolv1.NewSpoolServiceClient(conn).ReadContent(ctx, &spoolv1.ReadContentRequest{Token: []byte("none")})
	if err != nil {
		return err
	}
	_, err = stream.Recv()
	return err
}

func list(ctx context.Context, conn *grpc.ClientConn) error {
	_, err := adminv1.NewAdminServiceClient(conn).ListMessages(ctx, &adminv1.ListMessagesRequest{PageSize: 1})
	return err
}

// A certificate of another authority, and none at all, do not even connect.
func TestStrangersAreRefused(t *testing.T) {
	other := t.TempDir()
	if _, err := process.MakeCertificates(other, process.CertificateOptions{}); err != nil {
		t.Fatal(err)
	}
	ip := pipeline.containers(t, "spool")[0].NetworkSettings.Networks[pipeline.name+"_services"].IPAddress
	ours := filepath.Join(pipeline.certs, "cli", "ca.crt")
	_, stranger, err := process.LoadTLS(process.TLSConfig{Dir: other, CA: ours}, "cli")
	if err != nil {
		t.Fatal(err)
	}
	nobody := stranger.Clone()
	nobody.Certificates = nil
	for name, options := range map[string]process.DialOptions{
		"another authority": {TLS: stranger}, "no certificate": {TLS: nobody}, "clear text": {},
	} {
		conn, err := process.Dial(net.JoinHostPort(ip, "7025"), options)
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		if err := list(ctx, conn); status.Code(err) != codes.Unavailable && status.Code(err) != codes.DeadlineExceeded {
			t.Errorf("%s: %v, want no connection", name, err)
		}
		cancel()
		_ = conn.Close()
	}
}

// Each container holds the key of its own service alone.
func TestEachServiceHasItsOwnKeyOnly(t *testing.T) {
	for _, c := range pipeline.containers(t, "spool", "gateway", "parser", "filter", "deliver", "console") {
		for _, m := range c.Mounts {
			if m.Destination != "/run/rohrpost/tls" {
				continue
			}
			if m.RW {
				t.Errorf("%s can change its certificate", c.service())
			}
			keys, err := filepath.Glob(filepath.Join(pipeline.certs, c.service(), "*.key"))
			if err != nil || len(keys) != 1 || filepath.Base(keys[0]) != c.service()+".key" {
				t.Errorf("%s has the keys %v", c.service(), keys)
			}
		}
	}
}
