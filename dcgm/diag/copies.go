package diag

import (
	"context"
	"runtime"
)

// What healthy nodes reach, as fractions of the link's figure, with room below
// (docs/bandwidth.md has the sources): of PCIe 5 55 of 63 GB/s; of memory an H200
// reads 0.9; between GPUs by a kernel 366 of 450.
const (
	floorHost   = 0.66
	floorMemory = 0.70
	floorPeer   = 0.67
)

// bandwidth is memory_bandwidth: streams, each of which is checked.
func bandwidth(ctx context.Context, j *job) error {
	j.each(func(g GPU, d Device) error {
		if _, _, err := d.Take(int64(j.params["memory_size_mb"]) * 1e6); err != nil {
			return err
		}
		for _, s := range []Stream{WriteOnly, Read, Copy, Triad} {
			j.progress("GPU %d: %s", g.Index, s)
			best := 0.0
			for range max(1, int(j.params["test_loops"])) {
				if ctx.Err() != nil {
					return context.Cause(ctx)
				}
				bytes, seconds, err := d.Stream(s)
				if err != nil {
					return err
				}
				best = max(best, float64(bytes)/seconds/1e9)
			}
			m := Measurement{Name: s.String(), GPU: g.Index, Value: best, Unit: "GB/s"}
			if model := j.model(g); model != nil {
				m = m.figure(model.MemoryGBps)
			}
			floor := floorMemory
			if s == Triad {
				if n, ok := m.given(j.params["minimum_bandwidth"] / 1e3); ok {
					m, floor = n, 1
				}
			}
			j.hold(m, floor, "look at memory clocks, ECC errors and other processes on the GPU; reset it; if it stays slow, replace it")
		}
		return nil
	})
	return nil
}

// pcie copies between host and each GPU, alone and all at once.
func pcie(ctx context.Context, j *job) error {
	before := j.replays()
	copies := max(1, int(j.params["copies"]))
	remedy := "look at the link's generation and width, at ACS and the BIOS, and at where host memory lies; reseat the GPU"
	one := func(d Direction, name string, held bool) func(GPU, Device) error {
		return func(g GPU, dev Device) error {
			j.progress("GPU %d: %s", g.Index, name)
			bytes, s, wrong, err := dev.Host(d, copies)
			if err != nil {
				return err
			}
			j.miscompared(g.Index, wrong, remedy, name)
			m := Measurement{Name: name, GPU: g.Index, Value: float64(bytes) / s / 1e9, Unit: "GB/s"}
			if model := j.model(g); model != nil && model.PCIe != nil && d != BothWays {
				m = m.figure(model.PCIe.UniGBps)
			}
			if !held {
				j.measure(m) // GPUs may share an uplink by design
				return nil
			}
			floor := floorHost
			if n, ok := m.given(j.params["min_bandwidth"]); ok && d != BothWays {
				m, floor = n, 1
			}
			j.hold(m, floor, remedy)
			return nil
		}
	}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	for _, g := range j.gpus {
		for _, d := range []Direction{ToDevice, ToHost, BothWays} {
			if ctx.Err() != nil {
				return context.Cause(ctx)
			}
			if err := j.with(g, one(d, d.String(), true)); err != nil {
				j.broke(g.Index, err)
				break
			}
		}
	}
	if len(j.gpus) > 1 {
		for _, d := range []Direction{ToDevice, ToHost, BothWays} {
			if ctx.Err() != nil {
				return context.Cause(ctx)
			}
			j.each(one(d, d.String()+", all at once", false))
		}
	}
	j.replayed(before)
	return nil
}

// replays are PCIe's counters, as far as sensors tell.
func (j *job) replays() map[int]uint64 {
	out := map[int]uint64{}
	for _, g := range j.gpus {
		if j.sensors == nil {
			break
		}
		if r, err := j.sensors.Read(g.Bus); err == nil {
			out[g.Index] = r.Replays
		}
	}
	return out
}

// replayed compares them with what they were.
func (j *job) replayed(before map[int]uint64) {
	for gpu, after := range j.replays() {
		was, ok := before[gpu]
		if !ok {
			continue
		}
		n := float64(after - was)
		j.measure(Measurement{Name: "pcie replays", GPU: gpu, Value: n, Unit: "replays"})
		if most := j.params["max_pcie_replays"]; n > most {
			j.findf(gpu, Fail, "reseat the GPU, look at its riser and retimer", "%.0f PCIe replays during the test; %.0f are allowed", n, most)
		}
	}
}

// p2p has each GPU write to each other one's memory and read it back.
func p2p(ctx context.Context, j *job) error {
	if len(j.gpus) < 2 {
		j.result.skip("it takes two GPUs; there is %d", len(j.gpus))
		return nil
	}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	devices := make([]Device, len(j.gpus))
	for i, g := range j.gpus {
		d, err := j.machine.Device(g.Index)
		if err != nil {
			return err
		}
		if _, _, err := d.Take(int64(j.params["size_mb"]) * 1e6); err != nil {
			return err
		}
		devices[i] = d
	}
	for a := range j.gpus {
		for b := range j.gpus {
			if a == b {
				continue
			}
			if ctx.Err() != nil {
				return context.Cause(ctx)
			}
			j.progress("GPU %d and %d", j.gpus[a].Index, j.gpus[b].Index)
			if err := j.pair(j.gpus[a], j.gpus[b], devices[a], devices[b]); err != nil {
				return err
			}
		}
	}
	for _, d := range devices {
		if err := d.Free(); err != nil {
			return err
		}
	}
	return nil
}

// pair is GPU a at b's memory.
func (j *job) pair(a, b GPU, from, to Device) error {
	const remedy = "look at the NVLinks' states and error counters of both GPUs (nvidia-smi nvlink -s, -e), and at the fabric manager; reset both"
	r, err := from.Remote(to, Pattern{"random", Random, uint64(1 + a.Index*1000 + b.Index)})
	if err != nil {
		return err
	}
	peer := b.Index
	m := Measurement{Name: "write", GPU: a.Index, Peer: &peer, Value: float64(r.Bytes) / r.Write / 1e9, Unit: "GB/s"}
	j.miscompared(a.Index, r.Written, remedy, "writing to GPU "+itoa(peer)+", as that one finds it")
	if r.Staged {
		m.Name = "copy through the host"
		j.measure(m)
		return nil
	}
	j.miscompared(a.Index, r.ReadBy, remedy, "reading from GPU "+itoa(peer))
	floor := floorPeer
	if x, y := j.model(a), j.model(b); x != nil && y != nil && x.NVLink != nil && y.NVLink != nil {
		m = m.figure(x.NVLink.UniGBps)
	}
	if n, ok := m.given(j.params["min_bandwidth"]); ok {
		m, floor = n, 1
	}
	j.hold(m, floor, remedy)
	m.Name, m.Value, m.Floor = "read", float64(r.Bytes)/r.Read/1e9, 0
	j.measure(m)
	return nil
}
