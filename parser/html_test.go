package parser

import "testing"

// TestTextOf: what a browser shows is in the text, and nothing of a comment, a tag or a script.
func TestTextOf(t *testing.T) {
	t.Parallel()
	for html, want := range map[string]string{
		"a<b>b</b> c<br>d":              "ab c\nd",
		"<p>a<p>b":                      "a\n\nb",
		"a<!-- x -->b":                  "ab",
		"<!--><b>seen</b>":              "seen",
		"<!---><b>seen</b>":             "seen",
		"<!-- x --!>seen":               "seen",
		"<!--x--->seen":                 "seen",
		"<!---->seen":                   "seen",
		"<!--!>x-->seen":                "seen",
		"<!--x-- >x-->seen":             "seen",
		"a<!--x":                        "a",
		"a<!--":                         "a",
		"a<!x>b<?y>c</ z>d<![CDATA[x>e": "abcde",
		"<head><title>x</title><p>seen<head></head>": "seen",
		"<head>seen</head>":                          "seen",
		"<script><p>x</script>seen":                  "seen",
		"<SCRIPT>x</scriptx><!--</Script\n>seen":     "seen",
		"<script/>x</script>seen":                    "seen",
		"<script-x>seen</script>":                    "seen",
		"<scr\u0130pt>seen</script>":                 "seen",
		"<script>seen":                               "seen",
		`<a title="x>y">seen</a>`:                    "seen",
		`<a title="><!--">seen</a>`:                  "seen",
		`<a title='>"'>seen</a>`:                     "seen",
		`<a title=">seen`:                            "",
		`<a b=c"><!-- -->seen`:                       "seen",
		`<a ="b>seen`:                                "seen",
		`<a b="c"="d>seen`:                           "seen",
		`<a b = ">" c>seen`:                          "seen",
		"<textarea><!--</textarea>seen":              "<!--seen",
		"<iframe><!--</iframe>seen":                  "seen",
		"<plaintext><b>seen":                         "<b>seen",
		"1 < 2 &lt; 3 <":                             "1 < 2 < 3 <",
		"a</":                                        "a</",
		"<":                                          "<",
		"a</>b":                                      "ab",
		"<p":                                         "",
		"a\u00a0 b\fc":                               "a b c",
	} {
		if got := textOf(html); got != want {
			t.Errorf("%s: got %q, want %q", html, got, want)
		}
	}
}
