package topology

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/assay-hpc/assay/internal/golden"
)

// checkRings proves that rings go through each GPU once and that together they
// use no link that is not there, in either direction.
func checkRings(t *testing.T, s *System, gpus []int, rings []Ring) {
	t.Helper()
	if gpus == nil {
		gpus = upTo(len(s.GPUs))
	}
	free := s.nvlinkCounts(upTo(len(s.GPUs)))
	for _, r := range rings {
		order := slices.Clone(r.GPUs)
		slices.Sort(order)
		if !slices.Equal(order, gpus) {
			t.Errorf("ring %v does not go through %v once each", r.GPUs, gpus)
		}
		for k, i := range r.GPUs {
			j := r.GPUs[(k+1)%len(r.GPUs)]
			if free[i][j]--; r.Over == NVL && free[i][j] < 0 {
				t.Errorf("ring %v takes a link from %d to %d that is not there, or taken", r.GPUs, i, j)
			}
		}
	}
}

func text(rings []Ring) string {
	var b strings.Builder
	for _, r := range rings {
		fmt.Fprintf(&b, "%v %.1f %v\n", r.GPUs, r.GBps, r.Over)
	}
	return b.String()
}

// TestRingsOfMesh: all 6 links of each V100 are in use, in both directions.
func TestRingsOfMesh(t *testing.T) {
	s := load(t, "dgx1-v100.xml")
	rings := s.Rings()
	checkRings(t, s, nil, rings)
	if len(rings) != 6 {
		t.Errorf("%d rings; want 6, as many as a GPU has links", len(rings))
	}
	for _, r := range rings {
		if r.GBps != 20 || r.Over != NVL {
			t.Errorf("ring %+v; want 20 GB/s over NVLink", r)
		}
	}
	if len(rings) > 0 && !slices.ContainsFunc(rings, func(r Ring) bool { return !slices.Equal(r.GPUs, rings[0].GPUs) }) {
		t.Error("the rings are all the same")
	}
	golden.Check(t, "dgx1-v100.rings", text(rings))
	if again := s.Rings(); !cmp.Equal(again, rings) {
		t.Errorf("a second search gives other rings:\n%s", text(again))
	}
	if got := s.rings(upTo(8), 3); len(got) != 3 {
		t.Errorf("Max 3: %d rings", len(got))
	}
}

// TestRingsOfSome: any part of the mesh gets rings over the links that it has.
func TestRingsOfSome(t *testing.T) {
	s := load(t, "dgx1-v100.xml")
	for mask := range 1 << 8 {
		gpus := []int{}
		for i := range 8 {
			if mask>>i&1 == 1 {
				gpus = append(gpus, i)
			}
		}
		rings := s.rings(gpus, maxRings)
		if len(gpus) < 2 {
			if rings != nil {
				t.Errorf("%v: %v; want none", gpus, rings)
			}
			continue
		}
		if len(rings) == 0 {
			t.Errorf("%v: no ring", gpus)
		}
		checkRings(t, s, gpus, rings)
	}
	for _, tt := range []struct {
		gpus []int
		want int
	}{{[]int{0, 3}, 2}, {[]int{0, 1, 2, 3}, 4}, {[]int{0, 1, 2}, 2}} {
		if got := s.rings(tt.gpus, maxRings); len(got) != tt.want {
			t.Errorf("%v: %d rings; want %d:\n%s", tt.gpus, len(got), tt.want, text(got))
		}
	}
	// 0 and 5 have no link: PCI, or a relay, and one ring.
	if got := s.rings([]int{0, 5}, maxRings); len(got) != 1 || got[0].Over != NVB {
		t.Errorf("without a link: %s", text(got))
	}
}

func TestRingsOfSwitch(t *testing.T) {
	for name, want := range map[string]int{"a100-8.xml": 12, "gb200-4.xml": 16} {
		s := load(t, name)
		rings := s.Rings()
		checkRings(t, s, nil, nil)
		total, starts := 0.0, map[int]bool{}
		for _, r := range rings {
			total += r.GBps
			starts[r.GPUs[0]] = true
		}
		_, links := s.GPUs[0].linksTo(s.GPUs[0].BusID)
		if port := float64(links) * nvlinkBandwidth(s.GPUs[0].SM); len(rings) != want || total < port*0.999 || total > port*1.001 {
			t.Errorf("%s: %d rings, %.1f GB/s together; want %d, %.1f", name, len(rings), total, want, port)
		}
		if len(starts) != len(s.GPUs) {
			t.Errorf("%s: rings start at %d GPUs; want all %d", name, len(starts), len(s.GPUs))
		}
	}
}

func TestRingsOfPCI(t *testing.T) {
	s := load(t, "pcie-2.xml")
	if got := text(s.Rings()); got != "[0 1] 24.0 PHB\n" {
		t.Errorf("two GPUs on PCI: %s", got)
	}
	// Eight GPUs without NVLinks whose numbers jump between sockets: the ring
	// crosses between sockets twice, and each switch's uplink twice.
	a := load(t, "a100-8.xml")
	for i := range a.GPUs {
		a.GPUs[i].NVLinks = nil
	}
	g := a.GPUs
	a.GPUs = []GPU{g[0], g[4], g[2], g[6], g[1], g[5], g[3], g[7]}
	rings := a.Rings()
	if len(rings) != 1 {
		t.Fatalf("%d rings; want 1", len(rings))
	}
	crossings := 0
	for k, i := range rings[0].GPUs {
		j := rings[0].GPUs[(k+1)%8]
		if a.GPUs[i].NUMA != a.GPUs[j].NUMA {
			crossings++
		}
	}
	if crossings != 2 || rings[0].GBps != 16 || rings[0].Over != SYS {
		t.Errorf("%d crossings: %s; want 2, at the 16 GB/s between AMD's sockets", crossings, text(rings))
	}
}

// TestRingOfBridgedPairs: four GPUs in two pairs with NVLink bridges: the ring
// keeps to the bridges where it can.
func TestRingOfBridgedPairs(t *testing.T) {
	s := &System{CPUs: []NUMA{{ID: 0, Vendor: "AuthenticAMD"}}}
	bus := []string{"0000:01:00.0", "0000:02:00.0", "0000:03:00.0", "0000:04:00.0"}
	for i, partner := range []int{2, 3, 0, 1} {
		s.GPUs = append(s.GPUs, GPU{
			PCI: PCI{BusID: id(bus[i]), HostBridge: "pci0000:00"}, Index: i, SM: 86,
			NVLinks: []NVLink{{Target: id(bus[partner]), Count: 4, To: ToGPU}},
		})
	}
	rings := s.Rings()
	if got := text(rings); got != "[0 2 1 3] 12.0 PHB\n" && got != "[0 2 3 1] 12.0 PHB\n" {
		t.Errorf("rings of pairs: %s; want one that goes over both bridges", got)
	}
}

func TestNVLinkCounts(t *testing.T) {
	got := load(t, "dgx1-v100.xml").nvlinkCounts([]int{0, 4, 5})
	if diff := cmp.Diff([][]int{{0, 2, 0}, {2, 0, 1}, {0, 1, 0}}, got); diff != "" {
		t.Errorf("nvlinkCounts (-want +got):\n%s", diff)
	}
	if got := load(t, "pcie-2.xml").nvlinkCounts([]int{0, 1}); got[0][1] != 0 {
		t.Errorf("nvlinkCounts on PCI = %v", got)
	}
}

func TestRails(t *testing.T) {
	for name, want := range map[string][]int{
		"a100-8.xml":    {0, 1, 2, 3, 4, 5, 6, 7},
		"dgx1-v100.xml": {0, 0, 1, 1, 2, 2, 3, 3},
		"gb200-4.xml":   {0, 1, 2, 3},
		"pcie-2.xml":    {-1, -1},
		"h200-vm.xml":   {0, 0}, // eth0, the only one
	} {
		if got := load(t, name).Rails(); !slices.Equal(got, want) {
			t.Errorf("%s: Rails = %v; want %v", name, got, want)
		}
	}
	s := readH100(t)
	s.NICs[0].State = "DOWN"
	if got := s.Rails(); got[0] == 0 || got[0] > 3 || got[1] != 1 {
		t.Errorf("with NIC0 down: Rails = %v; want another of the socket for GPU0", got)
	}
	if got := s.Nearest(5)[:2]; got[0] != 5 {
		t.Errorf("Nearest(5) = %v", got)
	}
}

func BenchmarkRingsOfMesh(b *testing.B) {
	s := load(b, "dgx1-v100.xml")
	for b.Loop() {
		s.Rings()
	}
}
