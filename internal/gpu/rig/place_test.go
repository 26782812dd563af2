package rig

import (
	"os"
	"testing"

	"github.com/assay-hpc/assay/internal/host/sysfs/sysfstest"
)

// TestPlaces: where a GPU sits is what the kernel says.
func TestPlaces(t *testing.T) {
	archive, err := os.ReadFile("../../host/sysfs/testdata/h200-vm.txtar")
	if err != nil {
		t.Fatal(err)
	}
	fs := sysfstest.Tree(t, archive)
	devices, err := fs.PCI()
	if err != nil {
		t.Fatal(err)
	}
	got := places(fs)
	gpus := 0
	for _, d := range devices {
		if !d.IsGPU() {
			continue
		}
		gpus++
		if p := got[d.BusID]; p.Node != d.NUMANode || p.PCIDevice != "2335" || p.Node >= 0 && p.CPUs.Len() == 0 {
			t.Errorf("%v: %+v", d.BusID, p)
		}
	}
	if gpus == 0 {
		t.Error("the machine has no GPU")
	}
}
