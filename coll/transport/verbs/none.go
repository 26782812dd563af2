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

// A Net holds the usable ports. This build has none.
type Net struct{}

// Ports returns nil.
func (*Net) Ports() []PortInfo { return nil }

// Close does nothing.
func (*Net) Close() error { return nil }

// Open fails with ErrUnavailable.
func Open(Options) (transport.Endpoint, error) { return nil, ErrUnavailable }
