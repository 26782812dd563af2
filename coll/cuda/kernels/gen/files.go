package main

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/klauspost/compress/zstd"
)

const sumFile = "ptx/SUM"

// sums are what SUM says.
type sums struct {
	nvcc  string
	files map[string]string // SHA-256 by name: of a source, or of ptx/ and an archive
}

// readSources reads what the compiler may read, by name.
func readSources(dir string) (map[string][]byte, error) {
	sources := map[string][]byte{}
	for _, pattern := range []string{"*.h", "*.cuh", "*.cu"} {
		paths, err := filepath.Glob(filepath.Join(dir, pattern))
		if err != nil {
			return nil, err
		}
		for _, path := range paths {
			if sources[filepath.Base(path)], err = os.ReadFile(path); err != nil {
				return nil, err
			}
		}
	}
	return sources, nil
}

func sumsOf(nvcc string, sources, ptx map[string][]byte) sums {
	s := sums{nvcc, map[string]string{}}
	for name, text := range sources {
		s.files[name] = hash(text)
	}
	for name, text := range ptx {
		s.files["ptx/"+name] = hash(text)
	}
	return s
}

func hash(b []byte) string { return fmt.Sprintf("%x", sha256.Sum256(b)) }

func (s sums) text() []byte {
	out := fmt.Appendf(nil, "# nvcc %s\n", s.nvcc)
	for _, name := range slices.Sorted(maps.Keys(s.files)) {
		out = fmt.Appendf(out, "%s  %s\n", s.files[name], name)
	}
	return out
}

func readSums(dir string) (sums, error) {
	s := sums{files: map[string]string{}}
	text, err := os.ReadFile(filepath.Join(dir, sumFile))
	if err != nil {
		return s, err
	}
	for line := range strings.Lines(string(text)) {
		f := strings.Fields(line)
		switch {
		case len(f) == 3 && f[0] == "#" && f[1] == "nvcc":
			s.nvcc = f[2]
		case len(f) == 2:
			s.files[f[1]] = f[0]
		default:
			return s, fmt.Errorf("%s: %q", sumFile, line)
		}
	}
	return s, nil
}

// write replaces what is in ptx.
func write(dir string, s sums, archives map[string][]byte) error {
	dir = filepath.Join(dir, "ptx")
	if err := errors.Join(os.RemoveAll(dir), os.MkdirAll(dir, 0o755)); err != nil {
		return err
	}
	for name, archive := range archives {
		if err := os.WriteFile(filepath.Join(dir, name+".zst"), compress(archive), 0o644); err != nil {
			return err
		}
	}
	return os.WriteFile(filepath.Join(dir, filepath.Base(sumFile)), s.text(), 0o644)
}

// compress gives the same bytes for the same archive.
func compress(archive []byte) []byte {
	w, err := zstd.NewWriter(nil, zstd.WithEncoderLevel(zstd.SpeedBestCompression), zstd.WithEncoderConcurrency(1))
	if err != nil {
		panic(err) // of the options only
	}
	return w.EncodeAll(archive, nil)
}

// compare lists what differs between what is there, with the sums in SUM, and
// what the sources have been found to give. The archive counts and not its
// compression, which varies with the library's version.
func compare(dir string, old, now sums) error {
	var errs []error
	differs := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	for _, name := range slices.Sorted(maps.Keys(old.files)) {
		if now.files[name] == "" {
			differs("%s: in SUM, but no more", name)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(now.files)) {
		ptx := strings.HasPrefix(name, "ptx/")
		switch {
		case old.files[name] == now.files[name]:
		case ptx:
			differs("%s: not what the sources give", name)
		default:
			differs("%s: changed", name)
		}
		if !ptx {
			continue
		}
		if text, err := decompress(filepath.Join(dir, name+".zst")); err != nil {
			errs = append(errs, err)
		} else if hash(text) != old.files[name] {
			differs("%s.zst: not what SUM says", name)
		}
	}
	if errs != nil {
		differs("run: go generate ./coll/cuda/kernels")
	}
	return errors.Join(errs...)
}

func decompress(path string) ([]byte, error) {
	packed, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	r, err := zstd.NewReader(nil, zstd.WithDecoderConcurrency(1))
	if err != nil {
		return nil, err
	}
	defer r.Close()
	archive, err := r.DecodeAll(packed, nil)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return archive, nil
}
