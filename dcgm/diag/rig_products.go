//go:build cuda && cgo

package diag

import (
	"bytes"
	"encoding/binary"
	"fmt"

	"github.com/assay-hpc/assay/internal/gpu/driver"
)

// A product is a kernel that multiplies matrices, as in ptx/product.h. A round computes reps
// products, so that the cost of comparing the results is negligible.
type product struct {
	kernel string
	way    string
	shape
	reps int
}

// exactReps is small enough that no kind of arithmetic rounds the results.
const exactReps = 4

// product returns the fastest kernel that the device supports.
func (d *device) product(k productKind) product {
	switch {
	case k == fp32:
		return product{"fma_f32", "fma", shape{128, 128, 64}, 16}
	case k == fp64:
		return product{"fma_f64", "fma", shape{64, 64, 64}, 16}
	}
	suffix := map[productKind]string{bf16: "bf16", fp16: "f16"}[k]
	if d.fast {
		return product{"wgmma_" + suffix, "wgmma", shape{128, 256, 64}, 128}
	}
	return product{"mma_" + suffix, "mma", shape{128, 128, 64}, 128}
}

// The sizes allocated for a product: each matrix, the results, and the outcome of a block.
const (
	matrixBytes  = 128 << 10
	resultBytes  = 256 << 10
	outcomeBytes = 16
	maxRounds    = 1 << 20
)

// Product implements Device.
func (d *device) Product(w productWork) (productResult, error) {
	p := d.product(w.Kind)
	out := productResult{Way: p.way}
	if err := d.Bind(); err != nil {
		return out, err
	}
	if err := d.matrices(p, w); err != nil {
		return out, err
	}
	reps, results := p.reps, driver.Ptr(0)
	if w.Exact {
		reps, results = exactReps, d.rooms[2]
	}
	rounds := w.Rounds
	if w.For > 0 {
		if d.perRound == 0 {
			const trial = 4
			s, err := d.multiply(p, trial, reps, 0, 0)
			if err != nil {
				return out, err
			}
			d.perRound = s / trial
		}
		rounds = min(max(2, int(w.For/d.perRound)), maxRounds)
	}
	var err error
	if out.Seconds, err = d.multiply(p, rounds, reps, w.FlipSM, results); err != nil {
		return out, err
	}
	blocks := d.Blocks(p.kernel)
	out.Flops = p.flops() * float64(rounds) * float64(reps) * float64(blocks)
	b := make([]byte, blocks*outcomeBytes)
	if err := driver.CopyFromDevice(b, d.rooms[3]); err != nil {
		return out, err
	}
	out.Blocks = make([]blockOutcome, blocks)
	if err := binary.Read(bytes.NewReader(b), binary.LittleEndian, out.Blocks); err != nil {
		return out, fmt.Errorf("the outcomes of %s: %w", p.kernel, err)
	}
	if w.Exact {
		out.Wrong, err = d.mismatches(p, w)
	}
	return out, err
}

// multiply runs the kernel.
func (d *device) multiply(p product, rounds, reps, flip int, results driver.Ptr) (float64, error) {
	blocks := d.Blocks(p.kernel)
	if err := driver.Memset8Async(d.rooms[3], 0, blocks*outcomeBytes, d.lane.Stream); err != nil {
		return 0, err
	}
	return d.lane.Time(func() error {
		return d.launch(p.kernel, uint64(d.rooms[0]), uint64(d.rooms[1]), uint64(results), uint64(rounds), uint64(reps), uint64(flip), uint64(d.rooms[3]))
	})
}

// matrices copies the two matrices to the device's memory.
func (d *device) matrices(p product, w productWork) error {
	most := 1
	for _, name := range []string{"fma_f32", "fma_f64", "mma_bf16", "mma_f16", "wgmma_bf16", "wgmma_f16"} {
		most = max(most, d.Blocks(name))
	}
	for len(d.rooms) < 4 {
		n := []int{matrixBytes, matrixBytes, resultBytes, most * outcomeBytes}[len(d.rooms)]
		at, err := driver.Malloc(n)
		if err != nil {
			return err
		}
		d.rooms, d.made = append(d.rooms, at), productWork{}
	}
	key := productWork{Kind: w.Kind, Seed: w.Seed, Exact: w.Exact, Rounds: 1}
	if d.made == key {
		return nil
	}
	if d.made.Kind != w.Kind || d.made.Exact != w.Exact {
		d.perRound = 0
	}
	a, b := p.matrices(w)
	for i, m := range [][]byte{encode(w.Kind, a, p.rows), encode(w.Kind, b, p.columns)} {
		if err := driver.CopyToDevice(d.rooms[i], m); err != nil {
			return err
		}
	}
	d.made = key
	return nil
}

// matrices returns the two matrices of some work.
func (p product) matrices(w productWork) (a, b []float64) {
	return values(p.rows, p.k, 2*w.Seed, w.Exact), values(p.columns, p.k, 2*w.Seed+1, w.Exact)
}

// mismatches compares the results of the first block with the CPU's.
func (d *device) mismatches(p product, w productWork) (int, error) {
	size := 4
	if w.Kind == fp64 {
		size = 8
	}
	got := make([]byte, p.rows*p.columns*size)
	if err := driver.CopyFromDevice(got, d.rooms[2]); err != nil {
		return 0, err
	}
	a, b := p.matrices(w)
	return mismatches(w.Kind, got, p.shape, a, b, exactReps)
}
