package platform

import (
	"maps"
	"slices"
	"strings"

	"github.com/assay-hpc/assay/internal/host/sysfs"
	"github.com/assay-hpc/assay/internal/words"
)

// IdentifyGPU finds a GPU's model by its PCI device id (four hex digits), else by the driver's name
// for it. If neither is known, key is "" and g is nil.
func (db *DB) IdentifyGPU(device, name string) (key string, g *GPU) {
	if key, g = db.GPUByPCI(device); g != nil {
		return key, g
	}
	return db.gpuByName(name)
}

// gpuByName finds the model with the most words in common with the driver's name for a GPU, such as
// "NVIDIA H200 NVL" or "NVIDIA A100-SXM4-80GB". All words of the model must be in the name, except
// sizes and SXM, which the driver omits for some, and the form (PCIe, NVL) must be the same. If two
// models fit equally well, it returns neither.
func (db *DB) gpuByName(name string) (key string, best *GPU) {
	have := wordsOf(name)
	most, twice := 0, false
	for _, k := range slices.Sorted(maps.Keys(db.GPUs)) {
		want := wordsOf(db.GPUs[k].Name)
		n, missing := 0, form(have) != form(want)
		for _, w := range want {
			if slices.Contains(have, w) {
				n++
			} else if w != "sxm" && !strings.HasSuffix(w, "gb") {
				missing = true
			}
		}
		if missing || n == 0 {
			continue
		}
		if n > most {
			most, key, best, twice = n, k, db.GPUs[k], false
		} else if n == most {
			twice = true
		}
	}
	if twice {
		return "", nil
	}
	return key, best
}

// wordsOf returns the words of a name that distinguish models. SXM4 becomes SXM; text in parentheses
// is ignored.
func wordsOf(name string) []string {
	var out []string
	if before, rest, ok := strings.Cut(name, "("); ok {
		_, after, _ := strings.Cut(rest, ")")
		name = before + after
	}
	for _, w := range strings.FieldsFunc(strings.ToLower(name), func(r rune) bool { return r == ' ' || r == '-' }) {
		switch {
		case w == "nvidia" || w == "tesla" || w == "geforce":
		case strings.HasPrefix(w, "sxm"):
			out = append(out, "sxm")
		default:
			out = append(out, w)
		}
	}
	return out
}

// form returns the form factor if the name contains one that distinguishes models.
func form(words []string) string {
	for _, w := range words {
		if w == "pcie" || w == "nvl" {
			return w
		}
	}
	return ""
}

// NICByPCI returns the model with a PCI vendor and device id (four hex digits each), and its key;
// nil if there is none.
func (db *DB) NICByPCI(vendor, device string) (key string, n *NIC) {
	for _, key := range slices.Sorted(maps.Keys(db.NICs)) {
		if n := db.NICs[key]; n.Vendor == strings.ToLower(vendor) && slices.Contains(n.PCIDeviceIDs, strings.ToLower(device)) {
			return key, n
		}
	}
	return "", nil
}

// cloud returns the cloud of a machine; "" if DMI names none.
func (db *DB) cloud(d sysfs.DMI) string {
	for _, key := range slices.Sorted(maps.Keys(db.Clouds)) {
		c := db.Clouds[key]
		if like(c.Vendor, d.Vendor) && like(c.Product, d.Product) && like(c.AssetTag, d.AssetTag) {
			return key
		}
	}
	return ""
}

// like compares a DMI value with the expected one; an empty expectation matches all.
func like(want, got string) bool { return want == "" || strings.EqualFold(want, got) }

// hasProduct reports whether a DMI product name begins like one of the platform's.
func (p *Platform) hasProduct(name string) bool {
	return slices.ContainsFunc(p.Products, func(want string) bool { return strings.HasPrefix(words.Alphanumeric(name), words.Alphanumeric(want)) })
}
