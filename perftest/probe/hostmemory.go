//go:build cgo && linux

package probe

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"github.com/assay-hpc/assay/internal/verbs"
)

// hostMemory returns memory for the data, to be freed with verbs.Free: memory of the process, in
// huge pages, or of a file.
func (c *Config) hostMemory(n int) ([]byte, error) {
	if c.File == "" {
		b, err := verbs.Alloc(n, c.HugePages)
		if err != nil && c.HugePages {
			return nil, &NotAvailable{"--use_hugepages: " + err.Error()}
		}
		return b, err
	}
	b, err := mapFile(c.File, int64(c.FileOffset), n)
	if err != nil {
		return nil, &NotAvailable{"--mmap: " + err.Error()}
	}
	return b, nil
}

// mapFile maps n bytes of a file, or of a device, as shared memory.
func mapFile(name string, offset int64, n int) ([]byte, error) {
	f, err := os.OpenFile(name, os.O_RDWR, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close() // the mapping remains
	i, err := f.Stat()
	if err != nil {
		return nil, err
	}
	// An access after the end of a file would fault instead of returning an error.
	if i.Mode().IsRegular() && i.Size() < offset+int64(n) {
		return nil, fmt.Errorf("%s has %d bytes, and the test takes %d from %d on: give a larger file", name, i.Size(), n, offset)
	}
	b, err := unix.Mmap(int(f.Fd()), offset, n, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return nil, fmt.Errorf("%d bytes of %s from %d on: %w", n, name, offset, err)
	}
	return b, nil
}
