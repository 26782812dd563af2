//go:build cuda && cgo

package world

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"

	"github.com/assay-hpc/assay/coll"
	"github.com/assay-hpc/assay/coll/cuda"
	"github.com/assay-hpc/assay/coll/cuda/bench"
	"github.com/assay-hpc/assay/coll/cuda/kernels"
	"github.com/assay-hpc/assay/coll/perf"
	"github.com/assay-hpc/assay/internal/gpu/driver"
)

// gpuFactory creates the executors of operations on GPUs.
var gpuFactory = cuda.Factory

// GPUs lists the GPUs that this process sees, or returns the reason why there are none.
func GPUs() ([]perf.Device, error) { return listGPUs() }

var listGPUs = sync.OnceValues(func() ([]perf.Device, error) {
	all, err := driver.Present()
	if err != nil {
		return nil, err
	}
	var out []perf.Device
	for _, d := range all {
		out = append(out, perf.Device{Index: d.Ordinal, Bus: [3]int{d.PCI.Domain, d.PCI.Bus, d.PCI.Device}, Name: d.Name})
	}
	return out, nil
})

// AboutKernels names the compilers of the kernels. If there are several, the driver decides which
// build is used.
func AboutKernels() string {
	return "by nvcc " + strings.Join(kernels.Compilers(), ", for older drivers by ")
}

// gpuWorld opens the ranks on GPUs. The engines share each rank's stream and
// memory.
func (j *job) gpuWorld(ctx context.Context, cfg perf.Config, all []perf.Device) (_ *World, err error) {
	own, err := j.ownGPUs(len(all))
	if err != nil {
		return nil, err
	}
	libs, err := openLibraries(cfg)
	if err != nil {
		return nil, err
	}
	w := &World{World: perf.World{Process: j.where.Rank}}
	for _, l := range libs {
		w.Notes = append(w.Notes, l.note())
	}
	w.Abort = w.abort
	w.Device = func(i int) perf.Device { return all[own[i]] }
	defer func() {
		if err != nil {
			w.discard(err)
		}
	}()
	lanes, err := w.lanes(own)
	if err != nil {
		return nil, err
	}
	if cfg.Engine == "nccl" {
		meeting, err := j.join(ctx, j.id, j.knobs, nil)
		if err != nil {
			return nil, err
		}
		w.keep(meeting)
		r, err := w.nccl(ctx, libs[0], lanes, meeting)
		w.Engine, w.Version, w.Comms = r.Engine, r.Version, r.Comms
		if err != nil {
			return nil, err
		}
		return w, w.against(ctx, libs[1:], lanes, meeting)
	}
	comms, err := j.join(ctx, j.id, j.knobs, own)
	if err != nil {
		return nil, err
	}
	w.keep(comms)
	w.Engine, w.Version, w.Split = "assay", libraryVersion, split(ctx)
	for i, c := range comms {
		g, err := (&gpuComm{Lane: lanes[i]}).like(c)
		if err != nil {
			return nil, err
		}
		w.Comms = append(w.Comms, g)
	}
	if err := w.against(ctx, libs, lanes, comms); err != nil {
		return nil, err
	}
	return w, j.rival(ctx, w, cfg.Versus, own)
}

// against adds libraries as rivals.
func (w *World) against(ctx context.Context, libs []*library, lanes []*bench.Lane, meeting []*coll.Comm) error {
	for _, l := range libs {
		r, err := w.nccl(ctx, l, lanes, meeting)
		if err != nil {
			return err
		}
		w.Against = append(w.Against, r)
	}
	return nil
}

// lanes opens a lane on each device.
func (w *World) lanes(devices []int) ([]*bench.Lane, error) {
	var out []*bench.Lane
	for _, d := range devices {
		c, err := driver.Open(d)
		if err != nil {
			return nil, err
		}
		w.closes = append(w.closes, c.Close)
		l, err := bench.Open(c)
		if err != nil {
			return nil, err
		}
		w.closes = append(w.closes, l.Close)
		out = append(out, l)
	}
	return out, nil
}

// nccl opens a library on the lanes. The ranks meet over the given communicators.
func (w *World) nccl(ctx context.Context, lib *library, lanes []*bench.Lane, meeting []*coll.Comm) (perf.Rival, error) {
	comms := make([]*bench.NCCL, len(lanes))
	err := each(len(lanes), func(i int) (err error) {
		if comms[i], err = bench.OpenNCCL(ctx, lib.Library, lanes[i], meeting[i]); err != nil {
			_ = meeting[i].Abort() // otherwise the other ranks wait for this one
		}
		return err
	})
	r := perf.Rival{Engine: lib.name, Version: int(lib.Library.Version())}
	for _, c := range comms {
		if c == nil {
			continue
		}
		r.Comms = append(r.Comms, c)
		w.aborts = append(w.aborts, func() { _ = c.Abort() })
	}
	w.closes = append(w.closes, func() error {
		return each(len(r.Comms), func(i int) error { return r.Comms[i].(*bench.NCCL).Close() })
	})
	if err != nil {
		return r, fmt.Errorf("NCCL %s (%s): %w", lib.Library.Version(), lib.Path(), err)
	}
	return r, nil
}

// A gpuComm is a communicator on a GPU. Its operations run on a lane's stream.
type gpuComm struct {
	*rankComm
	*bench.Lane
	windows map[uintptr]*coll.Window // by address
}

var (
	_ perf.Remote       = (*gpuComm)(nil)
	_ perf.PreMulSummer = (*gpuComm)(nil)
	_ perf.Chooser      = (*gpuComm)(nil)
	_ perf.Registrar    = (*gpuComm)(nil)
	_ member            = (*gpuComm)(nil)
)

// like implements member.
func (g *gpuComm) like(c *coll.Comm) (perf.Comm, error) {
	if err := c.SetStream(g.Stream()); err != nil {
		return nil, err
	}
	return &gpuComm{&rankComm{Comm: c, device: true}, g.Lane, map[uintptr]*coll.Window{}}, nil
}

// Alloc is the lane's: it returns memory like that of any other program.
func (g *gpuComm) Alloc(n int) ([]byte, error) { return g.Lane.Alloc(n) }

// Free is the lane's.
func (g *gpuComm) Free(b []byte) { g.Lane.Free(b) }

// Register implements perf.Registrar.
func (g *gpuComm) Register(b []byte) error {
	at := bench.Address(b)
	w, err := g.RegisterWindow(context.Background(), coll.Device(at, len(b)))
	if err == nil {
		g.windows[at] = w
	}
	return err
}

// Deregister implements perf.Registrar. Like Free it leaves errors to Wait.
func (g *gpuComm) Deregister(b []byte) {
	if w := g.windows[bench.Address(b)]; w != nil {
		_ = g.Wait()
		_ = w.Close()
		delete(g.windows, bench.Address(b))
	}
}

// Wait returns when all enqueued work is done, with its errors. Only here can an
// operation that was aborted report its error.
func (g *gpuComm) Wait() error {
	return errors.Join(g.Lane.Wait(), g.AsyncError())
}
