//go:build cuda && cgo

package driver

// #cgo noescape cuGraphLaunch
// #cgo nocallback cuGraphLaunch
// #include <cuda.h>
import "C"

// A Graph is captured work.
type Graph struct{ g C.CUgraph }

// BeginCapture makes the stream record what is enqueued, on it and on streams that wait for
// its events, instead of running it. The same thread must call EndCapture, and until then must
// make no call that could disturb the capture.
func (s Stream) BeginCapture() error {
	return failure("cuStreamBeginCapture", C.cuStreamBeginCapture(s.c(), C.CU_STREAM_CAPTURE_MODE_THREAD_LOCAL))
}

// EndCapture returns what was recorded since BeginCapture. After an error (usually ErrCapture)
// the stream is no longer captured.
func (s Stream) EndCapture() (*Graph, error) {
	var g C.CUgraph
	if err := failure("cuStreamEndCapture", C.cuStreamEndCapture(s.c(), &g)); err != nil {
		return nil, err
	}
	return &Graph{g}, nil
}

// Capturing reports whether the stream is captured. ErrCapture: it is, but the capture is
// invalidated.
func (s Stream) Capturing() (bool, error) {
	var status C.CUstreamCaptureStatus
	if err := failure("cuStreamIsCapturing", C.cuStreamIsCapturing(s.c(), &status)); err != nil {
		return false, err
	}
	if status == C.CU_STREAM_CAPTURE_STATUS_INVALIDATED {
		return true, failure("cuStreamIsCapturing", C.CUDA_ERROR_STREAM_CAPTURE_INVALIDATED)
	}
	return status == C.CU_STREAM_CAPTURE_STATUS_ACTIVE, nil
}

// Destroy frees the graph. Instances of it stay.
func (g *Graph) Destroy() error { return failure("cuGraphDestroy", C.cuGraphDestroy(g.g)) }

// A GraphExec is a graph that can be launched.
type GraphExec struct{ g C.CUgraphExec }

// Instantiate makes the graph ready to be launched.
func (g *Graph) Instantiate() (*GraphExec, error) {
	var x C.CUgraphExec
	if err := failure("cuGraphInstantiateWithFlags", C.cuGraphInstantiateWithFlags(&x, g.g, 0)); err != nil {
		return nil, err
	}
	return &GraphExec{x}, nil
}

// Upload does, on the stream, the preparation that the first launch would otherwise have to
// do.
func (x *GraphExec) Upload(s Stream) error {
	return failure("cuGraphUpload", C.cuGraphUpload(x.g, s.c()))
}

// Launch enqueues the graph's work. It starts after the previous launch of the same GraphExec
// has ended.
func (x *GraphExec) Launch(s Stream) error {
	return failure("cuGraphLaunch", C.cuGraphLaunch(x.g, s.c()))
}

// Destroy frees the GraphExec. Launched work still runs to its end.
func (x *GraphExec) Destroy() error {
	return failure("cuGraphExecDestroy", C.cuGraphExecDestroy(x.g))
}
