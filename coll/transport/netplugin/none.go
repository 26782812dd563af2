//go:build !cgo

package netplugin

import (
	"context"
	"fmt"

	"github.com/assay-hpc/assay/coll/elem"
	"github.com/assay-hpc/assay/coll/op"
	"github.com/assay-hpc/assay/coll/transport"
)

// Load fails with ErrUnavailable.
func Load(string) (*Library, error) {
	return nil, fmt.Errorf("%w: this build cannot load libraries: it was made without cgo", ErrUnavailable)
}

// Log does nothing: no plugin logs.
func Log(Level, func(Line)) {}

// Open fails with ErrUnavailable.
func Open(Options) (transport.Endpoint, error) { return nil, ErrUnavailable }

// OpenHeads fails with ErrUnavailable.
func OpenHeads(context.Context, HeadsOptions) (*Heads, error) { return nil, ErrUnavailable }

// This build never creates values of the following types. Their methods let callers
// compile, and are never called.
type (
	// A Library is a loaded plugin.
	Library struct{ library }
	// A Net is an initialized plugin.
	Net struct{ network }
	// A CollNet is a plugin's table for reductions in the network.
	CollNet struct{ collNet }
	// A CollListener is a head before its group exists.
	CollListener struct {
		closer
		Handle [HandleSize]byte
	}
	// Heads are a head's connection to a network that reduces.
	Heads struct{ heads }
)

type closer interface{ Close() error }

type library interface {
	Name() string
	Version() int
	File() string
	Init(id uint64) (*Net, error)
	CollNetName() (string, bool)
	CollNet(id uint64) (*CollNet, error)
}

type network interface {
	closer
	Library() *Library
	Devices() []Properties
}

type collNet interface {
	closer
	Name() string
	Version() int
	Devices() []Properties
	Reduces(elem.Type, elem.Op) bool
	Does(op.Collective) bool
	Listen(device int) (*CollListener, error)
}

type heads interface {
	closer
	Tx() transport.Reducer
	Rx() transport.Rx
}
