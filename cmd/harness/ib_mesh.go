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

	"github.com/assay-hpc/assay/harness/fabric"
	"github.com/assay-hpc/assay/internal/exit"
	"github.com/assay-hpc/assay/internal/getopt"
	"github.com/assay-hpc/assay/internal/host/sysfs"
	"github.com/assay-hpc/assay/internal/host/topology"
	"github.com/assay-hpc/assay/internal/outfile"
	"github.com/assay-hpc/assay/internal/result"
	"github.com/assay-hpc/assay/internal/version"
	"github.com/assay-hpc/assay/perftest/gpumem"
	"github.com/assay-hpc/assay/perftest/mesh"
)

// errMeshFailed sets the exit status without a message: the report already explains the
// failure.
var errMeshFailed = exit.With(exit.Fail, nil)

// ibMesh is "harness ib mesh": it measures between all ports of a job.
func ibMesh(ctx context.Context, args []string, out, errOut io.Writer) error {
	m, err := mesh.Parse(args, platformPorts)
	switch {
	case errors.Is(err, getopt.ErrHelp):
		_, err = io.WriteString(out, mesh.Usage())
		return err
	case err != nil:
		return exit.Usagef("ib mesh: %w (see harness ib mesh --help)", err)
	}
	return runMesh(ctx, m, out, errOut)
}

// platformPorts returns the rate of a platform's ports in Gb/s.
func platformPorts(name string) (float64, error) {
	db, key, err := hardware(name)
	if err != nil {
		return 0, err
	}
	return db.PortGbit(key)
}

// A meshGroup represents the processes of the job.
type meshGroup struct {
	mesh.Group
	*fabric.Ranks
}

// runMesh measures. Rank 0 prints the report.
func runMesh(ctx context.Context, m *mesh.Args, out, errOut io.Writer) error {
	return asRank(ctx, "ib mesh", meshStatus, func(ctx context.Context, ranks *fabric.Ranks) error {
		g := meshGroup{mesh.Alone{}, ranks}
		if ranks.Net != nil {
			g.Group = ranks.Net
		}
		return measureMesh(ctx, m, g, out, errOut)
	})
}

// asRank finds the other processes of the job that a launcher started, and runs a command that
// measures with them, until one of them is lost. status returns an error's exit status; the first
// process says why.
func asRank(ctx context.Context, name string, status func(error) int, do func(context.Context, *fabric.Ranks) error) error {
	ranks, err := fabric.Meet(ctx)
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	first := ranks.Net == nil || ranks.Net.Rank() == 0
	together, stop := ranks.UntilLost(ctx)
	defer stop()
	err = do(together, ranks)
	if err != nil && ctx.Err() != nil {
		ranks.Abort()
		return fmt.Errorf("%s: interrupted", name)
	}
	if cause := ranks.Lost(); cause != nil {
		ranks.Abort()
		return fmt.Errorf("%s: %w", name, cause)
	}
	broken := ranks.Broken() // rank 0 may not know about that
	closed := ranks.Close()
	var s *exit.Error
	switch {
	case err == nil:
		return closed
	case errors.As(err, &s):
		return err
	case !first && !broken:
		return exit.With(status(err), nil)
	}
	return exit.With(status(err), fmt.Errorf("%s: %w", name, err))
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
func measureMesh(ctx context.Context, m *mesh.Args, g meshGroup, out, errOut io.Writer) error {
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
func (g meshGroup) options(m *mesh.Args) (mesh.Options, error) {
	o := m.Options
	o.Addr, o.Measure, o.Config.Allocate = g.Addr, ibRun, gpumem.Allocate
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
	id, err := topology.HostID(g.Getenv, tree)
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
			err = outfile.Write(m.HTML, b.Bytes())
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
