package platform

import (
	"cmp"
	"fmt"
	"maps"
	"regexp"
	"slices"

	"github.com/assay-hpc/assay/internal/hardware"
)

// checkEach checks the entries of one part of the database in the order of their keys.
func checkEach[T any](part string, all map[string]*T, check func(*T) error) error {
	for _, key := range slices.Sorted(maps.Keys(all)) {
		v := all[key]
		if v == nil {
			return fmt.Errorf("%s.%s is empty", part, key)
		}
		if err := check(v); err != nil {
			return fmt.Errorf("%s.%s: %w", part, key, err)
		}
	}
	return nil
}

// within compares a figure with the range of real hardware: a figure in a wrong unit (Gb/s for
// GB/s, MB for GB) usually lies outside.
func within(what string, f Figure, low, high float64) error {
	for _, v := range append(slices.Clone(f.Values), f.Value) {
		if f.Known() && !(low <= v && v <= high) {
			return fmt.Errorf("%s is %s; it must be from %g to %g", what, f.Text, low, high)
		}
	}
	return nil
}

func (db *DB) checkGPU(g *GPU) error {
	if g.Name == "" || g.Arch == "" {
		return fmt.Errorf("it has no name or no arch")
	}
	err := cmp.Or(
		within("sm_count", g.SMCount, 10, 1000), within("memory_gb", g.MemoryGB, 4, 1500), within("memory_gbps", g.MemoryGBps, 100, 40000),
		within("tdp_w", g.TDPWatts, 20, 3000), within("bf16_dense_tflops", g.BF16Dense, 10, 20000),
		within("bf16_measured_max_tflops", g.BF16Measured, 10, g.BF16Dense.Value),
	)
	if l := g.NVLink; l != nil {
		err = cmp.Or(err, within("nvlink.gen", l.Gen, 1, 9), within("nvlink.links", l.Links, 1, 72), within("nvlink.uni_gbps", l.UniGBps, 10, 5000))
	}
	if p := g.PCIe; p != nil {
		err = cmp.Or(err, within("pcie.gen", p.Gen, 1, 8), within("pcie.width", p.Width, 1, 16), within("pcie.uni_gbps", p.UniGBps, 1, 500))
	}
	if err != nil {
		return err
	}
	if g.C2C != "" && !db.Interconnects.NVLink[g.C2C].UniGBps.Known() {
		return fmt.Errorf("c2c: interconnects.nvlink has no %q with a bandwidth", g.C2C)
	}
	for id, t := range g.DCGMByPCI {
		if t == nil || !slices.Contains(g.PCIDeviceIDs, id) {
			return fmt.Errorf("dcgm_by_pci: %q has no targets, or is not in pci_device_ids", id)
		}
		if err := t.check(g); err != nil {
			return fmt.Errorf("dcgm_by_pci.%s: %w", id, err)
		}
	}
	if g.DCGM != nil {
		return g.DCGM.check(g)
	}
	return nil
}

// check compares DCGM's targets with the model's figures. DCGM's file contains mistakes, which must
// be marked as suspect.
func (t *DCGMTargets) check(g *GPU) error {
	if t.Source == "" {
		return fmt.Errorf("dcgm targets without a source")
	}
	if peak := g.MemoryGBps.Value * 1000; peak > 0 && !slices.Contains(t.Suspect, "membw_mbps") && !(0.3*peak <= t.MemoryMBps && t.MemoryMBps <= peak) {
		return fmt.Errorf("membw_mbps %g is not 0.3 to 1 of the memory's %g; list it in suspect if that is what the source says", t.MemoryMBps, peak)
	}
	for _, s := range t.Suspect {
		if s != "membw_mbps" {
			return fmt.Errorf("suspect: %q; only membw_mbps can be", s)
		}
	}
	if t.PowerWatts <= 0 || t.StressGFLOPS <= 0 {
		return fmt.Errorf("power_w and stress_gflops are more than 0")
	}
	return nil
}

func (db *DB) checkNIC(n *NIC) error {
	if n.Name == "" || n.Source == "" || len(n.PCIDeviceIDs) == 0 || !pciNumber.MatchString(n.Vendor) {
		return fmt.Errorf("it needs name, vendor (four hex digits), pci_device_ids and source")
	}
	return within("max_gbit", n.MaxGbit, 1, 3200)
}

func checkCloud(c *Cloud) error {
	if c.Name == "" || c.Source == "" || c.Vendor == "" && c.Product == "" && c.AssetTag == "" {
		return fmt.Errorf("it needs name, source, and one of sys_vendor, product_name, chassis_asset_tag")
	}
	return nil
}

var units = []string{busbw, "GB/s", "Gb/s"}

func (db *DB) checkPlatform(p *Platform) error {
	for _, gpu := range append(slices.Clone(p.OtherGPUs), p.GPU) {
		if gpu != "" && db.GPUs[gpu] == nil {
			return fmt.Errorf("there is no GPU %q in gpus", gpu)
		}
	}
	switch {
	case p.Name == "":
		return fmt.Errorf("it has no name")
	case p.Cloud != "" && db.Clouds[p.Cloud] == nil:
		return fmt.Errorf("there is no cloud %q in clouds", p.Cloud)
	case p.GPU == "" && !p.Reference:
		return fmt.Errorf("it has no gpu, so it must be a reference")
	case (len(p.Products) > 0) != (p.ProductsFrom != ""):
		return fmt.Errorf("products and products_source go together")
	case p.ProductsFrom != "" && db.Sources[p.ProductsFrom] == hardware.Source{}:
		return fmt.Errorf("there is no source %q in sources", p.ProductsFrom)
	}
	for i, r := range slices.Concat(p.Floors, p.Measured) {
		if r.Test == "" || r.Source == "" || !r.Confidence.valid() || !slices.Contains(units, r.Unit) || len(r.Value) == 0 || slices.Min(r.Value) <= 0 || slices.Max(r.Value) > 20000 {
			return fmt.Errorf("result %d (%s): it needs test, source, confidence, a unit of %q and values up to 20000", i+1, r.Test, units)
		}
	}
	if p.NICs == nil {
		return nil
	}
	return cmp.Or(within("nics.count", p.NICs.Count, 1, 64), within("nics.gbit_each", p.NICs.GbitEach, 10, 3200), within("nics.total_gbit", p.NICs.TotalGbit, 10, 20000))
}

var pciNumber = regexp.MustCompile(`^[0-9a-f]{4}$`)

// checkNumbers checks that each PCI device number belongs to one model only.
func (db *DB) checkNumbers() error {
	seen := map[string]string{}
	claim := func(vendor, id, who string) error {
		if !pciNumber.MatchString(id) {
			return fmt.Errorf("%s: %q is no PCI device number of four lower-case hex digits; quote those without letters", who, id)
		}
		if old, twice := seen[vendor+id]; twice {
			return fmt.Errorf("%s: PCI device %s is %s's, too", who, id, old)
		}
		seen[vendor+id] = who
		return nil
	}
	for _, key := range slices.Sorted(maps.Keys(db.GPUs)) {
		for _, id := range db.GPUs[key].PCIDeviceIDs {
			if err := claim("gpu", id, "gpus."+key); err != nil {
				return err
			}
		}
	}
	for _, key := range slices.Sorted(maps.Keys(db.NICs)) {
		for _, id := range db.NICs[key].PCIDeviceIDs {
			if err := claim(db.NICs[key].Vendor, id, "nics."+key); err != nil {
				return err
			}
		}
	}
	return nil
}
