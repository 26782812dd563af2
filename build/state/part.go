package state

import (
	"errors"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

const partPattern = ".part-*"

// CreatePart creates a file in dir for content that gets its name when it is complete: the caller
// renames the file. Until the file is closed, its lock marks it as in use.
func CreatePart(dir string) (*os.File, error) {
	for {
		f, err := os.CreateTemp(dir, partPattern)
		if err != nil {
			return nil, err
		}
		err = unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		var st unix.Stat_t
		if err == nil {
			err = unix.Fstat(int(f.Fd()), &st)
		}
		if err == nil && st.Nlink > 0 {
			return f, nil
		}
		os.Remove(f.Name())
		f.Close()
		if err != nil && !errors.Is(err, unix.EWOULDBLOCK) {
			return nil, err
		}
		// SweepParts removed the file before it was locked: create another one.
	}
}

// SweepParts removes the parts in dir of processes that have ended.
func SweepParts(dir string) error {
	names, err := filepath.Glob(filepath.Join(dir, partPattern))
	if err != nil {
		return err
	}
	for _, name := range names {
		f, err := os.Open(name)
		if errors.Is(err, os.ErrNotExist) {
			continue
		}
		if err != nil {
			return err
		}
		if unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB) == nil {
			err = os.Remove(name)
		}
		f.Close()
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			return err
		}
	}
	return nil
}
