package diag

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/assay-hpc/assay/internal/result"
)

// The approximate length of a launch of products, in seconds: short enough to stop in time, long
// enough that the gap between launches is negligible.
const launch = 0.05

// A new pair of matrices is used after this number of launches.
const launchesPerSeed = 20

const remedyProduct = "take the GPU out of service: it computes wrongly; reset it and run sm_stress; if it fails again, replace it"

// diagnostic divides its time among the kinds of arithmetic.
func diagnostic(ctx context.Context, j *job) error {
	kinds := []productKind{bf16, fp16, fp32}
	if j.params["use_doubles"] != 0 {
		kinds = append(kinds, fp64)
	}
	return j.products(ctx, kinds)
}

// smStress uses only bf16.
func smStress(ctx context.Context, j *job) error { return j.products(ctx, []productKind{bf16}) }

// products loads all GPUs, and watches them.
func (j *job) products(ctx context.Context, kinds []productKind) error {
	stop := j.watch()
	each := time.Duration(j.params[duration] / float64(len(kinds)) * float64(time.Second))
	j.each(func(g GPU, d Device) error {
		for _, k := range kinds {
			if err := j.exact(g, d, k); err != nil {
				return err
			}
			j.progress("GPU %d: %s products", g.Index, k)
			l := load{job: j, g: g, d: d, kind: k, inject: j.params["inject_error"] != 0}
			if err := l.run(ctx, time.Now().Add(each)); err != nil {
				return err
			}
			f := g.figure(k.String()+" products, "+l.way, l.rate()/1e12, "TFLOP/s")
			if k <= fp16 { // bf16 and fp16 have the same rate
				f = f.against(j.expected(g, "bf16"))
			}
			if l.way != "wgmma" { // other instructions do not reach the GPU's full speed
				f.Measured.Limit = nil
			}
			j.measure(f, "look at the power limit, clocks and temperatures (harness diag -r targeted_power)")
			l.report()
		}
		return nil
	})
	stop(nil)
	return nil
}

// exact compares products of small whole numbers with the CPU's.
func (j *job) exact(g GPU, d Device, k productKind) error {
	p, err := d.Product(productWork{Kind: k, Seed: 1, Exact: true, Rounds: 2})
	if err != nil {
		return err
	}
	if p.Wrong > 0 {
		j.findf(g.Index, result.Fail, remedyProduct, "%s products by %s: %d results are not what the host computes", k, p.Way, p.Wrong)
	}
	l := load{job: j, g: g, d: d, kind: k}
	l.compare(p)
	l.report()
	return nil
}

// A load is the products of one GPU, with comparison of the results.
type load struct {
	job    *job
	g      GPU
	d      Device
	kind   productKind
	way    string
	inject bool

	seconds, flops float64
	launches       int
	sum            uint64              // of this seed's product, once known
	wrong          map[uint32]struct{} // multiprocessors that differ from the majority
	changed        map[uint32]struct{} // multiprocessors with results that differ between repeats
	repeats        bool                // the majority's result differs between launches
}

// run multiplies until the given time, with at least one launch.
func (l *load) run(ctx context.Context, until time.Time) error {
	for {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if err := l.once(); err != nil {
			return err
		}
		if !time.Now().Before(until) {
			return nil
		}
	}
}

// once makes one launch.
func (l *load) once() error {
	w := productWork{Kind: l.kind, Seed: uint64(2 + l.launches/launchesPerSeed), For: launch}
	if l.inject && l.launches == 1 {
		w.FlipSM = 1 + l.g.SMs/2
	}
	if l.launches%launchesPerSeed == 0 {
		l.sum = 0
	}
	p, err := l.d.Product(w)
	if err != nil {
		return err
	}
	l.launches++
	l.way = p.Way
	l.seconds, l.flops = l.seconds+p.Seconds, l.flops+p.Flops
	l.compare(p)
	return nil
}

func (l *load) rate() float64 { return l.flops / max(l.seconds, 1e-9) }

// compare compares the blocks' sums with each other and with the previous launch.
func (l *load) compare(p productResult) {
	if l.wrong == nil {
		l.wrong, l.changed = map[uint32]struct{}{}, map[uint32]struct{}{}
	}
	votes := map[uint64]int{}
	for _, b := range p.Blocks {
		votes[b.Sum]++
	}
	most := uint64(0)
	for _, sum := range slices.Sorted(maps.Keys(votes)) {
		if votes[sum] > votes[most] {
			most = sum
		}
	}
	for _, b := range p.Blocks {
		if b.Sum != most {
			l.wrong[b.SM] = struct{}{}
		}
		if b.Bad > 0 {
			l.changed[b.SM] = struct{}{}
		}
	}
	l.repeats = l.repeats || l.sum != 0 && l.sum != most
	l.sum = most
}

// report adds findings that name the faulty multiprocessors.
func (l *load) report() {
	if len(l.wrong) > 0 {
		l.job.findf(l.g.Index, result.Fail, remedyProduct, "%s products: multiprocessors %s have other results than the rest", l.kind, numbers(l.wrong))
	}
	if len(l.changed) > 0 {
		l.job.findf(l.g.Index, result.Fail, remedyProduct, "%s products: multiprocessors %s have other results when they repeat one", l.kind, numbers(l.changed))
	}
	if l.repeats {
		l.job.findf(l.g.Index, result.Fail, remedyProduct, "%s products: most multiprocessors have other results than in the launch before", l.kind)
	}
}

func numbers(set map[uint32]struct{}) string {
	all := slices.Sorted(maps.Keys(set))
	var text []string
	for _, n := range all[:min(len(all), 8)] {
		text = append(text, fmt.Sprint(n))
	}
	if len(all) > 8 {
		text = append(text, fmt.Sprintf("and %d more", len(all)-8))
	}
	return strings.Join(text, ", ")
}

// targetedStress is DCGM's targeted stress test: fp32 products at a target rate.
func targetedStress(ctx context.Context, j *job) error {
	stop := j.watch()
	until := time.Now().Add(time.Duration(j.params[duration] * float64(time.Second)))
	j.each(func(g GPU, d Device) error {
		l := load{job: j, g: g, d: d, kind: fp32}
		if err := l.run(ctx, until); err != nil {
			return err
		}
		target, source := targetOf(j.expected(g, "dcgm_stress")) // in GFLOP/s
		if own := j.params["target_stress"]; own > 0 {
			target, source = own, "parameter"
		}
		least := j.params["target_perf_min_ratio"] * target
		j.measure(g.figure("fp32 products", l.rate()/1e12, "TFLOP/s").target(target/1e3, least/1e3, source), "look at the power limit, clocks, temperatures and other processes on the GPU")
		l.report()
		return nil
	})
	stop(nil)
	return nil
}

// targetedPower is DCGM's targeted power test: whether the board reaches its power target.
func targetedPower(ctx context.Context, j *job) error {
	if j.sensors == nil {
		j.skip("power cannot be read: %v", j.noSensor)
		return nil
	}
	stop := j.watch()
	until := time.Now().Add(time.Duration(j.params[duration] * float64(time.Second)))
	j.each(func(g GPU, d Device) error {
		l := load{job: j, g: g, d: d, kind: bf16}
		err := l.run(ctx, until)
		l.report()
		return err
	})
	stop(func(g GPU, w watched) {
		if w.n == 0 || w.watts == 0 {
			j.findf(g.Index, result.Error, "", "the driver does not tell its power")
			return
		}
		f := g.figure("highest power", w.watts, "W")
		f.expected = j.expected(g, "power")
		target, source := targetOf(f.expected)
		if w.limit > 0 && (target == 0 || w.limit < target) {
			target, source = w.limit, "the GPU's power limit"
		}
		if own := j.params["target_power"]; own > 0 {
			target, source = own, "parameter"
		}
		j.measure(f.target(target, j.params["target_power_min_ratio"]*target, source), "look at the power limit (nvidia-smi -q -d POWER), at the supplies and at slowdown reasons")
	})
	return nil
}

// pulse starts and stops the load of all GPUs at the same time.
func pulse(ctx context.Context, j *job) error {
	stop := j.watch()
	on, off := j.params["on_ms"]/1e3, j.params["off_ms"]/1e3
	begin := time.Now()
	total := j.params[duration]
	j.each(func(g GPU, d Device) error {
		l := load{job: j, g: g, d: d, kind: bf16}
		pulses := 0
		for at := 0.0; at < total; at += on + off {
			if err := pause(ctx, begin.Add(time.Duration(at*float64(time.Second)))); err != nil {
				return err
			}
			if err := l.run(ctx, begin.Add(time.Duration((at+on)*float64(time.Second)))); err != nil {
				return err
			}
			pulses++
			j.progress("GPU %d: pulse %d", g.Index, pulses)
		}
		j.measure(g.figure("pulses", float64(pulses), "pulses"), "")
		l.report()
		return nil
	})
	stop(nil)
	return nil
}

// pause waits until the given time.
func pause(ctx context.Context, until time.Time) error {
	t := time.NewTimer(time.Until(until))
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
