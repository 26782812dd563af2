//go:build !cgo || !linux

package verbs

import (
	"fmt"

	"github.com/assay-hpc/assay/coll/transport"
)

// Find fails: without cgo there is no libibverbs.
func Find(Selection) (*Net, error) {
	return nil, fmt.Errorf("%w: this build cannot load libibverbs: it was made without cgo", errUnavailable)
}

// A Net holds the usable ports. This build has none.
type Net struct{}

// Ports returns nil.
func (*Net) Ports() []PortInfo { return nil }

// Close does nothing.
func (*Net) Close() error { return nil }

// Open fails as Find does.
func Open(Options) (transport.Endpoint, error) { return nil, errUnavailable }
