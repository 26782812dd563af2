package perf

import (
	"fmt"
	"io"
	"path"
	"slices"
	"strings"
	"time"
)

// format is the version of nccl-tests that defines this text and JSON.
const format = "2.19.6"

const timestamp = "2006-01-02 15:04:05"

// A table writes nccl-tests' text; for a comparison nccl-tests' preamble, and rows of our own
// (versustable.go).
type table struct{ out io.Writer }

// A column of the table: name and unit are its two header lines.
type column struct {
	width      int
	name, unit string
}

// columns returns the columns of a row: those that are common to both placements, and those of
// each placement. Widths are those of the data; the first header begins with "# ".
func (c *Config) columns() (common, placement []column) {
	common = []column{{12, "size", "(B)"}, {12, "count", "(elements)"}, {8, "type", ""}, {6, "redop", ""}, {6, "root", ""}}
	time := "time"
	if c.CPUTime {
		time = "cputime"
	}
	placement = []column{{7, time, "(us)"}, {6, "algbw", "(GB/s)"}, {6, "busbw", "(GB/s)"}, {6, "#wrong", ""}}
	if c.PerIter {
		placement = append(placement, column{7, "i_min", "(us)"}, column{7, "i_max", "(us)"}, column{7, "i_p99", "(us)"}, column{7, "i_cv%", "(%)"})
	}
	return common, placement
}

// heads returns the three header lines of the table.
func (c *Config) heads() string {
	common, placement := c.columns()
	common[0].width -= 2
	all := append(append(common, placement...), placement...)
	var names, units []string
	for _, col := range all {
		names = append(names, pad(col.name, col.width))
		units = append(units, pad(col.unit, col.width))
	}
	over := make([]string, 0, 4)
	left := 62
	for _, p := range []string{"out-of-place", "in-place"} {
		over = append(over, strings.Repeat(" ", left), p)
		left = 23
		if c.PerIter {
			left += 36
		}
	}
	stamp := ""
	if c.Timestamps {
		stamp = pad("timestamp", 20)
	}
	return "#" + strings.Join(over, "") + strings.Repeat(" ", left-13) + "\n" +
		"# " + strings.Join(names, "  ") + " " + stamp + "\n" +
		"# " + strings.Join(units, "  ") + " " + pad("", len(stamp)) + "\n"
}

func (t *table) header(r *reporter) error {
	heads := r.cfg.heads()
	if r.cfg.Versus != "" {
		heads = r.versusHeads()
	}
	_, err := io.WriteString(t.out, r.preamble()+heads)
	return err
}

// preamble returns the text above the header lines.
func (r *reporter) preamble() string {
	c := &r.cfg
	var b strings.Builder
	fmt.Fprintf(&b, "# nccl-tests version %s nccl-headers=%d nccl-library=%d\n", format, r.world.Version, r.world.Version)
	fmt.Fprintf(&b, "# Collective test starting: %s\n", path.Base(c.Program))
	step, unit := c.StepBytes, "bytes"
	if c.StepFactor > 1 {
		step, unit = int64(c.StepFactor), "factor"
	}
	fmt.Fprintf(&b, "# nThread %d nGpus %d minBytes %d maxBytes %d step: %d(%s) warmup iters: %d iters: %d agg iters: %d validation: %d graph: %d unalign: %d\n",
		c.Threads, c.GPUs, c.MinBytes, c.MaxBytes, step, unit, c.Warmup, c.Iters, c.AggIters, c.Check, c.Graph, c.Unalign)
	b.WriteString(c.modes())
	if r.world.Engine != "" {
		fmt.Fprintf(&b, "# Engine: %s, %d ranks\n", r.world.Engine, r.n)
	}
	b.WriteString(r.comparison())
	for _, note := range r.world.Notes {
		fmt.Fprintf(&b, "# %s\n", note)
	}
	b.WriteString(r.notes())
	b.WriteString("#\n# Using devices\n")
	b.WriteString(devices(r.ranks))
	if c.MaxBytes > r.limit {
		fmt.Fprintf(&b, "#\n# Reducing maxBytes to %d due to memory limitation\n", r.limit)
	}
	b.WriteString("#\n")
	return b.String()
}

// notes names the flags that do nothing here.
func (r *reporter) notes() string {
	where, nothing := "On host memory", slices.Concat(r.cfg.notes, r.set.notes)
	if r.remote() {
		where = "Here"
		nothing = slices.DeleteFunc(nothing, func(flag string) bool {
			return flag == "-G" || flag == "-x" && r.cfg.Engine == "assay" || flag == "-R" && r.cfg.Versus == "" && r.kindsOf(0)[0] == symmetric
		})
	}
	if len(nothing) == 0 {
		return ""
	}
	return fmt.Sprintf("# %s these do nothing: %s\n", where, strings.Join(nothing, " "))
}

// modes returns the header's optional lines.
func (c *Config) modes() string {
	s := ""
	switch c.Blocking {
	case 1:
		s += "# Blocking Enabled: wait for completion and barrier after each collective \n"
	case 2:
		s += "# Blocking Enabled: wait for completion after each collective \n"
	case 3:
		s += "# Blocking Enabled: wait for completion and barrier after each iteration, barrier not timed \n"
	}
	if c.PerIter {
		s += fmt.Sprintf("# Per-Iteration Report: each iteration timed by itself, first %d left out \n", c.PerIterSkip)
	}
	if c.ParallelInit {
		s += "# Parallel Init Enabled: threads initialise communicators at the same time \n"
	}
	return s
}

// devices lists the ranks. The list of each process is cut off after 2,048 bytes.
func devices(ranks []introduction) string {
	var all, block strings.Builder
	flush := func() {
		s := block.String()
		if len(s) > 2048 {
			s = s[:2048-4] + "...\n"
		}
		all.WriteString(s)
		block.Reset()
	}
	for i, x := range ranks {
		if i > 0 && x.Process != ranks[i-1].Process {
			flush()
		}
		fmt.Fprintf(&block, "#  Rank %2d Group %2d Pid %6d on %10s device %2d [%s] %s\n",
			i, x.Group, x.Pid, x.Host, x.Device, address(x.Bus), x.Name)
	}
	flush()
	return all.String()
}

func (t *table) row(r *reporter, row *Row) error {
	var b strings.Builder
	fmt.Fprintf(&b, "%12d  %12d  %8s  %6s  %6d", row.Bytes, row.Count, row.Type, row.Redop, row.Root)
	for _, p := range []*Placement{&row.OutOfPlace, &row.InPlace} {
		fmt.Fprintf(&b, "  %s  %s  %s", fit(p.Time, 7), fit(p.AlgBW, 6), fit(p.BusBW, 6))
		if p.Wrong < 0 {
			b.WriteString("    N/A") // one space short, as nccl-tests prints it
		} else {
			b.WriteString("  " + pad(general(float64(p.Wrong)), 6))
		}
		if s := p.Iter; s != nil && r.cfg.PerIter {
			fmt.Fprintf(&b, "  %s  %s  %s  %s", fit(s.Min, 7), fit(s.Max, 7), fit(s.P99, 7), fit(s.CV, 7))
		}
	}
	if r.cfg.Timestamps {
		b.WriteString(pad(row.at.Format(timestamp), 21))
	}
	b.WriteByte('\n')
	for i, p := range []*Placement{&row.OutOfPlace, &row.InPlace} {
		for _, s := range p.Slowest {
			fmt.Fprintf(&b, "# %s: %v\n", []string{"out of place", "in place"}[i], s)
		}
	}
	_, err := io.WriteString(t.out, b.String())
	return err
}

func (t *table) footer(r *reporter, res *Result, cause error) error {
	var b strings.Builder
	fmt.Fprintf(&b, "# %-20s : %d %s\n", "Out of bounds values", res.OutOfBounds, passed(res.OutOfBounds == 0 && cause == nil))
	end := ""
	if r.cfg.Versus == "" {
		floor := ""
		if res.MinBusBW > 0 {
			floor = passed(res.fast())
		}
		fmt.Fprintf(&b, "# %-20s : %s %s\n", "Avg bus bandwidth", general(res.AvgBusBW), floor)
		end = "\n"
	}
	if v := res.Versus; v != nil {
		for _, sum := range v.Ratios {
			fmt.Fprintf(&b, "# %-20s : %v\n", sum.Engine+", "+launchName(sum.Graph), sum)
		}
	}
	if s := res.Straggler; s != nil {
		fmt.Fprintf(&b, "# %-20s : %v\n", "Straggler", s)
	}
	fmt.Fprintf(&b, "#\n# Collective test concluded: %s\n", path.Base(r.cfg.Program))
	if r.cfg.Memory {
		b.WriteString(r.memoryLine())
	}
	b.WriteString("#\n")
	if cause != nil {
		end = fmt.Sprintf("# error: %v\n", cause)
	}
	_, err := io.WriteString(t.out, b.String()+end)
	return err
}

// passed is the result of a check in the footer.
func passed(ok bool) string {
	if ok {
		return "OK"
	}
	return "FAILED"
}

// memoryLine is the line of -M: the memory used before the buffers were allocated, the buffers,
// and what the engine used for the operations. On host memory it counts this process's resident
// memory, on devices what is in use on rank 0's device.
func (r *reporter) memoryLine() string {
	user := 2 * min(r.cfg.payload(), r.limit) * int64(len(r.kindsOf(0)))
	total := r.total
	if !r.remote() {
		user *= int64(len(r.workers))
		total = resident(r.host.root)
	}
	return fmt.Sprintf("# %-20s : Initialization %s | User-Allocated %s | Collective %s | Total  %s\n", "GPU memory usage",
		megabytes(r.memory), megabytes(user), megabytes(max(0, total-user-r.memory)), megabytes(total))
}

func megabytes(n int64) string { return fmt.Sprintf("%.2f MB", float64(n)/(1<<20)) }

// A progressBar is a line on a terminal that shows the progress of a long run.
type progressBar struct {
	w     io.Writer // nil: none
	since time.Time
	shown bool
}

// patience is how long a run may take without showing progress.
const patience = 2 * time.Second

func newProgressBar(std Streams, now time.Time) *progressBar {
	if !std.Terminal {
		return &progressBar{}
	}
	return &progressBar{w: std.Err, since: now}
}

func (p *progressBar) show(now time.Time, text string) {
	if p.w == nil || now.Sub(p.since) < patience {
		return
	}
	p.shown = true
	fmt.Fprintf(p.w, "\r\x1b[K%s, %v", text, now.Sub(p.since).Round(time.Second))
}

// clear clears the line, for other output.
func (p *progressBar) clear() {
	if p.shown {
		p.shown = false
		fmt.Fprint(p.w, "\r\x1b[K")
	}
}
