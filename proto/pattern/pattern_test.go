package pattern_test

import (
	"testing"

	"github.com/rohrpost/rohrpost/proto/pattern"
)

func TestMatch(t *testing.T) {
	for _, c := range []struct {
		pattern, address string
		want             bool
	}{
		{"*", "a@b.example", true},
		{"*", "b.example", true},
		{"b.example", "a@B.Example", true},
		{"b.example", "b.example", true},
		{"b.example", "a@sub.b.example", false},
		{"b.example", "a@xb.example", false},
		{"*.b.example", "a@b.example", false},
		{"*.b.example", "a@x.y.b.example", true},
		{"*.b.example", "a@xb.example", false},
		{"ann@b.example", "Ann@b.example", true},
		{"ann@b.example", "bob@b.example", false},
		{"ann@b.example", "b.example", false},
		{"kate@b.example", "\u212aate@b.example", false}, // the Kelvin sign is no k
		{"ann@*", "ann@x.example", true},
		{"ann@*.b.example", "ann@x.b.example", true},
		{`"a@b"@c.example`, `"a@b"@c.example`, true},
	} {
		if got := pattern.MustParse(c.pattern).Match(c.address); got != c.want {
			t.Errorf("%s matches %s: %v, want %v", c.pattern, c.address, got, c.want)
		}
	}
	if (pattern.Pattern{}).Match("a@b.example") {
		t.Error("the zero pattern matches")
	}
}

func TestParseRefuses(t *testing.T) {
	for _, s := range []string{"", "  ", "@", "a@", "@b.example", "b.*.example", "*x.example", "*@b.example", "a b@c.example"} {
		if p, err := pattern.Parse(s); err == nil {
			t.Errorf("Parse(%q) = %v, want an error", s, p)
		}
	}
}

func TestParts(t *testing.T) {
	for text, want := range map[string][2]string{
		"*": {"", "*"}, " B.Example": {"", "b.example"}, "*.B.example": {"", "*.b.example"}, "Ann@*": {"ann", "*"}, "ann@*.b.example": {"ann", "*.b.example"},
	} {
		p := pattern.MustParse(text)
		if got := [2]string{p.Local(), p.Domain()}; got != want {
			t.Errorf("%q is of %q, want %q", text, got, want)
		}
	}
	if got := (pattern.Pattern{}).Domain(); got != "" {
		t.Errorf("the zero pattern is of %q", got)
	}
}
