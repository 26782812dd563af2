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
	Opcode Opcode
	Flags  uint32
	Imm    uint32 // in network order

	// Of writes and reads: the peer's address and key. See SetAtomic and
	// SetDatagram for the others.
	Remote uint64
	rest   [3]uint64
	srqn   uint64
	bind   [6]uint64
}

// SetRemote is the memory that a write or read goes to.
func (w *sendWR) SetRemote(address uint64, rkey uint32) {
	w.Remote = address
	*(*uint32)(unsafe.Pointer(&w.rest[0])) = rkey
}

// SetAtomic is the word that an atomic works on: it gets add (fetch and add), or
// swap if it is compare.
func (w *sendWR) SetAtomic(address uint64, rkey uint32, compareOrAdd, swap uint64) {
	w.Remote, w.rest[0], w.rest[1] = address, compareOrAdd, swap
	*(*uint32)(unsafe.Pointer(&w.rest[2])) = rkey
}

// SetDatagram is where a UD message goes.
func (w *sendWR) SetDatagram(a *AH, qpn, qkey uint32) {
	w.Remote = uint64(uintptr(unsafe.Pointer(a.a)))
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
	perWR  int
}

// NewSends makes n requests of up to perWR pieces of memory each, every one a
// list of its own: see Chain.
func NewSends(n, perWR int) (*Sends, error) {
	if n <= 0 || perWR <= 0 {
		return nil, fmt.Errorf("%d requests of %d pieces", n, perWR)
	}
	size := n * int(unsafe.Sizeof(sendWR{}))
	m, err := Alloc(size+n*perWR*int(unsafe.Sizeof(SGE{})), false)
	if err != nil {
		return nil, err
	}
	s := &Sends{memory: m, perWR: perWR}
	s.WR = unsafe.Slice((*sendWR)(unsafe.Pointer(&m[0])), n)
	s.SGE = unsafe.Slice((*SGE)(unsafe.Pointer(&m[size])), n*perWR)
	for i := range s.WR {
		s.WR[i].sg = uintptr(unsafe.Pointer(&s.SGE[i*perWR]))
		s.WR[i].SGEs = 1
	}
	return s, nil
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
	if n <= 0 || perWR <= 0 {
		return nil, fmt.Errorf("%d requests of %d pieces", n, perWR)
	}
	size := n * int(unsafe.Sizeof(recvWR{}))
	m, err := Alloc(size+n*perWR*int(unsafe.Sizeof(SGE{})), false)
	if err != nil {
		return nil, err
	}
	r := &Recvs{memory: m}
	r.WR = unsafe.Slice((*recvWR)(unsafe.Pointer(&m[0])), n)
	r.SGE = unsafe.Slice((*SGE)(unsafe.Pointer(&m[size])), n*perWR)
	for i := range r.WR {
		r.WR[i].sg = uintptr(unsafe.Pointer(&r.SGE[i*perWR]))
		r.WR[i].SGEs = 1
	}
	return r, nil
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
