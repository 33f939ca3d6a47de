package rohrtest

import (
	"context"

	"github.com/rohrpost/rohrpost/spool/postgres"
)

// CheckAudit fails the test where the audit finds anything, as a message without owner, schedule and outcome (promise P2).
func (p *Pipeline) CheckAudit() {
	p.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), Patience)
	defer cancel()
	problems, err := postgres.Audit(ctx, p.Database())
	if err != nil {
		p.t.Fatalf("the audit could not be made: %v", err)
	}
	for _, problem := range problems {
		p.t.Errorf("the audit found message %s: %s", problem.Message, problem.Text)
	}
}
