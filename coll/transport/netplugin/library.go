//go:build cgo

package netplugin

/*
#cgo CFLAGS: -std=gnu11 -Wall -Wextra
#cgo LDFLAGS: -ldl
#include <stdlib.h>
#include "plugin.h"
*/
import "C"

import (
	"errors"
	"fmt"
	"sync"
	"unsafe"

	"github.com/assay-hpc/assay/coll/transport/slots"
)

// A Library is a loaded plugin. It is never unloaded. Its methods may be called from
// several goroutines.
type Library struct {
	c    *C.struct_np_library
	name string

	mu       sync.Mutex
	once     bool // was initialized; versions before 11 are initialized once per process
	collOnce bool // the same for its table of reductions
}

// loaded holds the process's libraries, by the file name passed to dlopen. Libraries that
// could not be loaded are tried again.
var loaded = struct {
	mu   sync.Mutex
	libs map[string]*Library
}{libs: map[string]*Library{}}

// Load loads the plugin that an entry of NCCL_NET_PLUGIN names (see Files). The error
// wraps ErrUnavailable, and contains the reason for each file.
func Load(entry string) (*Library, error) {
	loaded.mu.Lock()
	defer loaded.mu.Unlock()
	var errs []error
	for _, file := range Files(entry) {
		if l := loaded.libs[file]; l != nil {
			return l, nil
		}
		l, err := load(file)
		if err == nil {
			loaded.libs[file] = l
			return l, nil
		}
		errs = append(errs, err)
	}
	return nil, fmt.Errorf("%w: %w", ErrUnavailable, slots.OneLine(errs))
}

func load(file string) (*Library, error) {
	name := C.CString(file)
	defer C.free(unsafe.Pointer(name))
	var text *C.char
	c := C.np_open(name, &text)
	if c == nil {
		defer C.free(unsafe.Pointer(text))
		return nil, errors.New(C.GoString(text)) // begins with the file
	}
	if C.np_find(c) == 0 {
		C.np_close(c)
		return nil, fmt.Errorf("%s has none of the symbols ncclNetPlugin_v%d to ncclNetPlugin_v%d: it is not a network plugin, or of a version that is not supported", file, C.NP_OLDEST, C.NP_NEWEST)
	}
	l := &Library{c: c, name: C.GoString(C.np_name(c))}
	if l.name == "" {
		l.name = "without a name"
	}
	return l, nil
}

// Name returns the name by which NCCL_NET may select the network.
func (l *Library) Name() string { return l.name }

// Version returns the version of the table in use: 8 to 12.
func (l *Library) Version() int { return int(l.c.version) }

// File returns the path of the library.
func (l *Library) File() string { return C.GoString(l.c.file) }

// A Net is a plugin initialized for one communicator. The caller must close it. Its
// methods may be called from several goroutines.
type Net struct {
	lib     *Library
	c       *C.struct_np_net
	devices []Properties
}

// Init initializes the plugin for a communicator, which id identifies. The error says
// which of the plugin's calls failed, or why its devices cannot be used.
func (l *Library) Init(id uint64) (*Net, error) {
	n := &Net{lib: l, c: (*C.struct_np_net)(C.calloc(1, C.sizeof_struct_np_net))}
	n.c.l, n.c.config.traffic_class = l.c, C.NP_NO_TRAFFIC_CLASS
	err := l.initialize(&l.once, l.Version(), func() error { return l.failed("init", C.np_init(n.c, C.uint64_t(id))) })
	if err != nil {
		C.free(unsafe.Pointer(n.c))
		return nil, err
	}
	if err := n.readDevices(); err != nil {
		n.Close()
		return nil, err
	}
	return n, nil
}

// initialize calls init for a table of the given version, unless it has succeeded before
// and that version needs it only once.
func (l *Library) initialize(once *bool, version int, init func() error) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if *once && version < 11 {
		return nil
	}
	err := init()
	*once = *once || err == nil
	return err
}

// failed converts a call's result to an error; nil for success.
func (l *Library) failed(call string, result C.int) error {
	if result == 0 {
		return nil
	}
	return fmt.Errorf("network plugin %s: %s: %w", l.name, call, Result(result))
}

// look reads the devices' properties.
func (n *Net) readDevices() error {
	var count C.int
	if err := n.lib.failed("devices", C.np_devices(n.c, &count)); err != nil {
		return err
	}
	for d := range int(count) {
		p, err := n.properties(d)
		if err != nil {
			return err
		}
		if p.PtrSupport&PtrHost == 0 || p.Offload != 0 {
			return fmt.Errorf("network plugin %s: device %d, %s, does not move the processor's memory by itself (kinds of memory %#x, offload %d)", n.lib.name, d, p.Name, p.PtrSupport, p.Offload)
		}
		n.devices = append(n.devices, p)
	}
	if len(n.devices) == 0 {
		return fmt.Errorf("network plugin %s has no devices", n.lib.name)
	}
	return nil
}

func (n *Net) properties(device int) (Properties, error) {
	var p C.struct_np_props
	if err := n.lib.failed("getProperties", C.np_properties(n.c, C.int(device), &p)); err != nil {
		return Properties{}, err
	}
	return propertiesOf(&p, p.max_p2p), nil
}

// propertiesOf converts a device's properties from C.
func propertiesOf(p *C.struct_np_props, maxBytes C.size_t) Properties {
	return Properties{
		Name: C.GoString(p.name), PtrSupport: int(p.ptr_support), Speed: int(p.speed), Port: int(p.port), Latency: float32(p.latency),
		MaxComms: int(p.max_comms), MaxRecvs: int(p.max_recvs), MaxBytes: uint64(maxBytes), Offload: int(p.device_type), Parts: int(p.parts),
	}
}

// Library returns the plugin's library.
func (n *Net) Library() *Library { return n.lib }

// Devices returns the network's devices, by number; there is at least one.
func (n *Net) Devices() []Properties { return n.devices }

// Close releases the communicator's use of the plugin. Its connections must be closed
// before.
func (n *Net) Close() error {
	if n.c == nil {
		return nil
	}
	err := n.lib.failed("finalize", C.np_finalize(n.c))
	C.free(unsafe.Pointer(n.c))
	n.c = nil
	return err
}
