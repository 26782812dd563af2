package driver

import (
	"errors"
	"fmt"
	"testing"
)

func TestErrorText(t *testing.T) {
	for _, c := range []struct {
		err  *Error
		want string
		kind error
		lost bool
	}{
		{newError("cuMemAlloc", 2, "64 bytes"), "cuMemAlloc: out of memory: 64 bytes (CUDA_ERROR_OUT_OF_MEMORY, 2)", ErrOutOfMemory, false},
		{newError("cuInit", 802, ""), "cuInit: the system is not ready: on NVSwitch machines, is the fabric manager running? (CUDA_ERROR_SYSTEM_NOT_READY, 802)", ErrNoDevice, false},
		{newError("cuCtxSynchronize", 700, ""), "cuCtxSynchronize: a kernel or copy used an address that is not mapped (CUDA_ERROR_ILLEGAL_ADDRESS, 700)", ErrKernel, true},
		{newError("cuMemAlloc", 709, ""), "cuMemAlloc: the context has been destroyed (CUDA_ERROR_CONTEXT_IS_DESTROYED, 709)", ErrContext, true},
		{newError("cuMemAlloc", 201, ""), "cuMemAlloc: no valid context is current on this thread (CUDA_ERROR_INVALID_CONTEXT, 201)", ErrContext, false},
		{newError("cuMemHostAlloc", 800, ""), "cuMemHostAlloc: not permitted (CUDA_ERROR_NOT_PERMITTED, 800)", ErrNotPermitted, false},
		{newError("cuStreamSynchronize", 900, ""), "cuStreamSynchronize: not allowed while the stream is captured (CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, 900)", ErrCapture, false},
		{newError("cuX", 12345, ""), "cuX: CUDA error 12345", nil, false},
		{&Error{Call: "cuX", Code: 7, Name: "CUDA_ERROR_SEVEN"}, "cuX: CUDA_ERROR_SEVEN (7)", nil, false},
	} {
		if got := c.err.Error(); got != c.want {
			t.Errorf("%q, want %q", got, c.want)
		}
		if got := errors.Unwrap(c.err); got != c.kind {
			t.Errorf("%v is a %v, want %v", c.err, got, c.kind)
		}
		if got := c.err.Lost(); got != c.lost {
			t.Errorf("%v: lost %v, want %v", c.err, got, c.lost)
		}
	}
}

func TestFailed(t *testing.T) {
	for _, c := range []struct {
		err  error
		want bool
	}{
		{nil, false},
		{errors.New("cuInit"), false},
		{newError("cuX", 12345, ""), true},
		{fmt.Errorf("kernels: %w", newError("cuMemAlloc", 2, "")), true},
		{fmt.Errorf("%w: libcuda.so.1 is missing", ErrNoDriver), true},
		{errors.Join(errors.New("closing"), fmt.Errorf("%w: number 2 of 2", ErrNoDevice)), true},
	} {
		if got := Failed(c.err); got != c.want {
			t.Errorf("Failed(%v) = %v", c.err, got)
		}
	}
}

// Names and texts are read by people: none may be missing, or twice.
func TestErrorTable(t *testing.T) {
	names := map[string]int{}
	for code, r := range results {
		if r.name == "" || r.text == "" {
			t.Errorf("code %d has no name or text", code)
		}
		if other, ok := names[r.name]; ok {
			t.Errorf("codes %d and %d are both %s", code, other, r.name)
		}
		names[r.name] = code
	}
}

func TestNoDriver(t *testing.T) {
	err := Init()
	if err == nil {
		t.Skip("this machine has an NVIDIA driver")
	}
	if !errors.Is(err, ErrNoDriver) && !errors.Is(err, ErrNoDevice) {
		t.Errorf("Init: %v", err)
	}
	t.Log(err)
}
