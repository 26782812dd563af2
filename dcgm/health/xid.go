package health

import (
	"fmt"
	"slices"
)

// A Class says what an event means for the node.
type Class string

// The classes.
const (
	ClassNote Class = "note" // nothing to do
	ClassApp  Class = "app"  // the job's own fault first
	ClassWarn Class = "warn"
	ClassFail Class = "fail"
)

// An Event describes a number that the driver reports.
type Event struct {
	Meaning string
	Class   Class
	Action  string
}

// Actions of the catalogue, in words.
const (
	restartApp = "restart the application"
	ignore     = "none; to the vendor's support if it comes back"
	resetGPU   = "drain the node and reset the GPU (nvidia-smi -r -i N); to the vendor's support if it comes back"
	reboot     = "drain and reboot the node; if it comes back have the GPU reseated or replaced"
	support    = "drain the node and ask the vendor's support"
)

// xids has the numbers of which something is known, from NVIDIA's Xid catalogue
// (docs.nvidia.com/deploy/xid-errors, edition 2025-10), and from DCGM 4.6 and
// gpud 2026-08 where it is silent. Those that share a row there share one here.
var xids = table([]row{
	{n(8), Event{"GPU stopped processing", ClassWarn, restartApp}},
	{n(11, 25, 32, 80), Event{"bad push-buffer stream, or bad data sent to the GPU", ClassApp, restartApp}},
	{n(13), Event{"graphics engine exception", ClassApp, restartApp + "; if it comes back on one GPU alone, suspect the GPU"}},
	{n(31), Event{"memory page fault", ClassApp, restartApp + "; check it for accesses out of bounds"}},
	{n(37), Event{"driver firmware error", ClassNote, ignore}},
	{n(38), Event{"driver firmware error", ClassWarn, ignore}},
	{slices.Concat(span(39, 41), span(70, 72), span(75, 77), n(85), span(126, 135)), Event{"copy engine exception", ClassWarn, restartApp}},
	{n(43), Event{"GPU stopped, channel reset", ClassApp, "none if another Xid stands beside it"}},
	{n(44), Event{"fault during a context switch", ClassWarn, ignore}},
	{n(45), Event{"pre-emptive cleanup", ClassApp, "look at the Xid beside it; alone, restart the fabric manager"}},
	{n(46), Event{"GPU timeout", ClassFail, resetGPU}},
	{n(48), Event{"double-bit ECC error", ClassFail, resetGPU + "; see Xid 63 and 64 beside it"}},
	{n(54), Event{"auxiliary power is not connected", ClassFail, "check the GPU's power cable"}},
	{n(60, 66, 67), Event{"video processor, or illegal access by the driver", ClassWarn, restartApp}},
	{n(61, 62), Event{"micro-controller halted", ClassFail, resetGPU}},
	{n(63), Event{"row remapped, or page retired", ClassWarn, "reset the GPU at the next chance: the remapping works from then on"}},
	{n(64), Event{"row remapping, or page retirement, failed", ClassFail, resetGPU}},
	{slices.Concat(n(68), span(82, 84), n(86, 88, 89), span(96, 105), n(139)), Event{"decoder, JPEG or optical-flow engine exception", ClassWarn, restartApp}},
	{n(69), Event{"graphics class error", ClassApp, restartApp}},
	{n(74), Event{"NVLink error", ClassFail, resetGPU}},
	{n(78), Event{"vGPU start error", ClassWarn, "update the software"}},
	{n(79), Event{"GPU has fallen off the bus", ClassFail, reboot}},
	{n(81), Event{"VGA subsystem error", ClassFail, support}},
	{n(92), Event{"high rate of single-bit ECC errors", ClassWarn, ignore}},
	{n(93), Event{"InfoROM wear limit", ClassNote, ignore}},
	{n(94), Event{"contained memory error", ClassWarn, restartApp}},
	{n(95), Event{"uncontained memory error", ClassFail, resetGPU}},
	{n(106, 107), Event{"SMBPBI test message", ClassNote, ignore}},
	{n(109), Event{"context switch timeout", ClassFail, resetGPU}},
	{n(110), Event{"security fault", ClassFail, resetGPU}},
	{n(119, 120), Event{"GSP does not answer, or failed", ClassFail, resetGPU + "; often it takes a power cycle"}},
	{n(121), Event{"C2C link error", ClassWarn, ignore}},
	{n(123), Event{"communication with the power controller failed", ClassFail, resetGPU}},
	{n(136), Event{"NVLink training failed", ClassFail, resetGPU}},
	{n(137), Event{"NVLink privilege error", ClassApp, restartApp}},
	{n(140), Event{"unrecovered ECC error", ClassFail, resetGPU}},
	{n(141, 152, 153), Event{"CUDA fast path, or DLA", ClassNote, ignore}},
	{n(143), Event{"GPU initialisation failed", ClassFail, resetGPU}},
	{span(144, 150), Event{"NVLink 5 error", ClassFail, resetGPU}},
	{n(151), Event{"key rotation failed", ClassFail, "restart the virtual machine"}},
	{n(154), Event{"GPU recovery action changed", ClassFail, "do what the message says"}},
	{n(155), Event{"NVLink error found by software", ClassFail, resetGPU}},
	{n(156), Event{"resource retired", ClassWarn, "reset the GPU at the next chance"}},
	{n(157), Event{"resource could not be retired", ClassFail, support}},
	{n(158), Event{"fatal timeout", ClassFail, resetGPU}},
	{n(159), Event{"CHI error without data", ClassWarn, "check the use of unified memory"}},
	{n(160, 161), Event{"channel retired, or could not be", ClassWarn, ignore}},
	{n(162), Event{"power smoothing is on", ClassNote, ignore}},
	{n(163), Event{"power smoothing is off", ClassWarn, ignore}},
	{n(164), Event{"power smoothing circuit is near its end of life", ClassWarn, support}},
	{n(165), Event{"power smoothing circuit is worn out", ClassFail, support}},
	{n(166, 170), Event{"confidential computing", ClassWarn, ignore}},
	{n(167), Event{"PCIe fatal timeout", ClassFail, reboot}},
	{n(168), Event{"errors in a write-protected region", ClassFail, support}},
	{n(169), Event{"micro-controller halted", ClassFail, resetGPU}},
	{n(171, 172), Event{"detail of a double-bit ECC error", ClassFail, resetGPU + "; see Xid 48 beside it"}},
})

type row struct {
	numbers []int
	event   Event
}

func n(numbers ...int) []int { return numbers }

func span(from, to int) []int {
	var out []int
	for i := from; i <= to; i++ {
		out = append(out, i)
	}
	return out
}

func table(rows []row) map[int]Event {
	out := map[int]Event{}
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

// Xid describes an Xid. One that the catalogue does not describe is a warning.
func Xid(number int) Event {
	if e, ok := xids[number]; ok {
		return e
	}
	return Event{"not described in the catalogue", ClassWarn, "ask the vendor's support"}
}

// SXid describes an error of an NVSwitch, of which the message itself says
// whether it was fatal.
func SXid(fatal bool) Event {
	if fatal {
		return Event{"fatal NVSwitch error", ClassFail, "drain the node, restart the fabric manager, reset all GPUs and NVSwitches together; reboot if it comes back"}
	}
	return Event{"NVSwitch error that is not fatal", ClassNote, ignore}
}
