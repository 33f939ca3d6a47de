//go:build compose

package compose

import (
	"testing"
	"time"

	adminv1 "github.com/rohrpost/rohrpost/proto/gen/rohrpost/admin/v1"
)

// Each service is killed, paused and restarted in turn while mail comes in: everything accepted arrives.
func TestFaultsUnderTraffic(t *testing.T) {
	tr := startTraffic(t, "faults", 200*time.Millisecond)
	for _, service := range []string{"parser", "filter", "deliver", "gateway", "spool", "postgres"} {
		pipeline.tellLogs(t, service, "gateway")
		tr.during(t, service, "killed", func() {
			pipeline.do(t, "kill", "-s", "KILL", service)
			time.Sleep(time.Second) // mail comes in meanwhile
			pipeline.do(t, "up", "-d", "--wait", "--no-deps", service)
		})
		tr.during(t, service, "paused", func() {
			pipeline.do(t, "pause", service)
			time.Sleep(2 * time.Second)
			pipeline.do(t, "unpause", service)
		})
		tr.during(t, service, "restarted", func() {
			pipeline.do(t, "restart", service)
			pipeline.do(t, "up", "-d", "--wait", "--no-deps", service)
		})
	}
	tr.check(t)
}

// Each service and PostgreSQL lose each of their networks in turn while mail comes in, and find the others again.
func TestNetworkLostUnderTraffic(t *testing.T) {
	tr := startTraffic(t, "network", 200*time.Millisecond)
	for _, cut := range []struct{ service, network string }{
		{"parser", "services"},
		{"filter", "services"},
		{"deliver", "services"},
		{"gateway", "services"},
		{"spool", "services"},
		{"console", "services"},
		{"spool", "database"},
		{"postgres", "database"},
		{"deliver", "edge"},
		{"filter", "edge"},
		{"gateway", "edge"},
	} {
		pipeline.tellLogs(t, cut.service, "gateway")
		tr.during(t, cut.service, "without the network "+cut.network, func() {
			id, network := pipeline.containers(t, cut.service)[0].ID, pipeline.name+"_"+cut.network
			if _, err := pipeline.docker("network", "disconnect", network, id); err != nil {
				t.Fatal(err)
			}
			time.Sleep(3 * time.Second)
			if _, err := pipeline.docker("network", "connect", "--alias", cut.service, network, id); err != nil {
				t.Fatal(err)
			}
		})
	}
	tr.check(t)
}

// Down and up with the volume: nothing is lost, neither what has ended nor what waits.
func TestDownAndUpKeepsEverything(t *testing.T) {
	pipeline.tellLogs(t, "spool", "deliver")
	admin := adminv1.NewAdminServiceClient(pipeline.dial(t, "cli"))
	ended := mustSend(t, "before-down")
	wait(t, admin, ended, adminv1.MessageState_MESSAGE_STATE_ENDED)
	pipeline.do(t, "stop", "mailpit")
	waiting := mustSend(t, "over-down")
	wait(t, admin, waiting, adminv1.MessageState_MESSAGE_STATE_DEFERRED)

	pipeline.do(t, "down")
	pipeline.do(t, "up", "-d", "--wait")
	admin = adminv1.NewAdminServiceClient(pipeline.dial(t, "cli"))
	wait(t, admin, ended, adminv1.MessageState_MESSAGE_STATE_ENDED)
	wait(t, admin, waiting, adminv1.MessageState_MESSAGE_STATE_ENDED)
	if n := copies(t, "over-down"); n != 1 {
		t.Errorf("the mail that waited arrived %d times", n)
	}
}
