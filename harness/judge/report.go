package judge

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/assay-hpc/assay/harness/explain"
)

// shownRows is how many rows a text has of a measurement.
const shownRows = 32

// WriteText writes the report for a person, in lines of width columns.
func (r *Report) WriteText(w io.Writer, width int) error {
	t := explain.NewText(width)
	if len(r.Measurements) > 1 {
		t.Par(fmt.Sprintf("verdict: %s: ", r.Verdict), r.count())
		t.Line("")
	}
	for i, j := range r.Measurements {
		if i > 0 {
			t.Line("")
		}
		head := "verdict: "
		if len(r.Measurements) > 1 {
			head = fmt.Sprintf("line %d, ", j.Line)
			t.Par(head, j.Subject+": "+string(j.Verdict)+": "+j.Summary)
		} else {
			t.Par(head+string(j.Verdict)+": ", j.Summary)
		}
		j.write(t, len(r.Measurements) == 1)
	}
	_, err := io.WriteString(w, t.String())
	return err
}

// Summary is the report in a sentence.
func (r *Report) Summary() string {
	if len(r.Measurements) == 1 {
		return r.Measurements[0].Summary
	}
	return r.count()
}

// count says how many measurements have each verdict.
func (r *Report) count() string {
	var out []string
	for _, v := range severity {
		n := 0
		for _, j := range r.Measurements {
			if j.Verdict == v {
				n++
			}
		}
		if n > 0 {
			out = append(out, fmt.Sprintf("%d %s", n, v))
		}
	}
	return "of " + fmt.Sprint(len(r.Measurements)) + " measurements " + strings.Join(out, ", ")
}

func (j *Judgement) write(t *explain.Text, alone bool) {
	if alone {
		t.Par("   measured: ", j.Subject+": "+strings.Join(j.Understood, ", "))
	} else if len(j.Understood) > 0 {
		t.Par("   ", strings.Join(j.Understood, ", "))
	}
	if r := j.Reference; r != nil {
		text := fmt.Sprintf("%s to %s GB/s busbw at large sizes (typical %s), by %s", figure(r.Low), figure(r.High), figure(r.Typical), r.Path)
		for _, o := range r.Others {
			text += "; " + o
		}
		t.Par("   right is: ", text)
	}
	if !j.hideRows && (j.Verdict != OK || alone) {
		j.table(t)
	}
	for _, c := range j.Causes {
		t.Par("   cause: ", c.Text)
		for _, s := range c.Shown {
			t.Par("      shown by ", s)
		}
		for _, s := range c.Remedy {
			t.Par("      remedy: ", s)
		}
		if c.Decide != "" {
			t.Par("      to tell: ", c.Decide)
		}
		if len(c.Source) > 0 {
			t.Par("      source: ", strings.Join(c.Source, " "))
		}
	}
	for _, s := range j.Ask {
		t.Par("   ask for: ", s)
	}
	for _, s := range j.Notes {
		t.Par("   note: ", s)
	}
	if len(j.Sources) > 0 {
		t.Par("   source: ", strings.Join(j.Sources, "; "))
	}
}

// table writes the rows.
func (j *Judgement) table(t *explain.Text) {
	if len(j.Rows) == 0 {
		return
	}
	label := "size"
	if j.Rows[0].Bytes == 0 {
		label = "copies"
	}
	wide := len(label)
	most := 0.0
	for _, r := range j.Rows {
		wide = max(wide, len(r.What))
		most = max(most, r.best())
	}
	t.Line(fmt.Sprintf("   %-*s  %8s  %15s  %s", wide, label, "measured", "right is", "verdict"))
	skip := max(0, len(j.Rows)-shownRows)
	if skip > 0 {
		t.Line(fmt.Sprintf("   (%d smaller sizes are left out)", skip))
	}
	for _, r := range j.Rows[skip:] {
		reach := ""
		if r.High > 0 {
			reach = figure(r.Low) + " to " + figure(r.High)
		}
		bar := ""
		if most > 0 {
			bar = strings.Repeat("#", int(r.best()/most*20+0.5))
		}
		t.Line(strings.TrimRight(fmt.Sprintf("   %-*s  %8s  %15s  %-10s %s", wide, r.What, figure(r.best()), reach, r.Verdict, bar), " "))
	}
}

// Exit returns the exit status: 0 for what is as it should be, 1 for what is not, 3 for what cannot be judged.
func (r *Report) Exit() int {
	switch r.Verdict {
	case OK:
		return 0
	case Undecidable, Invalid:
		return 3
	}
	return 1
}

// WriteSVG draws the measurements that have sizes: what was measured, and the range that is right.
func (r *Report) WriteSVG(w io.Writer) error {
	i := slices.IndexFunc(r.Measurements, func(j *Judgement) bool { return len(j.Rows) > 1 && j.Rows[0].Bytes > 0 })
	if i < 0 {
		return fmt.Errorf("nothing to draw: no measurement has several sizes")
	}
	return r.Measurements[i].svg(w)
}

func (j *Judgement) svg(w io.Writer) error {
	const width, height, left, right, top, bottom = 760, 420, 64, 40, 40, 48
	rows := slices.DeleteFunc(slices.Clone(j.Rows), func(r Judged) bool { return r.Bytes == 0 })
	most := 0.0
	for _, r := range rows {
		most = max(most, r.best(), min(r.High, 4*r.best()))
	}
	most *= 1.08
	n := max(1, len(rows)-1)
	x := func(i int) float64 { return left + float64(i)*float64(width-left-right)/float64(n) }
	y := func(v float64) float64 { return float64(height-bottom) - min(v, most)/most*float64(height-top-bottom) }
	var b strings.Builder
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" font-family="sans-serif" font-size="12" role="img">`+"\n", width, height)
	fmt.Fprintf(&b, "<title>%s</title>\n<rect width=\"100%%\" height=\"100%%\" fill=\"#ffffff\"/>\n", escaped(j.Subject+": "+string(j.Verdict)))
	fmt.Fprintf(&b, `<text x="%d" y="20" font-size="14">%s: %s (%s)</text>`+"\n", left, escaped(j.Subject), j.Verdict, escaped(j.Unit))
	var band, line []string
	for i, r := range rows {
		band = append(band, fmt.Sprintf("%.1f,%.1f", x(i), y(r.High)))
		line = append(line, fmt.Sprintf("%.1f,%.1f", x(i), y(r.best())))
	}
	for i := len(rows) - 1; i >= 0; i-- {
		band = append(band, fmt.Sprintf("%.1f,%.1f", x(i), y(rows[i].Low)))
	}
	if rows[len(rows)-1].High > 0 {
		fmt.Fprintf(&b, `<polygon points="%s" fill="#cfe3d4"/>`+"\n", strings.Join(band, " "))
	}
	for k := range 6 {
		v := most * float64(k) / 5
		fmt.Fprintf(&b, `<line x1="%d" x2="%d" y1="%.1f" y2="%.1f" stroke="#dddddd"/><text x="%d" y="%.1f" text-anchor="end">%s</text>`+"\n", left, width-right, y(v), y(v), left-6, y(v)+4, figure(v))
	}
	fmt.Fprintf(&b, `<polyline points="%s" fill="none" stroke="#1f4e8c" stroke-width="2"/>`+"\n", strings.Join(line, " "))
	every := max(1, len(rows)/8)
	for i, r := range rows {
		colour := "#1f4e8c"
		if r.Verdict == Low || r.Verdict == Impossible {
			colour = "#b3261e"
		}
		fmt.Fprintf(&b, `<circle cx="%.1f" cy="%.1f" r="3.5" fill="%s"><title>%s: %s, right is %s to %s: %s</title></circle>`+"\n", x(i), y(r.best()), colour, r.What, figure(r.best()), figure(r.Low), figure(r.High), r.Verdict)
		if i%every == 0 {
			fmt.Fprintf(&b, `<text x="%.1f" y="%d" text-anchor="middle">%s</text>`+"\n", x(i), height-bottom+20, r.What)
		}
	}
	b.WriteString("</svg>\n")
	_, err := io.WriteString(w, b.String())
	return err
}

func escaped(s string) string {
	return strings.NewReplacer("&", "&amp;", "<", "&lt;", ">", "&gt;", `"`, "&quot;").Replace(cmp.Or(s, "-"))
}
