package deliver_test

import (
	"fmt"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/rohrpost/rohrpost/deliver/internal/smtpsink"
	mailv1 "github.com/rohrpost/rohrpost/proto/gen/rohrpost/mail/v1"
)

// What an attempt tells stays in proportion, however many recipients a next hop refuses, in however many words: it must
// fit into one frame (promise P5).
func TestManyTalkativeRefusals(t *testing.T) {
	reply := strings.TrimSuffix(strings.Repeat("550-5.1.1 "+strings.Repeat("no ", 300)+"\r\n", 10)+"550 5.1.1 no", "\r\n")
	sink := smtpsink.Start(t, nil, func(step, _ string) *smtpsink.Action {
		if step == "RCPT" {
			return &smtpsink.Action{Reply: reply}
		}
		return nil
	})
	d := newDeliverer(t, nil, toSMTP(sink.Addr, "*"))
	task := newTask(strings.Repeat("X-Long: "+strings.Repeat("x", 900)+"\r\n", 70)+"Subject: x\r\n\r\nx\r\n", &permits{}, "first@b.example")
	task.Envelope.Recipients, task.Recipients = nil, nil
	const count = 1000
	for i := range count {
		address := fmt.Sprintf("%064d@%s.example", i, strings.Repeat(strings.Repeat("b", 60)+".", 2)+strings.Repeat("b", 55))
		task.Envelope.Recipients = append(task.Envelope.Recipients, &mailv1.Recipient{Address: address})
		task.Recipients = append(task.Recipients, int32(i))
	}
	a, notifications := attempt(t, d, task)
	size, told := proto.Size(a), 0
	for i, n := range notifications {
		size += len(n.Content)
		told += strings.Count(string(n.Content), "\r\nFinal-Recipient: ")
		if !strings.Contains(string(n.Content), "X-Long: ") && i == 0 {
			t.Errorf("the first notification returns nothing: %.3000s", n.Content)
		}
		readDSN(t, n)
	}
	if size > 3<<19 || told != count || len(notifications) != 10 {
		t.Errorf("%d octets, %d notifications that tell of %d", size, len(notifications), told)
	}
}
