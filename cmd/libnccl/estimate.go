//go:build cuda && cgo

package main

// #include "front/engine.h"
import "C"

import (
	"time"
	"unsafe"

	"github.com/assay-hpc/assay/coll"
)

//export assay_estimate
func assay_estimate(ops *C.struct_assay_op, n C.size_t, micros *C.float, text *C.char) (code C.int) {
	defer guard("GroupSimulateEnd", text, &code)
	return result(runGroup(unsafe.Slice(ops, int(n)), func(g *coll.Group) error {
		d, err := g.Estimate()
		if err == nil {
			*micros = C.float(float64(d) / float64(time.Microsecond))
		}
		return err
	}), text)
}
