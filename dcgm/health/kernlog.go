package health

import (
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/assay-hpc/assay/internal/host/sysfs"
)

// A messageKind is a kind of kernel message.
type messageKind string

// The kinds that are searched for.
const (
	kindXid     messageKind = "Xid"     // of a GPU
	kindSXid    messageKind = "SXid"    // of an NVSwitch
	kindInit    messageKind = "init"    // the driver could not initialize a GPU
	kindAdapter messageKind = "adapter" // a ConnectX reports a fault of its own, its power or its cable
	// kindUnread is a line of an Xid or SXid in a form that is not known.
	kindUnread messageKind = "unread"
)

// A message is a line of the kernel's log about a GPU or a switch.
type message struct {
	Kind   messageKind
	Number int // of an Xid or SXid
	Bus    sysfs.BusID
	Fatal  bool // an SXid marked as fatal
	// The time of the message: since boot, or by the clock, depending on the log. Timed is false if
	// the log has neither.
	Uptime time.Duration
	Clock  time.Time
	Timed  bool
	Text   string // the text after the number
}

var (
	// In MIG mode an Xid names the instances as well: (PCI:0000:07:00 GPU-I:00 GPU-CI:00).
	xidLine  = regexp.MustCompile(`NVRM: Xid \((?:PCI:)?([0-9a-fA-F:.]+)(?: [^)]*)?\): (\d+)(?:, ?(.*))?$`)
	sxidLine = regexp.MustCompile(`nvidia-nvswitch\d*: SXid \((?:PCI:)?([0-9a-fA-F:.]+)\): (\d+)(?:, ?(.*))?$`)
	initLine = regexp.MustCompile(`NVRM: GPU ([0-9a-fA-F:.]+): (?:RmInitAdapter failed!? ?|rm_init_adapter failed,? ?)(.*)$`)
	// The PCI core logs this if a driver's probe fails.
	probeLine = regexp.MustCompile(`nvidia ([0-9a-fA-F:.]+): (probe with driver nvidia failed.*|probe of .* failed.*)$`)

	// A GPU that is gone before the driver knows it, without an Xid: over three lines, or on one.
	goneHead = regexp.MustCompile(`NVRM: The NVIDIA GPU ([0-9a-fA-F:.]+)`)
	goneLine = regexp.MustCompile(`NVRM: GPU (?:at PCI:)?([0-9a-fA-F:.]+): ?GPU has fallen off the bus`)
	// What mlx5_core writes of its own health (health.c), of a slot's power and of modules (events.c).
	adapterLine = regexp.MustCompile(`mlx5_core ([0-9a-fA-F:.]+[0-9a-fA-F]): (.*?(?:Port module event\[error\]|Detected insufficient power|Health issue observed|device's health compromised|High temperature|No done completion).*)$`)

	// numbered begins a message of an Xid or SXid, whether the rest can be read or not.
	numbered = regexp.MustCompile(`(?:^|;|\] ?|kernel: )(?:NVRM: Xid|nvidia-nvswitch\d*: SXid)`)

	kmsgHead   = regexp.MustCompile(`^\d+,\d+,(\d+),[^;]*;`)
	dmesgHead  = regexp.MustCompile(`\[ *(\d+)\.(\d{6})\]`)
	humanHead  = regexp.MustCompile(`^\[(\w{3} \w{3} [ \d]\d \d\d:\d\d:\d\d \d{4})\]`)
	isoHead    = regexp.MustCompile(`^(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:[.,]\d+)?(?:Z|[+-]\d\d:?\d\d))\s`)
	syslogHead = regexp.MustCompile(`^(\w{3} [ \d]\d \d\d:\d\d:\d\d)\s`)
)

// parseLog extracts the messages from a log: from /dev/kmsg, dmesg with or without -T, or syslog.
// Lines of syslog have no year; it is chosen so that they are not in the future.
func parseLog(text string, now time.Time) []message {
	var out []message
	var gone string // the line of a GPU that is gone
	left := 0       // lines in which that may be said
	for line := range strings.Lines(text) {
		line = strings.TrimRight(line, "\r\n")
		m, ok := parseMessage(line)
		if !ok && goneHead.MatchString(line) {
			gone, left = line, goneLines
		}
		if !ok && left > 0 {
			left--
			if strings.Contains(line, "fallen off the bus") {
				line, left = gone, 0
				m, ok = lost(goneHead, gone)
			}
		}
		if !ok {
			continue
		}
		m.Uptime, m.Clock, m.Timed = parseTime(line, now)
		out = append(out, m)
	}
	return out
}

// goneLines is how many lines the driver writes of a GPU that is gone.
const goneLines = 4

// lost makes an Xid 79 of a line that names a GPU which has fallen off the bus.
func lost(form *regexp.Regexp, line string) (message, bool) {
	f := form.FindStringSubmatch(line)
	if f == nil {
		return message{}, false
	}
	bus, err := parseBus(f[1])
	return message{Kind: kindXid, Number: 79, Bus: bus, Text: "the driver wrote no Xid"}, err == nil
}

func parseMessage(line string) (message, bool) {
	if !strings.Contains(line, "NVRM: ") && !strings.Contains(line, "nvidia") && !strings.Contains(line, "mlx5_core ") {
		return message{}, false // a log has many lines, and few of these match
	}
	for _, k := range []struct {
		kind     messageKind
		line     *regexp.Regexp
		numbered bool
	}{{kindXid, xidLine, true}, {kindSXid, sxidLine, true}, {kindInit, initLine, false}, {kindInit, probeLine, false}, {kindAdapter, adapterLine, false}} {
		f := k.line.FindStringSubmatch(line)
		if f == nil {
			continue
		}
		bus, err := parseBus(f[1])
		if err != nil {
			return message{Kind: kindUnread, Text: line}, k.numbered
		}
		m := message{Kind: k.kind, Bus: bus, Text: f[len(f)-1]}
		if k.numbered {
			if m.Number, err = strconv.Atoi(f[2]); err != nil {
				return message{}, false
			}
			m.Fatal = m.Kind == kindSXid && strings.HasPrefix(m.Text, "Fatal")
		}
		return m, true
	}
	if m, ok := lost(goneLine, line); ok {
		return m, true
	}
	return message{Kind: kindUnread, Text: line}, numbered.MatchString(line)
}

// parseBus parses an address, in which the function may be missing.
func parseBus(s string) (sysfs.BusID, error) {
	if !strings.Contains(s, ".") {
		s += ".0"
	}
	return sysfs.ParseBusID(s)
}

// zoneOf returns the time zone of a log whose lines do not name one, by when its file was written last, which is the time
// of its last line. A container often has another zone than its host, whose log it reads.
func zoneOf(log sysfs.KernelLog, now time.Time) *time.Location {
	text := strings.TrimRight(log.Text, "\n")
	line := text[strings.LastIndexByte(text, '\n')+1:]
	f := syslogHead.FindStringSubmatch(line)
	if f == nil || log.Written.IsZero() {
		return now.Location()
	}
	written := log.Written.UTC()
	stamp, err := time.Parse(time.Stamp, f[1])
	if err != nil {
		return now.Location()
	}
	stamp = stamp.AddDate(written.Year(), 0, 0) // time.Parse has year 0
	for _, year := range []int{0, -1, 1} {
		east := stamp.AddDate(year, 0, 0).Sub(written).Round(15 * time.Minute)
		if off := stamp.AddDate(year, 0, 0).Sub(written) - east; east.Abs() <= 14*time.Hour && off.Abs() < 2*time.Minute {
			return time.FixedZone("", int(east/time.Second))
		}
	}
	return now.Location()
}

// parseTime parses the time at the beginning of a line.
func parseTime(line string, now time.Time) (uptime time.Duration, clock time.Time, ok bool) {
	if f := kmsgHead.FindStringSubmatch(line); f != nil {
		us, err := strconv.ParseInt(f[1], 10, 64)
		return time.Duration(us) * time.Microsecond, clock, err == nil && us < 1<<50
	}
	if f := isoHead.FindStringSubmatch(line); f != nil {
		for _, layout := range []string{"2006-01-02T15:04:05Z07:00", "2006-01-02T15:04:05-0700"} {
			if t, err := time.Parse(layout, strings.Replace(f[1], ",", ".", 1)); err == nil {
				return 0, t, true
			}
		}
	}
	if f := syslogHead.FindStringSubmatch(line); f != nil {
		if t, err := time.ParseInLocation(time.Stamp, f[1], now.Location()); err == nil {
			t = t.AddDate(now.Year(), 0, 0) // time.Parse has year 0
			if t.After(now.Add(24 * time.Hour)) {
				t = t.AddDate(-1, 0, 0)
			}
			return 0, t, true
		}
	}
	if f := humanHead.FindStringSubmatch(line); f != nil {
		if t, err := time.ParseInLocation("Mon Jan _2 15:04:05 2006", f[1], now.Location()); err == nil {
			return 0, t, true
		}
	}
	if f := dmesgHead.FindStringSubmatch(line); f != nil {
		s, err1 := strconv.ParseInt(f[1], 10, 64)
		us, err2 := strconv.ParseInt(f[2], 10, 64)
		return time.Duration(s)*time.Second + time.Duration(us)*time.Microsecond, clock, err1 == nil && err2 == nil && s < 1<<32
	}
	return 0, clock, false
}

// Age is how long ago the message was written. uptime is the time since boot. ok is false if the
// log does not tell.
func (m *message) Age(now time.Time, uptime time.Duration) (age time.Duration, ok bool) {
	switch {
	case !m.Timed:
		return 0, false
	case !m.Clock.IsZero():
		return now.Sub(m.Clock), true
	case uptime > 0:
		return uptime - m.Uptime, true
	}
	return 0, false
}

// Event describes what happened. An Xid 154 to "None" means that the GPU has recovered, and an
// NVLink 5 error can be marked as not fatal.
func (m *message) Event() logEvent {
	switch m.Kind {
	case kindSXid:
		return sxid(m.Fatal)
	case kindAdapter:
		return adapterEvent(m.Text)
	case kindUnread:
		return logEvent{"an Xid or SXid in a form that is not known", classWarn, "read the line; NVIDIA's catalogue has the numbers"}
	case kindInit:
		return logEvent{"the driver could not start the GPU", classFail, reboot}
	}
	e := xid(m.Number)
	switch {
	case m.clears():
		e.Class, e.Action = classNote, ignore
	case m.Number >= 144 && m.Number <= 150 && strings.Contains(strings.ToLower(m.Text), "nonfatal"):
		e.Class, e.Action = classWarn, ignore
	}
	return e
}

// adapterEvent tells what passes with a cable from what the adapter's firmware says of itself.
func adapterEvent(text string) logEvent {
	switch {
	case strings.Contains(text, "module event"):
		return logEvent{"cable or transceiver", classWarn, "reseat or replace the cable or transceiver, of a type that the port can power and cool; an unused port needs nothing"}
	case strings.Contains(text, "power"):
		return logEvent{"the slot gives too little power", classFail, "check the slot's power and the card's auxiliary supply"}
	case strings.Contains(text, "emperature"):
		return logEvent{"too hot", classFail, "check the airflow at the card"}
	}
	return logEvent{"firmware", classFail, "drain the node, update the card's firmware (mlxfwmanager) and power-cycle; to the vendor's support if it comes back"}
}

// clears reports whether earlier messages no longer apply: the GPU was recovered.
func (m *message) clears() bool {
	return m.Kind == kindXid && m.Number == 154 && clearsText.MatchString(m.Text)
}

var clearsText = regexp.MustCompile(`to 0x0 \(None\)|to None\b`)

// A KernelEvent is a line of the kernel's log about a GPU, an NVSwitch or a network adapter, and what it means.
type KernelEvent struct {
	Kind   string // "Xid", "SXid", "init" (the driver could not start the GPU), or "adapter"
	Number int    // of an Xid or SXid
	Bus    string // 0000:9d:00.0
	Text   string // after the number
	// Class is "fail", "warn", "app" (the job is the most likely cause) or "note" (nothing to do).
	Meaning, Class, Action string
}

// KnownXid describes an Xid that a person or a monitor names without the kernel's line; false: the number is not known.
func KnownXid(number int) (KernelEvent, bool) {
	if _, known := xids[number]; !known {
		return KernelEvent{}, false
	}
	e := xid(number)
	return KernelEvent{Kind: string(kindXid), Number: number, Meaning: e.Meaning, Class: string(e.Class), Action: e.Action}, true
}

// ReadKernelLine reads a line of the kernel's log.
func ReadKernelLine(line string) (KernelEvent, bool) {
	m, ok := parseMessage(strings.TrimRight(line, "\r\n"))
	if !ok || m.Kind == kindUnread {
		return KernelEvent{}, false
	}
	e := m.Event()
	return KernelEvent{string(m.Kind), m.Number, m.Bus.String(), m.Text, e.Meaning, string(e.Class), e.Action}, true
}
