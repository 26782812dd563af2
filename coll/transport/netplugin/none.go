//go:build !cgo

package netplugin

import (
	"context"
	"fmt"

	"github.com/assay-hpc/assay/coll/elem"
	"github.com/assay-hpc/assay/coll/op"
	"github.com/assay-hpc/assay/coll/transport"
)

// A Library is a plugin, loaded. In this build there is none.
type Library struct{}

// Load fails with ErrUnavailable.
func Load(string) (*Library, error) {
	return nil, fmt.Errorf("%w: this build cannot load libraries: it was made without cgo", ErrUnavailable)
}

// Name is never called, and so are the methods below: there is no Library.
func (*Library) Name() string { return "" }

// Version is of none.
func (*Library) Version() int { return 0 }

// File is of none.
func (*Library) File() string { return "" }

// CollNetName is of none.
func (*Library) CollNetName() (string, bool) { return "", false }

// CollNet fails with ErrUnavailable.
func (*Library) CollNet(uint64) (*CollNet, error) { return nil, ErrUnavailable }

// Init fails with ErrUnavailable.
func (*Library) Init(uint64) (*Net, error) { return nil, ErrUnavailable }

// A Net is a plugin that was initialized. In this build there is none.
type Net struct{}

// Library is none.
func (*Net) Library() *Library { return nil }

// Devices are none.
func (*Net) Devices() []Properties { return nil }

// Close does nothing.
func (*Net) Close() error { return nil }

// Log does nothing: no plugin logs.
func Log(Level, func(Line)) {}

// Open fails with ErrUnavailable.
func Open(Options) (transport.Endpoint, error) { return nil, ErrUnavailable }

// A CollNet is a plugin's table for reductions in the network. In this build
// there is none, and its methods are never called.
type CollNet struct{}

// Name is of none.
func (*CollNet) Name() string { return "" }

// Version is of none.
func (*CollNet) Version() int { return 0 }

// Devices are none.
func (*CollNet) Devices() []Properties { return nil }

// Reduces is false.
func (*CollNet) Reduces(elem.Type, elem.Op) bool { return false }

// Does is false.
func (*CollNet) Does(op.Collective) bool { return false }

// Listen fails with ErrUnavailable.
func (*CollNet) Listen(int) (*CollListener, error) { return nil, ErrUnavailable }

// Close does nothing.
func (*CollNet) Close() error { return nil }

// A CollListener is a head before its group is there. In this build there is
// none.
type CollListener struct{ Handle [HandleSize]byte }

// Close does nothing.
func (*CollListener) Close() error { return nil }

// Heads are a head's connection to a network that reduces. In this build there
// are none.
type Heads struct{}

// OpenHeads fails with ErrUnavailable.
func OpenHeads(context.Context, HeadsOptions) (*Heads, error) { return nil, ErrUnavailable }

// Tx is none.
func (*Heads) Tx() transport.Reducer { return nil }

// Rx is none.
func (*Heads) Rx() transport.Rx { return nil }

// Close does nothing.
func (*Heads) Close() error { return nil }
