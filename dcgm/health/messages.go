package health

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/assay-hpc/assay/internal/host/nvml"
	"github.com/assay-hpc/assay/internal/host/sysfs"
	"github.com/assay-hpc/assay/internal/result"
)

// messageChecks check the kernel's log.
var messageChecks = []check{
	{
		id: "gpu/xid", title: "the kernel's log has no Xid that speaks against the GPU", want: "none of class fail or warn", node: checkXid, uses: usesLog | usesDevices,
		remedy: support,
	},
	{
		id: "gpu/init", title: "the driver could start every GPU", want: "no failed start", node: checkInit, uses: usesLog | usesDevices,
		remedy: reboot,
	},
	{
		id: "nic/log", title: "the kernel's log has no fault of a network adapter", want: "none of class fail or warn", node: checkAdapters, uses: usesLog | usesDevices,
		remedy: support,
	},
	{
		id: "nvswitch/sxid", title: "the kernel's log has no SXid that speaks against an NVSwitch", want: "none that is fatal", node: checkSXid, uses: usesLog | usesDevices,
		remedy: sxid(true).Action,
	},
}

// bootSlack is by how much a clock may have been wrong at the start.
const bootSlack = 2 * time.Minute

// recent returns the messages of a kind that count: not older than Since, not from before the last boot, and not from
// before a recovery of the GPU. Messages without a time count.
func (e *env) recent(kind messageKind) map[sysfs.BusID][]message {
	out := map[sysfs.BusID][]message{}
	log := e.Node.Log.Value
	for _, m := range log.Messages {
		if m.Kind != kind {
			continue
		}
		age, ok := m.Age(e.Time, log.Uptime)
		if ok && e.Since > 0 && age > e.Since {
			continue
		}
		if ok && e.Since > 0 && !m.Clock.IsZero() && log.Uptime > 0 && age > log.Uptime+bootSlack { // a reboot is the remedy of most
			continue
		}
		if m.clears() {
			out[m.Bus] = nil
		}
		out[m.Bus] = append(out[m.Bus], m)
	}
	return out
}

// perDevice judges the messages of each device that has any.
func (e *env) perDevice(kind messageKind, object func(sysfs.BusID) result.Object) []outcome {
	if f := e.Node.Log; f.Err != nil {
		if f.Err = permission(f.Err); f.Err == nvml.ErrNoPermission {
			return node(without(f.Err))
		}
		return node(skipped("there is no kernel log: %s", strings.ReplaceAll(f.Err.Error(), "\n", "; ")))
	}
	by := e.recent(kind)
	var out []outcome
	for _, bus := range slices.SortedFunc(maps.Keys(by), sysfs.BusID.Compare) {
		out = append(out, judge(by[bus]).on(object(bus)))
	}
	return out
}

// judge summarizes the messages of one device by the worst of them.
func judge(messages []message) outcome {
	count := map[string]int{}
	var worst logEvent
	var text string
	rank := []eventClass{classNote, classApp, classWarn, classFail}
	for _, m := range messages {
		event := m.Event()
		name := string(m.Kind)
		switch m.Kind {
		case kindUnread:
			name = "unread line"
		case kindXid, kindSXid:
			name = fmt.Sprintf("%s %d", m.Kind, m.Number)
		}
		count[name]++
		// Among equals the last one counts, because it describes the current state.
		if slices.Index(rank, event.Class) >= slices.Index(rank, worst.Class) {
			worst, text = event, fmt.Sprintf("%s: %s", name, event.Meaning)
			if m.Text != "" {
				text += fmt.Sprintf(" (%.120s)", m.Text)
			}
		}
	}
	var parts []string
	for _, name := range slices.Sorted(maps.Keys(count)) {
		if n := count[name]; n > 1 {
			name += fmt.Sprintf(" ×%d", n)
		}
		parts = append(parts, name)
	}
	o := good(strings.Join(parts, ", "))
	if worst.Class == classWarn || worst.Class == classFail {
		o.bad, o.soft, o.Reason, o.remedy = true, worst.Class == classWarn, text, worst.Action
	}
	return o
}

// busObject returns the object of a GPU, by its number if the driver knows it, otherwise by its
// address.
func (e *env) busObject(bus sysfs.BusID) result.Object {
	for i := range e.GPUs {
		if g := &e.GPUs[i]; g.Err == nil && g.Bus == bus {
			return g.object()
		}
	}
	return result.Object{Name: bus.String(), Bus: bus.String()}
}

func (e *env) window() string {
	if e.Since == 0 {
		return "since the log begins"
	}
	return fmt.Sprintf("in %v", e.Since)
}

func checkXid(e *env) []outcome {
	var out []outcome
	for _, messages := range e.recent(kindUnread) { // of no device
		out = append(out, judge(messages))
	}
	for _, o := range e.messages(kindXid, e.busObject, e.hasGPU()) {
		if len(out) == 0 || o.Bus != "" { // "none" is not said beside a line that cannot be read
			out = append(out, o)
		}
	}
	return out
}

func checkInit(e *env) []outcome { return e.messages(kindInit, e.busObject, e.hasGPU()) }

func checkSXid(e *env) []outcome {
	object := func(bus sysfs.BusID) result.Object {
		return result.Object{Name: "NVSwitch " + bus.String(), Bus: bus.String()}
	}
	return e.messages(kindSXid, object, e.Node.Devices.Value.Switches() > 0)
}

func checkAdapters(e *env) []outcome {
	object := func(bus sysfs.BusID) result.Object {
		return result.Object{Name: "adapter " + bus.String(), Bus: bus.String()}
	}
	return e.messages(kindAdapter, object, len(e.Node.Devices.Value.RDMA.Value) > 0)
}

func (e *env) hasGPU() bool { return len(e.GPUs) > 0 || len(e.Node.Devices.Value.GPUs()) > 0 }

// messages judges the messages of a kind in the log. No message is a pass only if there is a device
// that could have caused one.
func (e *env) messages(kind messageKind, object func(sysfs.BusID) result.Object, there bool) []outcome {
	switch out := e.perDevice(kind, object); {
	case len(out) > 0:
		return out
	case !there:
		return node(skipped("there is no device that could cause a message"))
	default:
		return node(good("none " + e.window()))
	}
}
