//go:build !cgo

package netplugin

import (
	"fmt"

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

// Init fails with ErrUnavailable.
func (*Library) Init(uint64) (*Net, error) { return nil, ErrUnavailable }

// A Net is a plugin that was initialized. In this build there is none.
type Net struct{}

// Library is none.
func (*Net) Library() *Library { return nil }

// Devices are none.
func (*Net) Devices() []Properties { return nil }

// CollNet fails with ErrUnavailable.
func (*Net) CollNet(uint64) (CollNet, error) { return CollNet{}, ErrUnavailable }

// Close does nothing.
func (*Net) Close() error { return nil }

// Log does nothing: no plugin logs.
func Log(Level, func(Line)) {}

// Open fails with ErrUnavailable.
func Open(Options) (transport.Endpoint, error) { return nil, ErrUnavailable }
