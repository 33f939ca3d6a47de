//go:build compose

package compose

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// With deploy/compose.application.yaml an application on this machine sends and waits by its certificate, as docs/clients.md
// tells, and does nothing else with it.
func TestApplicationSends(t *testing.T) {
	pipeline.tellLogs(t, "secrets", "spool")
	restore := pipeline.withFile("deploy/compose.application.yaml")
	t.Cleanup(func() { restore(); pipeline.do(t, "up", "-d", "--wait") })
	pipeline.do(t, "up", "-d", "--wait")
	certificate := filepath.Join(t.TempDir(), "rohrpost-application")
	pipeline.do(t, "cp", "secrets:/secrets/application", certificate)

	out, err := pipeline.curl(certificate, "sh", filepath.Join(pipeline.root, "tests/examples/curl/send.sh"))
	if err != nil || !strings.Contains(out, "RECIPIENT_STATE_DELIVERED") {
		t.Errorf("send.sh: %v\n%s", err, out)
	}
	list := []string{"curl", "-sS", "--max-time", "60", "-d", "{}", "-H", "Content-Type: application/json"}
	url := "https://" + pipeline.address("spool-json") + "/rohrpost.admin.v1.AdminService/ListMessages"
	out, err = pipeline.curl(certificate, append(list, url, "--cacert", certificate+"/ca.crt",
		"--cert", certificate+"/application.crt", "--key", certificate+"/application.key")...)
	if err != nil || !strings.Contains(out, "permission_denied") {
		t.Errorf("with the application's certificate all messages are listed: %v\n%s", err, out)
	}
	if out, err = pipeline.curl(certificate, append(list, url, "--cacert", certificate+"/ca.crt")...); err == nil {
		t.Errorf("without a certificate the answer is %s", out)
	}
}

// curl runs a command that calls the spool with the certificate in a folder.
func (p *project) curl(certificate string, command ...string) (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, command[0], command[1:]...)
	cmd.Env = append(os.Environ(), "ROHRPOST_URL=https://"+p.address("spool-json"), "ROHRPOST_TLS_DIR="+certificate)
	out, err := cmd.CombinedOutput()
	return string(out), err
}
