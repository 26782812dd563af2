// Package health determines whether a node and its GPUs are fit for work, by passive checks only:
// it queries NVML, reads /sys, /proc and the kernel's log, and puts no load on anything.
//
// [Read] reads a [State] from a [Source] and a file system, within a deadline even if the driver
// never answers. [Run] judges it: every check has an ID, a title that is true if the check passes,
// and an entry with limit, severity and source in the table in thresholds.yaml. Judging does no
// I/O, so a made-up State can show that a check detects its fault.
//
// A failed query is never a pass. If a GPU does not have a fact, or this user may not see it, its
// checks are skipped with that reason. A lost GPU, a driver that does not answer, and anything
// unforeseen are errors.
//
// The Source for real GPUs is dcgm/nvml.
package health
