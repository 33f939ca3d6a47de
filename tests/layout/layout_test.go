// Package layout checks that the folders keep to ARCHITECTURE.md: who may import whom, and that each module stands alone.
package layout

import (
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

const base = "github.com/rohrpost/rohrpost/"

// mayImport is the import table of ARCHITECTURE.md: folder → folders of ours that it may import. Imports run one way:
// proto ← domains ← services ← tests, and between domains only → parser.
var mayImport = map[string][]string{
	"proto":    {},
	"parser":   {"proto"},
	"gateway":  {"proto", "parser"},
	"spool":    {"proto", "parser"},
	"filter":   {"proto", "parser"},
	"deliver":  {"proto", "parser"},
	"services": {"proto", "parser", "gateway", "spool", "filter", "deliver"},
	"tests":    {"proto", "parser", "gateway", "spool", "filter", "deliver", "services"},
}

// domains are the folders whose root package knows neither gRPC nor the OTel SDK.
var domains = []string{"parser", "gateway", "spool", "filter", "deliver"}

type pkg struct {
	ImportPath   string
	Imports      []string
	TestImports  []string
	XTestImports []string
}

func root(t *testing.T) string {
	t.Helper()
	dir, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

// list asks the Go tool about all packages of a module.
func list(t *testing.T, module string) []pkg {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "go", "list", "-json=ImportPath,Imports,TestImports,XTestImports", "./...")
	cmd.Dir = filepath.Join(root(t), module)
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go list in %s: %v", module, err)
	}
	var pkgs []pkg
	for dec := json.NewDecoder(strings.NewReader(string(out))); ; {
		var p pkg
		err := dec.Decode(&p)
		if errors.Is(err, io.EOF) {
			return pkgs
		}
		if err != nil {
			t.Fatal(err)
		}
		pkgs = append(pkgs, p)
	}
}

func TestImportsRunOneWay(t *testing.T) {
	for module, allowed := range mayImport {
		for _, p := range list(t, module) {
			for _, imported := range slices.Concat(p.Imports, p.TestImports, p.XTestImports) {
				rest, ours := strings.CutPrefix(imported, base)
				folder, _, _ := strings.Cut(rest, "/")
				if ours && folder != module && !slices.Contains(allowed, folder) {
					t.Errorf("%s imports %s: %s may import only %v", p.ImportPath, imported, module, allowed)
				}
			}
		}
	}
}

func TestDomainsKnowNoGRPC(t *testing.T) {
	for _, module := range domains {
		for _, p := range list(t, module) {
			if p.ImportPath != base+module {
				continue
			}
			for _, imported := range p.Imports {
				if strings.HasPrefix(imported, "google.golang.org/grpc") || strings.HasPrefix(imported, base+"proto/gen/rohrpost/spool") ||
					strings.HasPrefix(imported, base+"proto/gen/rohrpost/admin") || strings.HasPrefix(imported, base+"proto/worker") {
					t.Errorf("%s imports %s: put it into the adapter %s/%srpc", p.ImportPath, imported, module, module)
				}
			}
		}
	}
}

// Among proto, domains and services only services imports the OTel SDK and owns main; only spool speaks SQL.
func TestWhatBelongsToOneFolder(t *testing.T) {
	for module := range mayImport {
		for _, p := range list(t, module) {
			for _, imported := range p.Imports {
				sdk := strings.HasPrefix(imported, "go.opentelemetry.io/otel/sdk") || strings.HasPrefix(imported, "go.opentelemetry.io/otel/exporters")
				if sdk && module != "services" && module != "tests" {
					t.Errorf("%s imports %s: only services sets up telemetry", p.ImportPath, imported)
				}
				if strings.HasPrefix(imported, "github.com/jackc/pgx") && module != "spool" && module != "tests" {
					t.Errorf("%s imports %s: only spool/postgres speaks SQL", p.ImportPath, imported)
				}
			}
		}
	}
}

// Workspace mode builds what a go.mod does not declare; those who import a module build it without the workspace.
func TestEachModuleBuildsAlone(t *testing.T) {
	if testing.Short() {
		t.Skip("builds every module without the workspace: not with -short")
	}
	for module := range mayImport {
		t.Run(module, func(t *testing.T) {
			cmd := exec.CommandContext(t.Context(), "go", "build", "./...")
			cmd.Dir = filepath.Join(root(t), module)
			cmd.Env = append(os.Environ(), "GOWORK=off", "GOFLAGS=-mod=readonly")
			if out, err := cmd.CombinedOutput(); err != nil {
				t.Errorf("GOWORK=off go build in %s: %v\n%s", module, err, out)
			}
		})
	}
}

var fileName = regexp.MustCompile("`([a-z/]+/[a-z_/]+\\.(?:go|proto|sql))`")

// ARCHITECTURE.md names files; they are there.
func TestArchitectureNamesRealFiles(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(root(t), "ARCHITECTURE.md"))
	if err != nil {
		t.Fatal(err)
	}
	names := fileName.FindAllSubmatch(text, -1)
	if len(names) < 20 {
		t.Fatalf("found only %d file names: has the way they are written changed?", len(names))
	}
	for _, name := range names {
		if _, err := os.Stat(filepath.Join(root(t), string(name[1]))); err != nil {
			t.Errorf("ARCHITECTURE.md names %s: %v", name[1], err)
		}
	}
}
