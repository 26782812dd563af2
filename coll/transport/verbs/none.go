//go:build !cgo || !linux

package verbs

import (
	"fmt"

	"github.com/assay-hpc/assay/coll/transport"
)

// Find fails with ErrUnavailable.
func Find(Selection) (*Net, error) {
	return nil, fmt.Errorf("%w: this build cannot load libibverbs: it was made without cgo", ErrUnavailable)
}

// A Net is the ports that can be used. In this build there is none.
type Net struct{}

// Ports are none.
func (*Net) Ports() []PortInfo { return nil }

// Close does nothing.
func (*Net) Close() error { return nil }

// Open fails with ErrUnavailable.
func Open(Options) (transport.Endpoint, error) { return nil, ErrUnavailable }
