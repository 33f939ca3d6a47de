package report

import (
	"fmt"
	"io"
	"strings"
)

// Section is a table of figures for a document.
type Section struct {
	Title   string
	Case    string // the name of the case that the figures are of, where they don't say another
	Figures []Figure
}

// Figure is a row of such a table: a value of a case, or the ratio of two cases' values.
type Figure struct {
	Name, Key, Format string
	Of                *Figure // the ratio is to this value of another case, round by round
	In                string  // the case where it is not that of the section
}

// Sheet writes tables of values: medians, with the lowest and the highest. Values that were not measured are left out. note says
// under the command how it was measured.
func (r *Report) Sheet(w io.Writer, note string, sections []Section) error {
	var b strings.Builder
	fmt.Fprintf(&b, "%s\n\nCommand: `%s`; %s.\n\n", strings.Join(r.Machines(), "; "), r.Command, note)
	for _, s := range sections {
		var rows strings.Builder
		for _, f := range s.Figures {
			if f.In == "" {
				f.In = s.Case
			}
			if text := f.text(r); text != "" {
				fmt.Fprintf(&rows, "| %s | %s |\n", f.Name, text)
			}
		}
		if rows.Len() > 0 {
			fmt.Fprintf(&b, "%s\n\n| | |\n|---|---|\n%s\n", s.Title, rows.String())
		}
	}
	for i := range r.Cases {
		doubts(&b, &r.Cases[i])
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// doubts says what speaks against the figures of a case, round by round.
func doubts(b *strings.Builder, c *Case) {
	for _, run := range c.Runs {
		if run.Failed != "" {
			fmt.Fprintf(b, "* FAILED %s, round %d: %s\n", c.Name, run.Number, run.Failed)
		}
		if run.Usage != nil && len(run.Usage.Contaminated) > 0 {
			fmt.Fprintf(b, "* CONTAMINATED %s, round %d: %s\n", c.Name, run.Number, strings.Join(run.Usage.Contaminated, "; "))
		}
	}
}

// text is a figure over all rounds; empty where it was not measured.
func (f *Figure) text(r *Report) string {
	c := r.find(f.In)
	if c == nil {
		return ""
	}
	var s Spread
	if f.Of == nil {
		s = c.Spread(Value(f.Key))
	} else if other := r.find(f.Of.In); other != nil {
		s = ratio(c, other, Value(f.Key), Value(f.Of.Key))
	}
	if s.N == 0 {
		return ""
	}
	if len(c.Runs) < 2 {
		return fmt.Sprintf(f.Format, s.Median)
	}
	return fmt.Sprintf(f.Format+" ["+f.Format+"–"+f.Format+"]", s.Median, s.Min, s.Max)
}

func (r *Report) find(name string) *Case {
	for i := range r.Cases {
		if r.Cases[i].Name == name {
			return &r.Cases[i]
		}
	}
	return nil
}
