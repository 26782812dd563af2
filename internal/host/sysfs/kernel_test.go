package sysfs_test

import (
	"encoding/binary"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/assay-hpc/assay/internal/host/sysfs"
	"github.com/assay-hpc/assay/internal/host/sysfs/sysfstest"
)

const kernelTree = `
-- proc/modules --
nvidia_uvm 1875968 4 - Live 0x0000000000000000
ib_core 565248 9 rdma_cm,ib_ipoib, Live 0x0000000000000000
-- proc/uptime --
7200.25 14000.10
-- proc/self/limits --
Limit                     Soft Limit           Hard Limit           Units
Max locked memory         65536                unlimited            bytes
Max nice priority         0                    0
-- proc/meminfo --
MemTotal:       2097152 kB
HugePages_Total:      16
Hugepagesize:       2048 kB
-- proc/self/mounts --
overlay / overlay rw,relatime 0 0
shm /dev/shm tmpfs rw,nosuid,size=65536k 0 0
-- proc/12/stat --
12 (a (b) c) D 1 12 12 0 -1 4194304 0 0
-- proc/13/stat --
13 (kworker/0:1) D 2 0 0 0 -1 69238880 0 0
-- proc/14/stat --
cut
-- sys/bus/pci/devices/0000:01:00.0/aer_dev_correctable --
RxErr 2
BadTLP 0
TOTAL_ERR_COR 2
-- sys/bus/pci/devices/0000:01:00.0/aer_dev_nonfatal --
Undefined 0
TOTAL_ERR_NONFATAL 1
-- sys/bus/pci/devices/0000:01:00.0/aer_dev_fatal --
TOTAL_ERR_FATAL 0
-- sys/bus/pci/devices/0000:02:00.0/aer_dev_correctable --
RxErr 2
`

func TestKernel(t *testing.T) {
	f := sysfstest.Tree(t, []byte(kernelTree))
	if got := must[[]string](t)(f.Modules()); !cmp.Equal(got, []string{"ib_core", "nvidia_uvm"}) {
		t.Errorf("Modules = %v", got)
	}
	if got := must[time.Duration](t)(f.Uptime()); got != 2*time.Hour+250*time.Millisecond {
		t.Errorf("Uptime = %v", got)
	}
	want := map[string]sysfs.Limit{"Max locked memory": {Soft: 65536, Hard: sysfs.Unlimited}, "Max nice priority": {}}
	if diff := cmp.Diff(want, must[map[string]sysfs.Limit](t)(f.Limits())); diff != "" {
		t.Errorf("Limits (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(map[string]uint64{"MemTotal": 2 << 30, "HugePages_Total": 16, "Hugepagesize": 2 << 20}, must[map[string]uint64](t)(f.Memory())); diff != "" {
		t.Errorf("Memory (-want +got):\n%s", diff)
	}
	mounts := must[[]sysfs.Mount](t)(f.Mounts())
	if len(mounts) != 2 || mounts[0].Type != "overlay" || mounts[1].Dir != "/dev/shm" || mounts[1].Options[2] != "size=65536k" {
		t.Errorf("Mounts = %+v", mounts)
	}
	processes := []sysfs.Process{{PID: 12, Name: "a (b) c", State: 'D'}, {PID: 13, Name: "kworker/0:1", State: 'D', Kernel: true}}
	if diff := cmp.Diff(processes, must[[]sysfs.Process](t)(f.Processes())); diff != "" {
		t.Errorf("Processes (-want +got):\n%s", diff)
	}
	if got := must[sysfs.AER](t)(f.AER(id("0000:01:00.0"))); got != (sysfs.AER{Correctable: 2, NonFatal: 1}) {
		t.Errorf("AER = %+v", got)
	}
	var bad *sysfs.AttrError
	if _, err := f.AER(id("0000:02:00.0")); !errors.As(err, &bad) {
		t.Errorf("AER of a file without a total: %v", err)
	}
	if _, err := f.AER(id("0000:03:00.0")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("AER of nothing: %v; want not there", err)
	}
}

// TestKernelLog: the buffer goes before files, and an empty one is none.
func TestKernelLog(t *testing.T) {
	dir := t.TempDir()
	f := must[sysfs.FS](t)(sysfs.Open(dir))
	if _, err := f.KernelLog(); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("no log: %v; want not there", err)
	}
	write := func(name, text string) {
		file := filepath.Join(dir, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(file), 0o755), os.WriteFile(file, []byte(text), 0o644)); err != nil {
			t.Fatal(err)
		}
	}
	write("dev/kmsg", "")
	write("var/log/messages", "from messages\n")
	if got := must[sysfs.KernelLog](t)(f.KernelLog()); got.File != "/var/log/messages" || got.Text != "from messages\n" || time.Since(got.Written).Abs() > time.Hour {
		t.Errorf("KernelLog = %+v", got)
	}
	long := strings.Repeat("a line that is not short\n", 1<<20)
	write("dev/kmsg", long+"the end\n")
	got := must[sysfs.KernelLog](t)(f.KernelLog())
	if got.File != "/dev/kmsg" || len(got.Text) > 17<<20 || !strings.HasSuffix(got.Text, "the end\n") {
		t.Errorf("KernelLog of %d bytes has %d of %s", len(long), len(got.Text), got.File)
	}
}

// TestKernelLogHere reads this machine's own log, where it may: reading must
// come to an end.
func TestKernelLogHere(t *testing.T) {
	var f sysfs.FS
	got, err := f.KernelLog()
	if err != nil {
		t.Skip(err)
	}
	if !strings.Contains(got.Text, "\n") {
		t.Errorf("%s has no line: %.80q", got.File, got.Text)
	}
}

// config is a configuration space with extended capabilities at 0x100 and 0x140.
func config(second uint16, control sysfs.ACS, next uint32) []byte {
	c := make([]byte, 4096)
	binary.LittleEndian.PutUint32(c[0x100:], 0x0001|1<<16|0x140<<20) // AER
	binary.LittleEndian.PutUint32(c[0x140:], uint32(second)|1<<16|next<<20)
	binary.LittleEndian.PutUint16(c[0x146:], uint16(control))
	return c
}

func TestParseACS(t *testing.T) {
	for _, tt := range []struct {
		name      string
		config    []byte
		want      sysfs.ACS
		redirects bool
		err       error
	}{
		{"on", config(0x000d, 0x1d, 0), 0x1d, true, nil},
		{"validation alone", config(0x000d, 0x01, 0), 0x01, false, nil},
		{"off", config(0x000d, 0, 0), 0, false, nil},
		{"without", config(0x0003, 0x1d, 0), 0, false, sysfs.ErrNoACS},
		{"circle", config(0x0003, 0, 0x100), 0, false, sysfs.ErrNoACS},
		{"past the end", config(0x0003, 0, 0xffc), 0, false, sysfs.ErrNoACS},
		{"not root", make([]byte, 64), 0, false, fs.ErrPermission},
		{"no extended space", make([]byte, 256), 0, false, sysfs.ErrNoACS},
	} {
		got, err := sysfs.ParseACS(tt.config)
		if got != tt.want || !errors.Is(err, tt.err) || got.Redirects() != tt.redirects {
			t.Errorf("%s: ParseACS = %#x, %v, redirects %v; want %#x, %v, %v", tt.name, got, err, got.Redirects(), tt.want, tt.err, tt.redirects)
		}
	}
}

// FuzzKernel: no text makes a parser panic.
func FuzzKernel(f *testing.F) {
	for _, s := range []string{"12 (a (b) c) D 1 12 12 0 -1 4194304 0", "Max locked memory  65536  unlimited  bytes", "TOTAL_ERR_COR 2", "a b c d,e 0 0", "MemTotal: 1 kB", ") ("} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		if p, err := sysfs.ParseProcess(s); err == nil && !strings.Contains(s, "("+p.Name+") ") {
			t.Errorf("ParseProcess(%q) = %+v", s, p)
		}
		sysfs.ParseAER(s)
		sysfs.ParseMounts(s)
		sysfs.ParseMemory(s)
		sysfs.ParseACS([]byte(s))
		if l, err := sysfs.ParseLimits(s); err == nil && len(l) > strings.Count(s, "\n")+1 {
			t.Errorf("ParseLimits(%q) = %v", s, l)
		}
	})
}

func TestCapabilities(t *testing.T) {
	for text, want := range map[string]uint64{
		"Name:\tx\nCapPrm:\t0\nCapEff:\t00000000a80425fb\nCapBnd:\t0\n": 0xa80425fb,
		"CapEff:\t000001ffffffffff\n":                                   0x1ffffffffff,
	} {
		root := t.TempDir()
		if err := os.MkdirAll(filepath.Join(root, "proc/self"), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(root, "proc/self/status"), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		f, err := sysfs.Open(root)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := f.Capabilities(); err != nil || got != want {
			t.Errorf("%q: %x, %v; want %x", text, got, err, want)
		}
	}
	f, err := sysfs.Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.Capabilities(); err == nil {
		t.Error("capabilities of nothing")
	}
}
