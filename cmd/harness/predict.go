package main

import (
	"io"

	"github.com/urfave/cli/v2"

	"github.com/assay-hpc/assay/coll/op"
	"github.com/assay-hpc/assay/coll/predict"
	"github.com/assay-hpc/assay/internal/exit"
	"github.com/assay-hpc/assay/internal/grammar"
	"github.com/assay-hpc/assay/internal/platform"
	"github.com/assay-hpc/assay/internal/words"
)

type predictOptions struct {
	tables            cli.StringSlice
	leaveOneOut, held bool
	platform          string
	gpus, nodes       int
	segment           int
	collective, algo  string
	sizes, format     string
	collectiveParsed  op.Collective
	collectiveSet     bool
	sizesParsed       []int64
}

// clusterSizes are the default sizes for a whole cluster.
const clusterSizes = "1M,16M,128M,1G,8G,16G"

const predictText = `Without --hardware, the published tables of the hardware database are
predicted and compared, row by row. With it, times are predicted for a platform
and a number of GPUs, and every figure that they rest on is listed with its
source. With --nodes alone it is all GPUs of so many nodes: all collectives,
and what a run of the suite fabric over them costs.

  harness predict
  harness predict --hardware hgx-h100-ndr400 --gpus 256 --sizes 1M:8G
  harness predict --hardware gb200-nvl72 --nodes 360

docs/predict.md says what the model is made of and how wrong it is, docs/scale.md
what runs cost.`

func predictCommand(out io.Writer) *cli.Command {
	var o predictOptions
	return &cli.Command{
		Name: "predict", Usage: "predict the speed of collectives on GPU platforms",
		Description: predictText,
		Flags: []cli.Flag{
			&cli.StringSliceFlag{Name: "table", Destination: &o.tables, Usage: "compare `TABLE` only; may be repeated"},
			&cli.BoolFlag{Name: "leave-one-out", Destination: &o.leaveOneOut, Usage: "predict each table with constants fitted to the others (takes seconds)"},
			&cli.BoolFlag{Name: "held-out", Destination: &o.held, Usage: "compare with published rows that were not used for fitting"},
			&cli.StringFlag{Name: "hardware", Aliases: []string{"p"}, Destination: &o.platform, Usage: "predict for `PROFILE` of the hardware database, or of a file of your own, mine.yaml"},
			&cli.IntFlag{Name: "gpus", Aliases: []string{"g"}, Destination: &o.gpus, Usage: "with `N` GPUs in all"},
			&cli.IntFlag{Name: "nodes", Destination: &o.nodes, Usage: "on `M` nodes (default: as few as hold the GPUs); without --gpus: all GPUs of M nodes"},
			&cli.IntFlag{Name: "segment", Destination: &o.segment, Usage: "with `K` nodes of each NVLink domain, where one has several nodes (default: as few domains as hold the nodes)"},
			&cli.StringFlag{Name: "collective", Aliases: []string{"c"}, Value: "all_reduce", Destination: &o.collective, Usage: "predict `COLLECTIVE` (with --nodes alone: all)"},
			&cli.StringFlag{Name: "algorithm", Destination: &o.algo, Usage: "only `NAME`: Ring, Tree, NVLS, NVLSTree (default: what the model finds fastest)"},
			&cli.StringFlag{Name: "sizes", Aliases: []string{"s"}, Value: "8,1K,64K,1M,16M,128M,1G,8G,16G", Destination: &o.sizes, Usage: "`LIST` of bytes with K, M, G (powers of 1024), or FROM:TO in doublings"},
			grammar.Format(&o.format, "text", "json"),
		},
		Before: grammar.NoArgs,
		Action: func(c *cli.Context) error {
			if err := o.validate(c); err != nil {
				return err
			}
			db, key, err := hardware(o.platform)
			if err != nil {
				return err
			}
			o.platform = key
			job := predict.Job{Platform: o.platform, GPUs: o.gpus, Nodes: o.nodes, Segment: o.segment, Collective: o.collectiveParsed, Algorithm: o.algo}
			switch {
			case o.platform == "":
				return o.compare(out, db)
			case o.gpus == 0:
				return o.cluster(out, db, job)
			}
			return o.predict(out, db, job)
		},
	}
}

func (o *predictOptions) validate(c *cli.Context) error {
	modes := 0
	for _, on := range []bool{len(o.tables.Value()) > 0, o.leaveOneOut, o.held, o.platform != ""} {
		if on {
			modes++
		}
	}
	if modes > 1 {
		return exit.Usagef("--table, --leave-one-out, --held-out and --hardware exclude one another")
	}
	if o.platform == "" {
		for _, f := range []string{"gpus", "nodes", "segment", "collective", "algorithm", "sizes"} {
			if c.IsSet(f) {
				return exit.Usagef("--%s goes with --hardware", f)
			}
		}
		return nil
	}
	if c.IsSet("nodes") && o.nodes < 1 || c.IsSet("gpus") && o.gpus < 1 {
		return exit.Usagef("--nodes and --gpus are 1 or more")
	}
	if c.IsSet("segment") && o.segment < 1 {
		return exit.Usagef("--segment is 1 or more")
	}
	if o.gpus == 0 && o.nodes == 0 {
		return exit.Usagef("--hardware needs --gpus: how many in all; or --nodes: all of theirs")
	}
	o.collectiveSet = c.IsSet("collective")
	if o.gpus == 0 && o.algo != "" && !o.collectiveSet {
		return exit.Usagef("--algorithm with --nodes alone needs --collective: not all have it")
	}
	if o.gpus == 0 && !c.IsSet("sizes") {
		o.sizes = clusterSizes
	}
	var ok bool
	if o.collectiveParsed, ok = predict.CollectiveOf(o.collective); !ok {
		return exit.Usagef("there is no model of %q; did you mean %q?", o.collective, words.Nearest(o.collective, predict.Collectives()))
	}
	var err error
	if o.sizesParsed, err = predict.ParseSizes(o.sizes); err != nil {
		return exit.Usagef("--sizes: %w", err)
	}
	return nil
}

// compare predicts published tables, and compares the values.
func (o *predictOptions) compare(out io.Writer, db *platform.DB) error {
	var list []predict.Comparison
	var skipped []error
	var err error
	switch tables := o.tables.Value(); {
	case o.held:
		list, skipped = predict.HeldOut(db, predict.DefaultFitted)
	case o.leaveOneOut:
		list, err = predict.LeaveOneOut(db)
	case len(tables) == 0:
		list, err = predict.CompareAll(db, predict.DefaultFitted)
	default:
		list, err = predict.CompareTables(db, tables, predict.DefaultFitted)
	}
	if err != nil {
		return err
	}
	fitted := &predict.DefaultFitted
	if o.leaveOneOut {
		fitted = nil
	}
	return writeReport(predict.NewComparisons(fitted, list, skipped), out, o.format, "")
}

// predict predicts a collective on a platform, without published rows.
func (o *predictOptions) predict(out io.Writer, db *platform.DB, job predict.Job) error {
	p, err := predict.NewPredictor(db, job, predict.DefaultFitted)
	if err != nil {
		return exit.Usagef("%w", err)
	}
	f, err := p.Forecast(o.sizesParsed)
	if err != nil {
		return err
	}
	return writeReport(f, out, o.format, "")
}

// cluster predicts collectives over all GPUs of nodes.
func (o *predictOptions) cluster(out io.Writer, db *platform.DB, job predict.Job) error {
	collectives := []op.Collective{job.Collective}
	if !o.collectiveSet {
		collectives = nil
		for _, name := range predict.Collectives() {
			c, _ := predict.CollectiveOf(name)
			collectives = append(collectives, c)
		}
	}
	d, err := predict.ForCluster(db, job, collectives, o.sizesParsed)
	if err != nil {
		return err
	}
	return writeReport(d, out, o.format, "")
}
