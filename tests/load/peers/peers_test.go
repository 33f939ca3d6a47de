package peers

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// What Postfix is told: to keep all mail without a next hop, and to hand all of it on with one.
func TestPostfixFiles(t *testing.T) {
	dir := t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, "conf"), 0o700); err != nil {
		t.Fatal(err)
	}
	read := func(name string) string {
		text, err := os.ReadFile(filepath.Join(dir, "conf", name))
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	if err := postfixFiles(dir, "127.0.0.1:2525", ""); err != nil {
		t.Fatal(err)
	}
	if cf := read("main.cf"); !strings.Contains(cf, "static:HOLD") || !strings.Contains(cf, "queue_directory = "+dir+"/queue\n") {
		t.Errorf("main.cf without a next hop:\n%s", cf)
	}
	if cf := read("master.cf"); !strings.HasPrefix(cf, "127.0.0.1:2525 inet") {
		t.Errorf("master.cf:\n%s", cf)
	}
	if err := postfixFiles(dir, "127.0.0.1:2525", "127.0.0.1:2600"); err != nil {
		t.Fatal(err)
	}
	if cf := read("main.cf"); strings.Contains(cf, "HOLD") || !strings.Contains(cf, "default_transport = smtp:[127.0.0.1]:2600\n") {
		t.Errorf("main.cf with a next hop:\n%s", cf)
	}
	if err := postfixFiles(dir, "127.0.0.1:2525", "nonsense"); err == nil {
		t.Error("a next hop without a port is no error")
	}
}
