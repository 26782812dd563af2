//go:build cgo && linux

package verbs

// #include "library.h"
import "C"

import "fmt"

// An SRQ is a receive queue that several QPs share. Receives can be posted through any of them with
// QP.PostRecv.
type SRQ struct {
	ctx *Context
	s   *C.struct_vb_srq
}

// SRQ creates a queue for the given number of receives, of one memory segment each.
func (p *PD) SRQ(receives int) (*SRQ, error) {
	a := C.struct_vb_srq_init_attr{attr: C.struct_vb_srq_attr{max_wr: C.uint32_t(receives), max_sge: 1}}
	s, err := C.verbs_create_srq(p.p, &a)
	if s == nil {
		e := newError("ibv_create_srq", p.ctx.name, err)
		e.What = fmt.Sprintf("%d receives deep", receives)
		return nil, e
	}
	return &SRQ{p.ctx, s}, nil
}

// Close frees the queue. Its QPs must be closed already.
func (s *SRQ) Close() error { return s.ctx.failed("ibv_destroy_srq", C.verbs_destroy_srq(s.s)) }
