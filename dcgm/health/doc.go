// Package health says whether a node and its GPUs are fit to work, by looking
// alone: it asks NVML, reads /sys, /proc and the kernel's log, and puts no load
// on anything.
//
// [Read] takes a [State] from a [Source] and a file system, within a deadline
// even when the driver never answers. [Run] judges it: every check has an ID,
// a title that its pass makes true, and a limit from the table in
// thresholds.yaml, where each has its severity and its source. Judging does no
// I/O, so that a made-up State shows that a check finds what it is for.
//
// What could not be asked is never a pass. A fact that a GPU does not have, or
// that this user may not see, skips its checks and says so; a GPU that is
// lost, a driver that does not answer, and anything unforeseen are errors.
//
// The Source for real GPUs is dcgm/nvml.
package health
