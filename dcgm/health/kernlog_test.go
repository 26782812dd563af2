package health

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/assay-hpc/assay/internal/host/sysfs"
)

var now = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

func TestParseLog(t *testing.T) {
	gpu := sysfs.BusID{Bus: 0x3b}
	off := message{Kind: kindXid, Number: 79, Bus: gpu, Timed: true, Text: "pid=1, name=a b, GPU has fallen off the bus."}
	const line = "NVRM: Xid (PCI:0000:3b:00): 79, pid=1, name=a b, GPU has fallen off the bus."
	with := func(m message, uptime time.Duration, clock time.Time) *message {
		m.Uptime, m.Clock = uptime, clock
		return &m
	}
	for _, tt := range []struct {
		name, text string
		want       *message
	}{
		{"kmsg", "4,1029,98765432100,-;" + line, with(off, 98765432100*time.Microsecond, time.Time{})},
		{"kmsg with a continuation", "4,1029,1000000,-,caller=T1;" + line + "\n SUBSYSTEM=pci\n", with(off, time.Second, time.Time{})},
		{"dmesg", "[98765.432100] " + line, with(off, 98765432100*time.Microsecond, time.Time{})},
		{"dmesg, early", "[    1.000000] " + line + "\r\n", with(off, time.Second, time.Time{})},
		{"dmesg -T", "[Thu Jan  1 23:59:59 2026] " + line, with(off, 0, time.Date(2026, 1, 1, 23, 59, 59, 0, time.UTC))},
		{"syslog", "Jan  1 23:59:59 node1 kernel: [98765.432100] " + line, with(off, 0, time.Date(2026, 1, 1, 23, 59, 59, 0, time.UTC))},
		{"syslog of last year", "Dec 31 23:59:59 node1 kernel: " + line, with(off, 0, time.Date(2025, 12, 31, 23, 59, 59, 0, time.UTC))},
		{"rsyslog", "2026-01-01T23:59:59.123456+00:00 node1 kernel: " + line, with(off, 0, time.Date(2026, 1, 1, 23, 59, 59, 123456000, time.UTC))},
		{"no time", line, &message{Kind: kindXid, Number: 79, Bus: gpu, Text: off.Text}},
		{"old form, function", "NVRM: Xid (0000:03:00.0): 13, Graphics Exception", &message{Kind: kindXid, Number: 13, Bus: sysfs.BusID{Bus: 3}, Text: "Graphics Exception"}},
		{"number alone", "NVRM: Xid (PCI:0000:3b:00): 43", &message{Kind: kindXid, Number: 43, Bus: gpu}},
		{"SXid", "nvidia-nvswitch0: SXid (PCI:0000:c1:00.0): 20034, Fatal, Link 30 LTSSM Fault Up", &message{Kind: kindSXid, Number: 20034, Fatal: true, Bus: sysfs.BusID{Bus: 0xc1}, Text: "Fatal, Link 30 LTSSM Fault Up"}},
		{"SXid, not fatal", "nvidia-nvswitch3: SXid (PCI:0000:c1:00.0): 12028, Non-fatal, Link 32", &message{Kind: kindSXid, Number: 12028, Bus: sysfs.BusID{Bus: 0xc1}, Text: "Non-fatal, Link 32"}},
		{"start", "NVRM: GPU 0000:3b:00.0: RmInitAdapter failed! (0x62:0xffff:2433)", &message{Kind: kindInit, Bus: gpu, Text: "(0x62:0xffff:2433)"}},
		{"probe", "nvidia 0000:3b:00.0: probe with driver nvidia failed with error -1", &message{Kind: kindInit, Bus: gpu, Text: "probe with driver nvidia failed with error -1"}},
		{"a process's name", "systemd: name=NVRM: Xid (PCI:zz): 79, x", nil},
		{"number too long", "NVRM: Xid (PCI:0000:3b:00): 99999999999999999999, x", nil},
		{"another driver", "mlx5_core 0000:3b:00.0: probe of something failed", nil},
	} {
		got := parseLog("6,1,1,-;another line\n"+tt.text, now)
		switch {
		case tt.want == nil && len(got) != 0, tt.want != nil && len(got) != 1:
			t.Errorf("%s: ParseLog = %+v; want %+v", tt.name, got, tt.want)
		case tt.want != nil:
			if diff := cmp.Diff(*tt.want, got[0]); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tt.name, diff)
			}
		}
	}
}

func TestAge(t *testing.T) {
	for _, tt := range []struct {
		line   string
		uptime time.Duration
		want   time.Duration
		known  bool
	}{
		{"6,1,1000000,-;", time.Hour, time.Hour - time.Second, true},
		{"6,1,1000000,-;", 0, 0, false},
		{"2026-01-02T03:00:00Z node1 kernel: ", 0, 4*time.Minute + 5*time.Second, true},
		{"", time.Hour, 0, false},
	} {
		m := parseLog(tt.line+"NVRM: Xid (PCI:0000:3b:00): 43", now)[0]
		if age, ok := m.Age(now, tt.uptime); age != tt.want || ok != tt.known {
			t.Errorf("%q after %v: Age = %v, %v; want %v, %v", tt.line, tt.uptime, age, ok, tt.want, tt.known)
		}
	}
}

func TestXid(t *testing.T) {
	for number, class := range map[int]eventClass{
		13: classApp, 31: classApp, 48: classFail, 63: classWarn, 64: classFail, 74: classFail, 79: classFail,
		92: classWarn, 93: classNote, 94: classWarn, 95: classFail, 119: classFail, 130: classWarn, 147: classFail, 1000: classWarn,
	} {
		if e := xid(number); e.Class != class || e.Meaning == "" || e.Action == "" {
			t.Errorf("Xid(%d) = %+v; want class %s", number, e, class)
		}
	}
}

func BenchmarkParseLog(b *testing.B) {
	text := strings.Repeat("6,1029,98765432100,-;mlx5_core 0000:18:00.0 ens1f0: Link up, and some more words of a usual length\n", 100_000) +
		"4,1029,98765432100,-;NVRM: Xid (PCI:0000:3b:00): 79, GPU has fallen off the bus.\n"
	b.SetBytes(int64(len(text)))
	for b.Loop() {
		if n := len(parseLog(text, now)); n != 1 {
			b.Fatalf("%d messages", n)
		}
	}
}

// FuzzParseLog: what is found is in the text, and no text makes it panic.
func FuzzParseLog(f *testing.F) {
	for _, s := range []string{
		"4,1029,98765432100,-;NVRM: Xid (PCI:0000:3b:00): 79, pid=1", "Jan  1 23:59:59 node1 kernel: NVRM: Xid (PCI:0000:3b:00): 154, to 0x0 (None)",
		"[ 1.000000] nvidia-nvswitch0: SXid (PCI:0000:c1:00.0): 20034, Fatal", "2026-01-01T23:59:59,1+0000 NVRM: GPU 0000:3b:00.0: RmInitAdapter failed!",
		"[Thu Jan  1 23:59:59 2026] nvidia 0000:3b:00.0: probe with driver nvidia failed with error -1",
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		messages := parseLog(text, now)
		if len(messages) > strings.Count(text, "\n")+1 {
			t.Errorf("%d messages of %q", len(messages), text)
		}
		for _, m := range messages {
			if m.Number < 0 || !strings.Contains(text, m.Text) || m.Event().Meaning == "" || m.Event().Action == "" {
				t.Errorf("ParseLog(%q) has %+v: %+v", text, m, m.Event())
			}
			if m.Timed != (m.Uptime != 0 || !m.Clock.IsZero()) && m.Uptime != 0 {
				t.Errorf("ParseLog(%q): time of %+v", text, m)
			}
		}
	})
}

// TestKernelLineMIG: an Xid of a GPU in MIG mode names the instances as well.
func TestKernelLineMIG(t *testing.T) {
	t.Parallel()
	for line, number := range map[string]int{
		"NVRM: Xid (PCI:0000:07:00 GPU-I:00 GPU-CI:00): 95, pid=1":                                                95,
		"NVRM: Xid (PCI:0000:01:00 GPU-I:05): 94, pid=7194, Contained: CE User Channel (0x9). RST: No, D-RST: No": 94,
		"[1.2] NVRM: Xid (PCI:0000:9d:00): 79, pid='<unknown>', GPU has fallen off the bus.":                      79,
	} {
		if e, ok := ReadKernelLine(line); !ok || e.Number != number || e.Kind != "Xid" {
			t.Errorf("%q is %+v, %v; want Xid %d", line, e, ok, number)
		}
	}
	if e, ok := ReadKernelLine("NVRM: Xid <garbled>"); ok {
		t.Errorf("a garbled line is %+v", e)
	}
}

// TestGone: a GPU that is gone is an Xid 79, also where the driver writes none; a line of an Xid that cannot be read is not lost.
func TestGone(t *testing.T) {
	t.Parallel()
	const three = `[ 1843.308145] NVRM: The NVIDIA GPU 0000:b3:00.0
               NVRM: (PCI ID: 10de:26b5) installed in this system has
               NVRM: fallen off the bus and is not responding to commands.
[ 1843.439662] NVRM: The NVIDIA probe routine failed for 1 device(s).
`
	for text, want := range map[string]string{
		three: "Xid 79 0000:b3:00.0 30m43.308145s",
		"[    5.000000] NVRM: GPU 0000:9d:00.0: GPU has fallen off the bus.\n":                                        "Xid 79 0000:9d:00.0 5s",
		"[    5.000000] NVRM: Xid (PCI:...): 145, RLW_RXPIPE Nonfatal\n":                                              "unread 0 0000:00:00.0 5s",
		"[    5.000000] NVRM: The NVIDIA GPU 0000:b3:00.0 has 3 links\nother\nlines\nare\nhere: fallen off the bus\n": "",
	} {
		got := ""
		for _, m := range parseLog(text, time.Unix(1e9, 0)) {
			got = fmt.Sprintf("%s %d %s %s", m.Kind, m.Number, m.Bus, m.Uptime)
		}
		if got != want {
			t.Errorf("parseLog(%q) is %q; want %q", text, got, want)
		}
	}
}

// TestZone: lines without a zone are read in the one in which the file's last line is as old as the file.
func TestZone(t *testing.T) {
	written := time.Date(2026, 11, 30, 6, 40, 3, 0, time.UTC)
	for _, tt := range []struct {
		line string
		want int // hours east
	}{
		{"Nov 29 22:40:03 node kernel: x\n", -8},
		{"Nov 30 06:40:02 node kernel: x\n", 0},
		{"Nov 30 12:10:03 node kernel: x\n", 5},  // and a half
		{"Nov 30 02:05:03 node kernel: x\n", 99}, // touched later: nothing follows
		{"6,1,1,-;x\n", 99},
	} {
		local := time.FixedZone("here", 99*3600)
		got := zoneOf(sysfs.KernelLog{Text: "Nov 29 20:00:00 node kernel: y\n" + tt.line, Written: written}, written.In(local))
		if _, east := written.In(got).Zone(); east/3600 != tt.want {
			t.Errorf("%q: %d hours east, not %d", tt.line, east/3600, tt.want)
		}
	}
	year := time.Date(2027, 1, 1, 3, 0, 0, 0, time.UTC)
	if _, east := year.In(zoneOf(sysfs.KernelLog{Text: "Dec 31 19:00:00 node kernel: x", Written: year}, year)).Zone(); east != -8*3600 {
		t.Errorf("over the turn of the year: %d", east)
	}
}
