package health

import (
	"fmt"
	"slices"
)

// An eventClass is the meaning of an event for the node.
type eventClass string

// The classes.
const (
	classNote eventClass = "note" // nothing to do
	classApp  eventClass = "app"  // the job is the most likely cause
	classWarn eventClass = "warn"
	classFail eventClass = "fail"
)

// A logEvent describes a number that the driver reports.
type logEvent struct {
	Meaning string
	Class   eventClass
	Action  string
}

// The actions of the catalogue, in words.
const (
	restartApp = "restart the application"
	ignore     = "none; to the vendor's support if it comes back"
	resetGPU   = "drain the node and reset the GPU (nvidia-smi -r -i N); to the vendor's support if it comes back"
	reboot     = "drain and reboot the node; if it comes back have the GPU reseated or replaced"
	support    = "drain the node and ask the vendor's support"
)

// xids contains the known numbers, from NVIDIA's Xid catalogue (docs.nvidia.com/deploy/xid-errors,
// edition 2025-10), and from DCGM 4.6 and gpud 2026-08 for numbers that it does not describe.
// Numbers that share a row in the catalogue share one here.
var xids = table([]xidRow{
	{n(8), logEvent{"GPU stopped processing", classWarn, restartApp}},
	{n(11, 25, 32, 80), logEvent{"bad push-buffer stream, or bad data sent to the GPU", classApp, restartApp}},
	{n(13), logEvent{"graphics engine exception", classApp, restartApp + "; if it comes back on one GPU alone, suspect the GPU"}},
	{n(31), logEvent{"memory page fault", classApp, restartApp + "; check it for accesses out of bounds"}},
	{n(37), logEvent{"driver firmware error", classNote, ignore}},
	{n(38), logEvent{"driver firmware error", classWarn, ignore}},
	{slices.Concat(span(39, 41), span(70, 72), span(75, 77), n(85), span(126, 135)), logEvent{"copy engine exception", classWarn, restartApp}},
	{n(43), logEvent{"GPU stopped, channel reset", classApp, "none if another Xid accompanies it"}},
	{n(44), logEvent{"fault during a context switch", classWarn, ignore}},
	{n(45), logEvent{"pre-emptive cleanup", classApp, "look at the accompanying Xid; alone, restart the fabric manager"}},
	{n(46), logEvent{"GPU timeout", classFail, resetGPU}},
	{n(48), logEvent{"double-bit ECC error", classFail, resetGPU + "; see the accompanying Xids 63 and 64"}},
	{n(54), logEvent{"auxiliary power is not connected", classFail, "check the GPU's power cable"}},
	{n(60, 66, 67), logEvent{"video processor, or illegal access by the driver", classWarn, restartApp}},
	{n(61, 62), logEvent{"micro-controller halted", classFail, resetGPU}},
	{n(63), logEvent{"row remapped, or page retired", classWarn, "reset the GPU at the next chance: the remapping works from then on"}},
	{n(64), logEvent{"row remapping, or page retirement, failed", classFail, resetGPU}},
	{slices.Concat(n(68), span(82, 84), n(86, 88, 89), span(96, 105), n(139)), logEvent{"decoder, JPEG or optical-flow engine exception", classWarn, restartApp}},
	{n(69), logEvent{"graphics class error", classApp, restartApp}},
	{n(74), logEvent{"NVLink error", classFail, resetGPU}},
	{n(78), logEvent{"vGPU start error", classWarn, "update the software"}},
	{n(79), logEvent{"GPU has fallen off the bus", classFail, reboot}},
	{n(81), logEvent{"VGA subsystem error", classFail, support}},
	{n(92), logEvent{"high rate of single-bit ECC errors", classWarn, ignore}},
	{n(93), logEvent{"InfoROM wear limit", classNote, ignore}},
	{n(94), logEvent{"contained memory error", classWarn, restartApp}},
	{n(95), logEvent{"uncontained memory error", classFail, resetGPU}},
	{n(106, 107), logEvent{"SMBPBI test message", classNote, ignore}},
	{n(109), logEvent{"context switch timeout", classFail, resetGPU}},
	{n(110), logEvent{"security fault", classFail, resetGPU}},
	{n(119, 120), logEvent{"GSP does not answer, or failed", classFail, resetGPU + "; often it takes a power cycle"}},
	{n(121), logEvent{"C2C link error", classWarn, ignore}},
	{n(123), logEvent{"communication with the power controller failed", classFail, resetGPU}},
	{n(136), logEvent{"NVLink training failed", classFail, resetGPU}},
	{n(137), logEvent{"NVLink privilege error", classApp, restartApp}},
	{n(140), logEvent{"unrecovered ECC error", classFail, resetGPU}},
	{n(141, 152, 153), logEvent{"CUDA fast path, or DLA", classNote, ignore}},
	{n(143), logEvent{"GPU initialisation failed", classFail, resetGPU}},
	{span(144, 150), logEvent{"NVLink 5 error", classFail, resetGPU}},
	{n(151), logEvent{"key rotation failed", classFail, "restart the virtual machine"}},
	{n(154), logEvent{"GPU recovery action changed", classFail, "do what the message says"}},
	{n(155), logEvent{"NVLink error found by software", classFail, resetGPU}},
	{n(156), logEvent{"resource retired", classWarn, "reset the GPU at the next chance"}},
	{n(157), logEvent{"resource could not be retired", classFail, support}},
	{n(158), logEvent{"fatal timeout", classFail, resetGPU}},
	{n(159), logEvent{"CHI error without data", classWarn, "check the use of unified memory"}},
	{n(160, 161), logEvent{"channel retired, or could not be", classWarn, ignore}},
	{n(162), logEvent{"power smoothing is on", classNote, ignore}},
	{n(163), logEvent{"power smoothing is off", classWarn, ignore}},
	{n(164), logEvent{"power smoothing circuit is near its end of life", classWarn, support}},
	{n(165), logEvent{"power smoothing circuit is worn out", classFail, support}},
	{n(166, 170), logEvent{"confidential computing", classWarn, ignore}},
	{n(167), logEvent{"PCIe fatal timeout", classFail, reboot}},
	{n(168), logEvent{"errors in a write-protected region", classFail, support}},
	{n(169), logEvent{"micro-controller halted", classFail, resetGPU}},
	{n(171, 172), logEvent{"detail of a double-bit ECC error", classFail, resetGPU + "; see the accompanying Xid 48"}},
	// From the driver's nverror.h (595): the catalogue does not have them yet.
	{n(173), logEvent{"fatal failure of a C2C link", classFail, reboot}},
	{n(174), logEvent{"the process was ended with its channel", classApp, restartApp}},
	{n(175), logEvent{"error of the memory subsystem", classFail, resetGPU}},
	{n(176), logEvent{"correctable PCIe errors", classWarn, ignore}},
})

type xidRow struct {
	numbers []int
	event   logEvent
}

func n(numbers ...int) []int { return numbers }

func span(from, to int) []int {
	var out []int
	for i := from; i <= to; i++ {
		out = append(out, i)
	}
	return out
}

func table(rows []xidRow) map[int]logEvent {
	out := map[int]logEvent{}
	for _, r := range rows {
		for _, number := range r.numbers {
			if _, ok := out[number]; ok {
				panic(fmt.Sprintf("health: Xid %d is in two rows", number))
			}
			out[number] = r.event
		}
	}
	return out
}

// xid describes an Xid. An Xid that is not in the catalogue is a warning.
func xid(number int) logEvent {
	if e, ok := xids[number]; ok {
		return e
	}
	return logEvent{"not described in the catalogue", classWarn, "ask the vendor's support"}
}

// sxid describes an NVSwitch error. The message itself says whether it was fatal.
func sxid(fatal bool) logEvent {
	if fatal {
		return logEvent{"fatal NVSwitch error", classFail, "drain the node, restart the fabric manager, reset all GPUs and NVSwitches together; reboot if it comes back"}
	}
	return logEvent{"NVSwitch error that is not fatal", classNote, ignore}
}
