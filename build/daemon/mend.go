package daemon

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"github.com/containerd/containerd/v2/core/snapshots/storage"
	"github.com/containerd/errdefs"
)

// mend takes from a daemon's directory what a killed one left and a new one
// fails on, before that is started: what was half copied (see DropParts), and
// snapshots without a record.
func mend(root string) error {
	entries, err := os.ReadDir(root)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	for _, e := range entries {
		if !e.IsDir() {
			continue
		}
		dir := filepath.Join(root, e.Name()) // a worker's
		err = errors.Join(err, removeBut(filepath.Join(dir, "content", "ingest"), nil), dropSnapshots(filepath.Join(dir, "snapshots")))
	}
	if err != nil {
		return fmt.Errorf("after a killed buildkitd: %w", err)
	}
	return nil
}

// DropParts removes the content that was being copied and that the daemon is not
// writing now. It reports whether it did: it can only in a daemon of our own.
// BuildKit leaves a copy that it cancels, because it found what it was for in its
// cache, and goes on behind it when the content is wanted again; but in a layout
// that its client offers it cannot go on ("unsupported offset").
func (b *Builder) DropParts() bool {
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
	dropped := false
	parts, _ := filepath.Glob(filepath.Join(b.root, "*", "content", "ingest", "*"))
	for _, part := range parts {
		info, err := os.Stat(filepath.Join(part, "data"))
		if err == nil && !slices.ContainsFunc(used, func(u os.FileInfo) bool { return os.SameFile(u, info) }) {
			dropped = os.RemoveAll(part) == nil || dropped
		}
	}
	return dropped
}

// dropSnapshots removes the directories of snapshots whose records were not yet
// written: their numbers are given to others ("failed to rename: file exists").
func dropSnapshots(dir string) error {
	db := filepath.Join(dir, "metadata.db")
	if _, err := os.Stat(db); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	ms, err := storage.NewMetaStore(db)
	if err != nil {
		return err
	}
	defer ms.Close()
	var ids map[string]string
	err = ms.WithTransaction(context.Background(), false, func(ctx context.Context) error {
		ids, err = storage.IDMap(ctx)
		return err
	})
	if err != nil && !errdefs.IsNotFound(err) { // not found: it never held one
		return fmt.Errorf("%s: %w", db, err)
	}
	return removeBut(filepath.Join(dir, "snapshots"), ids)
}

// removeBut removes a directory's entries whose names are not in keep.
func removeBut(dir string, keep map[string]string) error {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	for _, e := range entries {
		if _, ok := keep[e.Name()]; !ok {
			err = errors.Join(err, os.RemoveAll(filepath.Join(dir, e.Name())))
		}
	}
	return err
}
