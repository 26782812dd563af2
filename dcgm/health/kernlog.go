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
	kindXid  messageKind = "Xid"  // of a GPU
	kindSXid messageKind = "SXid" // of an NVSwitch
	kindInit messageKind = "init" // the driver could not initialize a GPU
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
	xidLine  = regexp.MustCompile(`NVRM: Xid \((?:PCI:)?([0-9a-fA-F:.]+)\): (\d+)(?:, ?(.*))?$`)
	sxidLine = regexp.MustCompile(`nvidia-nvswitch\d*: SXid \((?:PCI:)?([0-9a-fA-F:.]+)\): (\d+)(?:, ?(.*))?$`)
	initLine = regexp.MustCompile(`NVRM: GPU ([0-9a-fA-F:.]+): (?:RmInitAdapter failed!? ?|rm_init_adapter failed,? ?)(.*)$`)
	// The PCI core logs this if a driver's probe fails.
	probeLine = regexp.MustCompile(`nvidia ([0-9a-fA-F:.]+): (probe with driver nvidia failed.*|probe of .* failed.*)$`)

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
	for line := range strings.Lines(text) {
		line = strings.TrimRight(line, "\r\n")
		m, ok := parseMessage(line)
		if !ok {
			continue
		}
		m.Uptime, m.Clock, m.Timed = parseTime(line, now)
		out = append(out, m)
	}
	return out
}

func parseMessage(line string) (message, bool) {
	if !strings.Contains(line, "NVRM: ") && !strings.Contains(line, "nvidia") {
		return message{}, false // a log has many lines, and few of these match
	}
	for _, k := range []struct {
		kind     messageKind
		line     *regexp.Regexp
		numbered bool
	}{{kindXid, xidLine, true}, {kindSXid, sxidLine, true}, {kindInit, initLine, false}, {kindInit, probeLine, false}} {
		f := k.line.FindStringSubmatch(line)
		if f == nil {
			continue
		}
		bus, err := parseBus(f[1])
		if err != nil {
			return message{}, false
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
	return message{}, false
}

// parseBus parses an address, in which the function may be missing.
func parseBus(s string) (sysfs.BusID, error) {
	if !strings.Contains(s, ".") {
		s += ".0"
	}
	return sysfs.ParseBusID(s)
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

// clears reports whether earlier messages no longer apply: the GPU was recovered.
func (m *message) clears() bool {
	return m.Kind == kindXid && m.Number == 154 && clearsText.MatchString(m.Text)
}

var clearsText = regexp.MustCompile(`to 0x0 \(None\)|to None\b`)
