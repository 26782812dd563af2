// Package outfile writes files completely or not at all: whoever reads them sees all of the old
// content or all of the new.
package outfile

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
)

// Write writes a file completely or not at all.
func Write(name string, b []byte) error {
	temp, err := stage(filepath.Dir(name), b)
	if err == nil {
		if err = os.Rename(temp, name); err != nil {
			os.Remove(temp)
		}
	}
	return err
}

// stage writes a file to the disk under a temporary name.
func stage(dir string, b []byte) (name string, err error) {
	f, err := os.CreateTemp(dir, ".part-*")
	if err != nil {
		return "", err
	}
	_, err = f.Write(b)
	if err = errors.Join(err, f.Chmod(0o644), f.Sync(), f.Close()); err != nil {
		os.Remove(f.Name())
	}
	return f.Name(), err
}

// A Dir is a directory to which either all files are written, or none.
type Dir struct {
	Name string
	made bool // OpenDir created it
}

// OpenDir creates a directory if necessary. It fails if no file can be created there: what would be
// written later would be lost.
func OpenDir(name string) (*Dir, error) {
	d := &Dir{Name: name}
	if _, err := os.Stat(name); errors.Is(err, os.ErrNotExist) {
		d.made = true
	}
	err := os.MkdirAll(name, 0o777)
	if err == nil {
		var temp string
		if temp, err = stage(name, []byte("room?")); err == nil {
			err = os.Remove(temp)
		}
	}
	if err != nil {
		d.Close()
		return nil, fmt.Errorf("nothing was written there: %w", err)
	}
	return d, nil
}

// Write writes files by name. They get their names only after all of them are completely
// on the disk.
func (d *Dir) Write(files map[string][]byte) error {
	staged := map[string]string{}
	defer func() {
		for _, temp := range staged {
			os.Remove(temp)
		}
	}()
	names := slices.Sorted(maps.Keys(files))
	for _, name := range names {
		temp, err := stage(d.Name, files[name])
		if err != nil {
			return fmt.Errorf("nothing was written there: %w", err)
		}
		staged[name] = temp
	}
	for _, name := range names {
		if err := os.Rename(staged[name], filepath.Join(d.Name, name)); err != nil {
			return err
		}
		delete(staged, name)
	}
	return nil
}

// Close removes a directory that OpenDir created, if nothing was written to it.
func (d *Dir) Close() {
	if d.made {
		os.Remove(d.Name) // fails, as intended, if the directory contains files
	}
}
