package parser

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

// TestDefectsAreNotPushedOut: no number of defects hides one of another kind, wherever it stands and however small the result
// must be.
func TestDefectsAreNotPushedOut(t *testing.T) {
	t.Parallel()
	const wanted = "--b\r\nContent-Type: a/b\r\nContent-Type: a/b\r\n\r\n"
	pad := strings.Repeat("x", 70)
	var others strings.Builder
	for i := range 30 {
		fmt.Fprintf(&others, "--b\r\nX-%d%[3]s : y\r\nContent-Type: multipart/x; n*=%[1]d; m; boundary=\"%[2]s\"\r\nContent-Transfer-Encoding: hexa%[1]d%[3]s\r\n"+
			"Content-ID: %[1]d%[3]s\r\nContent-Disposition: x%[1]d (c); filename=%[1]d; p=1; p=2\r\njunk%[2]s\r\n\r\n", i, strings.Repeat("b", 180), pad)
		fmt.Fprintf(&others, "--b\r\nContent-Type: x%d%s\r\nContent-Transfer-Encoding: base64\r\n\r\nY*\r\n", i, pad)
		fmt.Fprintf(&others, "--b\r\nContent-Type: multipart/x; x=%d%s\r\n\r\n", i, pad)
	}
	for name, parts := range map[string]string{"before the others": wanted + others.String(), "behind the others": others.String() + wanted} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			content := []byte("Content-Type: multipart/mixed; boundary=b\r\n\r\n" + parts + "--b--\r\n")
			all := kinds(check(t, content, Limits{}))
			if !slices.Contains(all, "ambiguous_field") || !slices.Contains(all, "defect_limit") {
				t.Errorf("of %d defects none is ambiguous_field or defect_limit", len(all))
			}
			if len(all) < maxRepeats || len(all) > maxRepeats+60 {
				t.Errorf("%d defects", len(all))
			}
			few := kinds(check(t, content, Limits{ResultBytes: 16 << 10}))
			for _, kind := range append(all, "result_limit") {
				if !slices.Contains(few, kind) {
					t.Errorf("no %s in a small result", kind)
				}
			}
			if len(few) >= len(all) {
				t.Errorf("all %d defects in a small result", len(few))
			}
		})
	}
}
