//go:build cgo && linux

package verbs

import (
	"fmt"
	"unsafe"
)

// An SGE is memory of a request, as libibverbs lays it out.
type SGE struct {
	Address uint64
	Length  uint32
	LKey    uint32
}

// A sendWR is a request to a send queue, as libibverbs lays it out. It is made
// by NewSends, outside of Go's memory.
type sendWR struct {
	ID     uint64
	next   uintptr
	sg     uintptr
	SGEs   int32
	opcode opcode
	Flags  uint32
	Imm    uint32 // in network order

	// Of writes and reads: the peer's address and key.
	remote uint64
	rest   [3]uint64
	srqn   uint64
	bind   [6]uint64
}

// Write makes it a write to the peer's memory, Read one from it; WriteImm a write that
// takes a receive and gives it Imm.
func (w *sendWR) Write(address uint64, rkey uint32)    { w.oneSided(opWrite, address, rkey) }
func (w *sendWR) WriteImm(address uint64, rkey uint32) { w.oneSided(opWriteImm, address, rkey) }
func (w *sendWR) Read(address uint64, rkey uint32)     { w.oneSided(opRead, address, rkey) }

func (w *sendWR) oneSided(op opcode, address uint64, rkey uint32) {
	w.opcode = op
	w.SetRemote(address, rkey)
}

// SetRemote changes the memory that a write or read goes to.
func (w *sendWR) SetRemote(address uint64, rkey uint32) {
	w.remote = address
	*(*uint32)(unsafe.Pointer(&w.rest[0])) = rkey
}

// Send makes it a message, SendImm one that gives the receive Imm, too.
func (w *sendWR) Send()    { w.opcode = opSend }
func (w *sendWR) SendImm() { w.opcode = opSendImm }

// FetchAdd makes it one that adds to a word of the peer's memory, and CompareSwap one
// that puts swap there if it has the value of compare. Both fetch what was there.
func (w *sendWR) FetchAdd(address uint64, rkey uint32, add uint64) {
	w.atomic(opFetchAdd, address, rkey, add, 0)
}

func (w *sendWR) CompareSwap(address uint64, rkey uint32, compare, swap uint64) {
	w.atomic(opCompSwap, address, rkey, compare, swap)
}

func (w *sendWR) atomic(op opcode, address uint64, rkey uint32, compareOrAdd, swap uint64) {
	w.opcode, w.remote, w.rest[0], w.rest[1] = op, address, compareOrAdd, swap
	*(*uint32)(unsafe.Pointer(&w.rest[2])) = rkey
}

// SetDatagram is where a UD message goes.
func (w *sendWR) SetDatagram(a *AH, qpn, qkey uint32) {
	w.remote = uint64(uintptr(unsafe.Pointer(a.a)))
	*(*[2]uint32)(unsafe.Pointer(&w.rest[0])) = [2]uint32{qpn, qkey}
}

// A recvWR is a request to a receive queue, as libibverbs lays it out. It is
// made by NewRecvs, outside of Go's memory.
type recvWR struct {
	ID   uint64
	next uintptr
	sg   uintptr
	SGEs int32
	_    int32
}

// Sends are send requests and their memory. A request lies outside of Go's
// memory and stays where it is until Close.
type Sends struct {
	memory []byte
	WR     []sendWR
	SGE    []SGE // each request's, perWR of them
}

// NewSends makes n requests of up to perWR pieces of memory each, every one a
// list of its own: see Chain.
func NewSends(n, perWR int) (*Sends, error) {
	m, wr, sge, err := requests[sendWR](n, perWR)
	if err != nil {
		return nil, err
	}
	for i := range wr {
		wr[i].sg, wr[i].SGEs = uintptr(unsafe.Pointer(&sge[i*perWR])), 1
	}
	return &Sends{m, wr, sge}, nil
}

// requests are n of a kind, with perWR pieces of memory each.
func requests[T any](n, perWR int) (memory []byte, wr []T, sge []SGE, err error) {
	if n <= 0 || perWR <= 0 {
		return nil, nil, nil, fmt.Errorf("%d requests of %d pieces", n, perWR)
	}
	var one T
	size := n * int(unsafe.Sizeof(one))
	if memory, err = Alloc(size+n*perWR*int(unsafe.Sizeof(SGE{})), false); err != nil {
		return nil, nil, nil, err
	}
	return memory, unsafe.Slice((*T)(unsafe.Pointer(&memory[0])), n), unsafe.Slice((*SGE)(unsafe.Pointer(&memory[size])), n*perWR), nil
}

// Chain makes WR[from:to] one list, which is posted by its first request.
func (s *Sends) Chain(from, to int) {
	for i := from; i < to; i++ {
		s.WR[i].next = 0
		if i+1 < to {
			s.WR[i].next = uintptr(unsafe.Pointer(&s.WR[i+1]))
		}
	}
}

// Close frees the requests. None may be in the middle of being posted; those
// that were posted are copied by then.
func (s *Sends) Close() error { return Free(s.memory) }

// Recvs are receive requests and their memory, as Sends.
type Recvs struct {
	memory []byte
	WR     []recvWR
	SGE    []SGE
}

// NewRecvs makes n requests of up to perWR pieces of memory each.
func NewRecvs(n, perWR int) (*Recvs, error) {
	m, wr, sge, err := requests[recvWR](n, perWR)
	if err != nil {
		return nil, err
	}
	for i := range wr {
		wr[i].sg, wr[i].SGEs = uintptr(unsafe.Pointer(&sge[i*perWR])), 1
	}
	return &Recvs{m, wr, sge}, nil
}

// Chain makes WR[from:to] one list, which is posted by its first request.
func (r *Recvs) Chain(from, to int) {
	for i := from; i < to; i++ {
		r.WR[i].next = 0
		if i+1 < to {
			r.WR[i].next = uintptr(unsafe.Pointer(&r.WR[i+1]))
		}
	}
}

// Close frees the requests, as Sends.Close.
func (r *Recvs) Close() error { return Free(r.memory) }
