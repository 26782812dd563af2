package world

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"

	"github.com/assay-hpc/assay/coll/bootstrap"
	"github.com/assay-hpc/assay/coll/perf"
	"github.com/assay-hpc/assay/internal/exit"
)

// everyFlags are what Every measures if the flags do not say otherwise: all of it in about a minute
// on two GPUs.
var everyFlags = []string{"-b", "8", "-e", "1G", "-f", "8", "--min-time", "3", "--repeat", "3"}

// Every compares all collectives with another engine, one after the other, in this process alone.
// flags are those of the benchmark, with --versus; without -t and -g the ranks are all GPUs. show is
// told what is measured. Warnings go to warn.
func Every(ctx context.Context, flags []string, show func(string), warn io.Writer) (docs []*perf.Document, err error) {
	where, err := bootstrap.Detect(os.Getenv)
	if err != nil {
		return nil, err
	}
	if where.Size > 1 {
		return nil, exit.Usagef("coll: several processes compare one operation at a time: harness coll OP --versus ...")
	}
	all := append([]string{}, everyFlags...)
	if gpus, err := GPUs(); err == nil {
		all = append(all, "-g", fmt.Sprint(len(gpus)))
	}
	all = append(append(all, flags...), "--format", "json")
	for _, op := range perf.Collectives() {
		cfg, err := perf.Parse(op, "", all)
		if err != nil {
			return nil, err
		}
		show(op)
		d, err := one(ctx, cfg, warn)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", op, err)
		}
		docs = append(docs, d)
	}
	return docs, nil
}

// one compares one collective.
func one(ctx context.Context, cfg perf.Config, warn io.Writer) (*perf.Document, error) {
	w, err := Open(ctx, cfg, warn)
	if err != nil {
		return nil, err
	}
	var out bytes.Buffer
	_, err = perf.Run(ctx, cfg, w.World, perf.Streams{Out: &out, Err: warn, Environ: os.Environ()})
	closed := w.Close()
	if err != nil {
		return nil, err
	}
	if closed != nil {
		return nil, closed
	}
	return perf.ReadDocument(&out)
}
