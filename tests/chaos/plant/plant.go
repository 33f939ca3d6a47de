// Package plant builds the program with a fault in it that chaos must find. A fault is one textual replacement in one source
// file, made by `go build -overlay`, so that no file is changed and nothing of it is in the program otherwise.
package plant

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/rohrpost/rohrpost/tests/chaos/judge"
)

// Fault is a fault to plant.
type Fault struct {
	What string // in words
	Rule string // which rule of the judge it breaks
	File string // from the repository's root
	Old  string // what stands there, exactly once
	New  string // what stands there instead
}

// Faults are the faults by name.
var Faults = map[string]Fault{
	"ack": {
		What: "a message is acknowledged before it is committed",
		Rule: judge.Lost,
		File: "spool/accept.go",
		Old:  "\tc.push(w)\n}\n\n// acceptWrite",
		New:  "\tfor _, w := range m.waiters {\n\t\tc.answer(w, Receipt{}, nil)\n\t}\n\tc.push(w)\n}\n\n// acceptWrite",
	},
	"token": {
		What: "a result counts for whatever attempt is under way, whoever was given that",
		Rule: judge.Duplicate,
		File: "spool/result.go",
		Old:  "\tj := c.jobs[string(e.token)]\n\tif j == nil {\n\t\tc.ack(",
		New: `	j := c.jobs[string(e.token)]
	if _, id, stage, ok := splitToken(e.token); ok && j == nil {
		for _, other := range c.jobs {
			if other.stage == stage && other.msg.row.ID == id && !other.counted {
				j = other
			}
		}
	}
	if j == nil {
		c.ack(`,
	},
	"adopt": {
		What: "now and then a message of a dead spool is not adopted",
		Rule: judge.Unfinished,
		File: "spool/postgres/adopt.go",
		Old:  "SELECT m.id FROM message m WHERE m.owner = $1 AND m.id >= $2\n",
		New:  "SELECT m.id FROM message m WHERE m.owner = $1 AND m.id >= $2 AND right(m.id::text, 1) NOT IN ('3', '7', 'b')\n",
	},
}

// Options say what to build.
type Options struct {
	Source string // the repository
	Out    string // the program's file
	Fault  string // by name; empty for none
	Race   bool   // with the race detector
}

// Build builds the program.
func Build(ctx context.Context, opts Options) error {
	source, err := filepath.Abs(opts.Source)
	if err != nil {
		return err
	}
	args := []string{"build", "-o", opts.Out}
	if opts.Race {
		args = append(args, "-race")
	}
	if opts.Fault != "" {
		dir, err := os.MkdirTemp("", "rohrchaos-overlay-")
		if err != nil {
			return err
		}
		defer os.RemoveAll(dir) //nolint:errcheck // a leftover in the folder for temporary files harms nobody
		overlay, err := writeOverlay(source, dir, Faults[opts.Fault])
		if err != nil {
			return fmt.Errorf("planting %s: %w", opts.Fault, err)
		}
		args = append(args, "-overlay", overlay)
	}
	cmd := exec.CommandContext(ctx, "go", append(args, "./services/cmd/rohrpost")...) //nolint:gosec // the caller's own words
	cmd.Dir = source
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("building rohrpost: %w\n%s", err, out)
	}
	return nil
}

// writeOverlay writes the file with the fault, and the overlay that names it, into a folder.
func writeOverlay(source, dir string, f Fault) (string, error) {
	text, err := f.apply(source)
	if err != nil {
		return "", err
	}
	changed := filepath.Join(dir, filepath.Base(f.File))
	if err := os.WriteFile(changed, []byte(text), 0o600); err != nil {
		return "", err
	}
	overlay, err := json.Marshal(map[string]any{"Replace": map[string]string{filepath.Join(source, f.File): changed}})
	if err != nil {
		return "", err
	}
	path := filepath.Join(dir, "overlay.json")
	return path, os.WriteFile(path, overlay, 0o600)
}

// apply returns the file with the fault in it.
func (f Fault) apply(source string) (string, error) {
	text, err := os.ReadFile(filepath.Join(source, f.File)) //nolint:gosec // a file of the repository
	if err != nil {
		return "", err
	}
	if n := strings.Count(string(text), f.Old); n != 1 {
		return "", fmt.Errorf("%s has the text that is to be replaced %d times, not once: fit the fault to the code as it is now", f.File, n)
	}
	return strings.Replace(string(text), f.Old, f.New, 1), nil
}
