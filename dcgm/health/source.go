package health

import (
	"errors"
	"fmt"
	"io/fs"

	"github.com/assay-hpc/assay/internal/host/nvml"
	"github.com/assay-hpc/assay/internal/host/sysfs"
)

// Reasons why nothing is known, in addition to those in [nvml].
var (
	errNoAnswer  = errors.New("no answer in time")
	ErrElsewhere = errors.New("the driver of another machine cannot be asked")
)

// absent reports whether there is no driver to query, in contrast to a driver that does not answer.
func absent(err error) bool {
	return errors.Is(err, nvml.ErrNoBinding) || errors.Is(err, nvml.ErrNoLibrary) || errors.Is(err, ErrElsewhere)
}

// A Source provides data about GPUs: [nvml.Library], or a fake in tests.
type Source interface {
	// Driver describes the driver, or returns why there is none: the error wraps nvml.ErrNoBinding
	// or nvml.ErrNoLibrary if nothing can be queried for that reason.
	Driver() (nvml.Driver, error)
	// GPU queries everything about one GPU, numbered from 0. It calls asking before each query, so
	// that the last query is known if a call never returns. An error is about the GPU as a whole.
	// GPU may be called for several GPUs at the same time.
	GPU(index int, asking func(what string)) (nvml.GPU, error)
	// Counters queries the error counters, by [nvml]'s names. Counters that a GPU does not have are
	// missing from the map.
	Counters(index int) (map[string]uint64, error)
}

// why is a short text for an error.
func why(err error) string {
	if errors.Is(err, nvml.ErrNoPermission) {
		return fmt.Sprintf("%v: root may see it", err)
	}
	return err.Error()
}

// permission converts the kernel's permission error to the one that checks recognise.
func permission(err error) error {
	if errors.Is(err, fs.ErrPermission) {
		return nvml.ErrNoPermission
	}
	return err
}

func isNoACS(err error) bool { return errors.Is(err, sysfs.ErrNoACS) || errors.Is(err, fs.ErrNotExist) }
