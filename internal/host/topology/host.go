package topology

import (
	"crypto/sha256"
	"encoding/binary"

	"github.com/assay-hpc/assay/internal/host/sysfs"
)

// HostID identifies a machine: two ranks with the same number are on the same machine. It
// is a hash of the host's name and boot ID, as in NCCL, or of NCCL_HOSTID if that is set.
// Containers of one machine with their own names count as different machines, unless
// NCCL_HOSTID says otherwise. The number differs from NCCL's for the same host.
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
