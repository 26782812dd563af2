// Command bench measures assay's collectives and OpenMPI's in one run: the same number of ranks
// on the same processors, the same sizes, alternately, each side asleep while the other one
// works. It prints the time of both and the ratio for every collective and size, and the
// geometric means.
//
//	go run ./coll/perf/peers/bench -mpi bin/collbench -ranks 2,4
package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"math"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/assay-hpc/assay/internal/stat"
)

type options struct {
	mpi      string
	ranks    []int
	ops      []string
	min, max int
	step     int
	rounds   int
	out      string
	wrap     string
	network  bool
}

func main() {
	if dir := os.Getenv(rankEnv); dir != "" {
		if err := rankMain(dir); err != nil {
			fmt.Fprintln(os.Stderr, "bench:", err)
			os.Exit(3)
		}
		return
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	o, err := parse(os.Args[1:])
	if err == nil {
		err = measurePeers(ctx, o)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(3)
	}
}

func parse(args []string) (o options, err error) {
	fs := flag.NewFlagSet("bench", flag.ExitOnError)
	fs.StringVar(&o.mpi, "mpi", "", "the peer's program; empty measures assay alone")
	ranks := fs.String("ranks", "2,4", "numbers of ranks")
	ops := fs.String("ops", "all_reduce,all_gather,broadcast,reduce_scatter", "collectives")
	fs.IntVar(&o.min, "b", 8, "smallest size in bytes")
	fs.IntVar(&o.max, "e", 256<<20, "largest size in bytes")
	fs.IntVar(&o.step, "f", 4, "factor between sizes")
	fs.IntVar(&o.rounds, "rounds", 5, "measurements of each side at each size; the medians are compared")
	fs.StringVar(&o.out, "json", "", "write the rows to this file")
	fs.StringVar(&o.wrap, "mpirun", "mpirun --allow-run-as-root", "how to start the peer")
	fs.BoolVar(&o.network, "network", false, "two ranks in two network namespaces joined by a veth pair, over TCP, and iperf3 between them (needs root)")
	_ = fs.Parse(args)
	if o.network {
		*ranks = "2"
	}
	for _, r := range strings.Split(*ranks, ",") {
		n, err := strconv.Atoi(r)
		if err != nil || n < 2 {
			return o, fmt.Errorf("-ranks %q: numbers from 2 on, separated by commas", *ranks)
		}
		o.ranks = append(o.ranks, n)
	}
	o.ops = strings.Split(*ops, ",")
	if o.step < 2 || o.min < 1 || o.max < o.min {
		return o, fmt.Errorf("-b %d -e %d -f %d make no series of sizes", o.min, o.max, o.step)
	}
	return o, nil
}

// sizes returns the sizes from -b to -e by the factor, always including -e.
func (o options) sizes() (all []int) {
	for s := o.min; s < o.max; s *= o.step {
		all = append(all, s)
	}
	return append(all, o.max)
}

// A peerRow is the result at one size, in microseconds.
type peerRow struct {
	Ranks int       `json:"ranks"`
	Op    string    `json:"op"`
	Bytes int       `json:"bytes"`
	Assay float64   `json:"assay_us"`
	MPI   float64   `json:"openmpi_us,omitempty"`
	Ratio float64   `json:"ratio,omitempty"` // above 1: assay is faster
	All   []float64 `json:"assay_all_us"`
	Their []float64 `json:"openmpi_all_us,omitempty"`
}

func measurePeers(ctx context.Context, o options) error {
	var rows []peerRow
	for _, n := range o.ranks {
		got, err := series(ctx, o, n)
		rows = append(rows, got...)
		if err != nil {
			return err
		}
	}
	summary(rows, o)
	if o.out == "" {
		return nil
	}
	b, err := json.MarshalIndent(rows, "", " ")
	if err != nil {
		return err
	}
	tmp := o.out + ".tmp"
	if err := os.WriteFile(tmp, b, 0o644); err != nil {
		return err
	}
	return os.Rename(tmp, o.out)
}

// series measures all collectives and sizes with n ranks.
func series(ctx context.Context, o options, n int) (rows []peerRow, err error) {
	dir, err := os.MkdirTemp("", "assay-bench")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	if o.network {
		if err := joinNamespaces(); err != nil {
			return nil, err
		}
		defer removeNamespaces()
	}
	ours, err := startAssay(ctx, filepath.Join(dir, "assay"), n, o)
	if err != nil {
		return nil, err
	}
	defer ours.stop()
	sides := []*side{ours}
	if o.mpi != "" {
		theirs, err := startMPI(ctx, filepath.Join(dir, "mpi"), n, o)
		if err != nil {
			return nil, err
		}
		defer theirs.stop()
		sides = append(sides, theirs)
	}
	where := ""
	if o.network {
		where = ", over TCP between two network namespaces"
	}
	fmt.Printf("# %d ranks%s\n# %-14s %12s %12s %12s %8s\n", n, where, "collective", "bytes", "assay us", "OpenMPI us", "ratio")
	for _, op := range o.ops {
		for _, size := range o.sizes() {
			if ctx.Err() != nil {
				return rows, ctx.Err()
			}
			r, err := measure(sides, op, size, o.rounds)
			if err != nil {
				return rows, err
			}
			r.Ranks = n
			rows = append(rows, r)
			fmt.Printf("  %-14s %12d %12.2f %12.2f %8.2f\n", op, size, r.Assay, r.MPI, r.Ratio)
		}
	}
	if o.network {
		return rows, againstIperf(ctx, ours, o)
	}
	return rows, nil
}

// measure times both sides alternately.
func measure(sides []*side, op string, size, rounds int) (peerRow, error) {
	r := peerRow{Op: op, Bytes: size}
	const goal = 0.03 // seconds per measurement
	iters := make([]int, len(sides))
	for i, s := range sides {
		iters[i] = 4
		for range 3 { // the first runs also connect and touch memory
			t, err := s.time(op, size, 2, iters[i])
			if err != nil {
				return r, err
			}
			iters[i] = min(max(4, int(goal/(t/float64(iters[i])+1e-9))), 200000)
		}
	}
	all := make([][]float64, len(sides))
	for k := range rounds {
		for j := range sides {
			i := (j + k) % len(sides)
			t, err := sides[i].time(op, size, max(2, iters[i]/10), iters[i])
			if err != nil {
				return r, err
			}
			all[i] = append(all[i], t/float64(iters[i])*1e6)
		}
	}
	r.All, r.Assay = all[0], stat.Median(all[0])
	if len(sides) > 1 {
		r.Their, r.MPI = all[1], stat.Median(all[1])
		r.Ratio = r.MPI / r.Assay
	}
	return r, nil
}

// summary prints the geometric mean and the worst ratio of each collective.
func summary(rows []peerRow, o options) {
	if o.mpi == "" {
		return
	}
	fmt.Printf("# ratio: time of OpenMPI / time of assay, medians of %d; above 1 assay is faster\n", o.rounds)
	fmt.Printf("# %-5s %-16s %8s %8s %10s\n", "ranks", "collective", "geomean", "worst", "at bytes")
	for _, n := range o.ranks {
		for _, op := range append(slices.Clone(o.ops), "all") {
			logs, count, worst, at := 0.0, 0, math.Inf(1), 0
			for _, r := range rows {
				if r.Ranks != n || op != "all" && r.Op != op {
					continue
				}
				logs += math.Log(r.Ratio)
				count++
				if r.Ratio < worst {
					worst, at = r.Ratio, r.Bytes
				}
			}
			if count > 0 {
				fmt.Printf("  %-5d %-16s %8.2f %8.2f %10d\n", n, op, math.Exp(logs/float64(count)), worst, at)
			}
		}
	}
}
