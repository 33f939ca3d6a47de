package parser

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/encoding/protojson"

	mailv1 "github.com/rohrpost/rohrpost/proto/gen/rohrpost/mail/v1"
)

var update = flag.Bool("update", false, "write the golden results of testdata")

// TestGolden compares the results of our own samples with those that were reviewed. After a wanted change, write them
// with `go test -run TestGolden -update .` and review the difference.
func TestGolden(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob(filepath.Join("testdata", "*.msg"))
	if err != nil || len(files) < 10 {
		t.Fatalf("%d samples, %v", len(files), err)
	}
	for _, path := range files {
		t.Run(filepath.Base(path), func(t *testing.T) {
			t.Parallel()
			got := goldenJSON(t, check(t, readFile(t, path), Limits{}))
			golden := strings.TrimSuffix(path, ".msg") + ".json"
			if *update {
				if err := os.WriteFile(golden, got, 0o600); err != nil {
					t.Fatal(err)
				}
			}
			if diff := cmp.Diff(string(readFile(t, golden)), string(got)); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// TestEnmimeGolden compares the trees, hashes and defects of enmime's samples with those that were reviewed. Nothing else of
// the samples is kept.
func TestEnmimeGolden(t *testing.T) {
	t.Parallel()
	folder := corpus(t, "enmime-raw")
	var out strings.Builder
	all := mails(t, folder, ".raw", ".eml", ".msg")
	for _, path := range all {
		name, err := filepath.Rel(folder, path)
		if err != nil {
			t.Fatal(err)
		}
		m := check(t, readFile(t, path), Limits{})
		fmt.Fprintf(&out, "%s\n", filepath.ToSlash(name))
		var walk func(p *mailv1.Part)
		walk = func(p *mailv1.Part) {
			fmt.Fprintf(&out, "  %s %s %q %q %q %d %.4x\n", p.GetPath(), p.GetType(), p.GetCharset(), p.GetEncoding(), p.GetDisposition(), p.GetSize(), p.GetSha256())
			for _, c := range p.GetParts() {
				walk(c)
			}
		}
		walk(m.GetParts()[0])
		fmt.Fprintf(&out, "  attachments %v, text %d, html %d, defects %v\n", m.GetAttachments(), len(m.GetText()), len(m.GetHtml()), kinds(m))
	}
	golden := filepath.Join("testdata", "enmime-raw.golden")
	if *update {
		if err := os.WriteFile(golden, []byte(out.String()), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if diff := cmp.Diff(string(readFile(t, golden)), out.String()); diff != "" {
		t.Error(diff)
	} else {
		score(t, "enmime-raw", "%d/%[1]d", len(all))
	}
}

// goldenJSON is protobuf JSON in a stable form: protojson varies its white space on purpose.
func goldenJSON(t *testing.T, m *mailv1.ParsedMessage) []byte {
	t.Helper()
	b, err := protojson.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	var compact, out bytes.Buffer
	if err := json.Compact(&compact, b); err != nil {
		t.Fatal(err)
	}
	if err := json.Indent(&out, compact.Bytes(), "", "  "); err != nil {
		t.Fatal(err)
	}
	out.WriteByte('\n')
	return out.Bytes()
}
