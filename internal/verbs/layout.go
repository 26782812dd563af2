//go:build cgo && linux

package verbs

// #include "library.h"
import "C"

import "unsafe"

// The requests and completions that are declared in Go must have the layout of C. If one differs,
// its index is not 0 and this does not compile.
var (
	_ = [1]int{}[unsafe.Sizeof(WC{})-C.sizeof_struct_vb_wc]
	_ = [1]int{}[unsafe.Offsetof(WC{}.Flags)-unsafe.Offsetof(C.struct_vb_wc{}.wc_flags)]
	_ = [1]int{}[unsafe.Offsetof(WC{}.SL)-unsafe.Offsetof(C.struct_vb_wc{}.sl)]
	_ = [1]int{}[unsafe.Sizeof(SGE{})-C.sizeof_struct_vb_sge]
	_ = [1]int{}[unsafe.Offsetof(SGE{}.LKey)-unsafe.Offsetof(C.struct_vb_sge{}.lkey)]
	_ = [1]int{}[unsafe.Sizeof(sendWR{})-C.sizeof_struct_vb_send_wr]
	_ = [1]int{}[unsafe.Offsetof(sendWR{}.Imm)-unsafe.Offsetof(C.struct_vb_send_wr{}.imm_data)]
	_ = [1]int{}[unsafe.Offsetof(sendWR{}.remote)-unsafe.Offsetof(C.struct_vb_send_wr{}.wr)]
	_ = [1]int{}[unsafe.Offsetof(sendWR{}.srqn)-unsafe.Offsetof(C.struct_vb_send_wr{}.remote_srqn)]
	_ = [1]int{}[unsafe.Sizeof(recvWR{})-C.sizeof_struct_vb_recv_wr]
	_ = [1]int{}[unsafe.Offsetof(recvWR{}.SGEs)-unsafe.Offsetof(C.struct_vb_recv_wr{}.num_sge)]
)
