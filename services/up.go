package services

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"sync"
	"time"

	"google.golang.org/grpc"

	"github.com/rohrpost/rohrpost/deliver"
	"github.com/rohrpost/rohrpost/proto/pattern"
	"github.com/rohrpost/rohrpost/services/cli"
	"github.com/rohrpost/rohrpost/services/process"
	"github.com/rohrpost/rohrpost/spool"
	"github.com/rohrpost/rohrpost/spool/pgserver"
	"github.com/rohrpost/rohrpost/spool/postgres"
)

// database is the name of the database that `up` makes in its private PostgreSQL.
const database = "rohrpost"

// UpOptions says how the whole pipeline runs in one process.
type UpOptions struct {
	// Data is the folder of everything that lasts. It is made where it is missing.
	Data string
	// Ready is called once everything listens.
	Ready func(Running)
}

// Running is where everything is.
type Running struct {
	SMTP string // host:port of the gateway's first listener
	// Submission and Submissions are host:port for users, by STARTTLS and with TLS from the start; empty where the
	// configuration has listeners of its own and none of the kind.
	Submission, Submissions string
	HTTP                    string // host:port of the console
	GRPC                    string // host:port of the spool's and the operators' services
	JSON                    string // host:port of SendService and AdminService as JSON over HTTP
	Token                   string // what calls to GRPC must carry
	Data                    string // the data folder
	Mail                    string // the folder of the Maildirs; empty where the configuration has routes of its own
	Database                string // in words, for people
	DatabaseURL             string // of the private PostgreSQL, for psql and for --database; else empty
}

// UpConfig fits the configuration for one process on one machine: addresses on loopback, mail into Maildirs of the data
// folder, the reserved names for trying. What the file says stays as it says.
func UpConfig(cfg *Config, data string) {
	cfg.Spool.Name = "up"
	if cfg.Spool.HTTPListen == "" {
		cfg.Spool.HTTPListen = "127.0.0.1:7026"
	}
	if cfg.Spool.EpochFile == "" {
		cfg.Spool.EpochFile = filepath.Join(data, "epochs")
	}
	if len(cfg.Gateway.TrustTraceparent) == 0 {
		cfg.Gateway.TrustTraceparent = []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8"), netip.MustParsePrefix("::1/128")}
	}
	if len(cfg.Deliver.Routes) == 0 {
		cfg.Deliver.Routes = upRoutes(filepath.Join(data, "mail"))
	}
}

// upRoutes keep all mail on the machine. The two reserved names (RFC 2606, section 2) show what goes wrong elsewhere.
func upRoutes(mail string) []deliver.Route {
	return []deliver.Route{
		{
			Match: []pattern.Pattern{pattern.MustParse("bounce.test")}, Via: deliver.ViaReject,
			Reject: deliver.RejectRoute{Code: 550, Enhanced: "5.1.1", Text: "No such mailbox: bounce.test refuses everything"},
		},
		{
			Match: []pattern.Pattern{pattern.MustParse("dead.test")}, Via: deliver.ViaSMTP,
			SMTP: deliver.SMTPRoute{Address: "127.0.0.1:1"},
		},
		{
			Match: []pattern.Pattern{pattern.MustParse("*")}, Via: deliver.ViaMaildir,
			Maildir: deliver.MaildirRoute{Path: mail},
		},
	}
}

// Up runs the whole pipeline in this process until ctx ends: the same services over the same gRPC interfaces as in six
// processes, on a private PostgreSQL unless the configuration names a database.
func Up(ctx context.Context, env Env, cfg *Config, opts UpOptions) error {
	data, err := filepath.Abs(opts.Data)
	if err != nil {
		return fmt.Errorf("data folder %s: %w", opts.Data, err)
	}
	// Readable through, so that the user of the private PostgreSQL can reach its own folder in it.
	if err := os.MkdirAll(data, 0o711); err != nil { //nolint:gosec // 0711 on purpose, see above; secrets in it are 0600
		return fmt.Errorf("data folder: %w (name another with --data)", err)
	}
	lock, err := lockFolder(data)
	if err != nil {
		return err
	}
	defer lock.Close()
	loaded := *cfg
	UpConfig(cfg, data)
	u := &upProcess{env: env, cfg: cfg, loaded: loaded, data: data, log: env.Logger(""), running: Running{Data: opts.Data}}
	if len(cfg.Deliver.Routes) > 0 && cfg.Deliver.Routes[len(cfg.Deliver.Routes)-1].Maildir.Path == filepath.Join(data, "mail") {
		u.running.Mail = filepath.Join(opts.Data, "mail")
	}
	err = u.wire(ctx)
	if err != nil && ctx.Err() != nil {
		err = context.Cause(ctx) // it was stopped while it started: what broke by that does not matter
	}
	if err != nil {
		u.giveBack()
	}
	if err == nil {
		u.units = append(u.units, process.Unit{Name: "announcement", Run: func(ctx context.Context) error {
			if opts.Ready != nil {
				opts.Ready(u.where())
			}
			<-ctx.Done()
			return nil
		}})
		err = process.Run(ctx, u.log, u.units...)
	}
	return errors.Join(err, u.stopDatabase(context.WithoutCancel(ctx)))
}

// upProcess is the pipeline in one process while it is put together.
type upProcess struct {
	env    Env
	cfg    *Config
	loaded Config // cfg as it was loaded
	data   string
	log    *slog.Logger
	token  string
	server *pgserver.Server
	stages []*stage
	units  []process.Unit

	mu      sync.Mutex
	running Running // guarded by mu once units run
}

// wire puts the services together in the order of starting; they stop in reverse: the edge first, the spool last.
func (u *upProcess) wire(ctx context.Context) error {
	var err error
	if u.token, err = process.MakeToken(u.data); err != nil {
		return err
	}
	u.running.Token = u.token
	if err := u.sampleRecords(); err != nil {
		return err
	}
	if err := upEdge(&u.cfg.Gateway, u.data); err != nil {
		return err
	}
	if err := u.cfg.Validate(); err != nil {
		return process.Usage("%w", err)
	}
	if err := u.startDatabase(ctx); err != nil {
		return err
	}
	if err := u.wireSpool(ctx); err != nil {
		return err
	}
	for _, part := range []struct {
		name string
		wire func(context.Context, *stage) error
	}{
		{process.Parser, wirePoliteParser},
		{process.Filter, wireFilter},
		{process.Deliver, wireDeliver},
		{process.Console, func(ctx context.Context, s *stage) error {
			addr, err := wireConsole(ctx, s)
			if err == nil {
				u.running.HTTP = addr.String()
			}
			return err
		}},
		{process.Gateway, wireGateway},
	} {
		s, err := u.stage(ctx, part.name)
		if err == nil {
			err = part.wire(ctx, s)
		}
		if err != nil {
			return err
		}
		u.units = append(u.units, s.units...)
	}
	return nil
}

// stage makes a service that talks to the spool of this process with the token.
func (u *upProcess) stage(ctx context.Context, name string) (*stage, error) {
	s, err := newStage(ctx, u.env, u.cfg, name)
	if err != nil {
		return nil, err
	}
	u.stages = append(u.stages, s)
	s.loaded, s.fit, s.listening = u.loaded, u.fit, u.listening
	s.dial = func(target string) (*grpc.ClientConn, error) {
		return process.Dial(target, process.DialOptions{Token: u.token, TracerProvider: s.provider})
	}
	s.dialPeer = func(target, _ string) (*grpc.ClientConn, error) {
		return process.Dial(target, process.DialOptions{TracerProvider: s.provider})
	}
	return s, nil
}

// where tells where everything is.
func (u *upProcess) where() Running {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.running
}

// fit does to a configuration that was loaded again what was done to the first.
func (u *upProcess) fit(cfg *Config) error {
	UpConfig(cfg, u.data)
	return upEdge(&cfg.Gateway, u.data)
}

// giveBack closes what was opened by a start that failed.
func (u *upProcess) giveBack() {
	for i := len(u.stages) - 1; i >= 0; i-- {
		u.stages[i].giveBack()
	}
}

// wireSpool adds the spool and waits with the services behind it until it takes messages.
func (u *upProcess) wireSpool(ctx context.Context) error {
	s, err := u.stage(ctx, process.Spool)
	if err != nil {
		return err
	}
	if err := s.addDebug(ctx); err != nil {
		return err
	}
	opts := process.ServerOptions{Token: u.token, Logger: s.log, TracerProvider: s.provider, Reflection: true}
	server, err := process.NewServer(opts)
	if err != nil {
		return err
	}
	lis, err := process.Listen(ctx, "spool.listen", u.cfg.Spool.Listen)
	if err != nil {
		return err
	}
	s.undo = append(s.undo, lis.Close)
	u.running.GRPC = lis.Addr().String()
	if err := process.WriteAddress(u.data, process.GRPCAddressFile, u.running.GRPC); err != nil {
		return err
	}
	u.cfg.Connect.Spool = u.running.GRPC
	web, err := newWeb(ctx, s, opts)
	if err != nil {
		return err
	}
	u.running.JSON = web.lis.Addr().String() // UpConfig gave it an address
	ready, err := serveSpool(ctx, s, server, lis, web)
	if err != nil {
		return err
	}
	s.units[len(s.units)-1].Ready = ready
	u.units = append(u.units, s.units...)
	return nil
}

// startDatabase starts the private PostgreSQL, unless a database is configured, and brings the schema up to date.
func (u *upProcess) startDatabase(ctx context.Context) error {
	u.running.Database = "the one that you configured"
	if u.cfg.Spool.Database == "" {
		server, err := pgserver.Start(ctx, pgserver.Config{Dir: filepath.Join(u.data, "postgres"), Logger: u.env.Logger("postgres")})
		if err != nil {
			return fmt.Errorf("private PostgreSQL: %w", err)
		}
		u.server = server
		if err := server.EnsureDatabase(ctx, database); err != nil {
			return fmt.Errorf("private PostgreSQL: %w", err)
		}
		u.cfg.Spool.Database = server.URL(database)
		u.running.DatabaseURL = u.cfg.Spool.Database
		u.running.Database = fmt.Sprintf("PostgreSQL %s of its own in %s", server.Version(), filepath.Join(u.running.Data, "postgres"))
		u.units = append(u.units, process.Unit{Name: "postgres", Run: u.keepDatabase})
	}
	return Migrate(ctx, u.cfg)
}

// Migrate brings the schema of the configured database up to date.
func Migrate(ctx context.Context, cfg *Config) error {
	err := postgres.Migrate(ctx, cfg.Spool.Database)
	switch {
	case errors.Is(err, spool.ErrUnavailable):
		return fmt.Errorf("%w; see that the server runs and that spool.database (--database) names it", err)
	case err != nil:
		return fmt.Errorf("spool.database: %w", err)
	}
	return nil
}

// keepDatabase starts the private PostgreSQL again when it has died; meanwhile clients are told 451.
func (u *upProcess) keepDatabase(ctx context.Context) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-u.server.Done():
		}
		u.log.ErrorContext(ctx, "PostgreSQL ended by itself, starting it again")
		if err := u.server.Restart(ctx); err != nil && ctx.Err() == nil {
			u.log.ErrorContext(ctx, "starting PostgreSQL again failed", "error", err)
			select {
			case <-ctx.Done():
			case <-time.After(time.Second):
			}
		}
	}
}

// stopDatabase ends the private PostgreSQL once everything that uses it has stopped.
func (u *upProcess) stopDatabase(ctx context.Context) error {
	if u.server == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	if err := u.server.Stop(ctx); err != nil {
		return fmt.Errorf("stopping the private PostgreSQL: %w", err)
	}
	return nil
}

// sampleRecords lets the DNS records of the samples be answered without a network.
func (u *upProcess) sampleRecords() error {
	key, err := cli.MakeSampleKey(u.data)
	if err != nil {
		return err
	}
	u.cfg.Resolver.Zone = append(u.cfg.Resolver.Zone, key.Zone()...)
	return nil
}
