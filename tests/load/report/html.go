package report

import (
	_ "embed" // of the page
	"fmt"
	"html/template"
	"io"
	"math"
	"strings"

	"github.com/rohrpost/rohrpost/tests/load/gen"
	"github.com/rohrpost/rohrpost/tests/load/latency"
)

//go:embed page.html
var pageText string

var page = template.Must(template.New("page").Parse(pageText))

// HTML writes the report as one page with charts, that needs nothing from elsewhere.
func (r *Report) HTML(w io.Writer) error {
	sections, err := r.sections()
	if err != nil {
		return err
	}
	type part struct {
		section
		Charts []template.HTML
	}
	var parts []part
	for _, s := range sections {
		p := part{section: s, Charts: []template.HTML{bars("messages/s (bar: median, line: lowest to highest)", s.cases, mainRate)}}
		if chart := percentiles(s.cases); chart != "" {
			p.Charts = append(p.Charts, chart)
		}
		parts = append(parts, p)
	}
	return page.Execute(w, map[string]any{
		"Title": r.Title, "Command": r.Command, "Machines": r.Machines(), "Parts": parts, "RatioHeader": ratioHeader, "Ratios": r.ratioRows(),
	})
}

// mainRate is what a case is about: the whole way where it was measured.
func mainRate(r *Run) float64 {
	for _, figure := range []func(*Run) float64{WholeRate, Rate, Value("value")} {
		if v := figure(r); !math.IsNaN(v) {
			return v
		}
	}
	return none
}

// The measures of charts, in pixels.
const (
	labelWidth = 380
	plotWidth  = 420
	barHeight  = 18
)

// chart collects the elements of an SVG.
type chart struct {
	elements strings.Builder
	rows     int
}

func (c *chart) label(text string) {
	fmt.Fprintf(&c.elements, `<text x="%d" y="%d" text-anchor="end">%s</text>`, labelWidth-6, c.rows*barHeight+13, template.HTMLEscapeString(text))
}

func (c *chart) svg(title string) template.HTML {
	//nolint:gosec // texts in it were escaped by label and here
	return template.HTML(fmt.Sprintf(`<figure><figcaption>%s</figcaption><svg width="%d" height="%d" role="img">%s</svg></figure>`,
		template.HTMLEscapeString(title), labelWidth+plotWidth+80, c.rows*barHeight+4, c.elements.String()))
}

// bars shows a figure of each case with its spread.
func bars(title string, cases []*Case, figure func(*Run) float64) template.HTML {
	var highest float64
	for _, c := range cases {
		highest = max(highest, c.Spread(figure).Max)
	}
	var ch chart
	for _, c := range cases {
		s := c.Spread(figure)
		x := func(v float64) float64 { return labelWidth + v/max(highest, 1)*plotWidth }
		y := ch.rows*barHeight + 2
		ch.label(c.Name + " · " + c.System)
		fmt.Fprintf(&ch.elements, `<rect class="%s" x="%d" y="%d" width="%.1f" height="%d"/>`, class(c), labelWidth, y, x(s.Median)-labelWidth, barHeight-4)
		fmt.Fprintf(&ch.elements, `<line x1="%.1f" x2="%.1f" y1="%d" y2="%d"/>`, x(s.Min), x(s.Max), y+7, y+7)
		fmt.Fprintf(&ch.elements, `<text x="%.1f" y="%d">%.0f</text>`, x(s.Max)+4, y+11, s.Median)
		ch.rows++
	}
	return ch.svg(title)
}

// class colours systems apart.
func class(c *Case) string {
	switch {
	case len(c.Contaminated()) > 0:
		return "doubt"
	case strings.HasPrefix(c.System, "rohrpost"):
		return "ours"
	case strings.HasPrefix(c.System, "floor"):
		return "floor"
	}
	return "peer"
}

// percentiles shows how long messages take: from p50 to p99 as a bar, the longest as a mark, on one scale from 0.
func percentiles(cases []*Case) template.HTML {
	var all []latency.Summary
	var highest float64
	for _, c := range cases {
		l, err := c.Latency(func(g *gen.Result) latency.Summary { return g.Message })
		if err != nil {
			return ""
		}
		all = append(all, l)
		highest = max(highest, l.Max)
	}
	if highest == 0 {
		return ""
	}
	var ch chart
	for i, c := range cases {
		l := all[i]
		x := func(ms float64) float64 { return labelWidth + ms/highest*plotWidth }
		y := ch.rows*barHeight + 2
		ch.label(c.Name + " · " + c.System)
		fmt.Fprintf(&ch.elements, `<rect class="%s" x="%.1f" y="%d" width="%.1f" height="%d"/>`, class(c), x(l.P50), y, max(1, x(l.P99)-x(l.P50)), barHeight-4)
		fmt.Fprintf(&ch.elements, `<line x1="%.1f" x2="%.1f" y1="%d" y2="%d"/>`, x(l.Max), x(l.Max), y, y+barHeight-4)
		fmt.Fprintf(&ch.elements, `<text x="%.1f" y="%d">%.1f / %.1f / %.1f</text>`, min(x(l.Max)+4, labelWidth+plotWidth-40), y+11, l.P50, l.P99, l.Max)
		ch.rows++
	}
	return ch.svg("ms for a message: bar from p50 to p99, mark at the longest (p50 / p99 / max)")
}
