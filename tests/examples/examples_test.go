// Package examples holds programs that use Rohrpost as an application would, one folder each. Its tests run each of them
// against a pipeline. docs/clients.md shows the very files.
package examples

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	adminv1 "github.com/rohrpost/rohrpost/proto/gen/rohrpost/admin/v1"
	mailv1 "github.com/rohrpost/rohrpost/proto/gen/rohrpost/mail/v1"
	"github.com/rohrpost/rohrpost/services/process"
	"github.com/rohrpost/rohrpost/services/rohrtest"
)

// bin is the folder of the examples in Go.
var bin string

func TestMain(m *testing.M) {
	code := 1
	if err := build(); err != nil {
		fmt.Fprintln(os.Stderr, err)
	} else {
		code = rohrtest.Main(m)
	}
	_ = os.RemoveAll(bin)
	if err := goleak.Find(); err != nil && code == 0 {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

func build() error {
	var err error
	if bin, err = os.MkdirTemp("", "rohrpost-examples-"); err != nil {
		return err
	}
	cmd := exec.CommandContext(context.Background(), "go", "build", "-o", bin+"/", "./go", "./smtp", "./watch", "./worker")
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("building the examples: %w\n%s", err, out)
	}
	return nil
}

func token(p *rohrtest.Pipeline) string { return filepath.Join(p.Running().Data, process.TokenFile) }

// run runs a program to its end and gives what it printed.
func run(t *testing.T, env []string, name string, args ...string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), rohrtest.Patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Env = append(os.Environ(), env...)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%s %v: %v\n%s%s", name, args, err, out, stderr.String())
	}
	return string(out)
}

// start starts a program that has no end and gives its lines. It is stopped as by Ctrl-C when the test ends.
func start(t *testing.T, name string, args ...string) (lines <-chan string, stop func()) {
	t.Helper()
	cmd := exec.CommandContext(context.WithoutCancel(t.Context()), name, args...)
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	read := make(chan string, 1000)
	go func() {
		defer close(read)
		for scanner := bufio.NewScanner(out); scanner.Scan(); {
			read <- scanner.Text()
		}
	}()
	stopped := false
	stop = func() {
		if stopped {
			return
		}
		stopped = true
		_ = cmd.Process.Signal(os.Interrupt)
		kill := time.AfterFunc(rohrtest.Patience, func() { _ = cmd.Process.Kill() })
		defer kill.Stop()
		for range read {
			continue // the rest is not wanted
		}
		if err := cmd.Wait(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	t.Cleanup(stop)
	return read, stop
}

// awaitLine reads lines until one holds a text.
func awaitLine(t *testing.T, lines <-chan string, text string) {
	t.Helper()
	timer := time.NewTimer(rohrtest.Patience)
	defer timer.Stop()
	for {
		select {
		case line, ok := <-lines:
			if !ok {
				t.Fatalf("it ended without %q", text)
			}
			if strings.Contains(line, text) {
				return
			}
		case <-timer.C:
			t.Fatalf("no line with %q", text)
		}
	}
}

// checkSent checks that a program said that its mail was delivered, and that it was.
func checkSent(t *testing.T, p *rohrtest.Pipeline, out string) *adminv1.Message {
	t.Helper()
	id, _, _ := strings.Cut(out, " ")
	if !strings.Contains(out, "RECIPIENT_STATE_DELIVERED") || len(id) != 36 {
		t.Fatalf("it printed %q", out)
	}
	got := p.Mail("bob@b.example")
	if len(got) != 1 || !bytes.Contains(got[0], []byte("It is on its way.")) || !bytes.Contains(got[0], []byte(id)) {
		t.Errorf("delivered: %q", got)
	}
	return p.WaitEnded(id)
}

func TestGo(t *testing.T) {
	p := rohrtest.Start(t)
	m := checkSent(t, p, run(t, nil, filepath.Join(bin, "go"), "-grpc", p.Running().GRPC, "-token", token(p)))
	reception := m.GetEnvelope().GetReception()
	if reception.GetProtocol() != "GRPC" || reception.GetAuthenticatedUser() != "token" || reception.GetClientIp() != "127.0.0.1" {
		t.Errorf("reception: %v", reception)
	}
	p.WaitSpans(m.GetSummary().GetTraceId(), "send.message", "spool.accept", "deliver.job")
}

// The message continues the application's trace.
func TestSMTP(t *testing.T) {
	p := rohrtest.Start(t)
	const traceID = "5bf92f3577b34da6a3ce929d0e0e4737"
	m := checkSent(t, p, run(t, nil, filepath.Join(bin, "smtp"), "-smtp", p.SMTP(), "-grpc", p.Running().GRPC, "-token", token(p),
		"-traceparent", "00-"+traceID+"-00f067aa0ba902b7-01"))
	if m.GetSummary().GetTraceId() != traceID {
		t.Errorf("the trace is %s, want the application's", m.GetSummary().GetTraceId())
	}
}

func TestCurl(t *testing.T) {
	if _, err := exec.LookPath("curl"); err != nil {
		t.Skip("LOUD: curl is not here: the example of curl is NOT tested; apt-get install curl")
	}
	p := rohrtest.Start(t)
	out := run(t, []string{"ROHRPOST_URL=http://" + p.Running().JSON, "ROHRPOST_DATA=" + p.Running().Data}, "sh", "curl/send.sh")
	if !strings.Contains(out, `"RECIPIENT_STATE_DELIVERED"`) || !strings.Contains(out, `"GRPC"`) {
		t.Errorf("it printed %q", out)
	}
	if got := p.Mail("bob@b.example"); len(got) != 1 {
		t.Errorf("delivered: %q", got)
	}
}

func TestPython(t *testing.T) {
	const python = "/usr/bin/python3"
	if missing := missingForPython(t, python); missing != "" {
		t.Skip("LOUD: the example of Python is NOT tested: " + missing +
			"; apt-get install python3-grpcio protobuf-compiler protobuf-compiler-grpc libprotobuf-dev")
	}
	p := rohrtest.Start(t)
	stubs := t.TempDir()
	run(t, nil, "sh", "python/stubs.sh", "../../proto", stubs)
	out := run(t, []string{"PYTHONPATH=" + stubs, "PYTHONDONTWRITEBYTECODE=1"},
		python, "python/send.py", "--grpc", p.Running().GRPC, "--token", token(p))
	checkSent(t, p, out)
}

func missingForPython(t *testing.T, python string) string {
	t.Helper()
	for _, program := range []string{python, "protoc", "grpc_python_plugin"} {
		if _, err := exec.LookPath(program); err != nil {
			return "there is no " + program
		}
	}
	if _, err := os.Stat("/usr/include/google/protobuf/timestamp.proto"); err != nil {
		return "there are no google/protobuf/*.proto"
	}
	if err := exec.CommandContext(t.Context(), python, "-c", "import grpc").Run(); err != nil {
		return "python3 has no grpc"
	}
	return ""
}

// The watcher sees what happens, and after a pause what happened meanwhile.
func TestWatch(t *testing.T) {
	p := rohrtest.Start(t)
	mail := []byte("Subject: watched\r\n\r\nBody\r\n")
	args := []string{"-grpc", p.Running().GRPC, "-token", token(p), "-cursor", filepath.Join(t.TempDir(), "cursor")}
	lines, stop := start(t, filepath.Join(bin, "watch"), args...)
	// The first cursor comes with a heartbeat; what is sent before it may be passed over.
	waitForFile(t, args[5])
	first := p.Send("ann@a.example", []string{"bob@b.example"}, mail)
	awaitLine(t, lines, first+" delivered true")
	stop()
	meanwhile := p.Send("ann@a.example", []string{"bob@b.example"}, mail)
	p.WaitEnded(meanwhile)
	lines, _ = start(t, filepath.Join(bin, "watch"), args...)
	awaitLine(t, lines, meanwhile+" accepted false")
	awaitLine(t, lines, meanwhile+" delivered true")
}

func waitForFile(t *testing.T, path string) {
	t.Helper()
	for deadline := time.Now().Add(rohrtest.Patience); ; time.Sleep(10 * time.Millisecond) {
		if data, err := os.ReadFile(path); err == nil && len(data) > 0 {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("%s was not written", path)
		}
	}
}

// The worker takes its share of the jobs beside the pipeline's own filter.
func TestWorker(t *testing.T) {
	p := rohrtest.Start(t)
	start(t, filepath.Join(bin, "worker"), "-grpc", p.Running().GRPC, "-token", token(p))
	for deadline := time.Now().Add(rohrtest.Patience); time.Now().Before(deadline); {
		id := p.Send("eve@suspect.example", []string{"bob@b.example"}, []byte("Subject: held\r\n\r\nBody\r\n"))
		m := p.Wait(id, adminv1.MessageState_MESSAGE_STATE_ENDED, adminv1.MessageState_MESSAGE_STATE_HELD)
		if m.GetSummary().GetState() != adminv1.MessageState_MESSAGE_STATE_HELD {
			continue // the pipeline's own filter has judged it
		}
		if !slices.ContainsFunc(m.GetJournal(), func(e *mailv1.JournalEntry) bool { return e.GetWorker() == "example" }) {
			t.Errorf("held, but not by the example: %v", m.GetJournal())
		}
		return
	}
	t.Error("the example got no job")
}
