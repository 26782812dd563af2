package elem

import "sync"

// pairs contains the result of a reduction of any two 8-bit floats.
type pairs [256][256]uint8

// float8s are the loops of an 8-bit float: they look results up.
func float8s(t Type) loops {
	var tables [numOps]func() *pairs
	for op := range Avg {
		tables[op] = sync.OnceValue(func() *pairs { return tabulate(t, op) })
	}
	tables[Avg] = tables[Sum]
	reduce := func(op Op, d, x, y []uint8) {
		results := tables[op]()
		x, y = x[:len(d)], y[:len(d)]
		for i := range d {
			d[i] = results[x[i]][y[i]]
		}
	}
	scale := func(dst, a []byte, scale uint64) {
		d, x, _ := views[uint8](dst, a, a)
		x = x[:len(d)]
		products := &tables[Prod]()[scale&0xff]
		for i := range d {
			d[i] = products[x[i]]
		}
	}
	scaled := func(dst, a, b []byte, scale uint64) {
		d, x, y := views[uint8](dst, a, b)
		x, y = x[:len(d)], y[:len(d)]
		sums, products := tables[Sum](), &tables[Prod]()[scale&0xff]
		for i := range d {
			d[i] = sums[x[i]][products[y[i]]]
		}
	}
	return loops{reduce: reductions(reduce), scale: scale, scaled: scaled}
}

// tabulate computes in float32, as for wider floats.
func tabulate(t Type, op Op) *pairs {
	var all [256]byte
	for i := range all {
		all[i] = byte(i)
	}
	var x, y, results [256]float32
	widen(t, y[:], all[:])
	p := new(pairs)
	for i := range p {
		for j := range x {
			x[j] = y[i]
		}
		apply(op, results[:], x[:], y[:])
		narrow(t, p[i][:], results[:])
	}
	return p
}
