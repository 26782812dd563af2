//go:build cuda && cgo

package driver

// #include <cuda.h>
//
// // CUDA 12's header has a macro for it, and none for the others before CUDA 13.
// #ifdef cuStreamGetCaptureInfo
// CUresult cuStreamGetCaptureInfo_v2(CUstream, CUstreamCaptureStatus *, cuuint64_t *, CUgraph *, const CUgraphNode **, size_t *);
// #endif
import "C"

import "unsafe"

// A Node is a node of a graph.
type Node uintptr

func nodes(n []Node) *C.CUgraphNode { return (*C.CUgraphNode)(unsafe.Pointer(unsafe.SliceData(n))) }

func (e Event) c() C.CUevent { return *(*C.CUevent)(unsafe.Pointer(&e)) }

// captureInfo returns the ID of the stream's capture and its graph so far.
func (s Stream) captureInfo() (id C.cuuint64_t, g C.CUgraph, err error) {
	var status C.CUstreamCaptureStatus
	err = failure("cuStreamGetCaptureInfo", C.cuStreamGetCaptureInfo_v2(s.c(), &status, &id, &g, nil, nil))
	switch {
	case err != nil:
	case status == C.CU_STREAM_CAPTURE_STATUS_NONE:
		return 0, nil, nil
	case status != C.CU_STREAM_CAPTURE_STATUS_ACTIVE:
		err = failure("cuStreamGetCaptureInfo", C.CUDA_ERROR_STREAM_CAPTURE_INVALIDATED)
	}
	return id, g, err
}

// Capture returns a number of the stream's capture that no other capture of the process has or
// had, and 0 if the stream is not captured.
func (s Stream) Capture() (uint64, error) {
	id, _, err := s.captureInfo()
	return uint64(id), err
}

// Frontier returns the nodes behind which the next work on a captured stream comes.
func (s Stream) Frontier() ([]Node, error) {
	var status C.CUstreamCaptureStatus
	var first *C.CUgraphNode
	var n C.size_t
	if err := failure("cuStreamGetCaptureInfo", C.cuStreamGetCaptureInfo_v2(s.c(), &status, nil, nil, &first, &n)); err != nil {
		return nil, err
	}
	if status != C.CU_STREAM_CAPTURE_STATUS_ACTIVE {
		return nil, failure("cuStreamGetCaptureInfo", C.CUDA_ERROR_STREAM_CAPTURE_INVALIDATED)
	}
	return append([]Node(nil), unsafe.Slice((*Node)(unsafe.Pointer(first)), int(n))...), nil
}

// Behind makes the next work on a captured stream come behind nodes of the same capture, too.
func (s Stream) Behind(all []Node) error {
	return failure("cuStreamUpdateCaptureDependencies", C.cuStreamUpdateCaptureDependencies(s.c(), nodes(all), C.size_t(len(all)), C.CU_STREAM_ADD_CAPTURE_DEPENDENCIES))
}

// WaitOutside makes the next work on a captured stream wait, whenever the graph is launched, for
// the event as recorded last before that.
func (s Stream) WaitOutside(e Event) error {
	return failure("cuStreamWaitEvent", C.cuStreamWaitEvent(s.c(), e.c(), C.CU_EVENT_WAIT_EXTERNAL))
}

// RecordOutside adds a node to the graph of a captured stream, which records the event behind
// other nodes of it whenever the graph is launched. No work of the stream comes behind it.
func (s Stream) RecordOutside(e Event, behind []Node) (Node, error) {
	_, g, err := s.captureInfo()
	if err != nil {
		return 0, err
	}
	var n Node
	err = failure("cuGraphAddEventRecordNode", C.cuGraphAddEventRecordNode((*C.CUgraphNode)(unsafe.Pointer(&n)), g, nodes(behind), C.size_t(len(behind)), e.c()))
	return n, err
}

// MoveBehind moves a node of RecordOutside from behind some nodes of the graph of a captured
// stream to others, which come behind these.
func (s Stream) MoveBehind(n Node, from, to []Node) error {
	_, g, err := s.captureInfo()
	if err != nil {
		return err
	}
	for _, f := range from { // one that stays does no harm: the others come behind it
		C.cuGraphRemoveDependencies(g, nodes([]Node{f}), nodes([]Node{n}), 1)
	}
	for _, t := range to {
		if err := failure("cuGraphAddDependencies", C.cuGraphAddDependencies(g, nodes([]Node{t}), nodes([]Node{n}), 1)); err != nil {
			return err
		}
	}
	return nil
}
