package process

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// Each service's folder serves alone, and holds nobody else's key.
func TestMakeCertificatesSplit(t *testing.T) {
	dir := t.TempDir()
	opts := CertificateOptions{Services: []string{Spool, Parser}, Split: true}
	if _, err := MakeCertificates(dir, opts); err != nil {
		t.Fatal(err)
	}
	for service, want := range map[string][]string{
		"ca": {"ca.crt", "ca.key"}, Spool: {"ca.crt", "spool.crt", "spool.key"}, Parser: {"ca.crt", "parser.crt", "parser.key"},
	} {
		entries, err := os.ReadDir(filepath.Join(dir, service))
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, e := range entries {
			got = append(got, e.Name())
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s: %s", service, diff)
		}
	}
	if _, _, err := LoadTLS(TLSConfig{Dir: filepath.Join(dir, Parser)}, Parser); err != nil {
		t.Error(err)
	}
	if made, err := MakeCertificates(dir, opts); err != nil || made != nil {
		t.Errorf("the second time: made %v, %v", made, err)
	}

	// A new CA reaches every folder.
	if err := os.Remove(filepath.Join(dir, "ca", "ca.key")); err != nil {
		t.Fatal(err)
	}
	if _, err := MakeCertificates(dir, opts); err != nil {
		t.Fatal(err)
	}
	want, _ := os.ReadFile(filepath.Join(dir, "ca", "ca.crt"))
	got, err := os.ReadFile(filepath.Join(dir, Parser, "ca.crt"))
	if err != nil || string(got) != string(want) {
		t.Errorf("the parser has an old CA: %v", err)
	}
}

func TestMakeDatabasePassword(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "database")
	if made, err := MakeDatabasePassword(dir); err != nil || !made {
		t.Fatalf("made %v, %v", made, err)
	}
	password, err := os.ReadFile(filepath.Join(dir, "password"))
	if err != nil || len(password) < 20 {
		t.Fatalf("password %q, %v", password, err)
	}
	pgpass := filepath.Join(dir, "pgpass")
	if err := os.Remove(pgpass); err != nil {
		t.Fatal(err)
	}
	if made, err := MakeDatabasePassword(dir); err != nil || made {
		t.Errorf("the second time: made %v, %v", made, err)
	}
	if got, _ := os.ReadFile(pgpass); string(got) != "*:*:*:*:"+string(password) {
		t.Errorf("pgpass holds %q for the password %q", got, password)
	}

	// A password that somebody chose is kept, and escaped as PGPASSFILE wants it.
	if err := os.Chmod(filepath.Join(dir, "password"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "password"), []byte(`a:b\c`), 0o600); err != nil {
		t.Fatal(err)
	}
	if made, err := MakeDatabasePassword(dir); err != nil || made {
		t.Errorf("a chosen one: made %v, %v", made, err)
	}
	if got, _ := os.ReadFile(pgpass); string(got) != `*:*:*:*:a\:b\\c`+"\n" {
		t.Errorf("pgpass holds %q", got)
	}
}
