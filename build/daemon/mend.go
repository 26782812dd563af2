package daemon

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/containerd/containerd/v2/core/snapshots/storage"
	"github.com/containerd/errdefs"
)

// mend takes from a daemon's directory what a killed one left and a new one
// fails on, before that is started.
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
		err = errors.Join(err, dropParts(filepath.Join(dir, "content", "ingest")), dropSnapshots(filepath.Join(dir, "snapshots")))
	}
	if err != nil {
		return fmt.Errorf("after a killed buildkitd: %w", err)
	}
	return nil
}

// dropParts removes the content that was being copied. BuildKit would go on
// behind it, and cannot in a layout that its client offers ("unsupported offset").
func dropParts(ingest string) error {
	return removeBut(ingest, nil)
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
