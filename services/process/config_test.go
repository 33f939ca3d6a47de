package process

import (
	"errors"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/rohrpost/rohrpost/proto/bytesize"
	"github.com/rohrpost/rohrpost/proto/pattern"
)

type testRoute struct {
	Match pattern.Pattern `yaml:"match"`
	To    string          `yaml:"to"`
	Limit int             `yaml:"limit"`
}

type testGateway struct {
	Listen   string         `yaml:"listen"`
	MaxSize  bytesize.Size  `yaml:"max_size"`
	Timeout  time.Duration  `yaml:"read_timeout"`
	Strict   bool           `yaml:"strict"`
	Names    []string       `yaml:"names"`
	Networks []netip.Prefix `yaml:"networks"`
}

type testConfig struct {
	Gateway testGateway `yaml:"gateway"`
	Spool   struct {
		Database string            `yaml:"database" secret:"url"`
		Password string            `yaml:"password" secret:"true"`
		Ratio    float64           `yaml:"ratio"`
		Labels   map[string]string `yaml:"labels"`
	} `yaml:"spool"`
	Deliver struct {
		Routes []testRoute `yaml:"routes"`
	} `yaml:"deliver"`
	Log LogConfig `yaml:"log"`
}

func testDefaults() testConfig {
	c := testConfig{Log: DefaultLogConfig()}
	c.Gateway = testGateway{Listen: "127.0.0.1:2525", MaxSize: 50 * bytesize.MiB, Timeout: time.Minute, Names: []string{"a", "b", "c"}}
	c.Deliver.Routes = []testRoute{{Match: pattern.MustParse("*"), To: "maildir", Limit: 7}}
	return c
}

func writeFile(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "rohrpost.yaml")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestLoad(t *testing.T) {
	for name, test := range map[string]struct {
		file string
		env  []string
		want func(*testConfig)
	}{
		"nothing given": {want: func(*testConfig) {}},
		"empty section keeps its defaults": {
			file: "gateway:\n  # max_size: 1\n", want: func(*testConfig) {},
		},
		"file": {
			file: "gateway:\n  max_size: 10MB\n  read_timeout: 1d12h\n  strict: true\nlog: {level: debug}\nspool: {ratio: 2}\n",
			want: func(c *testConfig) {
				c.Gateway.MaxSize, c.Gateway.Timeout, c.Gateway.Strict, c.Log.Level = 10_000_000, 36*time.Hour, true, slog.LevelDebug
				c.Spool.Ratio = 2
			},
		},
		"a size may be a bare number": {
			file: "gateway: {max_size: 1024}", want: func(c *testConfig) { c.Gateway.MaxSize = 1024 },
		},
		"a list replaces the default list": {
			file: "gateway: {names: [x]}\ndeliver: {routes: [{match: '*.example.org', to: smtp}]}",
			want: func(c *testConfig) {
				c.Gateway.Names = []string{"x"}
				c.Deliver.Routes = []testRoute{{Match: pattern.MustParse("*.example.org"), To: "smtp"}}
			},
		},
		"keys with dots inside maps": {
			file: "spool: {labels: {example.org: a}}", want: func(c *testConfig) { c.Spool.Labels = map[string]string{"example.org": "a"} },
		},
		"environment wins over the file": {
			file: "gateway: {max_size: 1MB}",
			env:  []string{"ROHRPOST_GATEWAY_MAX_SIZE=10MB", "HOME=/", "ROHRPOST_CONFIG=x", "ROHRPOST_TEST_X=1"},
			want: func(c *testConfig) { c.Gateway.MaxSize = 10_000_000 },
		},
		"environment by type": {
			env: []string{
				"ROHRPOST_GATEWAY_NAMES=x, y", "ROHRPOST_GATEWAY_STRICT=true", "ROHRPOST_GATEWAY_LISTEN=12",
				"ROHRPOST_GATEWAY_READ_TIMEOUT=5s", "ROHRPOST_SPOOL_RATIO=0.5", "ROHRPOST_SPOOL_DATABASE=",
				"ROHRPOST_DELIVER_ROUTES=[{match: '*', to: discard}]",
			},
			want: func(c *testConfig) {
				c.Gateway.Names, c.Gateway.Strict, c.Gateway.Listen, c.Gateway.Timeout = []string{"x", "y"}, true, "12", 5*time.Second
				c.Spool.Ratio = 0.5
				c.Deliver.Routes = []testRoute{{Match: pattern.MustParse("*"), To: "discard"}}
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			path := ""
			if test.file != "" {
				path = writeFile(t, test.file)
			}
			got, want := testDefaults(), testDefaults()
			test.want(&want)
			if err := Load(path, test.env, &got); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(want, got, cmp.AllowUnexported(pattern.Pattern{}), cmp.Comparer(func(a, b netip.Prefix) bool { return a == b })); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestLoadErrors(t *testing.T) {
	for name, test := range map[string]struct {
		file string
		env  []string
		want []string
	}{
		"misspelt key":            {file: "gateway: {max_sise: 1}", want: []string{"gateway.max_sise", "rohrpost.yaml", "did you mean gateway.max_size?"}},
		"misspelt section":        {file: "gatway: {max_size: 1}", want: []string{"unknown key gatway", "did you mean gateway?"}},
		"key of another section":  {file: "spool: {max_size: 1}", want: []string{"spool.max_size", "gateway.max_size"}},
		"key that means nothing":  {file: "gateway: {xyzzy: 1}", want: []string{"known here:", "gateway.max_size"}},
		"key in a list":           {file: "deliver: {routes: [{match: '*'}, {mtch: '*'}]}", want: []string{"deliver.routes[1].mtch", "match?"}},
		"bad size":                {file: "gateway: {max_size: big}", want: []string{"gateway.max_size", "64KiB", "rohrpost.yaml"}},
		"duration without a unit": {file: "gateway: {read_timeout: 30}", want: []string{"gateway.read_timeout", "30s"}},
		"bad pattern in a list":   {file: "deliver: {routes: [{match: 'a*b'}]}", want: []string{"deliver.routes[0].match", "a*b"}},
		"network without bits":    {file: "gateway: {networks: [10.0.0.1]}", want: []string{"gateway.networks[0]", "\"10.0.0.1\" is no network", "192.0.2.7/32"}},
		"bad level":               {file: "log: {level: loud}", want: []string{"log.level", "loud"}},
		"list for a value":        {file: "gateway: {max_size: [1]}", want: []string{"gateway.max_size", "list"}},
		"value for a section":     {file: "gateway: 5", want: []string{"gateway"}},
		"no mapping":              {file: "- a", want: []string{"found a list"}},
		"broken YAML":             {file: "gateway: [", want: []string{"rohrpost.yaml", "line"}},
		"duplicate key":           {file: "gateway: {strict: true}\ngateway: {strict: true}", want: []string{"already defined"}},
		"unknown variable":        {env: []string{"ROHRPOST_GATEWAY_MAXSIZE=1"}, want: []string{"ROHRPOST_GATEWAY_MAXSIZE", "did you mean ROHRPOST_GATEWAY_MAX_SIZE?"}},
		"meaningless variable":    {env: []string{"ROHRPOST_GATWAY_X=1"}, want: []string{"ROHRPOST_GATWAY_X", "config show", "no such configuration key"}},
		"bad variable":            {env: []string{"ROHRPOST_GATEWAY_MAX_SIZE=big"}, want: []string{"ROHRPOST_GATEWAY_MAX_SIZE", "64KiB"}},
		"variable's unknown key":  {env: []string{"ROHRPOST_DELIVER_ROUTES=[{mtch: x}]"}, want: []string{"ROHRPOST_DELIVER_ROUTES", "match?"}},
	} {
		t.Run(name, func(t *testing.T) {
			path := ""
			if test.file != "" {
				path = writeFile(t, test.file)
			}
			cfg := testDefaults()
			err := Load(path, test.env, &cfg)
			if err == nil {
				t.Fatal("no error")
			}
			for _, want := range test.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("%q lacks %q", err, want)
				}
			}
			if strings.Contains(err.Error(), "\n") {
				t.Errorf("more than one line: %q", err)
			}
			if ExitCode(err) != ExitUsage {
				t.Errorf("exit code %d", ExitCode(err))
			}
		})
	}
}

func TestLoadUnreadableFile(t *testing.T) {
	cfg := testDefaults()
	err := Load(filepath.Join(t.TempDir(), "absent.yaml"), nil, &cfg)
	if err == nil || !strings.Contains(err.Error(), "absent.yaml") || !errors.Is(err, os.ErrNotExist) {
		t.Errorf("got %v", err)
	}
}

func TestShowIsReadBack(t *testing.T) {
	cfg := testDefaults()
	cfg.Gateway.Timeout = 36 * time.Hour
	cfg.Gateway.Networks = []netip.Prefix{netip.MustParsePrefix("2001:db8::/32")}
	cfg.Spool.Labels = map[string]string{"example.org": "a"}
	out, err := Show(cfg)
	if err != nil {
		t.Fatal(err)
	}
	var got testConfig
	if err := Load(writeFile(t, string(out)), nil, &got); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	if diff := cmp.Diff(cfg, got, cmp.AllowUnexported(pattern.Pattern{}), cmp.Comparer(func(a, b netip.Prefix) bool { return a == b })); diff != "" {
		t.Errorf("%s\n%s", diff, out)
	}
}

func TestShowMasksSecrets(t *testing.T) {
	cfg := testDefaults()
	cfg.Spool.Database, cfg.Spool.Password = "postgres://me:hunter2@db.example/mail?password=hunter2", "hunter2"
	out, err := Show(&cfg)
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(string(out), "hunter2") || !strings.Contains(string(out), "db.example/mail") {
		t.Errorf("%s", out)
	}
	cfg.Spool.Database = "host=db.example password=hunter2"
	if out, err = Show(&cfg); err != nil || strings.Contains(string(out), "hunter2") {
		t.Errorf("%v\n%s", err, out)
	}
}

func TestParseDuration(t *testing.T) {
	for text, want := range map[string]time.Duration{
		"0": 0, "90s": 90 * time.Second, "7d": 168 * time.Hour, "1w1d": 192 * time.Hour, "1d12h": 36 * time.Hour, "1h30m": 90 * time.Minute,
	} {
		if got, err := ParseDuration(text); err != nil || got != want {
			t.Errorf("%s: got %v, %v", text, got, err)
		}
		if again, err := ParseDuration(formatDuration(want)); err != nil || again != want {
			t.Errorf("%s is written as %s", text, formatDuration(want))
		}
	}
	for _, text := range []string{"", "30", "d", "1x", "99999999999d", "1d -"} {
		if got, err := ParseDuration(text); err == nil {
			t.Errorf("%q: got %v", text, got)
		}
	}
}
