package health

import (
	"errors"
	"fmt"
	"io/fs"

	"github.com/assay-hpc/assay/harness/nvml"
	"github.com/assay-hpc/assay/harness/sysfs"
)

// Why nothing is known, beside what [nvml] has.
var (
	errNoAnswer  = errors.New("no answer in time")
	ErrElsewhere = errors.New("the driver of another machine cannot be asked")
)

// absent reports whether there is no driver to ask, rather than one that does
// not answer.
func absent(err error) bool {
	return errors.Is(err, nvml.ErrNoBinding) || errors.Is(err, nvml.ErrNoLibrary) || errors.Is(err, ErrElsewhere)
}

// A Source is what tells about GPUs: [nvml.Library], or what a test makes up.
type Source interface {
	// Driver describes the driver, or says why there is none: the error wraps
	// nvml.ErrNoBinding or nvml.ErrNoLibrary if nothing can be asked for that reason.
	Driver() (nvml.Driver, error)
	// GPU asks for all about one GPU, numbered from 0, and announces what it
	// asks for, which is the last that is known of a call that never returns.
	// An error is about the GPU as a whole. It may be called for several GPUs
	// at the same time.
	GPU(index int, asking func(what string)) (nvml.GPU, error)
	// Counters asks for what counts errors, by [nvml]'s names. What
	// a GPU does not count is not there.
	Counters(index int) (map[string]uint64, error)
}

// why puts an error in few words.
func why(err error) string {
	if errors.Is(err, nvml.ErrNoPermission) {
		return fmt.Sprintf("%v: root may see it", err)
	}
	return err.Error()
}

// permission makes the kernel's error of access one that checks know.
func permission(err error) error {
	if errors.Is(err, fs.ErrPermission) {
		return nvml.ErrNoPermission
	}
	return err
}

func isNoACS(err error) bool { return errors.Is(err, sysfs.ErrNoACS) || errors.Is(err, fs.ErrNotExist) }
