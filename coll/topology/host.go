package topology

import (
	"crypto/sha256"
	"encoding/binary"

	"github.com/assay-hpc/assay/harness/sysfs"
)

// HostID tells machines apart: two ranks with the same number share one. It is
// a hash of the host's name and boot ID, as in NCCL; NCCL_HOSTID's value takes
// their place. Containers of one machine with names of their own count as
// different machines, unless NCCL_HOSTID says otherwise. The number is not
// NCCL's own for the same host.
func HostID(getenv func(string) string, fs sysfs.FS) (uint64, error) {
	if id := getenv("NCCL_HOSTID"); id != "" {
		return hash("id", id), nil
	}
	h, err := fs.Host()
	if err != nil {
		return 0, err
	}
	return hash("host", h.Name, h.BootID), nil
}

func hash(parts ...string) uint64 {
	h := sha256.New()
	for _, p := range parts {
		h.Write([]byte(p))
		h.Write([]byte{0})
	}
	return binary.BigEndian.Uint64(h.Sum(nil))
}
