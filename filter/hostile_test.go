package filter_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/rohrpost/rohrpost/filter"
)

// A header section costs time in proportion to its length, and a verdict stays small (promise P5, case H5).
func TestHostileHeaders(t *testing.T) {
	k := newKey(t)
	const kib = 1 << 10
	const from = "From: a@a.example\r\n"
	const simple = "DKIM-Signature: v=1; a=ed25519-sha256; d=a.example; s=sel; b=AAAA;\r\n" +
		" bh=frcCV1k9oG9oKj3dpUqdJg1PxRT2RSN/XKdLCPjaYaY=; h=from" // of an empty body
	var forged strings.Builder
	for i := 0; forged.Len() < 1000*kib; i++ {
		fmt.Fprintf(&forged, "Authentication-Results: (%d)mx.rohr.example; spf=pass\r\n", i)
	}
	folds := strings.Repeat(" a\r\n", 250*kib)
	for _, c := range []struct{ name, content, want string }{
		{"a field of many lines", from + folds + "\r\n", "none"},
		{"a signed one", k.sign(t, from+folds[:32*kib]+"\r\n"), "pass"},
		{"a signature beside a field of many lines", "DKIM-Signature: v=1\r\n" + from + folds + "\r\n", "permerror"},
		{"a signature that names many fields", simple + strings.Repeat(":b", 300*kib) + "\r\n" + strings.Repeat("b:\r\n", 80*kib) + from + "\r\n", "permerror"},
		{"many forged results", forged.String() + from + "\r\n", "none"},
		{"a header section without end", strings.Repeat("A: b\r\n", 300*kib), "permerror"},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := newFilter(t, k.zone(), nil)
			start := time.Now()
			v := judge(t, f, input(c.content))
			if took := time.Since(start); took > 50*time.Second {
				t.Errorf("took %s", took)
			}
			if got := words(results(v, "dkim")); !slices.Equal(got, []string{c.want}) {
				t.Errorf("dkim %v, want %s: %v", got, c.want, v.GetResults())
			}
			if size := proto.Size(v); size > 8*kib {
				t.Errorf("a verdict of %d octets with %d edits", size, len(v.GetEdits()))
			}
		})
	}
}

// Where forged results are too many to be removed one by one, or may stand where nobody looked, all go.
func TestManyForged(t *testing.T) {
	var many strings.Builder
	for i := range 100 {
		fmt.Fprintf(&many, "Authentication-Results: (%d)mx.rohr.example; spf=pass\r\n", i)
	}
	for name, content := range map[string]string{
		"many":   many.String() + "\r\n",
		"hidden": strings.Repeat("A: b\r\n", 300<<10) + many.String() + "\r\n",
	} {
		t.Run(name, func(t *testing.T) {
			v := judge(t, newFilter(t, nil, nil), input(content))
			for _, e := range v.GetEdits() {
				if r := e.GetRemove(); r.GetName() == "Authentication-Results" && r.GetValuePrefix() == "" {
					return
				}
			}
			t.Errorf("edits %v", v.GetEdits())
		})
	}
}

// What the library would take for a signature and we don't must not mix up the results, nor end the process.
func TestAlmostSignatures(t *testing.T) {
	k := newKey(t)
	signed := k.sign(t, plain)
	for name, line := range map[string]string{
		"no colon":         "DKIM-Signature\r\n",
		"a leading space":  " DKIM-Signature: v=1\r\n",
		"a vertical tab":   "\vDKIM-Signature: v=1\r\n",
		"a no-break space": "DKIM-Signature\u00a0: v=1\r\n",
	} {
		t.Run(name, func(t *testing.T) {
			v := judge(t, newFilter(t, k.zone(), nil), input(line+signed))
			if got := words(results(v, "dkim")); !slices.Equal(got, []string{"pass"}) {
				t.Errorf("dkim %v", v.GetResults())
			}
		})
	}
}

// A key record may be as long as the DNS can carry, but not the time that it takes to verify with it.
func TestLongKeyRecord(t *testing.T) {
	k := newKey(t)
	z := k.zone()
	z.txt[keyName] = []string{k.record() + "; n=" + strings.Repeat("x", 60<<10)}
	v := judge(t, newFilter(t, z, func(c *filter.Config) { c.SPF.Enabled = false }), input(k.sign(t, plain)))
	if got := words(results(v, "dkim")); !slices.Equal(got, []string{"permerror"}) {
		t.Errorf("dkim %v", v.GetResults())
	}
}
