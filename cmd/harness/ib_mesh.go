package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/assay-hpc/assay/coll/bootstrap"
	"github.com/assay-hpc/assay/coll/knob"
	"github.com/assay-hpc/assay/coll/topology"
	"github.com/assay-hpc/assay/harness/platform"
	"github.com/assay-hpc/assay/harness/result"
	"github.com/assay-hpc/assay/harness/sysfs"
	"github.com/assay-hpc/assay/harness/version"
	"github.com/assay-hpc/assay/internal/exit"
	"github.com/assay-hpc/assay/perftest/mesh"
	"github.com/assay-hpc/assay/perftest/probe"
)

// errMeshFailed sets the exit status without a message: the report already explains the
// failure.
var errMeshFailed = exit.With(exit.Fail, nil)

// ibMesh is "harness ib mesh": it measures between all ports of a job.
func ibMesh(ctx context.Context, args []string, out, errOut io.Writer) error {
	m, err := mesh.Parse(args, platformPorts)
	switch {
	case errors.Is(err, probe.ErrHelp):
		_, err = io.WriteString(out, mesh.Usage())
		return err
	case err != nil:
		return exit.Usagef("ib mesh: %w (see harness ib mesh --help)", err)
	}
	return runMesh(ctx, m, out, errOut)
}

// platformPorts returns the rate of a platform's ports in Gb/s.
func platformPorts(name string) (float64, error) {
	db, err := platform.Load()
	if err != nil {
		return 0, err
	}
	p, err := db.Platform(name)
	switch {
	case err != nil:
		return 0, err
	case p.NICs == nil || p.NICs.GbitEach.Value == 0:
		return 0, fmt.Errorf("the rate of %s's ports is not known: use --expect", name)
	}
	return p.NICs.GbitEach.Value, nil
}

// runMesh measures. Rank 0 prints the report.
func runMesh(ctx context.Context, m *mesh.Args, out, errOut io.Writer) error {
	g, err := meetMesh(ctx)
	if err != nil {
		return fmt.Errorf("ib mesh: %w", err)
	}
	defer g.lose(nil)
	first := g.Rank() == 0
	// The mesh ends when one of its processes is lost, so that no other waits for it.
	together, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	stop := context.AfterFunc(g.lost, func() { cancel(context.Cause(g.lost)) })
	defer stop()
	err = measureMesh(together, m, g, out, errOut)
	if err != nil && ctx.Err() != nil {
		g.abort()
		return errors.New("ib mesh: interrupted")
	}
	if cause := context.Cause(g.lost); cause != nil {
		g.abort()
		return fmt.Errorf("ib mesh: %w", cause)
	}
	broken := g.broken() // rank 0 may not know about that
	closed := g.close()
	var s *exit.Error
	var usage *mesh.UsageError
	switch {
	case err == nil:
		return closed
	case errors.As(err, &s):
		return err
	case !first && !broken:
		return exit.With(meshStatus(err), nil) // rank 0 says why
	case errors.As(err, &usage):
		return exit.Usagef("ib mesh: %w", err)
	}
	return exit.With(meshStatus(err), fmt.Errorf("ib mesh: %w", err))
}

// meshStatus returns an error's exit status.
func meshStatus(err error) int {
	var usage *mesh.UsageError
	if errors.As(err, &usage) {
		return exit.Usage
	}
	return exit.NotDone
}

// measureMesh runs the mesh, and writes its report.
func measureMesh(ctx context.Context, m *mesh.Args, g *meshGroup, out, errOut io.Writer) error {
	o, err := g.options(m)
	if err != nil {
		return err
	}
	first := g.Rank() == 0
	bar := newStatusLine(errOut)
	o.Progress = func(now mesh.Progress) {
		if !first || len(now.Now) == 0 {
			return
		}
		more := ""
		if n := len(now.Now) - 1; n > 0 {
			more = fmt.Sprintf(" and %d more", n)
		}
		bar.show("%d/%d %.60s%s", now.Step, now.Steps, now.Now[0], more)
	}
	r, err := mesh.Run(ctx, o, g)
	bar.clear()
	if err != nil {
		return err
	}
	if first {
		r.Host, r.Version, r.Time = o.Host, version.Get().String(), time.Now().UTC().Truncate(time.Second)
		err = writeMesh(r, m, out)
	}
	// A launcher that sees a process fail may kill the others, so wait until rank 0 has
	// written the report.
	if _, waited := g.AllGather(ctx, nil); waited != nil && err == nil {
		err = waited
	}
	if err == nil && r.Verdict == result.Fail {
		return errMeshFailed
	}
	return err
}

// options returns the mesh's options.
func (g *meshGroup) options(m *mesh.Args) (mesh.Options, error) {
	o := m.Options
	o.Addr, o.Measure, o.Config.Allocate = g.addr, ibRun, gpuMemory
	tree, err := sysfs.Open("/")
	if err != nil {
		return o, err
	}
	o.Tree = tree
	host, err := os.Hostname()
	if err != nil {
		return o, err
	}
	o.Host, _, _ = strings.Cut(host, ".")
	id, err := topology.HostID(g.getenv, tree)
	if err != nil {
		return o, fmt.Errorf("telling hosts apart: %w; NCCL_HOSTID can say it", err)
	}
	o.HostID = fmt.Sprintf("%016x", id)
	return o, nil
}

// writeMesh writes the report.
func writeMesh(r *mesh.Report, m *mesh.Args, out io.Writer) error {
	view := mesh.View{Gbits: m.Options.Config.Gbits}
	if m.HTML != "" {
		var b bytes.Buffer
		err := r.WriteHTML(&b, view)
		if err == nil {
			err = writeFile(m.HTML, b.Bytes())
		}
		if err != nil {
			return fmt.Errorf("--html: %w", err)
		}
	}
	if !m.JSON {
		return r.WriteText(out, view)
	}
	return writeJSON(out, r)
}

// A meshGroup represents the processes of the job.
type meshGroup struct {
	mesh.Group
	net    *bootstrap.Net // nil: no other processes
	addr   string
	getenv func(string) string
	lost   context.Context // ends when another process was lost
	lose   context.CancelCauseFunc
}

// A lostError says that another process was lost.
type lostError struct {
	rank int
	what string
}

func (e *lostError) Error() string { return fmt.Sprintf("rank %d was lost: %s", e.rank, e.what) }

// meshPatience is the timeout of an exchange: processes with nothing to measure in a
// step wait for those that measure, which have a limit of their own.
const meshPatience = 24 * time.Hour

// meetMesh finds the other processes that a launcher started.
func meetMesh(ctx context.Context) (*meshGroup, error) {
	knobs, _, err := knob.Load(os.Environ(), nil)
	if err != nil {
		return nil, err
	}
	where, err := bootstrap.Detect(knobs.Getenv)
	if err != nil {
		return nil, exit.With(exit.Usage, err)
	}
	lost, lose := context.WithCancelCause(context.Background())
	g := &meshGroup{Group: mesh.Alone{}, addr: "127.0.0.1", getenv: knobs.Getenv, lost: lost, lose: lose}
	if where.Size == 1 {
		return g, nil
	}
	boot := bootstrap.Options{
		Ifname: knobs.SocketIfname, Family: knobs.SocketFamily,
		OnDeath: func(rank int, what string) { lose(&lostError{rank, what}) },
	}
	id, root, err := bootstrap.ShareID(ctx, where, boot)
	if err != nil {
		return nil, fmt.Errorf("finding the other processes of the job (%s): %w", where.Launcher, err)
	}
	if root != nil {
		context.AfterFunc(ctx, func() { root.Close() })
	}
	// The root gives up joining after its own timeout, and informs all processes.
	boot.Timeout = meshPatience
	joining, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	if g.net, err = bootstrap.Join(joining, id, where.Rank, where.Size, boot); err != nil {
		return nil, err
	}
	g.Group, g.addr = g.net, g.net.Addr().String()
	return g, nil
}

// broken reports whether the processes can no longer exchange data.
func (g *meshGroup) broken() bool { return g.net != nil && g.net.Err() != nil }

func (g *meshGroup) close() error {
	if g.net == nil {
		return nil
	}
	return g.net.Close()
}

// abort leaves the group at once.
func (g *meshGroup) abort() {
	if g.net != nil {
		g.net.Abort()
	}
}
