package kernels

import (
	"bytes"
	"encoding/binary"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/assay-hpc/assay/coll/elem"
)

// TestReduce holds reduce.cuh, as C++ on the CPU, to package elem.
func TestReduce(t *testing.T) {
	cc, err := exec.LookPath("g++")
	if err != nil {
		t.Skip("no g++")
	}
	program := filepath.Join(t.TempDir(), "reduce")
	build := exec.Command(cc, "-std=c++17", "-O2", "-ffp-contract=off", "-Wall", "-Wextra", "-Werror", "-o", program, "testdata/reduce.cc")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	for _, ty := range elem.Types {
		t.Run(ty.String(), func(t *testing.T) {
			all := tests(ty)
			for _, words := range []uint32{2, 4} {
				run := exec.Command(program)
				run.Stdin = requests(all, words)
				out, err := run.Output()
				if err != nil {
					t.Fatal(err)
				}
				for i := range all {
					n := len(all[i].want)
					if len(out) < n {
						t.Fatal("the program gave too little")
					}
					all[i].check(t, out[:n])
					out = out[n:]
				}
			}
		})
	}
}

// requests are the tests as testdata/reduce.cc reads them; it takes so many
// words at a time.
func requests(all []test, words uint32) *bytes.Buffer {
	var b bytes.Buffer // takes everything
	for _, c := range all {
		binary.Write(&b, binary.LittleEndian, struct {
			bytes, factor                          uint64
			kind, typ, op, words, sources, divisor uint32
		}{
			uint64(len(c.want)), c.factor,
			uint32(c.kind), uint32(c.t), uint32(c.op), words, uint32(len(c.srcs)), c.divisor,
		})
		for _, s := range c.srcs {
			b.Write(s)
		}
	}
	return &b
}
