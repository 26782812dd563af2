package daemon

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
)

// DropParts removes the content that was being copied and that the daemon is not
// writing now. It reports whether it did: it can only in a daemon of our own.
// BuildKit leaves a copy that it cancels, or in which it is killed, and goes on
// behind it when the content is wanted again; but in a layout that its client
// offers it cannot go on ("unsupported offset").
func (b *Builder) DropParts() (dropped bool) {
	if b.root == "" {
		return false
	}
	var used []os.FileInfo
	fds, _ := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", b.pid))
	for _, fd := range fds {
		if info, err := os.Stat(fd); err == nil {
			used = append(used, info)
		}
	}
	parts, _ := filepath.Glob(filepath.Join(b.root, "*", "content", "ingest", "*"))
	for _, part := range parts {
		info, err := os.Stat(filepath.Join(part, "data"))
		if err == nil && !slices.ContainsFunc(used, func(u os.FileInfo) bool { return os.SameFile(u, info) }) {
			dropped = os.RemoveAll(part) == nil || dropped
		}
	}
	return dropped
}
