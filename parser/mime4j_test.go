package parser

import (
	"bytes"
	"encoding/xml"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// expected is an element of mime4j's trees.
type expected struct {
	XMLName  xml.Name
	Name     string     `xml:"name,attr"`
	Text     string     `xml:",chardata"`
	Children []expected `xml:",any"`
}

// otherwise are the mails that we read otherwise than mime4j, and why.
var otherwise = map[string]string{
	// mime4j loses the text before the first empty line.
	"basic-plain-with-bad-header-separator": "the separator holds a space; what follows is no field, so the body starts there",
	"malformedHeader-noheader":              "text without a single field is all body",
	"malformedHeaderStartsBody-noheader":    "the same octets as malformedHeader-noheader; mime4j keeps one line of two",
	"malformedHeaderStartsBody-nocrlfcrlf":  "the same octets as malformedHeader-nocrlfcrlf, which we agree on",
	"hdr-fakeout":                           "the separator holds a space; what follows is no field, so the body starts there",
	"frag":                                  "the base64 ends in an unfinished group; its whole octets are kept",
	"multi-frag":                            "the base64 ends in an unfinished group; its whole octets are kept",
}

// TestMIME4J compares trees, header fields and decoded bodies with those of Apache mime4j. What we read otherwise on
// purpose is named in docs/parser.md.
func TestMIME4J(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"mime4j-testmsgs", "mimetools-testmsgs"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var got struct{ trees, fields, bodies, all int } // what agrees
			folder := corpus(t, name)
			for _, path := range mails(t, folder, ".msg") {
				got.all++
				r, root := tree(readFile(t, path))
				stem := strings.TrimSuffix(path, ".msg")
				want, err := readExpected(stem + "_decoded.xml")
				if err != nil {
					t.Errorf("%v", err)
					continue
				}
				name := filepath.Base(stem)
				reason := otherwise[name]
				if g, w := shape(root), wantShape(want); g == w {
					got.trees++
				} else {
					t.Logf("%s: tree\n got %s\nwant %s", name, g, w)
				}
				if g, w := fieldNames(root), wantFields(want); g == w {
					got.fields++
				} else {
					t.Logf("%s: fields\n got %s\nwant %s", name, g, w)
				}
				diff := bodiesDiff(r, root, want, folder)
				switch {
				case diff == "" && reason == "":
					got.bodies++
				case diff == "":
					t.Errorf("%s: the bodies agree: take it from the list", name)
				case reason == "":
					t.Errorf("%s: bodies: %s", name, diff)
				default:
					t.Logf("%s: bodies: %s: %s", name, reason, diff)
				}
			}
			score(t, name, "trees %d/%d, header fields %d/%d, bodies %d/%d", got.trees, got.all, got.fields, got.all, got.bodies, got.all)
		})
	}
}

func readExpected(path string) (expected, error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return expected{}, err
	}
	var e expected
	d := xml.NewDecoder(bytes.NewReader(b))
	d.Strict = false
	if err := d.Decode(&e); err != nil {
		return expected{}, fmt.Errorf("%s: %w", path, err)
	}
	return e, nil
}

func shape(n *node) string {
	switch {
	case n.isMultipart() && n.boundary != "":
		parts := make([]string, 0, len(n.children))
		for _, c := range n.children {
			parts = append(parts, shape(c))
		}
		return "multipart(" + strings.Join(parts, " ") + ")"
	case len(n.children) == 1:
		return "message(" + shape(n.children[0]) + ")"
	}
	return "leaf"
}

// wantShape is the shape of a <message> or <body-part>.
func wantShape(e expected) string {
	for _, c := range e.Children {
		switch c.XMLName.Local {
		case "multipart":
			var parts []string
			for _, p := range c.Children {
				if p.XMLName.Local == "body-part" {
					parts = append(parts, wantShape(p))
				}
			}
			return "multipart(" + strings.Join(parts, " ") + ")"
		case "message":
			return "message(" + wantShape(c) + ")"
		}
	}
	return "leaf"
}

func fieldNames(n *node) string {
	var out strings.Builder
	for _, h := range n.part.GetHeaders() {
		out.WriteString(h.GetName() + " ")
	}
	out.WriteString("| ")
	for _, c := range n.children {
		out.WriteString(fieldNames(c))
	}
	return out.String()
}

func wantFields(e expected) string {
	var out strings.Builder
	for _, c := range e.Children {
		switch c.XMLName.Local {
		case "header":
			for _, f := range c.Children {
				name, _, _ := strings.Cut(strings.TrimLeft(f.Text, "\r\n"), ":")
				out.WriteString(strings.TrimRight(name, " \t") + " ")
			}
			out.WriteString("| ")
		case "multipart":
			for _, p := range c.Children {
				if p.XMLName.Local == "body-part" {
					out.WriteString(wantFields(p))
				}
			}
		case "message":
			out.WriteString(wantFields(c))
		}
	}
	return out.String()
}

// bodiesDiff tells the first difference between the bodies, line ends normalised.
func bodiesDiff(r *reader, n *node, e expected, folder string) string {
	var children []expected
	for _, c := range e.Children {
		switch c.XMLName.Local {
		case "multipart":
			for _, p := range c.Children {
				if p.XMLName.Local == "body-part" {
					children = append(children, p)
				}
			}
		case "message":
			children = append(children, c)
		case "text-body", "binary-body":
			want, err := os.ReadFile(filepath.Join(folder, c.Name))
			if err != nil {
				return err.Error()
			}
			got := n.kept
			// Some of the text files are in UTF-8, others in the charset of the part.
			text := []byte(r.decodeCharset(n.part.Charset, got, place{}))
			same := bytes.Equal(got, want)
			if c.XMLName.Local == "text-body" {
				same = bytes.Equal(lines(got), lines(want)) || bytes.Equal(lines(text), lines(want))
			}
			if !same {
				return fmt.Sprintf("%s: %s", c.Name, firstDiff(lines(got), lines(want)))
			}
		}
	}
	if len(children) != len(n.children) {
		return "another tree"
	}
	for i := range children {
		if diff := bodiesDiff(r, n.children[i], children[i], folder); diff != "" {
			return diff
		}
	}
	return ""
}

func lines(b []byte) []byte {
	b = bytes.ReplaceAll(b, []byte("\r\n"), []byte("\n"))
	return bytes.TrimRight(bytes.ReplaceAll(b, []byte("\r"), []byte("\n")), "\n")
}

func firstDiff(a, b []byte) string {
	i := 0
	for i < len(a) && i < len(b) && a[i] == b[i] {
		i++
	}
	return fmt.Sprintf("at %d of %d and %d: got %q, want %q", i, len(a), len(b), excerpt(a[i:]), excerpt(b[i:]))
}
