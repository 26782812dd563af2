// Command gen compiles the kernels: movement.cu, norm.cu once for each type that it is for, and
// reduction.cu once for each element type and operation, for each compute capability of targetsOf that the
// compiler knows, and each of these for 8 ranks at most, and for 4 (.r4). It writes
//
//	ptx/sm_ARCH.tar.zst, ptx/sm_ARCH.r4.tar.zst            machine code: MODULE.cubin
//	ptx/compute_ARCH.tar.zst, ptx/compute_ARCH.r4.tar.zst  the PTX of the newest
//	                     architecture without comments: MODULE.ptx
//	ptx/SUM              the version of nvcc, and SHA-256 sums of the sources
//	                     without comments, and of each archive before it was
//	                     compressed
//
// Run it with go generate in coll/cuda/kernels. nvcc is $NVCC, or the one in the PATH. Machine
// code runs on later GPUs of its major architecture; drivers compile the PTX for newer ones.
//
// Modules stay as they are if SUM has their sources and the compiler's version; with -all they
// are compiled, too, as after a change of this program.
//
// With -check it writes nothing, but compares what it compiles with the existing files. With
// -check -one-of N it compiles only one of N modules; the sources determine which ones. It
// exits with status 1 if files differ, and names them, or if the compiler fails, and with
// status 3 if nvcc is missing or not the version in SUM: another compiler writes different
// code.
package main

import (
	"cmp"
	"crypto/sha256"
	"encoding/binary"
	"flag"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
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
	anew := flags.Bool("all", false, "compile all modules, whether their sources have changed or not")
	oneOf := flags.Int("one-of", 1, "with -check: compile one of `N` modules")
	dir := flags.String("dir", ".", "where the sources are")
	if err := flags.Parse(args); err != nil {
		return exitUsage
	}
	if *oneOf < 1 || *oneOf > 1 && !*check {
		fmt.Fprintln(stderr, "gen: -one-of needs -check, and a number from 1")
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
	old, err := readSums(*dir)
	if *check {
		if err != nil {
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
	all := c.units()
	todo := all
	if *oneOf > 1 {
		todo = sample(all, sources, *oneOf)
	}
	codes := make([]code, len(todo))
	if !*check && !*anew && old.nvcc == c.version {
		codes = kept(*dir, old, sources, todo)
	}
	if err := c.compileAll(sources, todo, codes); err != nil {
		return fail(exitDiffers, err)
	}
	if *check {
		err = compare(*dir, old, sources, archives(all, make([]code, len(all))), archives(todo, codes))
	} else {
		err = write(*dir, c.version, sources, archives(todo, codes))
	}
	if err != nil {
		return fail(exitDiffers, err)
	}
	return 0
}

// sample returns one of n units, at an offset that changes with the sources.
func sample(all []unit, sources map[string][]byte, n int) []unit {
	var turn uint64
	for _, name := range slices.Sorted(maps.Keys(sources)) {
		sum := sha256.Sum256(sources[name])
		turn += binary.LittleEndian.Uint64(sum[:])
	}
	var todo []unit
	for i := int(turn % uint64(n)); i < len(all); i += n {
		todo = append(todo, all[i])
	}
	return todo
}
