package diag

import (
	"context"
	"errors"
	"runtime"
	"sync"
)

// floorPeer is the minimum fraction of NVLink's peak that a kernel's writes must reach. The data
// base's floor is for copy engines, which are faster. On H200 writes reach 370 of 450 GB/s
// (docs/diag.md); this is 0.87 of that, like the database's measured_fraction.
const floorPeer = 0.71

const remedyBandwidth = "look at memory clocks, ECC errors and other processes on the GPU; reset it; if it stays slow, replace it"

// bandwidth is the test memory_bandwidth: it runs streams and checks the result of each.
func bandwidth(ctx context.Context, j *job) error {
	j.each(func(g GPU, d Device) error {
		if _, _, err := d.Take(int64(j.params["memory_size_mb"]) * 1e6); err != nil {
			return err
		}
		for _, s := range []streamKind{writeStream, readStream, copyStream, triadStream} {
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
			f := g.figure(s.String(), best, "GB/s").against(j.expected(g, "memory_bandwidth"))
			if s == triadStream {
				f = f.given(j.params["minimum_bandwidth"] / 1e3)
			}
			j.measure(f, remedyBandwidth)
		}
		return nil
	})
	return nil
}

const remedyHost = "look at the link's generation and width, at ACS and the BIOS, and at where host memory lies; reseat the GPU"

var directions = []direction{toDevice, toHost, bothWays}

// pcie copies between the host and each GPU, first one GPU at a time, then all at once.
func pcie(ctx context.Context, j *job) error {
	before := j.tally()
	for _, g := range j.gpus {
		j.alone(g, func(g GPU, d Device) error {
			for _, way := range directions {
				f, err := j.host(ctx, g, d, way, way.String())
				if err != nil {
					return err
				}
				if way != bothWays {
					f = f.against(j.expected(g, way.String())).given(j.params["min_bandwidth"])
				}
				j.measure(f, remedyHost)
			}
			return nil
		})
	}
	if len(j.gpus) > 1 {
		j.hostAll(ctx)
	}
	j.counted(before, pcieCounters)
	return nil
}

// hostAll copies to and from all GPUs at once. They may share an uplink by design, so the rates are
// measured but not judged.
func (j *job) hostAll(ctx context.Context) {
	var ready, all sync.WaitGroup
	ready.Add(len(j.gpus))
	for _, g := range j.gpus {
		all.Go(func() {
			come := sync.OnceFunc(ready.Done)
			defer come() // also after an error, otherwise the other GPUs would wait
			j.alone(g, func(g GPU, d Device) error {
				// The first copies prepare memory, which takes longer than the copies.
				if _, err := j.host(ctx, g, d, toDevice, "the first copies"); err != nil {
					return err
				}
				come()
				ready.Wait()
				for _, way := range directions {
					f, err := j.host(ctx, g, d, way, way.String()+", all at once")
					if err != nil {
						return err
					}
					j.measure(f, "")
				}
				return nil
			})
		})
	}
	all.Wait()
}

// host copies in one direction and returns the rate.
func (j *job) host(ctx context.Context, g GPU, d Device, way direction, name string) (figure, error) {
	if ctx.Err() != nil {
		return figure{}, context.Cause(ctx)
	}
	j.progress("GPU %d: %s", g.Index, name)
	bytes, s, wrong, err := d.Host(way, max(1, int(j.params["copies"])))
	if err != nil {
		return figure{}, err
	}
	j.miscompared(g.Index, wrong, remedyHost, name)
	return g.figure(name, float64(bytes)/s/1e9, "GB/s"), nil
}

// p2p lets each GPU write to the memory of each other GPU and read it back.
func p2p(ctx context.Context, j *job) error {
	if len(j.gpus) < 2 {
		j.skip("it takes two GPUs; there is %d", len(j.gpus))
		return nil
	}
	before := j.tally()
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	devices, err := j.takeAll()
	if err != nil {
		return err
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
	j.counted(before, nvlinkCounters)
	return freeAll(devices)
}

// takeAll prepares all GPUs and the parameter size_mb of each one's memory.
func (j *job) takeAll() ([]Device, error) {
	devices := make([]Device, len(j.gpus))
	for i, g := range j.gpus {
		d, err := j.machine.Device(g.Index)
		if err != nil {
			return nil, err
		}
		if _, _, err := d.Take(int64(j.params["size_mb"]) * 1e6); err != nil {
			return nil, err
		}
		devices[i] = d
	}
	return devices, nil
}

func freeAll(devices []Device) error {
	var errs []error
	for _, d := range devices {
		errs = append(errs, d.Free())
	}
	return errors.Join(errs...)
}

// pair tests the access of GPU a to the memory of GPU b.
func (j *job) pair(a, b GPU, from, to Device) error {
	const remedy = "look at the NVLinks' states and error counters of both GPUs (nvidia-smi nvlink -s, -e), and at the fabric manager; reset both"
	r, err := from.Remote(to, memPattern{"random", randomWords, uint64(1 + a.Index*1000 + b.Index)})
	if err != nil {
		return err
	}
	j.miscompared(a.Index, r.Written, remedy, "writing to "+gpuName(b.Index)+", as that one finds it")
	rate := float64(r.Bytes) / r.Write / 1e9
	if r.Staged {
		j.measure(a.to(b, "copy through the host", rate), "")
		return nil
	}
	j.miscompared(a.Index, r.ReadBy, remedy, "reading from "+gpuName(b.Index))
	expected := j.expected(a, "p2p_write")
	write := a.to(b, "write", rate).against(expected)
	if l := write.Measured.Limit; l != nil {
		write.Measured.Limit = nil
		write.Measured.AtLeast(floorPeer*write.Measured.Expected, l.Source)
	}
	j.measure(write.given(j.params["min_bandwidth"]), remedy)
	read := a.to(b, "read", float64(r.Bytes)/r.Read/1e9).against(expected).given(j.params["min_bandwidth"])
	read.Measured.Limit = nil
	j.measure(read, "")
	return nil
}
