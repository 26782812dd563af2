// Command gen compiles the kernels: movement.cu, and reduction.cu once for each
// element type and operation, for each architecture in archs, and each of these
// for 8 ranks at most, and for 4 (.r4). It writes
//
//	ptx/sm_ARCH.tar.zst, ptx/sm_ARCH.r4.tar.zst            machine code: MODULE.cubin
//	ptx/compute_ARCH.tar.zst, ptx/compute_ARCH.r4.tar.zst  the PTX of the newest
//	                     architecture without comments: MODULE.ptx
//	ptx/SUM              the version of nvcc, and SHA-256 sums of the sources
//	                     and of each archive before it was compressed, as
//	                     sha256sum writes them
//
// Run it with go generate in coll/cuda/kernels. nvcc is $NVCC, or the one on
// the path. Machine code runs on later processors of its major architecture;
// drivers compile the PTX for newer ones.
//
// With -check it writes nothing but compares what it compiles with the files
// there. It exits with status 1 and the names when they differ, or the compiler
// fails, and with status 3 when nvcc is missing or not of the version in SUM:
// another compiler writes other code.
package main

import (
	"cmp"
	"flag"
	"fmt"
	"io"
	"os"
)

const (
	exitDiffers  = 1
	exitUsage    = 2
	exitCompiler = 3
)

func main() { os.Exit(run(os.Args[1:], os.Stderr)) }

func run(args []string, stderr io.Writer) int {
	flags := flag.NewFlagSet("gen", flag.ContinueOnError)
	flags.SetOutput(stderr)
	check := flags.Bool("check", false, "compare with the files there")
	dir := flags.String("dir", ".", "where the sources are")
	if err := flags.Parse(args); err != nil {
		return exitUsage
	}
	fail := func(status int, err error) int {
		fmt.Fprintln(stderr, "gen:", err)
		return status
	}
	c, err := newCompiler(cmp.Or(os.Getenv("NVCC"), "nvcc"))
	if err != nil {
		return fail(exitCompiler, err)
	}
	var old sums
	if *check {
		if old, err = readSums(*dir); err != nil {
			return fail(exitDiffers, err)
		}
		if old.nvcc != c.version {
			return fail(exitCompiler, fmt.Errorf("%s is version %s; the PTX there is by %s", c.path, c.version, old.nvcc))
		}
	}
	sources, err := readSources(*dir)
	if err != nil {
		return fail(exitDiffers, err)
	}
	ptx, err := c.compileAll(sources)
	if err != nil {
		return fail(exitDiffers, err)
	}
	now := sumsOf(c.version, sources, ptx)
	if *check {
		err = compare(*dir, old, now)
	} else {
		err = write(*dir, now, ptx)
	}
	if err != nil {
		return fail(exitDiffers, err)
	}
	return 0
}
