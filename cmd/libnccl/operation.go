//go:build cuda && cgo

package main

// #include <string.h>
// #include "front/engine.h"
import "C"

import (
	"cmp"
	"encoding/binary"
	"slices"
	"sync"
	"unsafe"

	"github.com/assay-hpc/assay/coll"
	"github.com/assay-hpc/assay/coll/elem"
	"github.com/assay-hpc/assay/coll/op"
	"github.com/assay-hpc/assay/internal/gpu/driver"
)

// A batch is what runGroup uses, kept for the next call.
type batch struct {
	group coll.Group
	comms []*comm // of the operations
	held  []*comm // each once, in the order of their numbers
}

var batches = sync.Pool{New: func() any { return new(batch) }}

//export assay_run
func assay_run(ops *C.struct_assay_op, n C.size_t, text *C.char) (code C.int) {
	defer guard("an operation", text, &code)
	if n == 1 && ops.kind != C.ASSAY_SEND && ops.kind != C.ASSAY_RECV {
		return result(runOne(ops), text)
	}
	return result(runGroup(unsafe.Slice(ops, int(n)), (*coll.Group).End), text)
}

func runOne(o *C.struct_assay_op) error {
	c, err := using("an operation", o.comm)
	if err != nil {
		return err
	}
	defer driver.Save().Restore()
	done := false
	c.calls.Lock()
	defer c.release(&done)
	err = c.do(o)
	done = true
	return err
}

// runGroup collects operations in a group, and calls end on it.
func runGroup(ops []C.struct_assay_op, end func(*coll.Group) error) (err error) {
	b := batches.Get().(*batch)
	done := false
	defer func() {
		if !done { // a panic, or an error before the end
			b.group.Cancel()
		}
		for _, c := range b.held {
			c.release(&done)
		}
		clear(b.comms)
		clear(b.held)
		b.comms, b.held = b.comms[:0], b.held[:0]
		batches.Put(b)
	}()
	for i := range ops {
		c, err := using("an operation", ops[i].comm)
		if err != nil {
			done = true
			return err
		}
		b.comms = append(b.comms, c)
	}
	b.hold()
	defer driver.Save().Restore()
	b.group.Start()
	for i, c := range b.comms {
		b.group.Add(c.made)
		if err = c.do(&ops[i]); err != nil {
			b.group.Cancel()
			done = true
			return err
		}
	}
	err = end(&b.group)
	done = true
	return err
}

// hold locks the communicators. Groups of several threads may have the same ones, so they do it in
// the same order.
func (b *batch) hold() {
	b.held = append(b.held, b.comms...)
	slices.SortFunc(b.held, func(x, y *comm) int { return cmp.Compare(x.number, y.number) })
	b.held = slices.Compact(b.held)
	for _, c := range b.held {
		c.calls.Lock()
	}
}

// do calls an operation on its stream.
func (c *comm) do(o *C.struct_assay_op) error {
	made := c.made
	if err := made.SetStream(uintptr(o.stream)); err != nil {
		return err
	}
	t, err := typeOf("an operation", C.int(o._type))
	if err != nil {
		return err
	}
	count := int(o.count)
	memory := func(p unsafe.Pointer, parts int) []byte { return op.Memory(uintptr(p), parts*count*t.Size()) }
	switch o.kind {
	case C.ASSAY_SEND:
		return made.Send(coll.Device(uintptr(o.send), count*t.Size()), count, t, int(o.root))
	case C.ASSAY_RECV:
		return made.Recv(coll.Device(uintptr(o.recv), count*t.Size()), count, t, int(o.root))
	}
	d := op.Op{Coll: collectives[o.kind], Device: true, Count: count, Type: t, Root: int(o.root)}
	if d.Coll.Reduces() {
		reduce(&d, o)
	}
	send, recv := d.Coll.Parts(c.rank, d.Root, c.ranks)
	d.Send, d.Recv = memory(o.send, send), memory(o.recv, recv)
	return made.Do(&d)
}

// typeOf returns the element type of a data type of nccl.h, which may be any number.
func typeOf(call string, n C.int) (elem.Type, error) {
	if n < 0 || n > C.int(elem.Float8E5M2) {
		return 0, wrong(op.InvalidArgument, call, "there is no data type %d", n)
	}
	return elem.Type(n), nil
}

var collectives = [...]op.Collective{
	C.ASSAY_ALL_REDUCE: op.AllReduce, C.ASSAY_BROADCAST: op.Broadcast, C.ASSAY_REDUCE: op.Reduce,
	C.ASSAY_ALL_GATHER: op.AllGather, C.ASSAY_REDUCE_SCATTER: op.ReduceScatter, C.ASSAY_ALL_TO_ALL: op.AllToAll,
	C.ASSAY_GATHER: op.Gather, C.ASSAY_SCATTER: op.Scatter,
}

// A factor is a reduction that ncclRedOpCreatePreMulSum created.
type factor struct {
	t    elem.Type
	bits uint64 // of an element, or its address on the device
	at   bool   // bits is the address
}

// reduce sets the reduction of an operation: one of NCCL's own, or the one that
// assay_check found.
func reduce(d *op.Op, o *C.struct_assay_op) {
	if o.red <= C.int32_t(elem.Avg) {
		d.Red = elem.Op(o.red)
		return
	}
	d.Red, d.Scaled, d.Factor, d.FactorAt = elem.Sum, true, uint64(o.factor), o.residence == scalarOnDevice
	if !d.FactorAt {
		d.Scale = elem.Float(d.Type, binary.LittleEndian.AppendUint64(nil, d.Factor)[:d.Type.Size()])
	}
}

// check finds what is wrong with an operation before it is called, and the factor of its
// reduction.
//
//export assay_check
func assay_check(o *C.struct_assay_op, text *C.char) (code C.int) {
	defer guard("an operation", text, &code)
	return result(check(o), text)
}

func check(o *C.struct_assay_op) error {
	call := "Send or Recv"
	if int(o.kind) < len(collectives) {
		call = collectives[o.kind].String()
	}
	c, err := using(call, o.comm)
	if err != nil {
		return err
	}
	t, err := typeOf(call, C.int(o._type))
	if err != nil || o.red >= 0 && o.red <= C.int32_t(elem.Avg) {
		return err
	}
	c.mu.Lock()
	f, ok := c.factors[int32(o.red)]
	c.mu.Unlock()
	switch {
	case !ok:
		return wrong(op.InvalidArgument, call, "there is no reduction %d: it was not made by ncclRedOpCreatePreMulSum, or that failed", o.red)
	case f.t != t:
		return wrong(op.InvalidArgument, call, "reduction %d was made for %v, and this is of %v", o.red, f.t, t)
	}
	if o.factor, o.residence = C.uint64_t(f.bits), scalarHere; f.at {
		o.residence = scalarOnDevice
	}
	return nil
}

// Residences of a scalar, with the values of nccl.h.
const (
	scalarOnDevice = iota
	scalarHere
)

//export assay_scale_new
func assay_scale_new(handle C.uintptr_t, scalar unsafe.Pointer, typ, residence C.int, red *C.int32_t, text *C.char) (code C.int) {
	const call = "RedOpCreatePreMulSum"
	defer guard(call, text, &code)
	c, err := using(call, handle)
	if err != nil {
		return result(err, text)
	}
	t, err := typeOf(call, typ)
	if err != nil {
		return result(err, text)
	}
	f := factor{t: t, at: residence == scalarOnDevice}
	switch {
	case f.at: // it is read when the operation runs
		f.bits = uint64(uintptr(scalar))
		if f.bits%uint64(f.t.Size()) != 0 {
			return result(wrong(op.InvalidArgument, call, "the address of a %v is a multiple of %d", f.t, f.t.Size()), text)
		}
	case residence == scalarHere:
		var b [8]byte
		copy(b[:], unsafe.Slice((*byte)(scalar), f.t.Size()))
		f.bits = binary.LittleEndian.Uint64(b[:])
	default:
		return result(wrong(op.InvalidArgument, call, "there is no residence %d", residence), text)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.last++
	c.factors[c.last] = f
	*red = C.int32_t(c.last)
	return C.int(op.Success)
}

//export assay_scale_drop
func assay_scale_drop(handle C.uintptr_t, red C.int32_t, text *C.char) (code C.int) {
	const call = "RedOpDestroy"
	defer guard(call, text, &code)
	c, err := commOf(call, handle)
	if err != nil {
		return result(err, text)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if _, ok := c.factors[int32(red)]; !ok {
		return result(wrong(op.InvalidArgument, call, "there is no reduction %d that was made", red), text)
	}
	delete(c.factors, int32(red))
	return C.int(op.Success)
}
