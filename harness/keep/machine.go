package keep

import (
	"fmt"
	"maps"
	"slices"
)

// A Machine is what shows that a node has changed, or was started again, since it was certified.
type Machine struct {
	Boot   string            `json:"boot,omitempty"`   // new with each boot
	Driver string            `json:"driver,omitempty"` // version of NVIDIA's driver
	GPUs   map[string]string `json:"gpus,omitempty"`   // by UUID: PCI address and VBIOS
	// Energy contains, by UUID, the mJ that a GPU has used since the driver started it. NVML has
	// no time of a GPU's start; this counter begins again with a reset.
	Energy map[string]uint64 `json:"energy,omitempty"`
}

// Since returns what happened to the machine between two readings, in words; nil: nothing that a
// certificate depends on.
func (m Machine) Since(old Machine) (out []string) {
	add := func(format string, a ...any) { out = append(out, fmt.Sprintf(format, a...)) }
	if m.Boot != old.Boot {
		add("the node was booted")
	}
	if m.Driver != old.Driver {
		add("the driver is %s, and was %s", orNone(m.Driver), orNone(old.Driver))
	}
	for _, uuid := range slices.Sorted(maps.Keys(m.GPUs)) {
		was, had := old.GPUs[uuid]
		switch {
		case !had:
			add("%s is new", uuid)
		case was != m.GPUs[uuid]:
			add("%s is %s, and was %s", uuid, m.GPUs[uuid], was)
		case m.Energy[uuid] < old.Energy[uuid] && m.has(uuid) && m.Boot == old.Boot:
			add("%s was reset, or its driver loaded again", uuid)
		}
	}
	for _, uuid := range slices.Sorted(maps.Keys(old.GPUs)) {
		if _, has := m.GPUs[uuid]; !has {
			add("%s is gone", uuid)
		}
	}
	return out
}

// has reports whether the energy of a GPU is known.
func (m Machine) has(uuid string) bool {
	_, ok := m.Energy[uuid]
	return ok
}

func orNone(s string) string {
	if s == "" {
		return "none"
	}
	return s
}
