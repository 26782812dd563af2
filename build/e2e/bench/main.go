// Command bench compares "assay build" with ten calls of "buildctl build" on the stand-in matrix
// of ten targets. Both run on one buildkitd, in one run, with its cache emptied before each cold
// build. The buildctl calls run four at a time, with one Dockerfile each, arranged like those of
// comparable projects (the peers): every component's stage derives from the target's own base.
// Steps and stand-ins are the same. assay also certifies each image, which the peers do not. It
// prints times, executed steps, bytes downloaded and bytes stored, and the ratios.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"text/tabwriter"
	"time"

	"github.com/containerd/log"
	"github.com/moby/buildkit/client"

	"github.com/assay-hpc/assay/build/daemon"
	"github.com/assay-hpc/assay/build/driver"
	"github.com/assay-hpc/assay/build/standin"
)

func main() {
	_ = log.SetLevel("fatal")
	var o options
	flag.StringVar(&o.buildkitd, "buildkitd", "bin/buildkitd", "the daemon to start")
	flag.StringVar(&o.buildctl, "buildctl", "bin/buildctl", "the peer's client")
	flag.StringVar(&o.matrix, "matrix", "build/e2e/testdata/bench.yaml", "the matrix to build")
	flag.StringVar(&o.dir, "dir", "", "working directory (default: a temporary one)")
	flag.StringVar(&o.json, "json", "", "also write the figures to this file")
	flag.IntVar(&o.jobs, "jobs", 4, "images at a time, for both")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := measureBuilds(ctx, o); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

type options struct {
	buildkitd, buildctl, matrix, dir, json string
	jobs                                   int
}

// A figure is one of the four runs.
type figure struct {
	Who        string  `json:"who"`
	What       string  `json:"what"`
	Seconds    float64 `json:"seconds"`
	Executed   int     `json:"stepsExecuted"`
	Downloaded int64   `json:"bytesDownloaded"` // from stand-ins (measured) and distribution packages (from the lock)
	Cache      int64   `json:"bytesCached"`     // in the builder
	Stored     int64   `json:"bytesStored"`     // of the ten images
}

// bench contains what all runs share.
type bench struct {
	options
	up      *standin.Upstreams
	builder *daemon.Builder
	w       *driver.Workspace
}

func measureBuilds(ctx context.Context, o options) error {
	if o.dir == "" {
		dir, err := os.MkdirTemp("", "assay-bench-")
		if err != nil {
			return err
		}
		defer os.RemoveAll(dir)
		o.dir = dir
	}
	b := &bench{options: o}
	if err := b.prepare(ctx); err != nil {
		return err
	}
	defer b.up.Close()
	defer b.builder.Close()
	var all []figure
	for _, r := range []struct {
		who, what string
		cold      bool
		build     func(context.Context) (int, int64, error)
		out       string
	}{
		{"assay", "cold", true, b.assay, "assay"},
		{"assay", "no change", false, b.assay, "assay"},
		{"buildctl", "cold", true, b.peer, "peer"},
		{"buildctl", "no change", false, b.peer, "peer"},
	} {
		f, err := b.measure(ctx, r.who, r.what, r.cold, r.build, filepath.Join(o.dir, r.out))
		if err != nil {
			return fmt.Errorf("%s, %s: %w", r.who, r.what, err)
		}
		all = append(all, f)
	}
	return b.print(all)
}

func (b *bench) prepare(ctx context.Context) error {
	cache, err := standin.CacheDir()
	if err != nil {
		return err
	}
	if b.up, err = standin.New(ctx, cache, standin.Options{Log: os.Stderr}); err != nil {
		return err
	}
	if err := b.up.Start(); err != nil {
		return err
	}
	all, err := daemon.Connect(ctx, daemon.Options{StateDir: filepath.Join(b.dir, "buildkit"), Binary: b.buildkitd})
	if err != nil {
		return errors.Join(err, b.up.Close())
	}
	b.builder = all[0]
	return b.lock(ctx)
}

// measure runs one build. A cold build starts with nothing except the lock.
func (b *bench) measure(ctx context.Context, who, what string, cold bool, build func(context.Context) (int, int64, error), out string) (figure, error) {
	f := figure{Who: who, What: what}
	if cold {
		if err := b.builder.Client.Prune(ctx, nil, client.PruneAll); err != nil {
			return f, err
		}
	}
	b.up.ResetStats()
	fmt.Fprintf(os.Stderr, "bench: %s, %s\n", who, what)
	start := time.Now()
	executed, packages, err := build(ctx)
	if err != nil {
		return f, err
	}
	f.Seconds, f.Executed = time.Since(start).Seconds(), executed
	f.Downloaded = b.up.Total().Bytes
	if cold { // otherwise no package is installed again
		f.Downloaded += packages
	}
	usage, err := b.builder.Client.DiskUsage(ctx)
	if err != nil {
		return f, err
	}
	for _, u := range usage {
		f.Cache += u.Size
	}
	f.Stored, err = size(out)
	return f, err
}

// size is the total of a directory's files.
func size(dir string) (int64, error) {
	var n int64
	err := filepath.Walk(dir, func(_ string, info os.FileInfo, err error) error {
		if err == nil && info.Mode().IsRegular() {
			n += info.Size()
		}
		return err
	})
	return n, err
}

func (b *bench) print(all []figure) error {
	tw := tabwriter.NewWriter(os.Stdout, 0, 8, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(tw, "run\ttime (s)\tsteps executed\tdownloaded (MB)\tbuilder's cache (MB)\timages (MB)\t")
	for _, f := range all {
		fmt.Fprintf(tw, "%s, %s\t%.1f\t%d\t%.1f\t%.1f\t%.1f\t\n", f.Who, f.What, f.Seconds, f.Executed, mb(f.Downloaded), mb(f.Cache), mb(f.Stored))
	}
	fmt.Fprintf(tw, "ratio, cold\t%.2f\t%.2f\t%.2f\t%.2f\t%.2f\t\n", all[0].Seconds/all[2].Seconds, ratio(all[0].Executed, all[2].Executed),
		ratio(all[0].Downloaded, all[2].Downloaded), ratio(all[0].Cache, all[2].Cache), ratio(all[0].Stored, all[2].Stored))
	fmt.Fprintf(tw, "ratio, no change\t%.3f\t\t\t\t\t\n", all[1].Seconds/all[3].Seconds)
	if err := tw.Flush(); err != nil || b.json == "" {
		return err
	}
	text, err := json.MarshalIndent(all, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(b.json, append(text, '\n'), 0o644)
}

func mb(n int64) float64 { return float64(n) / 1e6 }

func ratio[T int | int64](a, b T) float64 { return float64(a) / float64(b) }
