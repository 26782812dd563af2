//go:build cuda && cgo

package world

import (
	"errors"
	"strings"
	"testing"

	"github.com/assay-hpc/assay/coll/nccl"
	"github.com/assay-hpc/assay/coll/perf"
)

// TestLibraryThatIsNone: the error names the file, and what the loader said.
func TestLibraryThatIsNone(t *testing.T) {
	for file, want := range map[string]string{
		"/none/libnccl.so.2": "--library: NCCL is not available: /none/libnccl.so.2: cannot open shared object file",
		"/proc/version":      "--library: NCCL is not available: /proc/version: ",
	} {
		_, err := openLibraries(perf.Config{Libraries: []string{file}})
		if !errors.Is(err, nccl.ErrUnavailable) || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v; want %q in it", file, err, want)
		}
	}
}
