package health

import (
	"fmt"
	"slices"

	"github.com/assay-hpc/assay/internal/host/nvml"
	"github.com/assay-hpc/assay/internal/host/sysfs"
)

// powerChecks check clocks, heat and power.
var powerChecks = []check{
	{
		id: "gpu/clocks/hardware", title: "the hardware does not hold the clocks down", want: "no slowdown, thermal or by power brake", gpu: slowed(nvml.HardwareSlowdown),
		remedy: "look at cooling, power cables and power supplies; a power brake comes from the chassis",
	},
	{
		id: "gpu/clocks/thermal", title: "the driver does not hold the clocks down for heat", want: "no thermal slowdown", gpu: slowed(nvml.ThermalSlowdown),
		remedy: "look at fans, air flow and the room's temperature",
	},
	{
		id: "gpu/clocks/violation", title: "heat and power faults hold nothing back now", want: "growth of at most %s", remedy: "look at cooling and power; measure under load",
		gpu: heldBack,
	},
	{
		id: "gpu/temperature/gpu", title: "the GPU is not too hot", want: "below the highest at work", remedy: "take the load off; look at fans, air flow and heat sink",
		gpu: tooHot(func(g *gpuState) sysfs.Fact[int] { return g.Heat }, func(g *gpuState) sysfs.Fact[int] { return g.Hottest }),
	},
	{
		id: "gpu/temperature/memory", title: "the GPU's memory is not too hot", want: "below the highest at work", remedy: "take the load off; look at fans, air flow and heat sink",
		gpu: tooHot(func(g *gpuState) sysfs.Fact[int] { return g.MemoryHeat }, func(g *gpuState) sysfs.Fact[int] { return g.MemoryMax }),
	},
	{
		id: "gpu/temperature/near", title: "the GPU is well below its highest temperature", want: "more than %s below", least: true, gpu: checkNear,
		remedy: "look at fans, air flow and the room's temperature before the next load",
	},
	{
		id: "gpu/temperature/margin", title: "the GPU has a margin before it slows down", want: "more than %s", least: true,
		gpu:    of(func(g *gpuState) sysfs.Fact[int] { return g.Margin }, checkMargin),
		remedy: "take the load off; look at fans, air flow and heat sink",
	},
	{
		id: "gpu/temperature/spread", title: "GPUs are about equally warm", want: "at most %s between the coolest and the warmest", node: checkSpread,
		remedy: "compare under one load; look at the air flow of the warmest one",
	},
	{
		id: "gpu/power/cap", title: "power is not capped below the default", want: "the default limit",
		gpu:    of(func(g *gpuState) sysfs.Fact[nvml.Power] { return g.Power }, checkCap),
		remedy: "nvidia-smi -pl with the default limit, unless the cap is meant",
	},
}

func slowed(by nvml.Reasons) func(*env, *gpuState) outcome {
	return of(func(g *gpuState) sysfs.Fact[nvml.Reasons] { return g.Clocks }, func(_ *env, _ *gpuState, r nvml.Reasons) outcome {
		if r&by != 0 {
			return bad("clocks are held down: %v", r&by)
		}
		return good(r.String())
	})
}

func heldBack(e *env, g *gpuState) outcome {
	ns, o, ok := e.grown(g, []string{"thermal_violation_ns", "board_violation_ns", "reliability_violation_ns"})
	if !ok {
		return o
	}
	ms := float64(ns) / 1e6
	return e.atMost(ms, fmt.Sprintf("clocks were held back for %.0f ms of %v, for heat, the board's limit or reliability", ms, e.Window))
}

func tooHot(now, most func(*gpuState) sysfs.Fact[int]) func(*env, *gpuState) outcome {
	return func(_ *env, g *gpuState) outcome {
		t, m := now(g), most(g)
		switch {
		case t.Err != nil:
			return without(t.Err)
		case m.Err != nil:
			return without(m.Err)
		}
		o := good(fmt.Sprintf("%d °C", t.Value))
		if t.Value >= m.Value {
			o = bad("%d °C; the highest at work is %d °C", t.Value, m.Value)
		}
		o.want = fmt.Sprintf("below %d °C, which the driver gives", m.Value)
		return o
	}
}

func checkNear(e *env, g *gpuState) outcome {
	switch {
	case g.Heat.Err != nil:
		return without(g.Heat.Err)
	case g.Hottest.Err != nil:
		return without(g.Hottest.Err)
	}
	return e.moreThan(float64(g.Hottest.Value-g.Heat.Value), fmt.Sprintf("%d °C, of %d °C at most", g.Heat.Value, g.Hottest.Value))
}

func checkMargin(e *env, _ *gpuState, celsius int) outcome {
	return e.moreThan(float64(celsius), fmt.Sprintf("%d °C to where it slows down", celsius))
}

// moreThan judges a number that must be greater than the rule's limit.
func (e *env) moreThan(v float64, reason string) outcome {
	return e.measured(v, v > e.rule.limit(), reason)
}

func checkSpread(e *env) []outcome {
	var heat []int
	for i := range e.GPUs {
		if g := &e.GPUs[i]; g.Err == nil && g.Heat.Err == nil {
			heat = append(heat, g.Heat.Value)
		}
	}
	switch {
	case len(e.GPUs) == 0:
		return node(e.noGPU())
	case len(heat) < 2:
		return node(skipped("the temperatures of two GPUs are not known"))
	}
	low, high := slices.Min(heat), slices.Max(heat)
	return node(e.atMost(float64(high-low), fmt.Sprintf("from %d °C to %d °C", low, high)))
}

func checkCap(_ *env, _ *gpuState, p nvml.Power) outcome {
	o := good(amount(p.Limit, "W"))
	if p.Limit < p.Default {
		o = bad("capped at %s; the default is %s", amount(p.Limit, "W"), amount(p.Default, "W"))
	}
	o.want = "the default, " + amount(p.Default, "W")
	return o
}
