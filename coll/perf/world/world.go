// Package world opens what the benchmark of collectives runs on: this process's ranks, on the
// processor or on GPUs, of assay's engine and of NCCL, as members of the job that a launcher
// started. It also measures with them which algorithms are the fastest.
package world

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"

	"github.com/assay-hpc/assay/coll"
	"github.com/assay-hpc/assay/coll/bootstrap"
	"github.com/assay-hpc/assay/coll/debug"
	"github.com/assay-hpc/assay/coll/knob"
	"github.com/assay-hpc/assay/coll/perf"
)

// libraryVersion is the version, in NCCL's encoding, of the NCCL that the engine follows
// in its calls and knobs.
const libraryVersion = 23007

// A World is what the benchmark runs on, with the functions that end it.
type World struct {
	perf.World
	aborts []func() // may be called concurrently
	closes []func() error
}

// abort aborts the work in progress on all ranks.
func (w *World) abort(error) {
	var wg sync.WaitGroup
	for _, f := range w.aborts {
		wg.Go(f)
	}
	wg.Wait()
}

// Close closes everything in reverse order of opening.
func (w *World) Close() error {
	var errs []error
	for len(w.closes) > 0 {
		last := len(w.closes) - 1
		errs = append(errs, w.closes[last]())
		w.closes = w.closes[:last]
	}
	return errors.Join(errs...)
}

// discard closes a world that could only be opened in part.
func (w *World) discard(cause error) {
	w.abort(cause)
	_ = w.Close() // adds nothing to the cause
}

// each runs f concurrently for all n ranks of the process: collective calls need that.
func each(n int, f func(i int) error) error {
	errs := make([]error, n)
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() { errs[i] = f(i) })
	}
	wg.Wait()
	return errors.Join(errs...)
}

// A job is the job that this process is part of.
type job struct {
	where      bootstrap.World
	perProcess int // ranks
	knobs      *knob.Knobs
	warn       io.Writer     // for warnings about variables
	id         coll.UniqueID // of its first communicator
}

// joinJob finds the other processes of the job, if a launcher started one.
func joinJob(ctx context.Context, perProcess int, warn io.Writer) (*job, error) {
	knobs, warnings, err := knob.Load(os.Environ(), nil)
	if err != nil {
		return nil, err
	}
	where, err := bootstrap.Detect(knobs.Getenv)
	if err != nil {
		return nil, err
	}
	log := knobs.OpenLog()
	context.AfterFunc(ctx, func() { _ = log.Close() }) // the communicators have their own logs
	log = log.ForRank(where.Rank*perProcess, where.LocalRank*perProcess)
	for _, w := range knob.News(warnings) {
		switch {
		case where.Rank != 0:
		case w.Level == debug.Warn:
			fmt.Fprintln(warn, "harness:", w)
		default:
			log.Infof(debug.Env, "%v", w)
		}
	}
	boot := bootstrap.Options{
		Ifname: knobs.SocketIfname, Family: knobs.SocketFamily,
		Logf: func(f string, a ...any) { log.Infof(debug.Bootstrap, f, a...) },
	}
	id, root, err := bootstrap.ShareID(ctx, where, boot)
	if err != nil {
		return nil, fmt.Errorf("finding the other processes of the job (%s): %w", where.Launcher, err)
	}
	if root != nil {
		context.AfterFunc(ctx, func() { root.Close() })
	}
	joined := *knobs
	joined.CommID = "" // ShareID has used it
	return &job{where: where, perProcess: perProcess, knobs: &joined, warn: warn, id: id}, nil
}

// join joins this process's ranks to a communicator. Without devices they are
// on the processor.
func (j *job) join(ctx context.Context, id coll.UniqueID, knobs *knob.Knobs, devices []int) ([]*coll.Comm, error) {
	ranks := make([]int, j.perProcess)
	for i := range ranks {
		ranks[i] = j.where.Rank*j.perProcess + i
	}
	return coll.CommInitRanks(ctx, j.where.Size*j.perProcess, id, ranks, coll.Config{Knobs: knobs, Devices: devices, GPUs: gpuFactory})
}

// keep makes the world abort and close the communicators.
func (w *World) keep(comms []*coll.Comm) {
	for _, c := range comms {
		w.aborts = append(w.aborts, func() { _ = c.Abort() })
	}
	w.closes = append(w.closes, func() error {
		var errs []error
		for _, c := range comms {
			errs = append(errs, c.Destroy())
		}
		return errors.Join(errs...)
	})
}

// Open opens what the flags ask for: ranks on GPUs or on the processor, and the engines. It writes
// warnings about variables to warn.
func Open(ctx context.Context, cfg perf.Config, warn io.Writer) (*World, error) {
	gpus, missing := GPUs()
	use, err := onGPUs(cfg, missing)
	if err != nil {
		return nil, err
	}
	j, err := joinJob(ctx, cfg.PerProcess(), warn)
	if err != nil {
		return nil, err
	}
	j.knobs.SameBits = j.knobs.SameBits || cfg.SameBits
	if cfg.CTAPolicy > 0 {
		j.knobs.CTAPolicy = [...]string{1: "EFFICIENCY", 2: "ZERO"}[cfg.CTAPolicy]
	}
	if use {
		return j.gpuWorld(ctx, cfg, gpus)
	}
	w, err := j.hostWorld(ctx)
	if err != nil {
		return nil, err
	}
	if note := skipped(missing); note != "" && cfg.Device == "" {
		w.Notes = []string{"GPUs: " + note}
	}
	if err := j.rival(ctx, w, cfg.Versus, nil); err != nil {
		w.discard(err)
		return nil, err
	}
	return w, nil
}

// hostWorld opens the ranks on the processor.
func (j *job) hostWorld(ctx context.Context) (*World, error) {
	comms, err := j.join(ctx, j.id, j.knobs, nil)
	if err != nil {
		return nil, err
	}
	w := &World{World: perf.World{Process: j.where.Rank, Engine: "assay", Version: libraryVersion}}
	w.keep(comms)
	for _, c := range comms {
		w.Comms = append(w.Comms, &rankComm{Comm: c})
	}
	w.Split = split(ctx)
	w.Abort = w.abort
	return w, nil
}

// split returns perf.World's Split for a world of members.
func split(ctx context.Context) func(c perf.Comm, color int) (perf.Comm, error) {
	return func(c perf.Comm, color int) (perf.Comm, error) {
		m := c.(member)
		sub, err := m.communicator().Split(ctx, color, c.Rank(), coll.Child{})
		if err != nil {
			return nil, err
		}
		return m.like(sub)
	}
}
