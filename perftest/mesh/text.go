package mesh

import (
	"fmt"
	"io"
	"strings"
	"unicode/utf8"

	"github.com/assay-hpc/assay/internal/result"
	"github.com/assay-hpc/assay/internal/words"
)

// A View defines how a report is shown.
type View struct {
	Gbits bool // Gb/s instead of GB/s
}

// unit returns the name of the unit in which values are shown, and its size in the unit of the
// stored values.
func (r *Report) unit(v View) (name string, size float64) {
	switch {
	case r.Latency:
		return "µs", 1e3
	case v.Gbits:
		return "Gb/s", 1e9 / 8
	}
	return "GB/s", 1e9
}

// marks are printed after a value.
var marks = map[result.Verdict]string{result.Warn: "?", result.Fail: "!"}

// widest is the largest number of ports for which the text shows the whole matrix. With more ports
// it shows the matrix of the hosts.
const widest = 32

// WriteText writes the report for a person.
func (r *Report) WriteText(w io.Writer, v View) error {
	var b strings.Builder
	unit, _ := r.unit(v)
	fmt.Fprintf(&b, "%s between %d ports of %s: %s, %s, %s, %s\n", r.Tool, len(r.Ports), words.Count(len(r.Hosts), "host"), r.Pattern, sizeText(r.Bytes), words.Count(r.QPs, "QP"), r.how())
	if r.Typical > 0 {
		fmt.Fprintf(&b, "%s; typical is %s\n", unit, r.show(r.Typical, v))
	} else {
		fmt.Fprintln(&b, unit)
	}
	b.WriteByte('\n')
	r.writePorts(&b)
	if len(r.Ports) <= widest {
		r.writeMatrix(&b, v)
	} else {
		r.writeHosts(&b, v)
	}
	r.writeFindings(&b)
	_, err := io.WriteString(w, b.String())
	return err
}

// how describes what was measured at once.
func (r *Report) how() string {
	s := "pairs of a round at once"
	if r.Serial {
		s = "one pair at a time"
	}
	if r.Both {
		s += ", both directions at once"
	}
	if r.Samples > 1 {
		s += fmt.Sprintf(", the median of %d", r.Samples)
	}
	return s
}

func sizeText(n uint64) string {
	for _, u := range []struct {
		shift int
		name  string
	}{{20, "MiB"}, {10, "KiB"}} {
		if n >= 1<<u.shift && n%(1<<u.shift) == 0 {
			return fmt.Sprintf("%d %s", n>>u.shift, u.name)
		}
	}
	return fmt.Sprintf("%d bytes", n)
}

// show formats a value in the view's unit.
func (r *Report) show(value float64, v View) string {
	_, size := r.unit(v)
	return fmt.Sprintf("%.2f", value/size)
}

func (r *Report) showCell(c *Cell, v View) string {
	switch {
	case c == nil:
		return "-"
	case c.Error != "" || c.Value == 0:
		return "error!"
	}
	return r.show(c.Value, v) + marks[c.Verdict]
}

func (r *Report) writePorts(b *strings.Builder) {
	rows := [][]string{{"PORT", "HOST", "DEVICE", "LINK", "COUNTERS THAT WENT UP"}}
	for i := range r.Ports {
		p := &r.Ports[i]
		var ups []string
		for _, name := range sortedKeys(p.Counters) {
			ups = append(ups, fmt.Sprintf("%s +%d", name, p.Counters[name]))
		}
		text := "-"
		if len(ups) > 0 {
			text = strings.Join(ups, ", ")
		}
		rows = append(rows, []string{fmt.Sprint(i), r.Hosts[p.Host], p.Short(), p.Before.String(), text})
	}
	writeColumns(b, rows, false)
	b.WriteByte('\n')
}

// writeColumns aligns cells. With right, all columns after the first are right-aligned.
func writeColumns(b *strings.Builder, rows [][]string, right bool) {
	var width []int
	for _, row := range rows {
		for i, cell := range row {
			if i == len(width) {
				width = append(width, 0)
			}
			width[i] = max(width[i], utf8.RuneCountInString(cell))
		}
	}
	for _, row := range rows {
		var line strings.Builder
		for i, cell := range row {
			pad := strings.Repeat(" ", width[i]-utf8.RuneCountInString(cell))
			if right && i > 0 {
				line.WriteString("  " + pad + cell)
			} else if line.WriteString(cell + pad); !right {
				line.WriteString("  ")
			}
		}
		b.WriteString(strings.TrimRight(line.String(), " ") + "\n")
	}
}

// writeMatrix writes a row for each sending port and a column for each receiving port.
func (r *Report) writeMatrix(b *strings.Builder, v View) {
	head := []string{"from \\ to"}
	for i := range r.Ports {
		head = append(head, fmt.Sprint(i))
	}
	rows := [][]string{head}
	for i := range r.Ports {
		row := []string{fmt.Sprintf("%d %s", i, r.Name(i))}
		for k := range r.Ports {
			row = append(row, r.showCell(r.Cell(i, k), v))
		}
		rows = append(rows, row)
	}
	writeAligned(b, rows)
}

// writeAligned calls writeColumns with the numbers aligned whether they have a mark or not.
func writeAligned(b *strings.Builder, rows [][]string) {
	for _, row := range rows {
		for i := range row {
			if i > 0 && !strings.HasSuffix(row[i], "!") && !strings.HasSuffix(row[i], "?") {
				row[i] += " "
			}
		}
	}
	writeColumns(b, rows, true)
	b.WriteByte('\n')
}

// writeHosts writes the worst cell between each pair of hosts.
func (r *Report) writeHosts(b *strings.Builder, v View) {
	worst := map[[2]int]*Cell{}
	for i := range r.Cells {
		c := &r.Cells[i]
		at := [2]int{r.Ports[c.From].Host, r.Ports[c.To].Host}
		if w := worst[at]; w == nil || c.Value == 0 || w.Value != 0 && r.limits().Better(w.Value, c.Value) {
			worst[at] = c
		}
	}
	head := []string{"from \\ to"}
	for h := range r.Hosts {
		head = append(head, fmt.Sprint(h))
	}
	rows := [][]string{head}
	for h, name := range r.Hosts {
		row := []string{fmt.Sprintf("%d %s", h, name)}
		for k := range r.Hosts {
			row = append(row, r.showCell(worst[[2]int{h, k}], v))
		}
		rows = append(rows, row)
	}
	fmt.Fprintf(b, "The worst of the ports of each two hosts; --format json and --html have all %d ports.\n", len(r.Ports))
	writeAligned(b, rows)
}

func (r *Report) writeFindings(b *strings.Builder) {
	for _, f := range r.Findings {
		word := string(f.Verdict)
		if f.Verdict == result.Pass {
			word = "note"
		}
		fmt.Fprintf(b, "%s: %s\n", word, f.Text)
	}
	n := map[result.Verdict]int{}
	for _, c := range r.Cells {
		n[c.Verdict]++
	}
	fmt.Fprintf(b, "%s: of %d measurements %d passed", r.worst(), len(r.Cells), n[result.Pass])
	if n[result.Warn] > 0 {
		fmt.Fprintf(b, ", %d are suspect (?)", n[result.Warn])
	}
	if n[result.Fail] > 0 {
		fmt.Fprintf(b, ", %d failed (!)", n[result.Fail])
	}
	b.WriteByte('\n')
}
