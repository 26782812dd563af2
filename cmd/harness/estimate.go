package main

import (
	"io"
	"slices"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/assay-hpc/assay/harness/estimate"
	"github.com/assay-hpc/assay/internal/exit"
	"github.com/assay-hpc/assay/internal/grammar"
	"github.com/assay-hpc/assay/internal/platform"
	"github.com/assay-hpc/assay/internal/words"
)

type estimateOptions struct {
	params, dtype, strategy string
	gpus, perNode           int
	intra, inter, platform  string
	efficiency              float64
	tflops, peak, mfu       float64
	sequence, batch         int
	recompute               bool
	format                  string
	job                     estimate.Job
	figures                 []estimate.Figure
}

const estimateText = `How many bytes a training step sends, how long that takes on given links, how
long the step computes, and whether the one hides behind the other:

  harness estimate --params 2e9 --dtype fp32 --gpus 32 --per-node 8 \
    --intra 300GB/s --inter 200Gb/s --tflops 156 --seqlen 2048 --batch 64
  harness estimate --params 70B --dtype bf16 --strategy zero3 --gpus 64 --hardware hgx-h100-ndr400

Rates are of one direction: --intra of a GPU, --inter of a node, all its NICs
together (8x400Gb/s). Data get 80 % of what is advertised, 90 % at best:
--efficiency 0.8 reckons with it. docs/estimate.md has the formulas.`

func estimateCommand(out io.Writer) *cli.Command {
	var o estimateOptions
	return &cli.Command{
		Name: "estimate", Usage: "estimate whether training is network-bound",
		Description: estimateText,
		Flags: []cli.Flag{
			&cli.StringFlag{Name: "params", Destination: &o.params, Usage: "the model has `N` parameters: 2e9, 2B, 350M"},
			&cli.StringFlag{Name: "dtype", Value: "fp32", Destination: &o.dtype, Usage: "parameters and gradients are sent as `TYPE`: fp32, bf16, fp16, fp8, …"},
			&cli.StringFlag{Name: "strategy", Value: "dp", Destination: &o.strategy, Usage: "`NAME`: dp, zero1, zero2, zero3, fsdp"},
			&cli.IntFlag{Name: "gpus", Aliases: []string{"g"}, Destination: &o.gpus, Usage: "on `N` GPUs in all"},
			&cli.IntFlag{Name: "per-node", Destination: &o.perNode, Usage: "`M` of them on a node (default: the platform's, else 8)"},
			&cli.StringFlag{Name: "intra", Destination: &o.intra, Usage: "a GPU sends to others of its node at `RATE`: 300GB/s"},
			&cli.StringFlag{Name: "inter", Destination: &o.inter, Usage: "a node sends to others at `RATE`: 200Gb/s, 8x400Gb/s"},
			&cli.StringFlag{Name: "hardware", Aliases: []string{"p"}, Destination: &o.platform, Usage: "take what is not given from `PROFILE` of the hardware database, or of a file of your own, mine.yaml"},
			&cli.Float64Flag{Name: "efficiency", Value: 1, Destination: &o.efficiency, Usage: "data get `SHARE` of both rates"},
			&cli.Float64Flag{Name: "tflops", Destination: &o.tflops, Usage: "a GPU sustains `N` TFLOP/s"},
			&cli.Float64Flag{Name: "peak", Destination: &o.peak, Usage: "instead: the GPU's peak in `TFLOP/s`, of which --mfu is reached"},
			&cli.Float64Flag{Name: "mfu", Value: 0.5, Destination: &o.mfu, Usage: "the `SHARE` of the peak that is reached"},
			&cli.IntFlag{Name: "seqlen", Value: 2048, Destination: &o.sequence, Usage: "`TOKENS` of a sequence"},
			&cli.IntFlag{Name: "batch", Destination: &o.batch, Usage: "`N` sequences a step, over all GPUs (default: 2 a GPU)"},
			&cli.BoolFlag{Name: "recompute", Value: true, Destination: &o.recompute, Usage: "recompute activations; --recompute=false keeps them"},
			grammar.Format(&o.format, "text", "json"),
		},
		Before: grammar.NoArgs,
		Action: func(c *cli.Context) error {
			if err := o.validate(c); err != nil {
				return err
			}
			return o.run(out)
		},
	}
}

func (o *estimateOptions) validate(c *cli.Context) error {
	switch {
	case o.params == "" || !c.IsSet("gpus"):
		return exit.Usagef("--params and --gpus are needed: how large the model is, and how many GPUs train it")
	case c.IsSet("tflops") && c.IsSet("peak"):
		return exit.Usagef("--tflops and --peak both say how fast a GPU computes; give one of them")
	case c.IsSet("mfu") && o.tflops != 0:
		return exit.Usagef("--mfu goes with --peak or --hardware")
	case !(o.mfu > 0 && o.mfu <= 1):
		return exit.Usagef("--mfu %g: it is a share above 0, up to 1", o.mfu)
	case !(o.efficiency > 0 && o.efficiency <= 1):
		return exit.Usagef("--efficiency %g: it is a share above 0, up to 1", o.efficiency)
	case !slices.Contains(estimate.Strategies(), o.strategy):
		return exit.Usagef("--strategy: there is no %q; did you mean %q?", o.strategy, words.Nearest(o.strategy, estimate.Strategies()))
	}
	for _, f := range []struct {
		flag string
		v    float64
		most float64
	}{
		{"gpus", float64(o.gpus), 1e9}, {"per-node", float64(o.perNode), 1e9}, {"tflops", o.tflops, 1e12}, {"peak", o.peak, 1e12},
		{"seqlen", float64(o.sequence), 1e12}, {"batch", float64(o.batch), 1e12},
	} {
		if c.IsSet(f.flag) && !(f.v > 0 && f.v <= f.most) {
			return exit.Usagef("--%s %g: it is a number above 0, up to %g", f.flag, f.v, f.most)
		}
	}
	o.job = estimate.Job{
		DType: strings.ToLower(o.dtype), Strategy: estimate.Strategy(o.strategy), GPUs: o.gpus, PerNode: o.perNode, Efficiency: o.efficiency,
		FLOPS: o.tflops * 1e12, Sequence: o.sequence, Batch: o.batch, Recompute: o.recompute,
	}
	if o.peak != 0 {
		o.job.FLOPS = o.peak * o.mfu * 1e12
	}
	var err error
	if o.job.Params, err = estimate.ParseParams(o.params); err != nil {
		return exit.Usagef("--params: %w", err)
	}
	if o.job.Bytes, err = estimate.ParseDType(o.dtype); err != nil {
		return exit.Usagef("--dtype: %w", err)
	}
	for _, r := range []struct {
		flag, text string
		to         *estimate.Rate
	}{{"--intra", o.intra, &o.job.Intra}, {"--inter", o.inter, &o.job.Inter}} {
		if r.text == "" {
			continue
		}
		if *r.to, err = estimate.ParseRate(r.text); err != nil {
			return exit.Usagef("%s: %w", r.flag, err)
		}
	}
	if o.platform != "" {
		if err := o.fromPlatform(); err != nil {
			return err
		}
	}
	if o.job.PerNode == 0 {
		o.job.PerNode = 8
	}
	if o.job.Batch == 0 && !c.IsSet("batch") {
		o.job.Batch = 2 * o.job.GPUs
	}
	return nil
}

// fromPlatform takes from the database what the flags do not set.
func (o *estimateOptions) fromPlatform() error {
	db, key, err := hardware(o.platform)
	if err != nil {
		return err
	}
	p := db.Platforms[key]
	if o.job.PerNode == 0 {
		o.job.PerNode = p.GPUsPerNode.Max()
	}
	g := db.GPUs[p.GPU]
	if g == nil {
		return exit.Usagef("--hardware: the database names no GPU of %s", o.platform)
	}
	var intra *platform.Figure
	switch {
	case g.NVLink != nil && g.NVLink.Links.Known():
		intra = &g.NVLink.UniGBps
	case g.PCIe != nil: // bridges join a few cards, if there are any
		intra = &g.PCIe.UniGBps
	}
	if intra != nil && intra.Known() && o.intra == "" {
		o.job.Intra = estimate.Rate(intra.Value * 1e9)
		o.use("intra", *intra, intra.Value, "GB/s")
	}
	if gbit, f := p.NICs.Gbit(); gbit > 0 && o.inter == "" {
		o.job.Inter = estimate.Rate(gbit / 8 * 1e9)
		o.use("inter", f, gbit, "Gb/s")
	}
	if o.job.FLOPS == 0 && g.BF16Dense.Known() {
		o.job.FLOPS = g.BF16Dense.Value * o.mfu * 1e12
		o.use("peak", g.BF16Dense, g.BF16Dense.Value, "TFLOP/s")
	}
	return nil
}

func (o *estimateOptions) use(flag string, f platform.Figure, value float64, unit string) {
	o.figures = append(o.figures, estimate.Figure{Flag: flag, Value: value, Unit: unit, Source: f.Source})
}

func (o *estimateOptions) run(out io.Writer) error {
	r, err := o.job.Report(o.figures)
	if err != nil {
		return exit.Usagef("%w: see --intra, --inter, --per-node, --seqlen and --batch", err)
	}
	return writeReport(r, out, o.format, "")
}
