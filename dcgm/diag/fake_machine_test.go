package diag

import (
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/assay-hpc/assay/internal/gpu/driver"
	"github.com/assay-hpc/assay/internal/host/nvml"
	"github.com/assay-hpc/assay/internal/host/sysfs"
)

// fakeMachine is two H200 that do all they should, but for what fault says of GPU 1.
type fakeMachine struct{ fault string }

func (m fakeMachine) GPUs() []GPU {
	var out []GPU
	for i := range 2 {
		out = append(out, GPU{Index: i, Name: "NVIDIA H200", UUID: fmt.Sprintf("GPU-%d", i), Bus: sysfs.BusID{Bus: uint8(0x10 * (i + 1))}, PCIDevice: "2335", Bytes: 150e9, SMs: 132})
	}
	return out
}
func (m fakeMachine) Close() error { return nil }
func (m fakeMachine) Device(gpu int) (Device, error) {
	d := &fakeDevice{gpu: gpu}
	if gpu == 1 {
		d.fault = m.fault
	}
	if d.fault == "no context" {
		return nil, errors.New("cuDevicePrimaryCtxRetain: out of memory")
	}
	return d, nil
}

type fakeDevice struct {
	gpu      int
	fault    string
	taken    int64
	pattern  memPattern
	flipped  bool
	products int
}

// slow is how much longer everything takes.
func (d *fakeDevice) slow() float64 {
	if d.fault == "slow" {
		return 3
	}
	return 1
}

func (d *fakeDevice) Take(most int64) (int64, int64, error) {
	d.taken = 148e9
	if d.fault == "full" {
		d.taken = 30e9
	}
	if most > 0 {
		d.taken = min(d.taken, most)
	}
	return d.taken, 150e9, nil
}

func (d *fakeDevice) Write(p memPattern) (float64, error) {
	switch d.fault {
	case "crash":
		panic("a crash")
	case "hang":
		time.Sleep(time.Hour)
	case "lost":
		return 0, &driver.Error{Call: "cuEventSynchronize", Code: 700}
	case "babble":
		fmt.Println("not JSON")
	case "leave":
		os.Exit(0)
	}
	d.pattern = p
	return d.slow() * float64(d.taken) / 4.4e12, nil
}

func (d *fakeDevice) Verify(p memPattern, invert bool) (miscompares, float64, error) {
	var m miscompares
	if d.flipped || d.fault == "memory" && p.Kind == walkingOne && p.Seed == 3 {
		m = miscompares{2, 0x11, []miscompare{{0x7000, 8, 9}, {0x8000, 8, 0x18}}}
	}
	d.flipped = false
	if want := d.pattern; want.Kind != p.Kind || want.Seed != p.Seed {
		return m, 0, fmt.Errorf("%v was written, %v is verified", want, p)
	}
	if invert {
		d.pattern, _ = p.inverse()
	}
	return m, d.slow() * float64(d.taken) / 4.4e12, nil
}

func (d *fakeDevice) Flip(int64, uint64) error { d.flipped = true; return nil }

func (d *fakeDevice) Stream(s streamKind) (int64, float64, error) {
	return 4e9, d.slow() * 4e9 / 4.2e12, nil
}

func (d *fakeDevice) Host(dir direction, copies int) (int64, float64, miscompares, error) {
	var m miscompares
	if d.fault == "host" && dir == toHost {
		m = miscompares{1, 4, []miscompare{{64, 0, 4}}}
	}
	return 64e6 * int64(copies), d.slow() * 64e6 * float64(copies) / 55e9, m, nil
}

func (d *fakeDevice) Remote(peer Device, p memPattern) (remoteResult, error) {
	r := remoteResult{Bytes: 256e6, Write: 256e6 / 380e9, Read: 256e6 / 360e9}
	switch o := peer.(*fakeDevice); {
	case d.fault == "slow" || o.fault == "slow":
		r.Write *= 3
	case o.fault == "peer":
		r.Written = miscompares{1, 4, []miscompare{{64, 0, 4}}}
	case d.fault == "peer":
		r.ReadBy = miscompares{1, 8, []miscompare{{64, 0, 8}}}
	case d.fault == "staged" || o.fault == "staged":
		r.Staged, r.Write = true, 256e6/20e9
	}
	return r, nil
}

func (d *fakeDevice) Product(w productWork) (productResult, error) {
	d.products++
	p := productResult{Seconds: 0.05 * d.slow(), Flops: 0.05 * 750e12, Way: "wgmma"}
	if w.Kind >= fp32 {
		p.Way, p.Flops = "fma", 0.05*50e12
	}
	for sm := range uint32(132) {
		p.Blocks = append(p.Blocks, blockOutcome{Sum: 7 + w.Seed, SM: sm})
	}
	switch {
	case d.fault == "sm":
		p.Blocks[17].Sum++
	case d.fault == "repeat":
		p.Blocks[18].Bad = 1
	case d.fault == "drift":
		for i := range p.Blocks {
			p.Blocks[i].Sum += uint64(d.products)
		}
	case d.fault == "arithmetic" && w.Exact:
		p.Wrong = 5
	}
	if w.FlipSM > 0 {
		p.Blocks[w.FlipSM-1].Bad = 1
	}
	if w.For > 0 {
		time.Sleep(time.Millisecond)
	}
	return p, nil
}

func (d *fakeDevice) Free() error { d.taken = 0; return nil }

// fakeSensors say the same of all GPUs, but for what fault says of the second.
type fakeSensors struct{ fault string }

func (s fakeSensors) Close() error { return nil }

func (s fakeSensors) Read(bus sysfs.BusID) (nvml.Reading, error) {
	on := true
	r := nvml.Reading{Celsius: 60, Watts: 680, LimitWatts: 700, MHz: 1700, Persistence: &on}
	if bus.Bus != 0x20 {
		return r, nil
	}
	switch s.fault {
	case "hot":
		r.Reasons = nvml.Reasons(0x40)
	case "warm":
		r.Reasons = nvml.ThermalSlowdown
	case "weak":
		r.Watts = 300
	case "off":
		*r.Persistence = false
	case "blind":
		return r, errors.New("GPU is lost")
	}
	return r, nil
}

// fakeLinks are of two GPUs on an NVSwitch. What fault names goes up between two
// readings, on GPU 1.
func fakeLinks(fault string) func() (map[sysfs.BusID]nvml.Links, error) {
	reads := uint64(0)
	return func() (map[sysfs.BusID]nvml.Links, error) {
		if fault == "no sensors" {
			return nil, errors.New("no NVML")
		}
		reads++
		out := map[sysfs.BusID]nvml.Links{}
		for i := range 2 {
			l := nvml.Links{NVLinks: 18, Errors: map[string]uint64{"pcie_replay": 7, "nvlink_crc_flit": 3, "nvlink_recovery": 0, "nvlink_replay": 9}}
			if fault == "direct" {
				l.Peers = map[sysfs.BusID]int{{Bus: 0x10}: 18}
			}
			for name := range l.Errors {
				if i == 1 && fault == name {
					l.Errors[name] += 1000 * reads
				}
			}
			out[sysfs.BusID{Bus: uint8(0x10 * (i + 1))}] = l
		}
		return out, nil
	}
}
