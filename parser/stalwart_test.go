package parser

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

// stalwartCase is one header value of the stalwart corpus.
type stalwartCase struct {
	Header   string          `json:"header"`
	Expected json.RawMessage `json:"expected"`
}

// misses are the header values of which we read something else than Stalwart, and why.
var misses = []struct{ part, reason string }{
	{"\\\n ) chap)", "RFC 5322, 2.2.3: unfolded first, the backslash quotes the space, and the parenthesis ends the comment"},
	{"<@node.test:mary@example.net>", "RFC 5322, 4.4: an obsolete route is ignored"},
	{"\"=?iso-8859-1?B?4Q==?= =?utf-8?B?w6k=?=", "RFC 2047, 6.2: no white space between encoded words, as mail clients read them in names too"},
	{" 4 8 15 16 23 42", "RFC 5322, 3.3: no date"},
	{"Tue, 1 Jul 2003 ((invalid)\n", "RFC 5322, 3.3: the day is there, the time does not hide it"},
	{"[SUSPECTED SPAM]=?utf-8?B?", "RFC 2047, 6: nothing is put between text and an encoded word"},
	{"Some text =?utf-8?Q??=here", "RFC 2047, 2: an encoded word of nothing is nothing"},
	{"by alpha by uid 7791", "RFC 5321, 4.4: one by clause; the first is the host"},
	{"invoked from network", "RFC 5321, 4.4: what stands in a comment is no clause"},
	{"(Postfix, from userid 1002)", "RFC 5321, 4.4: what stands in a comment is no clause"},
}

func explained(header string) string {
	for _, m := range misses {
		if strings.Contains(header, m.part) {
			return m.reason
		}
	}
	return ""
}

// odd matches times that Stalwart reads otherwise than RFC 5322, 4.3 wants it: asctime, two digits of a year, zones with
// names alone. A fraction of a second is no part of the RFC at all.
var odd = regexp.MustCompile(`; *([A-Z][a-z]{2} [A-Z][a-z]{2} |.* [0-9]{2} [0-9:]+ |.* P[SD]T\n|.*:[0-9]{2}\.[0-9])`)

// TestStalwartFields scores header values against those of Stalwart's parser. What differs must be explained.
func TestStalwartFields(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		kind string
		got  func(t *testing.T, r *reader, value string) any
		want func(t *testing.T, raw json.RawMessage) any
	}{
		{"address", gotAddresses, wantAddresses},
		{"content_type", gotContentType, wantContentType},
		{"date", gotDate, wantDate},
		{"id", gotIDs, wantIDs},
		{"list", gotPhrases, wantIDs},
		{"received", gotHop, wantHop},
		{"unstructured", gotText, wantText},
	} {
		t.Run(c.kind, func(t *testing.T) {
			t.Parallel()
			path := filepath.Join(corpus(t, "stalwart-mime"), "fields", c.kind+".json")
			var cases []stalwartCase
			if err := json.Unmarshal(readFile(t, path), &cases); err != nil {
				t.Fatal(err)
			}
			hits := 0
			for _, one := range cases {
				r, root := tree([]byte("X:" + one.Header + "\n"))
				if len(root.part.GetHeaders()) == 0 {
					t.Errorf("%q: no field", one.Header)
					continue
				}
				unfold := r.unfold
				if c.kind == "content_type" {
					unfold = r.unfoldParams
				}
				got, want := c.got(t, r, unfold(root.part.GetHeaders()[0].GetRaw(), place{})), c.want(t, one.Expected)
				if hop, ok := want.(hopFields); ok && odd.MatchString(one.Header) {
					hop.Time = got.(hopFields).Time
					want = hop
				}
				diff := cmp.Diff(want, got, cmpopts.EquateEmpty())
				reason := explained(one.Header)
				switch {
				case diff == "" && reason == "":
					hits++
				case diff == "":
					t.Errorf("%q agrees: take it from the misses", one.Header)
				case reason == "":
					t.Errorf("%q:\n%s", one.Header, diff)
				default:
					t.Logf("%q: %s\n%s", one.Header, reason, diff)
				}
			}
			score(t, "stalwart-mime/fields", "%s %d/%d", c.kind, hits, len(cases))
		})
	}
}

type wantAddress struct {
	Name    string        `json:"name"`
	Address string        `json:"address"`
	List    []wantAddress `json:"addresses"`
	Group   string        `json:"-"`
}

func gotAddresses(_ *testing.T, r *reader, value string) any {
	var out []wantAddress
	for _, a := range r.addresses(value, place{}) {
		name := a.GetName()
		if a.GetComment() != "" && name != a.GetComment() { // Stalwart has but one string for both
			name += " (" + a.GetComment() + ")"
		}
		out = append(out, wantAddress{Name: name, Address: a.GetAddress(), Group: a.GetGroup()})
	}
	return out
}

func wantAddresses(t *testing.T, raw json.RawMessage) any {
	var w struct {
		List  []wantAddress
		Group []wantAddress
	}
	decodeJSON(t, raw, &w)
	out := w.List
	for _, g := range w.Group {
		for _, a := range g.List {
			a.Group, _, _ = strings.Cut(g.Name, " (") // a comment is no part of a group's name
			out = append(out, a)
		}
	}
	for i := range out {
		// White space around dots is no part of an address (RFC 5322, 4.4).
		out[i].Address = strings.ReplaceAll(out[i].Address, " ", "")
	}
	return out
}

type typeAndParams struct {
	Type   string
	Params map[string]string
}

func gotContentType(_ *testing.T, r *reader, value string) any {
	v := r.structured(value, place{})
	if main, _, _ := strings.Cut(v.value, "/"); main == "" {
		return typeAndParams{} // as contentType has it
	}
	return typeAndParams{v.value, v.params}
}

func wantContentType(t *testing.T, raw json.RawMessage) any {
	var w struct {
		Type    string     `json:"c_type"`
		Subtype *string    `json:"c_subtype"`
		Params  [][]string `json:"attributes"`
	}
	decodeJSON(t, raw, &w)
	out := typeAndParams{w.Type, map[string]string{}}
	if w.Subtype != nil {
		out.Type += "/" + *w.Subtype
	}
	for _, p := range w.Params {
		// What was read from 'language' is a name of Stalwart's own.
		if strings.HasSuffix(p[0], "-language") {
			continue
		}
		if _, known := out.Params[p[0]]; !known {
			out.Params[p[0]] = clean(p[1]) // no result of ours has a NUL
		}
	}
	return out
}

func gotPhrases(_ *testing.T, r *reader, value string) any { return r.phrases(value, place{}) }

// hopFields are what is compared of a Received field. What Stalwart guesses from comments beyond the address (HELO, ident,
// reverse name, TLS) is not.
type hopFields struct {
	From, Address, By, Via, With, ID, For, Time string
}

func gotHop(_ *testing.T, r *reader, value string) any {
	h := r.hop(value, place{})
	out := hopFields{From: h.GetFrom(), Address: h.GetAddress(), By: h.GetBy(), Via: h.GetVia(), With: h.GetWith(), ID: h.GetId(), For: h.GetFor()}
	if h.GetTime() != nil {
		out.Time = h.GetTime().AsTime().UTC().Format(time.RFC3339)
	}
	if !slices.Contains(protocols, out.With) {
		out.With = "" // Stalwart knows only these
	}
	if out.Address == out.From {
		out.Address = "" // Stalwart takes an address literal for the name alone
	}
	out.From, _, _ = strings.Cut(out.From, "/") // where Stalwart cuts words
	out.ID, _, _ = strings.Cut(out.ID, "/")
	return out
}

func wantHop(t *testing.T, raw json.RawMessage) any {
	type host struct{ Name, IPAddr string }
	var w struct {
		From, By      host
		Ident         string
		IP            string `json:"from_ip"`
		For           string `json:"for_"`
		With, ID, Via string
		Date          json.RawMessage
	}
	decodeJSON(t, raw, &w)
	out := hopFields{From: w.From.Name + w.From.IPAddr, Address: w.IP, By: w.By.Name + w.By.IPAddr, Via: w.Via, With: strings.ToUpper(w.With), ID: w.ID, For: w.For}
	if w.Date != nil {
		out.Time = wantDate(t, w.Date).(string)
	}
	if _, ip, ok := strings.Cut(w.Ident, "@"); ok { // ident@address, as qmail writes it
		if _, err := netip.ParseAddr(ip); err == nil {
			out.Address = ip
		}
	}
	if out.Address == out.From {
		out.Address = ""
	}
	return out
}

func gotDate(_ *testing.T, r *reader, value string) any {
	t, _, ok := date(value)
	if !ok {
		return ""
	}
	return t.UTC().Format(time.RFC3339)
}

func wantDate(t *testing.T, raw json.RawMessage) any {
	var w *struct {
		Year, Month, Day, Hour, Minute, Second int
		Before                                 bool `json:"tz_before_gmt"`
		ZoneHour                               int  `json:"tz_hour"`
		ZoneMinute                             int  `json:"tz_minute"`
	}
	decodeJSON(t, raw, &w)
	if w == nil {
		return ""
	}
	zone := w.ZoneHour*3600 + w.ZoneMinute*60
	if w.Before {
		zone = -zone
	}
	return time.Date(w.Year, time.Month(w.Month), w.Day, w.Hour, w.Minute, w.Second, 0, time.FixedZone("", zone)).
		UTC().Format(time.RFC3339)
}

func gotIDs(_ *testing.T, r *reader, value string) any {
	return r.ids(value, place{})
}

func wantIDs(t *testing.T, raw json.RawMessage) any {
	var w []string
	decodeJSON(t, raw, &w)
	return w
}

func gotText(_ *testing.T, r *reader, value string) any { return r.words(value, place{}) }

func wantText(t *testing.T, raw json.RawMessage) any {
	var w string
	decodeJSON(t, raw, &w)
	return w
}

func decodeJSON(t *testing.T, raw json.RawMessage, to any) {
	t.Helper()
	if err := json.Unmarshal(raw, to); err != nil {
		t.Fatalf("%s: %v", raw, err)
	}
}

// stalwartPart is one part of a message as Stalwart reads it.
type stalwartPart struct {
	Headers []json.RawMessage `json:"headers"`
	Body    map[string]json.RawMessage
	// Problem is whether Stalwart gave up decoding.
	Problem bool `json:"is_encoding_problem"`
}

// TestStalwartRFC compares the RFC examples: the parts with the number of their header fields, and the decoded bodies.
func TestStalwartRFC(t *testing.T) {
	t.Parallel()
	hits, all := 0, 0
	for _, path := range mails(t, filepath.Join(corpus(t, "stalwart-mime"), "rfc"), ".eml") {
		all++
		var want struct{ Parts []stalwartPart }
		decodeJSON(t, readFile(t, strings.TrimSuffix(path, ".eml")+".json"), &want)
		r, root := tree(readFile(t, path))
		var got, wanted []string
		flatten(root, func(n *node) {
			i := len(got)
			line := fmt.Sprint(len(n.part.GetHeaders()))
			if i < len(want.Parts) {
				line += bodyOf(t, r, n, want.Parts[i])
			}
			got = append(got, line)
		})
		for _, p := range want.Parts {
			wanted = append(wanted, fmt.Sprint(len(p.Headers)))
		}
		if diff := cmp.Diff(wanted, got); diff == "" {
			hits++
		} else {
			t.Logf("%s: header fields of each part, and bodies that differ:\n%s", filepath.Base(path), diff)
		}
	}
	score(t, "stalwart-mime/rfc", "%d/%d", hits, all)
}

// bodyOf tells how the body of a part differs from what is wanted, nothing where it does not.
func bodyOf(t *testing.T, r *reader, n *node, want stalwartPart) string {
	for kind, raw := range want.Body {
		var text string
		switch kind {
		case "Text", "Html":
			decodeJSON(t, raw, &text)
		case "Binary", "InlineBinary":
			var octets []int
			decodeJSON(t, raw, &octets)
			for _, c := range octets {
				text += string([]byte{byte(c)})
			}
		default:
			continue // the parts tell
		}
		got := string(n.kept)
		if kind == "Text" || kind == "Html" {
			got = r.decodeCharset(n.part.Charset, n.kept, place{})
		}
		if !want.Problem && got != text {
			return fmt.Sprintf(": got %q, want %q", got, text)
		}
	}
	return ""
}

// flatten visits the parts of one message in order; a nested message counts as one part, as Stalwart has it.
func flatten(n *node, visit func(*node)) {
	visit(n)
	if n.isMultipart() {
		for _, c := range n.children {
			flatten(c, visit)
		}
	}
}
