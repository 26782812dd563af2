//go:build !cgo || !linux

package verbs

import "fmt"

// Load reports why libibverbs cannot be used.
func Load() error {
	return fmt.Errorf("%w: this program was built without cgo", ErrNoLibrary)
}

// Names reports why libibverbs cannot be used.
func Names() ([]string, error) { return nil, Load() }
