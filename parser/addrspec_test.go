package parser

import (
	"encoding/xml"
	"path/filepath"
	"strings"
	"testing"
)

// isemailClasses are the categories of the isemail suite. What it asks the DNS about counts as plain.
var isemailClasses = map[string]AddressClass{
	"ISEMAIL_VALID_CATEGORY": AddressPlain, "ISEMAIL_DNSWARN": AddressPlain, "ISEMAIL_RFC5321": AddressSMTP,
	"ISEMAIL_CFWS": AddressCommented, "ISEMAIL_DEPREC": AddressObsolete, "ISEMAIL_RFC5322": AddressHeader,
	"ISEMAIL_ERR": AddressInvalid,
}

// TestIsEmail scores the classes of addresses against the isemail suite.
func TestIsEmail(t *testing.T) {
	t.Parallel()
	// The symbols for control characters stand for the characters.
	var pairs []string
	for c := range 32 {
		pairs = append(pairs, string(rune(0x2400+c)), string(rune(c)))
	}
	controls := strings.NewReplacer(pairs...)
	hits, all := 0, 0
	for _, file := range []string{"tests.xml", "tests-original.xml"} {
		var suite struct {
			Tests []struct {
				ID        string `xml:"id,attr"`
				Address   string `xml:"address"`
				Category  string `xml:"category"`
				Diagnosis string `xml:"diagnosis"`
			} `xml:"test"`
		}
		if err := xml.Unmarshal(readFile(t, filepath.Join(corpus(t, "address-isemail"), file)), &suite); err != nil {
			t.Fatal(err)
		}
		for _, one := range suite.Tests {
			all++
			got, want := ClassifyAddress(controls.Replace(one.Address)), isemailClasses[one.Category]
			if got == want {
				hits++
			} else {
				t.Logf("%s %s: %q is %v, want %v (%s)", file, one.ID, one.Address, got, want, one.Diagnosis)
			}
		}
	}
	score(t, "address-isemail", "%d/%d", hits, all)
}
