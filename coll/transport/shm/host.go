package shm

import (
	"fmt"
	"hash/fnv"
	"os"
	"strings"
)

// hostID tells running kernels apart.
func hostID() (uint64, error) {
	boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return 0, fmt.Errorf("telling hosts apart: %w", err)
	}
	h := fnv.New64a()
	h.Write([]byte(strings.TrimSpace(string(boot))))
	return h.Sum64() | 1, nil
}
