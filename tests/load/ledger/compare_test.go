package ledger

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// A mail of unknown outcome that arrived makes up for a lost one in every count; ids tell them apart.
func TestCompare(t *testing.T) {
	sent := []Entry{
		{ID: "1", Outcome: Accepted, Recipients: []string{"A@x", "b@x"}},
		{ID: "2", Outcome: Accepted, Recipients: []string{"a@x"}},
		{ID: "3", Outcome: Unknown, Recipients: []string{"a@x"}},
		{ID: "4", Outcome: Refused, Recipients: []string{"a@x"}},
		{ID: "5", Outcome: Accepted, Recipients: []string{"a@x"}, Rejected: []string{"c@x"}},
		{ID: "6", Outcome: Accepted, Recipients: []string{"a@x"}},
		{ID: "7", Outcome: Accepted, Recipients: []string{"a@x"}},
		{ID: "9", Outcome: Failed, Recipients: []string{"a@x"}}, // it sent no content
	}
	arrivals := []Arrival{
		{ID: "1", Recipient: "a@x", Reply: 250},
		{ID: "1", Recipient: "a@x", Reply: 250}, // twice: the sink counts that
		{ID: "3", Recipient: "a@x", Reply: 250},
		{ID: "5", Recipient: "a@x", Reply: 0},
		{ID: "5", Recipient: "c@x", Reply: 250},
		{ID: "6", Recipient: "a@x", Reply: 451}, // the sink did not take it
		{ID: "7", Recipient: "a@x", Reply: 250, Report: true},
		{ID: "8", Recipient: "a@x", Reply: 250},
		{ID: "9", Recipient: "a@x", Reply: 250},
		{Recipient: "a@x", Reply: 250},
	}
	want := Difference{Missing: []string{"1 b@x", "2 a@x", "6 a@x", "7 a@x"}, Hidden: []string{"3 a@x", "5 c@x"}, Strange: []string{"8 a@x", "9 a@x"}}
	got := Compare(sent, arrivals)
	slices.Sort(got.Strange)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	if recipients := sent[2].Recipients; len(recipients) != 1 || recipients[0] != "a@x" {
		t.Errorf("an entry was changed: %v", recipients)
	}
}
