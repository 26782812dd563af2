package health

import (
	"fmt"
	"strings"

	"github.com/assay-hpc/assay/internal/host/nvml"
	"github.com/assay-hpc/assay/internal/host/sysfs"
)

// memoryChecks check ECC and retired memory.
var memoryChecks = []check{
	{
		id: "gpu/ecc/mode", title: "ECC is on", want: "on",
		gpu:    flag(func(g *gpuState) sysfs.Fact[bool] { return fact(!g.ECC.Value.Now, g.ECC.Err) }, "on", "ECC is off: errors of the memory are not seen"),
		remedy: "nvidia-smi -e 1, then reset the GPU",
	},
	{
		id: "gpu/ecc/pending", title: "no change of ECC waits for a reset", want: "none pending",
		gpu:    of(func(g *gpuState) sysfs.Fact[nvml.Modes] { return g.ECC }, checkECCPending),
		remedy: "reset the GPU (nvidia-smi -r -i N)",
	},
	{
		id: "gpu/ecc/volatile", title: "there are no uncorrectable ECC errors since the driver was loaded", want: "at most %s", remedy: resetGPU,
		gpu: countOf(func(g *gpuState) sysfs.Fact[uint64] { return g.Volatile }, "uncorrectable errors since the driver was loaded"),
	},
	{
		id: "gpu/ecc/sram/uncorrectable", title: "SRAM has had no uncorrectable ECC errors", want: "at most %s", remedy: support,
		gpu: countOf(func(g *gpuState) sysfs.Fact[uint64] { return fact(g.SRAM.Value.Uncorrectable, g.SRAM.Err) }, "uncorrectable SRAM errors over the GPU's life"),
	},
	{
		id: "gpu/ecc/sram/correctable", title: "SRAM has had few correctable ECC errors", want: "at most %s", remedy: support,
		gpu: countOf(func(g *gpuState) sysfs.Fact[uint64] { return fact(g.SRAM.Value.Correctable, g.SRAM.Err) }, "correctable SRAM errors over the GPU's life"),
	},
	{
		id: "gpu/ecc/sram/threshold", title: "SRAM errors are below the vendor's threshold", want: "not exceeded",
		gpu:    flag(func(g *gpuState) sysfs.Fact[bool] { return g.Exceeded }, "not exceeded", "the driver says that the SRAM's error threshold is exceeded"),
		remedy: "drain the node; the GPU qualifies for replacement",
	},
	{
		id: "gpu/ecc/dram/uncorrectable", title: "uncorrectable ECC errors of the memory are reported", want: "judged by gpu/row-remap", remedy: support,
		gpu: countOf(func(g *gpuState) sysfs.Fact[uint64] { return fact(g.DRAM.Value.Uncorrectable, g.DRAM.Err) }, "uncorrectable errors of the memory over the GPU's life"),
	},
	{
		id: "gpu/ecc/dram/correctable", title: "memory has had few correctable ECC errors", want: "at most %s", remedy: support,
		gpu: countOf(func(g *gpuState) sysfs.Fact[uint64] { return fact(g.DRAM.Value.Correctable, g.DRAM.Err) }, "correctable errors of the memory over the GPU's life"),
	},
	{
		id: "gpu/row-remap/pending", title: "no remapped row waits for a reset", want: "none pending", remedy: resetGPU,
		gpu: flag(func(g *gpuState) sysfs.Fact[bool] { return fact(g.Remap.Value.Pending, g.Remap.Err) }, "no", "a row of memory is remapped at the next reset"),
	},
	{
		id: "gpu/row-remap/failed", title: "every bad row could be remapped", want: "none failed", remedy: "drain the node; run the vendor's field diagnosis, replace the GPU",
		gpu: flag(func(g *gpuState) sysfs.Fact[bool] { return fact(g.Remap.Value.Failed, g.Remap.Err) }, "no", "a bad row of memory could not be remapped"),
	},
	{
		id: "gpu/row-remap/uncorrectable", title: "few rows were remapped for uncorrectable errors", want: "at most %s", remedy: support,
		gpu: countOf(func(g *gpuState) sysfs.Fact[uint64] {
			return fact(uint64(g.Remap.Value.Uncorrectable), g.Remap.Err)
		}, "rows remapped for uncorrectable errors"),
	},
	{
		id: "gpu/row-remap/spares", title: "every bank has spare rows left", want: "at most %s without", remedy: "plan to replace the GPU: the next bad row there cannot be remapped",
		gpu: countOf(func(g *gpuState) sysfs.Fact[uint64] { return fact(uint64(g.Spent.Value), g.Spent.Err) }, "banks of memory without a spare row left"),
	},
	{
		id: "gpu/pages/pending", title: "no page waits to be retired", want: "none pending", remedy: resetGPU,
		gpu: flag(func(g *gpuState) sysfs.Fact[bool] { return fact(g.Pages.Value.Pending, g.Pages.Err) }, "no", "a page of memory is retired at the next reset"),
	},
	{
		id: "gpu/pages/retired", title: "few pages are retired", want: "at most %s", remedy: "replace the GPU",
		gpu: countOf(func(g *gpuState) sysfs.Fact[uint64] {
			return fact(uint64(g.Pages.Value.SingleBit+g.Pages.Value.DoubleBit), g.Pages.Err)
		}, "retired pages of memory"),
	},
	{
		id: "gpu/memory/repairable", title: "all memory that failed could be repaired", want: "nothing beyond repair", remedy: "drain the node; replace the GPU",
		gpu: flag(func(g *gpuState) sysfs.Fact[bool] { return g.Unfixable }, "no", "there is memory that cannot be repaired"),
	},
	{
		id: "gpu/memory/repair", title: "no repair waits for a reset", want: "none pending", remedy: resetGPU,
		gpu: flag(func(g *gpuState) sysfs.Fact[bool] { return g.Repair }, "no", "a repair of channels or TPCs waits for a reset"),
	},
	{
		id: "gpu/inforom", title: "the InfoROM is intact", want: "its checksum is right", remedy: "have the InfoROM flashed anew, or the GPU replaced",
		gpu: flag(func(g *gpuState) sysfs.Fact[bool] { return fact(!g.InfoROMOK.Value, g.InfoROMOK.Err) }, "no", "the InfoROM is corrupt"),
	},
}

// countOf makes a check of a count with the limit as its maximum.
func countOf(get func(*gpuState) sysfs.Fact[uint64], what string) func(*env, *gpuState) outcome {
	return of(get, func(e *env, _ *gpuState, n uint64) outcome {
		return e.atMost(float64(n), fmt.Sprintf("%s: %d", what, n))
	})
}

// flag makes a check of a condition that must be false, with the text for false and the reason for
// true.
func flag(get func(*gpuState) sysfs.Fact[bool], no, reason string) func(*env, *gpuState) outcome {
	return of(get, func(_ *env, _ *gpuState, is bool) outcome {
		if is {
			return bad("%s", reason)
		}
		return good(no)
	})
}

func onOff(on bool) string {
	if on {
		return "on"
	}
	return "off"
}

func checkECCPending(_ *env, _ *gpuState, m nvml.Modes) outcome {
	if m.Now != m.Pending {
		return bad("ECC is %s now and %s after the next reset", onOff(m.Now), onOff(m.Pending))
	}
	return good("none")
}

// joinWords joins items, and gives only the number of those that would be too many to read.
func joinWords(items []string) string {
	const most = 6
	if len(items) <= most {
		return strings.Join(items, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(items[:most], ", "), len(items)-most)
}
