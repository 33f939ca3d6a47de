package e2e

import (
	"bytes"
	"sync"
	"testing"

	sendv1 "github.com/rohrpost/rohrpost/proto/gen/rohrpost/send/v1"
	"github.com/rohrpost/rohrpost/services/rohrtest"
)

// Many calls with one key send one message, small or in pieces, at once or after a restart.
func TestSendMessageSendsOnce(t *testing.T) {
	data := rohrtest.TempDir(t)
	small := mail("once", "Hello.\r\n")
	large := append(mail("large", ""), bytes.Repeat([]byte("0123456789abcd\r\n"), 60<<10)...)
	requests := map[string]*sendv1.SendMessageRequest{
		"small": {IdempotencyKey: "small", Sender: "ann@a.example", Recipients: []string{"bob@b.example"}, Content: small},
		"large": {IdempotencyKey: "large", Sender: "ann@a.example", Recipients: []string{"cid@b.example"}, Content: large},
	}
	p, stop := rohrtest.StartUntil(t, rohrtest.WithData(data))
	defer func() { stop() }()
	ids := map[string]string{}
	for name, req := range requests {
		var mu sync.Mutex
		var wg sync.WaitGroup
		for range 5 {
			wg.Go(func() {
				resp, err := sendv1.NewSendServiceClient(p.Conn()).SendMessage(t.Context(), req)
				mu.Lock()
				defer mu.Unlock()
				if err != nil || ids[name] != "" && ids[name] != resp.GetId() {
					t.Errorf("%s: %v, %v; want %s", name, resp, err, ids[name])
				}
				ids[name] = resp.GetId()
			})
		}
		wg.Wait()
		checkArrived(t, p, req.GetContent(), p.WaitEnded(ids[name]))
	}
	stop()
	p, stop = rohrtest.StartUntil(t, rohrtest.WithData(data))
	for name, req := range requests {
		resp, err := sendv1.NewSendServiceClient(p.Conn()).SendMessage(t.Context(), req)
		if err != nil || resp.GetId() != ids[name] || !resp.GetRepeatedCall() {
			t.Errorf("%s after the restart: %v, %v; want %s", name, resp, err, ids[name])
		}
		checkArrived(t, p, req.GetContent(), p.WaitEnded(ids[name]))
	}
}
