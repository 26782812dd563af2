package diag

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/assay-hpc/assay/internal/result"
)

// TestCountersHaveDirections: each is in package result.
func TestCountersHaveDirections(t *testing.T) {
	for _, c := range slices.Concat(pcieCounters, nvlinkCounters) {
		if got := result.BetterOf("", c.title, "during the test", ""); got != result.Lower {
			t.Errorf("Of(%q) = %v; want Lower", c.title, got)
		}
	}
}

// TestAER: a GPU's errors are its own and those of the port above it; one of which
// neither tells has none to count.
func TestAER(t *testing.T) {
	root := t.TempDir()
	write := func(name, text string) {
		t.Helper()
		name = filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	const port, gpu, quiet, nic = "0000:00:01.0", "0000:01:00.0", "0000:02:00.0", "0000:03:00.0"
	at := map[string]string{port: port, gpu: port + "/" + gpu, quiet: quiet, nic: nic}
	if err := os.MkdirAll(filepath.Join(root, "sys/bus/pci/devices"), 0o755); err != nil {
		t.Fatal(err)
	}
	for id, path := range at {
		dir := "sys/devices/pci0000:00/" + path
		class := map[bool]string{true: "0x030200", false: "0x020000"}[id == gpu || id == quiet]
		write(dir+"/class", class+"\n")
		write(dir+"/vendor", "0x10de\n")
		if err := os.Symlink("../../../../"+dir, filepath.Join(root, "sys/bus/pci/devices", id)); err != nil {
			t.Fatal(err)
		}
	}
	for id, n := range map[string]int{port: 100, gpu: 10, nic: 1} {
		for i, name := range []string{"correctable", "nonfatal", "fatal"} {
			write("sys/devices/pci0000:00/"+at[id]+"/aer_dev_"+name, fmt.Sprintf("Undefined 0\nTOTAL_ERR_X %d\n", n*(i+1)))
		}
	}
	j := &job{env: Environment{Root: root}}
	want := map[string]map[string]uint64{gpu: {"aer_correctable": 110, "aer_nonfatal": 220, "aer_fatal": 330}}
	if got := j.aer(); fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("%v; want %v", got, want)
	}
}
