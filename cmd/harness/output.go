package main

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"

	"github.com/assay-hpc/assay/internal/exit"
)

// An outputDir is a directory to which either all results are written, or none.
type outputDir struct {
	name string
	made bool // openOutput created it
}

// openOutput creates a directory for results if necessary. It fails if no file can be
// created there: the results of whatever runs next would be lost.
func openOutput(name string) (*outputDir, error) {
	d := &outputDir{name: name}
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
		d.close()
		return nil, d.failed(err)
	}
	return d, nil
}

func (d *outputDir) failed(err error) error {
	return exit.With(exit.NotDone, fmt.Errorf("--out %s: nothing was written there: %w; name a directory that is writable and has room", d.name, err))
}

// write writes files by name. They get their names only after all of them are completely
// on the disk.
func (d *outputDir) write(files map[string][]byte) error {
	staged := map[string]string{}
	defer func() {
		for _, temp := range staged {
			os.Remove(temp)
		}
	}()
	names := slices.Sorted(maps.Keys(files))
	for _, name := range names {
		temp, err := stage(d.name, files[name])
		if err != nil {
			return d.failed(err)
		}
		staged[name] = temp
	}
	for _, name := range names {
		if err := os.Rename(staged[name], filepath.Join(d.name, name)); err != nil {
			return exit.With(exit.NotDone, fmt.Errorf("--out %s: %w", d.name, err))
		}
		delete(staged, name)
	}
	return nil
}

// close removes a directory that openOutput created, if nothing was written to it.
func (d *outputDir) close() {
	if d.made {
		os.Remove(d.name) // fails, as intended, if the directory contains files
	}
}

// writeFile writes a file completely or not at all.
func writeFile(name string, b []byte) error {
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
	f, err := os.CreateTemp(dir, ".harness-*")
	if err != nil {
		return "", err
	}
	_, err = f.Write(b)
	if err = errors.Join(err, f.Chmod(0o644), f.Sync(), f.Close()); err != nil {
		os.Remove(f.Name())
	}
	return f.Name(), err
}
