package diag

import (
	"context"
	"fmt"
	"time"

	"github.com/assay-hpc/assay/internal/result"
	"github.com/assay-hpc/assay/internal/words"
)

// remedyMemory is the advice for faulty memory.
const remedyMemory = "take the GPU out of service, reset it (row remapping takes effect then) and run memtest; if it fails again, replace the GPU"

// memory runs one pass of each pattern, and moving inversions.
func memory(ctx context.Context, j *job) error {
	j.each(func(g GPU, d Device) error {
		p, err := j.take(g, d)
		if err != nil || p == nil {
			return err
		}
		if err := p.pass(ctx, int(j.params["walks"]), 1); err != nil {
			return err
		}
		p.report()
		return nil
	})
	return nil
}

// memtest repeats the passes with other random words until its time is over.
func memtest(ctx context.Context, j *job) error {
	until := time.Now().Add(time.Duration(j.params[duration] * float64(time.Second)))
	j.each(func(g GPU, d Device) error {
		p, err := j.take(g, d)
		if err != nil || p == nil {
			return err
		}
		for seed := uint64(1); ; seed++ {
			p.until = until
			if err := p.pass(ctx, int(j.params["walks"]), seed); err != nil {
				return err
			}
			if !time.Now().Before(until) {
				break
			}
		}
		p.report()
		return nil
	})
	return nil
}

// A passage is the test of the memory of one GPU.
type passage struct {
	j        *job
	g        GPU
	d        Device
	got      int64
	until    time.Time // zero: all patterns, however long they take
	patterns int       // number verified
	wrong    miscompares
	by       string // the first pattern with wrong words
	// Seconds of writing, of verifying, and of verifying and inverting together.
	write, verify, invert float64
	writes, verifies      int
	inverts               int
	inject                bool
}

// take allocates the memory. If there is not enough, it adds a finding and returns nil.
func (j *job) take(g GPU, d Device) (*passage, error) {
	most := int64(j.params["max_memory_mb"]) * 1e6
	got, of, err := d.Take(most)
	if err != nil {
		return nil, err
	}
	share := 100 * float64(got) / float64(of)
	j.measure(g.figure("memory tested", float64(got), "B"), "")
	j.measure(g.figure("share of all memory", share, "%"), "")
	if least := j.params["minimum_allocation_percentage"]; most == 0 && share < least {
		j.findf(g.Index, result.Error, "end the processes that use the GPU, and run the test again", "only %.0f %% of its memory is free; %.0f %% must be tested", share, least)
		return nil, nil
	}
	return &passage{j: j, g: g, d: d, got: got, inject: j.params["inject_error"] != 0}, nil
}

// pass goes through all patterns.
func (p *passage) pass(ctx context.Context, walks int, seed uint64) error {
	all := patterns(min(walks, 64), seed)
	for i, pattern := range all {
		if p.over(ctx) {
			return context.Cause(ctx)
		}
		p.j.progress("GPU %d: %s, pattern %d of %d", p.g.Index, pattern.Name, i+1, len(all))
		if err := p.fill(pattern); err != nil {
			return err
		}
		if err := p.check(pattern, false); err != nil {
			return err
		}
	}
	for _, pattern := range []memPattern{constants()[0], constants()[2], {"walking ones 0", walkingOne, 0}} {
		if p.over(ctx) {
			return context.Cause(ctx)
		}
		p.j.progress("GPU %d: moving inversions of %s", p.g.Index, pattern.Name)
		if err := p.inversions(pattern); err != nil {
			return err
		}
	}
	return nil
}

func (p *passage) over(ctx context.Context) bool {
	return ctx.Err() != nil || !p.until.IsZero() && p.patterns > 0 && time.Now().After(p.until)
}

// fill writes a pattern, and then the injected error, if requested.
func (p *passage) fill(pattern memPattern) error {
	s, err := p.d.Write(pattern)
	if err != nil {
		return err
	}
	p.write, p.writes = p.write+s, p.writes+1
	if p.inject {
		p.inject = false
		return p.d.Flip(p.got/2&^7, 1<<41)
	}
	return nil
}

// inversions verifies a pattern and stores its complement, then the other way round.
func (p *passage) inversions(pattern memPattern) error {
	inverse, ok := pattern.inverse()
	if !ok {
		return fmt.Errorf("pattern %s has no complement", pattern.Name)
	}
	inverse.Name = "inverted " + pattern.Name
	if err := p.fill(pattern); err != nil {
		return err
	}
	for _, step := range []struct {
		pattern memPattern
		invert  bool
	}{{pattern, true}, {inverse, true}, {pattern, false}} {
		if err := p.check(step.pattern, step.invert); err != nil {
			return err
		}
	}
	return nil
}

func (p *passage) check(pattern memPattern, invert bool) error {
	m, s, err := p.d.Verify(pattern, invert)
	if err != nil {
		return err
	}
	p.patterns++
	if invert {
		p.invert, p.inverts = p.invert+s, p.inverts+1
	} else {
		p.verify, p.verifies = p.verify+s, p.verifies+1
	}
	if m.Count > 0 && p.by == "" {
		p.by = pattern.Name
	}
	p.wrong.add(m)
	return nil
}

// report adds the measured rates, and a finding if words were wrong.
func (p *passage) report() {
	rate := func(name string, times int, passes int, s float64) {
		if s > 0 {
			f := p.g.figure(name, float64(passes)*float64(times)*float64(p.got)/s/1e9, "GB/s").against(p.j.expected(p.g, "memory_bandwidth"))
			if times > 1 { // no source gives an expected rate for alternating reads and writes
				f.Measured.Limit = nil
			}
			p.j.measure(f, remedyBandwidth)
		}
	}
	rate("write", 1, p.writes, p.write)
	rate("verify", 1, p.verifies, p.verify)
	rate("verify and invert", 2, p.inverts, p.invert)
	p.j.measure(p.g.figure("patterns verified", float64(p.patterns), "passes"), "")
	p.j.miscompared(p.g.Index, p.wrong, remedyMemory, "memory, first with pattern "+p.by)
}

// miscompared adds a finding for wrong words, if there are any.
func (j *job) miscompared(gpu int, m miscompares, remedy, where string) {
	if m.Count == 0 {
		return
	}
	j.findf(gpu, result.Fail, remedy, "%s: %s of 8 bytes wrong, in bits %#016x; the first %d: %s", where, words.Count(int(m.Count), "word"), m.Bits, min(len(m.First), 4), first(m))
}

func first(m miscompares) string {
	text := ""
	for i, c := range m.First[:min(len(m.First), 4)] {
		if i > 0 {
			text += "; "
		}
		text += c.String()
	}
	return text
}
