//go:build cgo && linux

package verbs

import (
	"fmt"
	"unsafe"
)

// An SGE is a memory segment of a request, in libibverbs' layout.
type SGE struct {
	Address uint64
	Length  uint32
	LKey    uint32
}

// A sendWR is a send request, in libibverbs' layout. NewSends creates it outside of Go's memory.
type sendWR struct {
	ID     uint64
	next   uintptr
	sg     uintptr
	SGEs   int32
	opcode opcode
	Flags  uint32
	Imm    uint32 // in network order

	// For writes and reads: the peer's address and key.
	remote uint64
	rest   [3]uint64
	srqn   uint64
	bind   [6]uint64
}

// Write makes the request a write to the peer's memory, Read a read from it. WriteImm makes it a
// write that also consumes a receive and passes Imm to it.
func (w *sendWR) Write(address uint64, rkey uint32)    { w.oneSided(opWrite, address, rkey) }
func (w *sendWR) WriteImm(address uint64, rkey uint32) { w.oneSided(opWriteImm, address, rkey) }
func (w *sendWR) Read(address uint64, rkey uint32)     { w.oneSided(opRead, address, rkey) }

func (w *sendWR) oneSided(op opcode, address uint64, rkey uint32) {
	w.opcode = op
	w.SetRemote(address, rkey)
}

// SetRemote changes the remote address and key of a write or read.
func (w *sendWR) SetRemote(address uint64, rkey uint32) {
	w.remote = address
	*(*uint32)(unsafe.Pointer(&w.rest[0])) = rkey
}

// Send makes the request a message, SendImm a message that also passes Imm to the receive.
func (w *sendWR) Send()    { w.opcode = opSend }
func (w *sendWR) SendImm() { w.opcode = opSendImm }

// FetchAdd makes the request add to a word of the peer's memory. CompareSwap makes it store swap
// there if the word equals compare. Both return the previous value.
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

// SetDatagram sets the destination of a UD message.
func (w *sendWR) SetDatagram(a *AH, qpn, qkey uint32) {
	w.remote = uint64(uintptr(unsafe.Pointer(a.a)))
	*(*[2]uint32)(unsafe.Pointer(&w.rest[0])) = [2]uint32{qpn, qkey}
}

// A recvWR is a receive request, in libibverbs' layout. NewRecvs creates it outside of Go's memory.
type recvWR struct {
	ID   uint64
	next uintptr
	sg   uintptr
	SGEs int32
	_    int32
}

// Sends are send requests and their memory. The requests are outside of Go's memory and do not move
// until Close.
type Sends struct {
	memory []byte
	WR     []sendWR
	SGE    []SGE // perWR of them for each request
}

// NewSends creates n requests with up to perWR memory segments each. Each request is a separate
// list, see Chain.
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

// requests allocates n requests of a type, with perWR memory segments each.
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

// Chain links WR[from:to] into one list, which is posted by its first request.
func (s *Sends) Chain(from, to int) {
	for i := from; i < to; i++ {
		s.WR[i].next = 0
		if i+1 < to {
			s.WR[i].next = uintptr(unsafe.Pointer(&s.WR[i+1]))
		}
	}
}

// Close frees the requests. No post of them may be in progress; requests that were already posted
// have been copied.
func (s *Sends) Close() error { return Free(s.memory) }

// Recvs are receive requests and their memory, like Sends.
type Recvs struct {
	memory []byte
	WR     []recvWR
	SGE    []SGE
}

// NewRecvs creates n requests with up to perWR memory segments each.
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

// Chain links WR[from:to] into one list, which is posted by its first request.
func (r *Recvs) Chain(from, to int) {
	for i := from; i < to; i++ {
		r.WR[i].next = 0
		if i+1 < to {
			r.WR[i].next = uintptr(unsafe.Pointer(&r.WR[i+1]))
		}
	}
}

// Close frees the requests, like Sends.Close.
func (r *Recvs) Close() error { return Free(r.memory) }
