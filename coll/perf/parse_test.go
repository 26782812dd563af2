package perf

import (
	"errors"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/assay-hpc/assay/coll/elem"
	"github.com/assay-hpc/assay/internal/getopt"
)

func TestParseSize(t *testing.T) {
	for in, want := range map[string]int64{
		"8": 8, "0": 0, "1K": 1024, "1k": 1024, "64M": 64 << 20, "8G": 8 << 30, "0.5M": 512 << 10, "128MB": 128 << 20, "1.5": 1,
		"1e3": 1000, "1e1K": 10240, ".5k": 512, " 7": 7, "+7": 7, "2Gibberish": 2 << 30, "0.0001": 0, "-0": 0,
	} {
		if got, err := ParseSize(in); got != want || err != nil {
			t.Errorf("ParseSize(%q) = %d, %v; want %d", in, got, err, want)
		}
	}
	for _, in := range []string{"", "M", "8T", "8B", "-1", "1e", "x8", "0x10", "1e30", "9999999999G", "nan", "inf", ".", "-"} {
		if got, err := ParseSize(in); err == nil {
			t.Errorf("ParseSize(%q) = %d; want an error", in, got)
		}
	}
}

func FuzzParseSize(f *testing.F) {
	for _, s := range []string{"8", "0.5M", "1e3", "-1", "99999999999999999999"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		if n, err := ParseSize(s); n < 0 || err != nil && n != 0 {
			t.Errorf("ParseSize(%q) = %d, %v", s, n, err)
		}
	})
}

func TestParseInt(t *testing.T) {
	for in, want := range map[string]int{
		"12": 12, "0x1f": 31, "0X1F": 31, "010": 8, "08": 0, "-1": -1, "+5": 5, " 9": 9, "12abc": 12, "abc": 0, "": 0, "0x": 0, "all": 0,
		"-": 0, "99999999999999999999": -1, "4294967297": 1,
	} {
		if got := parseInt(in); got != want {
			t.Errorf("parseInt(%q) = %d; want %d", in, got, want)
		}
	}
}

func parse(line string) (Config, error) { return Parse("all_reduce", "", strings.Fields(line)) }

func TestParse(t *testing.T) {
	for line, set := range map[string]func(*Config){
		"":                                     func(*Config) {},
		"-b 8 -e 64M -f 2 -t 4":                func(c *Config) { c.MinBytes, c.MaxBytes, c.StepFactor, c.Threads = 8, 64<<20, 2, 4 },
		"-b8 -e64M -f2 -t4":                    func(c *Config) { c.MinBytes, c.MaxBytes, c.StepFactor, c.Threads = 8, 64<<20, 2, 4 },
		"--minbytes=8 --maxbytes 16 --ngpus=2": func(c *Config) { c.MinBytes, c.MaxBytes, c.GPUs = 8, 16, 2 },
		"--minb 8":                             func(c *Config) { c.MinBytes = 8 },
		"-r -1":                                func(c *Config) { c.Root = -1 },
		"-n 0x10 -m 010 -w garbage":            func(c *Config) { c.Iters, c.AggIters, c.Warmup = 16, 8, 0 },
		"-n 5 operand -m 2":                    func(c *Config) { c.Iters, c.AggIters = 5, 2 },
		"-n 5 -- -m 2":                         func(c *Config) { c.Iters = 5 },
		"-d half -o prod":                      func(c *Config) { c.Types, c.Ops = []elem.Type{elem.Float16}, Reductions[1:2] },
		"-d all -o all":                        func(c *Config) { c.Types, c.Ops = elem.Types, Reductions },
		"-d float16 -o xor": func(c *Config) {
			c.messages = []string{"invalid type float16, defaulting to float .. ", "invalid op xor, defaulting to sum .. "}
		},
		"-c 0 -p 1 -z 3 -T 5 -C1 -S1 -a3 -M1": func(c *Config) {
			c.Check, c.ParallelInit, c.Blocking, c.Timeout, c.CPUTime, c.Timestamps, c.Average, c.Memory = 0, true, 3, 5, true, true, Maximum, true
		},
		"-I 1 -K 3 -u 1 -N 0": func(c *Config) { c.PerIter, c.PerIterSkip, c.Unalign, c.Cycles = true, 3, 1, 0 },
		"-I 1 -G 4 -z 3": func(c *Config) {
			c.Graph, c.notes = 4, []string{"-G"}
			c.messages = []string{"# per-iteration timing (-I) does not work with -G: turned off", "# -z 3 does not work with -G: using -z 0"}
		},
		"-K 20":               func(c *Config) { c.messages = []string{"# -K 20 is not between 0 and the iterations: using 0"} },
		"-y 1 -R 2 -x 1 -D 1": func(c *Config) { c.Register, c.CTAPolicy, c.notes = 2, 1, []string{"-y", "-R", "-x", "-D"} },
		"-y 0 -G 0 -R 0":      func(*Config) {},
		"-J out.json":         func(c *Config) { c.JSONFile = "out.json" },
		"-J out.txt":          func(c *Config) { c.messages = []string{"# skipping json output; out.txt does not end in .json"} },
		"--shape 500000x2000 --trials 9": func(c *Config) {
			c.Shape, c.Trials = []int64{500000, 2000}, 9
		},
		"--split=1000 -e 1G": func(c *Config) { c.Split, c.MaxBytes = 1000, 1<<30 },
		"--bench":            func(c *Config) { c.Bench = true },
		"--format json":      func(c *Config) { c.Output = "json" },
		"--engine nccl --device gpu --min-time 2.5": func(c *Config) {
			c.Engine, c.Device, c.MinTime = "nccl", "gpu", 2500*time.Microsecond
		},
		"--library a": func(c *Config) { c.Engine, c.Libraries = "nccl", []string{"a"} },
		"--library a --library b": func(c *Config) {
			c.Engine, c.Libraries, c.Versus, c.MinTime = "nccl", []string{"a", "b"}, "nccl", 10*time.Millisecond
		},
		"--versus best --library a --library b": func(c *Config) {
			c.Libraries, c.Versus, c.MinTime = []string{"a", "b"}, Best, 10*time.Millisecond
		},
		"--versus best":              func(c *Config) { c.Versus, c.MinTime = Best, 10*time.Millisecond },
		"--versus nccl -n 7":         func(c *Config) { c.Versus, c.Iters = "nccl", 7 },
		"--versus nccl --min-time 0": func(c *Config) { c.Versus = "nccl" },
		"--versus A=B --graph on --repeat 3": func(c *Config) {
			c.Versus, c.Launch, c.Repeat, c.MinTime = "A=B", "on", 3, 10*time.Millisecond
		},
	} {
		want := Default("all_reduce")
		set(&want)
		got, err := parse(line)
		if err != nil {
			t.Errorf("Parse(%q): %v", line, err)
			continue
		}
		got.Args, got.given = nil, nil
		if d := cmp.Diff(want, got, cmp.AllowUnexported(Config{})); d != "" {
			t.Errorf("Parse(%q) (-want +got):\n%s", line, d)
		}
	}
}

func TestParseErrors(t *testing.T) {
	for line, want := range map[string]UsageError{
		"-b x":                        {Text: "invalid size specified for 'minbytes'", Status: 255},
		"-e -5":                       {Text: "invalid size specified for 'maxbytes'", Status: 255},
		"-i 1T":                       {Text: "invalid size specified for 'stepBytes'", Status: 255},
		"-b 16 -e 8":                  {Text: "invalid sizes for 'minbytes' and 'maxbytes': 16 > 8", Status: 255},
		"-q":                          {Text: "invalid option -- 'q'", Option: true},
		"-b":                          {Text: "option requires an argument -- 'b'", Option: true},
		"--minbytes":                  {Text: "option '--minbytes' requires an argument", Option: true},
		"--minbite 8":                 {Text: "unrecognized option '--minbite'; did you mean '--minbytes'?", Option: true},
		"--s 8":                       {Text: "option '--s' is ambiguous: '--stepbytes' or '--stepfactor'?", Option: true},
		"--bench=1":                   {Text: "option '--bench' doesn't allow an argument", Option: true},
		"-n 0":                        {Text: "-n and -m are at least 1", Status: 6},
		"-t -1":                       {Text: "-t and -g are at least 1, and at most 65536 together", Status: 6},
		"-b 1 -e 2 -i 0":              {Text: "-i 0 never gets from -b to -e: give -i, or -f 2", Status: 6},
		"-b 0 -f 2":                   {Text: "-b 0 never gets larger by -f: begin with 1", Status: 6},
		"-b 0 -e 0":                   {Text: "-e is at least 1 byte: operations of size 0 measure nothing", Status: 6},
		"-f 0":                        {Text: "-f is at least 1: sizes would not grow", Status: 6},
		"-f -2":                       {Text: "-f is at least 1: sizes would not grow", Status: 6},
		"-f x -i 8":                   {Text: "-f is at least 1: sizes would not grow", Status: 6},
		"-G -1":                       {Text: "-G is a number of launches, or 0 for none", Status: 6},
		"--split 0":                   {Text: "--split is a whole number, at least 1, not \"0\"", Status: 6},
		"--split -3":                  {Text: "--split is a whole number, at least 1, not \"-3\"", Status: 6},
		"--trials 0":                  {Text: "--trials is a whole number, at least 1, not \"0\"", Status: 6},
		"--trials 5x":                 {Text: "--trials is a whole number, at least 1, not \"5x\"", Status: 6},
		"--slowest -1":                {Text: "--slowest is a whole number, at least 1, not \"-1\"", Status: 6},
		"--min-time inf":              {Text: "--min-time is a number of milliseconds, such as 10, not \"inf\"", Status: 6},
		"--min-time -1":               {Text: "--min-time is a number of milliseconds, such as 10, not \"-1\"", Status: 6},
		"--shape 5x":                  {Text: "--shape is rows x columns, such as 500000x2000, not \"5x\"", Status: 6},
		"--shape 0x4":                 {Text: "--shape is rows x columns, such as 500000x2000, not \"0x4\"", Status: 6},
		"--format xml":                {Text: "--format is text or json, not \"xml\"", Status: 6},
		"--engine nkkl":               {Text: "--engine is assay or nccl, not \"nkkl\"", Status: 6},
		"--device 0":                  {Text: "--device is cpu or gpu, not \"0\"", Status: 6},
		"--graph on":                  {Text: "--graph goes with --versus: -G launches graphs", Status: 6},
		"--min-time 10ms":             {Text: "--min-time is a number of milliseconds, such as 10, not \"10ms\"", Status: 6},
		"--min-time nan":              {Text: "--min-time is a number of milliseconds, such as 10, not \"nan\"", Status: 6},
		"--versus gloo":               {Text: "--versus is nccl, best or variables such as NCCL_ALGO=Ring, not \"gloo\"", Status: 6},
		"--versus nccl -I1":           {Text: "--versus goes without -z, -I, -C, -G, -J and --slowest: see --graph and --format json", Status: 6},
		"--versus best --shape 2x2":   {Text: "--versus compares sweeps: leave out --shape and --split", Status: 6},
		"--versus best --engine nccl": {Text: "--versus compares --engine assay with another", Status: 6},
		"--library a --engine assay":  {Text: "--library is for --engine nccl, or --versus nccl", Status: 6},
		"--library a --versus A=B":    {Text: "--library goes with --versus nccl or best, not with variables", Status: 6},
		"--versus nccl --engine nccl --library a": {Text: "--versus compares --engine assay with another", Status: 6},
		"--versus nccl --repeat 0":                {Text: "--repeat is a whole number, at least 1, not \"0\"", Status: 6},
		"-d all --split 4":                        {Text: "--shape and --split take one type and one reduction", Status: 6},
	} {
		_, err := parse(line)
		var got *UsageError
		if !errors.As(err, &got) {
			t.Errorf("Parse(%q) = %v; want a usage error", line, err)
		} else if d := cmp.Diff(&want, got); d != "" {
			t.Errorf("Parse(%q) (-want +got):\n%s", line, d)
		}
	}
	for _, line := range []string{"-h", "--help", "-n 3 -h -b x"} {
		if _, err := parse(line); err != getopt.ErrHelp {
			t.Errorf("Parse(%q) = %v; want getopt.ErrHelp", line, err)
		}
	}
}

// FuzzParse: whatever the arguments, parsing ends with a configuration whose
// sweep ends too.
func FuzzParse(f *testing.F) {
	for _, s := range []string{"-b 8 -e 64M -f 2", "-b0 -e 8 -i 1", "--shape 4x4 --split 3", "-d all -o all -r -1", "-I1 -K5 -h"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		c, err := parse(s)
		var usage *UsageError
		if err != nil {
			if err != getopt.ErrHelp && !errors.As(err, &usage) {
				t.Fatalf("Parse(%q) = %v", s, err)
			}
			return
		}
		if c.MaxBytes/max(c.StepBytes, 1) > 1<<16 && c.StepFactor <= 1 {
			return // a long sweep, but it was asked for
		}
		for i, n := range c.Sizes() {
			if n < c.MinBytes || n > c.MaxBytes || i == 0 && n != c.MinBytes {
				t.Fatalf("Parse(%q): sizes go from %d to %d, and hold %d", s, c.MinBytes, c.MaxBytes, n)
			}
		}
	})
}

func TestSizes(t *testing.T) {
	for line, want := range map[string][]int64{
		"-b 8 -e 64 -f 2":       {8, 16, 32, 64},
		"-b 8 -e 63 -f 2":       {8, 16, 32},
		"-b 1M -e 4M":           {1 << 20, 2 << 20, 3 << 20, 4 << 20},
		"-b 8 -e 8":             {8},
		"-b 0 -e 4 -i 2":        {0, 2, 4},
		"-b 4 -e 16 -i 4 -f 2":  {4, 8, 16},
		"-b 1 -e 100 -f 10 -i1": {1, 10, 100},
	} {
		c, err := parse(line)
		if err != nil {
			t.Fatal(err)
		}
		if d := cmp.Diff(want, c.Sizes()); d != "" {
			t.Errorf("%q: sizes (-want +got):\n%s", line, d)
		}
	}
	c := Config{MinBytes: 1, MaxBytes: math.MaxInt64, StepFactor: 2}
	if n := len(c.Sizes()); n != 63 {
		t.Errorf("doubling up to the largest integer takes %d sizes; want 63", n)
	}
}

func TestParseSplit(t *testing.T) {
	for in, want := range map[string][]int{ // colors of processes 0, 1, 5, 8
		"MOD 4": {0, 1, 1, 0}, "%4": {0, 1, 1, 0}, "div 4": {0, 0, 1, 2}, "/4": {0, 0, 1, 2}, "AND 0x1": {0, 1, 1, 0}, "&0b100": {0, 0, 4, 0}, "or 1": {1, 1, 5, 9}, "| 8": {8, 9, 13, 8},
	} {
		s, err := parseSplit(in)
		got := []int{s.color(0), s.color(1), s.color(5), s.color(8)}
		if d := cmp.Diff(want, got); d != "" || err != nil {
			t.Errorf("%q: %v, colors (-want +got):\n%s", in, err, d)
		}
	}
	for _, in := range []string{"", "MOD", "MOD 0", "/0", "XOR 3", "4", "MOD -1", "MOD 4 5", "MOD 0x"} {
		if s, err := parseSplit(in); err == nil {
			t.Errorf("parseSplit(%q) = %v; want an error", in, s)
		}
	}
}

func FuzzParseSplit(f *testing.F) {
	f.Add("MOD 8")
	f.Add("&0x7")
	f.Fuzz(func(t *testing.T, s string) {
		if sp, err := parseSplit(s); err == nil && sp.color(1<<20) < 0 {
			t.Errorf("parseSplit(%q) gives a negative color", s)
		}
	})
}

func TestSettings(t *testing.T) {
	s, err := readSettings([]string{"NCCL_TESTS_SPLIT_MASK=0x3", "NCCL_TESTS_MIN_BW=12.5", "NCCL_TESTS_DEVICE=1", "X=1"})
	if err != nil || s.split != (splitting{'&', 3}) || s.minBW != 12.5 || len(s.notes) != 1 {
		t.Errorf("readSettings = %+v, %v", s, err)
	}
	for _, e := range []string{"NCCL_TESTS_SPLIT=huh", "NCCL_TESTS_SPLIT_MASK=xyz", "NCCL_TESTS_MIN_BW=fast", "NCCL_TESTS_MIN_BW=nan"} {
		if _, err := readSettings([]string{e}); err == nil {
			t.Errorf("readSettings(%s): no error", e)
		}
	}
	got := reportedEnviron([]string{"NCCL_ALGO=Ring", "SECRET_TOKEN=x", "RANK=0", "HOME=/root"})
	if d := cmp.Diff([]string{"NCCL_ALGO=Ring", "RANK=0"}, got); d != "" {
		t.Errorf("reported (-want +got):\n%s", d)
	}
}

func TestUsageNamesEveryFlag(t *testing.T) {
	text := Usage("all_reduce_perf")
	for _, f := range FlagNames() {
		if !strings.Contains(text, f) {
			t.Errorf("the usage text lacks %s", f)
		}
	}
}
