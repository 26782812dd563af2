//go:build cuda && cgo

package main

// #include "front/engine.h"
import "C"

import (
	"os"
	"slices"

	"github.com/assay-hpc/assay/coll/executor"
	"github.com/assay-hpc/assay/coll/op"
	"github.com/assay-hpc/assay/internal/gpu/driver"
)

//export assay_lsa
func assay_lsa(handle C.uintptr_t, use C.int, t *C.struct_assay_team, text *C.char) (code C.int) {
	const call = "TeamLsa"
	defer guard(call, text, &code)
	c, err := using(call, handle)
	if err != nil {
		return result(err, text)
	}
	var team executor.LSATeam
	done := false
	func() {
		if use != 0 {
			c.calls.Lock()
			defer c.release(&done)
		}
		team, err = c.made.LSA(use != 0)
		done = true
	}()
	if err != nil {
		return result(err, text)
	}
	*t = C.struct_assay_team{ranks: C.int32_t(c.ranks), rank: C.int32_t(c.rank), lsa_ranks: 1, device: C.int32_t(c.device), nvml: C.int32_t(nvmlIndex(c.device)),
		table: C.uint64_t(team.Table), hash: C.uint64_t(team.Hash)}
	if team.Why != "" {
		put(text, "kernels reach no other rank's memory: "+team.Why)
		return C.int(op.Success)
	}
	t.reaches, t.lsa_ranks, t.lsa_rank = 1, t.ranks, t.rank
	return C.int(op.Success)
}

// nvmlIndex returns the number of a device among all of the host, by their PCI addresses, as NVML
// counts. A container may not show them: then it is the number that the process counts by.
func nvmlIndex(ordinal int) int {
	own, err := driver.Bus(ordinal)
	if err != nil {
		return ordinal
	}
	gpus, err := os.ReadDir("/proc/driver/nvidia/gpus") // sorted
	i := slices.IndexFunc(gpus, func(d os.DirEntry) bool { return d.Name() == own })
	if err != nil || i < 0 {
		return ordinal
	}
	return i
}

// assay_warn logs what is wrong with a call about a communicator.
//
//export assay_warn
func assay_warn(handle C.uintptr_t, text *C.char) {
	var code C.int
	var lost [C.ASSAY_TEXT]C.char
	defer guard("a warning", &lost[0], &code)
	if c, err := using("a warning", handle); err == nil {
		c.made.Warnf("%s", C.GoString(text))
	}
}
