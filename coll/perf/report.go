package perf

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"time"
)

// A sink is an output format. Its methods are called in order, by one goroutine: header once, row
// for each row and versus for each comparison, footer once, also after a failure.
type sink interface {
	header(r *reporter) error
	row(r *reporter, row *Row) error
	versus(r *reporter, row *VersusRow) error
	footer(r *reporter, res *Result, cause error) error
}

// silent implements the methods of a sink that writes nothing.
type silent struct{}

func (silent) header(*reporter) error                 { return nil }
func (silent) row(*reporter, *Row) error              { return nil }
func (silent) versus(*reporter, *VersusRow) error     { return nil }
func (silent) footer(*reporter, *Result, error) error { return nil }

// A reporter turns measurements into rows, and passes them to the sinks. It exists in the process
// with rank 0.
type reporter struct {
	*session
	ranks      []introduction // empty until begin
	process    []int
	n          int   // ranks in the group of rank 0
	limit      int64 // of memory, bytes for each buffer
	sinks      []sink
	text       io.Writer // for remarks: stdout, if the table is written there
	bar        *progressBar
	started    time.Time
	memory     int64 // at the start: resident, or in use on the device
	total      int64 // at the end, on the device
	res        Result
	rows       int     // number measured; res stores the first maxRows
	sum        float64 // of bus bandwidths
	remarks    map[string]bool
	stragglers map[int]*StragglerSummary
}

func newReporter(s *session) *reporter {
	r := &reporter{session: s, text: s.std.Err, remarks: map[string]bool{}, stragglers: map[int]*StragglerSummary{}, started: s.host.now()}
	r.res.MinBusBW = s.set.minBW
	r.memory = resident(s.host.root)
	r.bar = newProgressBar(s.std, r.started)
	if s.cfg.JSONFile != "" {
		r.sinks = append(r.sinks, &jsonFile{})
	}
	switch {
	case s.cfg.Output == "json":
		r.sinks = append(r.sinks, &jsonDocument{out: s.std.Out})
	case s.cfg.Bench:
		r.sinks = append(r.sinks, &benchSink{out: s.std.Out})
	case s.cfg.sweeps():
		r.sinks, r.text = append(r.sinks, &table{out: s.std.Out}), s.std.Out
	}
	return r
}

// remote reports whether ranks work on devices.
func (r *reporter) remote() bool { return r.workers[0].medium.lane != nil }

func (r *reporter) begin(ranks []introduction, limit int64) error {
	r.ranks, r.process, r.limit = ranks, processes(ranks), limit
	onHost := map[uint64]int{}
	for i := range ranks {
		x := &ranks[i]
		if x.Group == ranks[0].Group {
			r.n++
		}
		if r.world.Device == nil { // processors are numbered on each host
			x.Device = onHost[x.hostID]
			onHost[x.hostID]++
		}
	}
	for _, m := range r.cfg.messages {
		fmt.Fprintln(r.text, m)
	}
	return r.each(func(s sink) error { return s.header(r) })
}

func (r *reporter) each(f func(sink) error) error {
	var errs []error
	for _, s := range r.sinks {
		errs = append(errs, f(s))
	}
	return errors.Join(errs...)
}

// remark prints a text once.
func (r *reporter) remark(key, text string) error {
	if r.remarks[key] {
		return nil
	}
	r.remarks[key] = true
	_, err := fmt.Fprintln(r.text, text)
	return err
}

func (r *reporter) progress(v volume, k combination) {
	r.bar.show(r.host.now(), fmt.Sprintf("%s %s %s, %d bytes, row %d", r.c.Test(), k.t, k.red.Name, v.bytes(), r.rows+1))
}

// placement builds one half of a row from what all ranks measured.
func (r *reporter) placement(v volume, k combination, ms []measure, iters int) Placement {
	ops := iters * r.cfg.AggIters
	times, issued := make([]float64, len(ms)), make([]float64, len(ms))
	p := Placement{Algorithm: ms[0].chosen}
	for i, m := range ms {
		times[i] = float64(m.elapsed) / 1e3 / float64(ops)
		issued[i] = float64(m.issued) / 1e3 / float64(ops)
		p.Wrong += m.wrong
		if m.wrong > 0 {
			p.WrongOn = append(p.WrongOn, i)
		}
	}
	if ms[0].wrong < 0 {
		p.Wrong = -1
	}
	if len(p.WrongOn) > 0 {
		p.Suspects = suspects(r.c, v, k, p.Algorithm, ms)
	}
	p.Time = r.cfg.Average.of(times)
	p.AlgBW, p.BusBW = r.c.bandwidth(v, p.Time, r.n)
	if r.cfg.CPUTime && ms[0].issued > 0 {
		p.Time = r.cfg.Average.of(issued)
	}
	if r.cfg.PerIter || !r.remote() { // else the samples are times of launches
		p.Iter = iterStats(ms, r.process, r.cfg.PerIterSkip)
	}
	p.Slowest = slowest(ms, r.cfg.Slowest, max(1, r.cfg.Graph))
	if len(ms) > 1 {
		s := straggler(ms, ops)
		p.Straggler = &s
	}
	return p
}

// on names a rank and its device.
func (r *reporter) on(rank int) string {
	x := r.ranks[rank]
	if x.Bus == [3]int{} {
		return fmt.Sprintf("rank %d", rank)
	}
	return fmt.Sprintf("rank %d (GPU %d, %s)", rank, x.Device, address(x.Bus))
}

// maxRows bounds what is stored of a run without end (-N 0).
const maxRows = 1 << 16

// row records a row, and passes it to the sinks.
func (r *reporter) row(row Row) error {
	for _, p := range []*Placement{&row.OutOfPlace, &row.InPlace} {
		r.sum += p.BusBW
		if p.Wrong > 0 {
			r.res.OutOfBounds++
		}
		for _, rank := range p.WrongOn {
			if on := r.on(rank); !slices.Contains(r.res.WrongOn, on) {
				r.res.WrongOn = append(r.res.WrongOn, on)
			}
		}
		if p.Straggler != nil {
			r.count(p)
		}
	}
	r.rows++
	if len(r.res.Rows) < maxRows {
		r.res.Rows = append(r.res.Rows, row)
	}
	r.bar.clear()
	return r.each(func(s sink) error { return s.row(r, &row) })
}

// count adds a placement to the summary of its straggler.
func (r *reporter) count(p *Placement) {
	t := r.stragglers[p.Straggler.Rank]
	if t == nil {
		t = &StragglerSummary{Rank: p.Straggler.Rank, Host: r.ranks[p.Straggler.Rank].Host}
		r.stragglers[t.Rank] = t
	}
	t.Often++
	t.Excess += p.Straggler.Excess
	t.Percent += p.Time // time for now; settle makes it a percentage
}

// settle computes the results over all rows.
func (r *reporter) settle() {
	res := &r.res
	if r.rows > 0 {
		res.AvgBusBW = r.sum / float64(2*r.rows)
	}
	for _, rank := range slices.Sorted(maps.Keys(r.stragglers)) {
		if t := r.stragglers[rank]; res.Straggler == nil || t.Often > res.Straggler.Often {
			res.Straggler = t
		}
	}
	if t := res.Straggler; t != nil {
		if t.Percent > 0 {
			t.Percent = 100 * t.Excess / t.Percent
		}
		t.Excess /= float64(t.Often)
		t.Of = 2 * r.rows
	}
	if res.Versus != nil {
		res.Versus.settle()
	}
	if r.rows > 0 {
		res.settle()
	}
}

// finish writes the footers.
func (r *reporter) finish(cause error) (*Result, error) {
	r.bar.clear()
	r.settle()
	if len(r.ranks) == 0 { // begin was not called
		return &r.res, nil
	}
	err := r.each(func(s sink) error { return s.footer(r, &r.res, cause) })
	if err != nil {
		err = &Failure{Status: InternalError, Rank: -1, Where: where(1), Err: err}
	}
	return &r.res, err
}
