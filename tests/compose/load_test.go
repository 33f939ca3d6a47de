//go:build compose

package compose

import "testing"

// The profile `load` sends mail by itself until it is stopped.
func TestLoadProfileSends(t *testing.T) {
	pipeline.tellLogs(t, "load", "gateway")
	restore := pipeline.with("COMPOSE_PROFILES=load", "LOAD_RATE=20")
	t.Cleanup(func() {
		pipeline.do(t, "rm", "--stop", "--force", "load")
		restore()
	})
	pipeline.do(t, "up", "-d", "--build", "--wait")
	eventually(t, "a hundred mails have arrived", func() error {
		if count(t, "from:load@a.example") < 100 {
			return errNotYet
		}
		return nil
	})
}
