package driver

import (
	"errors"
	"fmt"
)

// Kinds of errors, for errors.Is. Other error codes of CUDA have only their number, in
// Error.Code.
var (
	// ErrNoDriver: there is no NVIDIA driver, or none that this build can use.
	ErrNoDriver = errors.New("no NVIDIA driver")
	// ErrNoDevice: there is a driver, but no device with this number, or no device at all.
	ErrNoDevice = errors.New("no such CUDA device")
	// ErrInvalid: a value, an address or a handle is not valid.
	ErrInvalid = errors.New("invalid argument")
	// ErrOutOfMemory: the device or the host does not have the requested memory.
	ErrOutOfMemory = errors.New("out of memory")
	// ErrContext: no context is current, or it no longer exists.
	ErrContext = errors.New("no valid context")
	// ErrImage: a module is not for this device or driver.
	ErrImage = errors.New("module cannot be loaded")
	// ErrNotFound: the module does not contain the name.
	ErrNotFound = errors.New("not found")
	// ErrNotReady: the work is not done yet.
	ErrNotReady = errors.New("not ready")
	// ErrPeer: the devices cannot reach each other's memory.
	ErrPeer = errors.New("no peer access")
	// ErrNotPermitted: the call is not allowed in the current state, such as a synchronisation
	// while a stream is captured.
	ErrNotPermitted = errors.New("not permitted")
	// ErrNotSupported: this driver or device cannot do it.
	ErrNotSupported = errors.New("not supported")
	// ErrCapture: a stream capture went wrong.
	ErrCapture = errors.New("stream capture failed")
	// ErrResources: a launch needs more than the device has.
	ErrResources = errors.New("too many resources requested for launch")
	// ErrKernel: a kernel did something illegal, or the device failed. The context is lost
	// with everything in it, see Error.Lost.
	ErrKernel = errors.New("kernel failed")
)

// An Error is a failed call of the driver.
type Error struct {
	Call string // "cuMemAlloc"
	Code int    // a CUresult
	Name string // "CUDA_ERROR_OUT_OF_MEMORY", or empty where it is not known
	Text string // what happened; empty where only the code is known
}

func (e *Error) Error() string {
	switch {
	case e.Name == "":
		return fmt.Sprintf("%s: CUDA error %d", e.Call, e.Code)
	case e.Text == "":
		return fmt.Sprintf("%s: %s (%d)", e.Call, e.Name, e.Code)
	}
	return fmt.Sprintf("%s: %s (%s, %d)", e.Call, e.Text, e.Name, e.Code)
}

// Unwrap returns the kind of error, or nil.
func (e *Error) Unwrap() error { return results[e.Code].kind }

// Lost reports whether the context is unusable from now on: asynchronous work did something
// illegal, and every later call fails the same way.
func (e *Error) Lost() bool {
	return results[e.Code].kind == ErrKernel || e.Code == codeContextDestroyed || e.Code == codeDeinitialized
}

// Failed reports whether an error is the driver's: a call failed, or there is no driver or no
// device.
func Failed(err error) bool {
	_, failed := errors.AsType[*Error](err)
	return failed || errors.Is(err, ErrNoDriver) || errors.Is(err, ErrNoDevice)
}

// Codes that the package compares by number.
const (
	codeOutOfMemory      = 2
	codeDeinitialized    = 4
	codeNoDevice         = 100
	codeNotReady         = 600
	codePeerEnabled      = 704
	codePeerNotEnabled   = 705
	codeContextDestroyed = 709
	codeNotSupported     = 801
)

// A result describes an error code of the driver. The texts are for users of collectives, who
// have not called CUDA themselves.
type result struct {
	kind       error
	name, text string
}

var results = map[int]result{
	1:                    {ErrInvalid, "CUDA_ERROR_INVALID_VALUE", "invalid argument"},
	2:                    {ErrOutOfMemory, "CUDA_ERROR_OUT_OF_MEMORY", "out of memory"},
	3:                    {ErrNoDriver, "CUDA_ERROR_NOT_INITIALIZED", "the driver is not initialised"},
	codeDeinitialized:    {ErrContext, "CUDA_ERROR_DEINITIALIZED", "the driver is shutting down"},
	34:                   {ErrNoDriver, "CUDA_ERROR_STUB_LIBRARY", "libcuda.so.1 is the toolkit's stub, not a driver"},
	46:                   {ErrNoDevice, "CUDA_ERROR_DEVICE_UNAVAILABLE", "the device is busy or in use by another process exclusively"},
	codeNoDevice:         {ErrNoDevice, "CUDA_ERROR_NO_DEVICE", "no CUDA device"},
	101:                  {ErrNoDevice, "CUDA_ERROR_INVALID_DEVICE", "no such device"},
	200:                  {ErrImage, "CUDA_ERROR_INVALID_IMAGE", "not a module"},
	201:                  {ErrContext, "CUDA_ERROR_INVALID_CONTEXT", "no valid context is current on this thread"},
	209:                  {ErrImage, "CUDA_ERROR_NO_BINARY_FOR_GPU", "the module has no code for this device"},
	214:                  {ErrKernel, "CUDA_ERROR_ECC_UNCORRECTABLE", "uncorrectable memory error"},
	217:                  {ErrPeer, "CUDA_ERROR_PEER_ACCESS_UNSUPPORTED", "the devices cannot reach each other's memory"},
	218:                  {ErrImage, "CUDA_ERROR_INVALID_PTX", "PTX that the driver cannot compile"},
	220:                  {ErrKernel, "CUDA_ERROR_NVLINK_UNCORRECTABLE", "uncorrectable NVLink error"},
	222:                  {ErrImage, "CUDA_ERROR_UNSUPPORTED_PTX_VERSION", "PTX newer than the driver"},
	304:                  {nil, "CUDA_ERROR_OPERATING_SYSTEM", "a call of the operating system failed"},
	400:                  {ErrInvalid, "CUDA_ERROR_INVALID_HANDLE", "not a valid handle"},
	401:                  {ErrInvalid, "CUDA_ERROR_ILLEGAL_STATE", "not in a state for this call"},
	500:                  {ErrNotFound, "CUDA_ERROR_NOT_FOUND", "not found"},
	codeNotReady:         {ErrNotReady, "CUDA_ERROR_NOT_READY", "not done yet"},
	700:                  {ErrKernel, "CUDA_ERROR_ILLEGAL_ADDRESS", "a kernel or copy used an address that is not mapped"},
	701:                  {ErrResources, "CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES", "the launch needs more registers or shared memory than there are"},
	702:                  {ErrKernel, "CUDA_ERROR_LAUNCH_TIMEOUT", "a kernel ran longer than the device's watchdog allows"},
	codePeerEnabled:      {nil, "CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED", "peer access is enabled already"},
	705:                  {ErrPeer, "CUDA_ERROR_PEER_ACCESS_NOT_ENABLED", "peer access is not enabled"},
	708:                  {nil, "CUDA_ERROR_PRIMARY_CONTEXT_ACTIVE", "the primary context is in use already"},
	codeContextDestroyed: {ErrContext, "CUDA_ERROR_CONTEXT_IS_DESTROYED", "the context has been destroyed"},
	710:                  {ErrKernel, "CUDA_ERROR_ASSERT", "a kernel's assertion failed"},
	711:                  {ErrPeer, "CUDA_ERROR_TOO_MANY_PEERS", "no more peers of this device are possible"},
	712:                  {ErrInvalid, "CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED", "the memory is registered already"},
	713:                  {ErrInvalid, "CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED", "the memory is not registered"},
	714:                  {ErrKernel, "CUDA_ERROR_HARDWARE_STACK_ERROR", "a kernel's stack is corrupt"},
	715:                  {ErrKernel, "CUDA_ERROR_ILLEGAL_INSTRUCTION", "a kernel had an illegal instruction"},
	716:                  {ErrKernel, "CUDA_ERROR_MISALIGNED_ADDRESS", "a kernel used a misaligned address"},
	717:                  {ErrKernel, "CUDA_ERROR_INVALID_ADDRESS_SPACE", "a kernel used an address of another space"},
	718:                  {ErrKernel, "CUDA_ERROR_INVALID_PC", "a kernel jumped to nowhere"},
	719:                  {ErrKernel, "CUDA_ERROR_LAUNCH_FAILED", "a kernel failed"},
	720:                  {ErrResources, "CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE", "more blocks than can be resident at once"},
	800:                  {ErrNotPermitted, "CUDA_ERROR_NOT_PERMITTED", "not permitted"},
	codeNotSupported:     {ErrNotSupported, "CUDA_ERROR_NOT_SUPPORTED", "not supported by this driver or device"},
	802:                  {ErrNoDevice, "CUDA_ERROR_SYSTEM_NOT_READY", "the system is not ready: on NVSwitch machines, is the fabric manager running?"},
	803:                  {ErrNoDriver, "CUDA_ERROR_SYSTEM_DRIVER_MISMATCH", "libcuda.so.1 and the kernel's driver are of different versions"},
	804:                  {ErrNoDriver, "CUDA_ERROR_COMPAT_NOT_SUPPORTED_ON_DEVICE", "the compatibility libcuda.so.1 does not support this device"},
	900:                  {ErrCapture, "CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED", "not allowed while the stream is captured"},
	901:                  {ErrCapture, "CUDA_ERROR_STREAM_CAPTURE_INVALIDATED", "an earlier error has spoilt the capture"},
	902:                  {ErrCapture, "CUDA_ERROR_STREAM_CAPTURE_MERGE", "two captures would be joined"},
	903:                  {ErrCapture, "CUDA_ERROR_STREAM_CAPTURE_UNMATCHED", "the capture was not begun on this stream"},
	904:                  {ErrCapture, "CUDA_ERROR_STREAM_CAPTURE_UNJOINED", "another stream was not joined before the capture's end"},
	905:                  {ErrCapture, "CUDA_ERROR_STREAM_CAPTURE_ISOLATION", "the capture would depend on work outside of it"},
	906:                  {ErrCapture, "CUDA_ERROR_STREAM_CAPTURE_IMPLICIT", "the legacy stream cannot be used during a capture"},
	907:                  {ErrCapture, "CUDA_ERROR_CAPTURED_EVENT", "the event is part of a capture"},
	908:                  {ErrCapture, "CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD", "the capture was begun on another thread"},
	909:                  {nil, "CUDA_ERROR_TIMEOUT", "timed out"},
	999:                  {ErrKernel, "CUDA_ERROR_UNKNOWN", "an unknown error"},
}

// newError returns the Error for a code. detail is further information, or empty.
func newError(call string, code int, detail string) *Error {
	r := results[code]
	e := &Error{Call: call, Code: code, Name: r.name, Text: r.text}
	if detail != "" {
		if e.Text != "" {
			e.Text += ": "
		}
		e.Text += detail
	}
	return e
}
