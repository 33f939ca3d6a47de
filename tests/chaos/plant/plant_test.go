package plant

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

const repository = "../../.."

// The code that is under test changes; whoever changes it learns here that a planted fault no longer fits.
func TestFaultsFitTheCode(t *testing.T) {
	for name, f := range Faults {
		t.Run(name, func(t *testing.T) {
			if _, err := f.apply(repository); err != nil {
				t.Error(err)
			}
		})
	}
}

// Each fault compiles.
func TestFaultsCompile(t *testing.T) {
	if testing.Short() {
		t.Skip("it compiles the spool: not with -short")
	}
	source, err := filepath.Abs(repository)
	if err != nil {
		t.Fatal(err)
	}
	for name, f := range Faults {
		t.Run(name, func(t *testing.T) {
			overlay, err := writeOverlay(source, t.TempDir(), f)
			if err != nil {
				t.Fatal(err)
			}
			cmd := exec.CommandContext(t.Context(), "go", "build", "-overlay", overlay, "./"+filepath.Dir(f.File))
			cmd.Dir = source
			if out, err := cmd.CombinedOutput(); err != nil {
				t.Errorf("%v\n%s", err, out)
			}
		})
	}
}

func TestTextThatIsNotThereOnce(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "a.go"), []byte("one one"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, old := range []string{"one", "two"} {
		if text, err := (Fault{File: "a.go", Old: old, New: "x"}).apply(dir); err == nil {
			t.Errorf("%q was replaced: %q", old, text)
		}
	}
}
