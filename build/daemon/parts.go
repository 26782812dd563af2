package daemon

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
)

// DropParts removes partially copied content that the daemon is not writing now, and reports
// whether it removed any. This works only for a daemon of our own. BuildKit leaves a partial copy
// if it cancels the copy or is killed, and resumes it when the content is needed again. It cannot
// resume in a layout that its client offers ("unsupported offset").
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
