package perf

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/assay-hpc/assay/coll/elem"
	"github.com/assay-hpc/assay/internal/getopt"
)

// A UsageError says what is wrong with the arguments.
type UsageError struct {
	Text string
	// Status is the exit status of nccl-tests in this case: 0 for an option that does not exist
	// (after the usage text), 255 for sizes.
	Status int
	// Option is set for an option that does not exist, or lacks its argument.
	Option bool
}

func (e *UsageError) Error() string { return e.Text }

// Parse reads the arguments after the program's name as getopt_long does, see package getopt. Operands
// are ignored. The errors are getopt.ErrHelp or a *UsageError.
func Parse(collective, program string, args []string) (Config, error) {
	c := Default(collective)
	if program != "" {
		c.Program = program
	}
	c.Args = slices.Clone(args)
	table := make([]getopt.Flag, len(flags))
	for i, f := range flags {
		table[i] = getopt.Flag{Short: f.short, Long: f.long}
		if f.arg != "" {
			table[i].Value = getopt.Required
		}
		if f.long == "format" {
			table[i].Also = "output"
		}
	}
	_, err := getopt.Parse(args, table, c.apply)
	var option *getopt.Error
	switch {
	case errors.As(err, &option):
		return c, &UsageError{Text: option.Error(), Option: true}
	case err != nil:
		return c, err
	}
	return c, c.validate()
}

func (c *Config) apply(i int, _, value string) error {
	c.given = append(c.given, flags[i].long)
	err := flags[i].set(c, value)
	if _, ok := err.(*UsageError); ok || err == nil || err == getopt.ErrHelp {
		return err
	}
	return &UsageError{Text: err.Error(), Status: int(InvalidUsage)}
}

// validate rejects settings that cannot be run, and corrects what nccl-tests corrects.
func (c *Config) validate() error {
	if c.MinBytes > c.MaxBytes && c.sweeps() {
		return &UsageError{Text: fmt.Sprintf("invalid sizes for 'minbytes' and 'maxbytes': %d > %d", c.MinBytes, c.MaxBytes), Status: 255}
	}
	c.downgrade()
	c.chooseLibraries()
	for _, r := range []struct {
		bad  bool
		text string
	}{
		{c.Threads < 1 || c.GPUs < 1 || c.PerProcess() > 1<<16, "-t and -g are at least 1, and at most 65536 together"},
		{c.Iters < 1 || c.AggIters < 1, "-n and -m are at least 1"},
		{c.Warmup < 0 || c.Cycles < 0 || c.Check < 0 || c.Timeout < 0, "-w, -N, -c and -T are at least 0"},
		{c.MaxBytes < 1, "-e is at least 1 byte: operations of size 0 measure nothing"},
		{c.StepFactor < 1, "-f is at least 1: sizes would not grow"},
		{c.Graph < 0, "-G is a number of launches, or 0 for none"},
		{c.Unalign < 0 || c.Unalign > 1<<20, "-u is a number of elements, from 0 to 1048576"},
		{c.Root < -1, "-r is a rank, or -1 for all"},
		{c.CTAPolicy < 0 || c.CTAPolicy > 2, "-x is 0, 1 or 2"},
		{c.Blocking < 0 || c.Blocking > 3, "-z is 0, 1, 2 or 3"},
		{c.Average < RankZero || c.Average > Maximum, "-a is 0, 1, 2 or 3"},
		{c.MinBytes < c.MaxBytes && c.StepFactor <= 1 && c.StepBytes == 0, "-i 0 never gets from -b to -e: give -i, or -f 2"},
		{c.MinBytes == 0 && c.MaxBytes > 0 && c.StepFactor > 1, "-b 0 never gets larger by -f: begin with 1"},
		{!c.sweeps() && (len(c.Types) > 1 || len(c.Ops) > 1), "--shape and --split take one type and one reduction"},
		{c.Bench && c.Output == "json", "--bench and --format json both want stdout"},
		{c.Versus != "" && !c.sweeps(), "--versus compares sweeps: leave out --shape and --split"},
		{c.Versus != "" && (c.Blocking != 0 || c.PerIter || c.CPUTime || c.Graph != 0 || c.JSONFile != "" || c.Slowest != 0), "--versus goes without -z, -I, -C, -G, -J and --slowest: see --graph and --format json"},
		{len(c.Libraries) > 0 && c.Engine == "assay" && c.Versus == "", "--library is for --engine nccl, or --versus nccl"},
		{len(c.Libraries) > 0 && strings.Contains(c.Versus, "="), "--library goes with --versus nccl or best, not with variables"},
		{c.Versus != "" && c.Engine != "assay" && len(c.Libraries) < 2, "--versus compares --engine assay with another"},
		{c.SameBits && !c.addsFloats(), "--same-bits is for sums (-o sum) of float or double by all_reduce, reduce and reduce_scatter"},
		{c.SameBits && c.Versus != "", "--same-bits goes without --versus: what it costs is what --versus ASSAY_SAME_BITS=1 shows"},
		{c.SameBits && c.Engine != "assay", "--same-bits is for --engine assay: other engines do not promise an order"},
		{c.Versus == "" && c.Launch != "both", "--graph goes with --versus: -G launches graphs"},
	} {
		if r.bad {
			return &UsageError{Text: r.text, Status: int(InvalidUsage)}
		}
	}
	if c.Versus != "" && !slices.Contains(c.given, "iters") && !slices.Contains(c.given, "min-time") {
		c.MinTime = versusTime
	}
	return nil
}

// addsFloats reports whether all that is measured are sums whose bits are the same on host memory
// and on devices, if they are added in the same order.
func (c *Config) addsFloats() bool {
	for _, t := range c.Types {
		if t != elem.Float32 && t != elem.Float64 {
			return false
		}
	}
	return CheckSameBits(c.Collective) == nil && len(c.Ops) == 1 && c.Ops[0] == Reductions[0]
}

// CheckSameBits returns an error if a collective adds nothing, so that --same-bits is not for it.
func CheckSameBits(collective string) error {
	if k, ok := findCollective(collective); !ok || !k.Reduces() {
		return fmt.Errorf("%s adds nothing; all_reduce, reduce and reduce_scatter do", collective)
	}
	return nil
}

// chooseLibraries selects the nccl engine if libraries are named, and compares them if there are
// several.
func (c *Config) chooseLibraries() {
	if len(c.Libraries) > 0 && c.Versus == "" && !slices.Contains(c.given, "engine") {
		c.Engine = "nccl"
	}
	if len(c.Libraries) > 1 && c.Versus == "" && c.Engine == "nccl" {
		c.Versus = "nccl"
	}
}

// versusTime is the minimum length of a repetition when engines are compared: long compared with
// the noise of one clock reading.
const versusTime = 10 * time.Millisecond

// downgrade resolves conflicts between options as nccl-tests does. Host memory has no graphs, but
// scripts see the same output as there.
func (c *Config) downgrade() {
	if c.PerIter && c.Graph != 0 {
		c.PerIter = false
		c.messages = append(c.messages, "# per-iteration timing (-I) does not work with -G: turned off")
	}
	if c.Blocking == 3 && c.Graph != 0 {
		c.Blocking = 0
		c.messages = append(c.messages, "# -z 3 does not work with -G: using -z 0")
	}
	if c.PerIterSkip < 0 || c.PerIterSkip >= max(c.Iters, 1) {
		c.messages = append(c.messages, fmt.Sprintf("# -K %d is not between 0 and the iterations: using 0", c.PerIterSkip))
		c.PerIterSkip = 0
	}
}
