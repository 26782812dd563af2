package main

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/assay-hpc/assay/coll/cuda/kernels"
	"github.com/klauspost/compress/zstd"
)

const sumFile = "ptx/SUM"

// sums are the contents of SUM.
type sums struct {
	nvcc  string
	files map[string]string // by name: SourceSum of a source, or SHA-256 of an archive, after ptx/
}

// readSources reads all files that the compiler may read, by name.
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

// sumsOf returns the sums of the sources and of each archive before it is compressed.
func sumsOf(nvcc string, sources, tars map[string][]byte) sums {
	s := sums{nvcc, map[string]string{}}
	for name, text := range sources {
		s.files[name] = kernels.SourceSum(text)
	}
	for name, tar := range tars {
		s.files[name] = hash(tar)
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

var include = regexp.MustCompile(`(?m)^\s*#\s*include\s*"([^"]+)"`)

// includes adds a source and what it includes, directly or not, to names.
func includes(sources map[string][]byte, name string, names map[string]bool) {
	if names[name] || sources[name] == nil {
		return
	}
	names[name] = true
	for _, m := range include.FindAllSubmatch(sources[name], -1) {
		includes(sources, string(m[1]), names)
	}
}

// kept returns the code that the archives have of those units whose sources are what SUM says. Of other
// units, and where an archive is not what SUM says, there is none.
func kept(dir string, old sums, sources map[string][]byte, todo []unit) []code {
	archives := map[string]map[string][]byte{}
	find := func(archive, name string) []byte {
		if archives[archive] == nil {
			archives[archive] = map[string][]byte{}
			content, err := decompress(filepath.Join(dir, archive+".zst"))
			if err != nil || hash(content) != old.files[archive] {
				return nil
			}
			files, err := unpack(content)
			if err != nil {
				return nil
			}
			for _, f := range files {
				archives[archive][f.name] = f.content
			}
		}
		return archives[archive][name]
	}
	codes := make([]code, len(todo))
next:
	for i, u := range todo {
		names := map[string]bool{}
		includes(sources, u.source, names)
		for name := range names {
			if old.files[name] != kernels.SourceSum(sources[name]) {
				continue next
			}
		}
		var c code
		for _, arch := range u.target.cubins {
			cubin := find(u.archive("sm", arch), u.module+".cubin")
			if cubin == nil {
				continue next
			}
			c.cubins = append(c.cubins, cubin)
		}
		if u.target.ptx == newest {
			if c.ptx = find(u.archive("compute", newest), u.module+".ptx"); c.ptx == nil {
				continue next
			}
		}
		codes[i] = c
	}
	return codes
}

// write replaces the contents of ptx.
func write(dir, nvcc string, sources map[string][]byte, all map[string][]archiveFile) error {
	ptx := filepath.Join(dir, "ptx")
	if err := errors.Join(os.RemoveAll(ptx), os.MkdirAll(ptx, 0o755)); err != nil {
		return err
	}
	tars := map[string][]byte{}
	for name, files := range all {
		t, err := pack(files)
		if err != nil {
			return err
		}
		tars[name] = t
		if err := os.WriteFile(filepath.Join(dir, name+".zst"), compress(t), 0o644); err != nil {
			return err
		}
	}
	return os.WriteFile(filepath.Join(dir, sumFile), sumsOf(nvcc, sources, tars).text(), 0o644)
}

func pack(files []archiveFile) ([]byte, error) {
	var out bytes.Buffer
	w := tar.NewWriter(&out)
	for _, f := range files {
		if err := w.WriteHeader(&tar.Header{Format: tar.FormatUSTAR, Typeflag: tar.TypeReg, Name: f.name, Mode: 0o644, Size: int64(len(f.content))}); err != nil {
			return nil, err
		}
		if _, err := w.Write(f.content); err != nil {
			return nil, err
		}
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	return out.Bytes(), nil
}

func unpack(archive []byte) ([]archiveFile, error) {
	var files []archiveFile
	for r := tar.NewReader(bytes.NewReader(archive)); ; {
		h, err := r.Next()
		if err == io.EOF {
			return files, nil
		}
		if err != nil {
			return nil, err
		}
		content, err := io.ReadAll(r)
		if err != nil {
			return nil, err
		}
		files = append(files, archiveFile{h.Name, content})
	}
}

// compress returns the same bytes for the same archive.
func compress(archive []byte) []byte {
	w, err := zstd.NewWriter(nil, zstd.WithEncoderLevel(zstd.SpeedBestCompression), zstd.WithEncoderConcurrency(1))
	if err != nil {
		panic(err) // only for bad options
	}
	return w.EncodeAll(archive, nil)
}

// compare returns an error that lists all differences between the files that exist, with the
// sums in SUM, and the sources and the newly compiled code. all has the files of all units,
// without contents; some has those of the units that were compiled. Archives are compared
// uncompressed, because the compression varies with the library's version.
func compare(dir string, old sums, sources map[string][]byte, all, some map[string][]archiveFile) error {
	var errs []error
	differs := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	for _, name := range slices.Sorted(maps.Keys(old.files)) {
		if _, ok := all[name]; !ok && sources[name] == nil {
			differs("%s: in SUM, but no more", name)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(sources)) {
		if old.files[name] != kernels.SourceSum(sources[name]) {
			differs("%s: changed", name)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(all)) {
		archive, err := decompress(filepath.Join(dir, name+".zst"))
		if err != nil {
			errs = append(errs, err)
			continue
		}
		if hash(archive) != old.files[name] {
			differs("%s.zst: not what SUM says", name)
		}
		there, err := unpack(archive)
		if err != nil {
			differs("%s.zst: %w", name, err)
			continue
		}
		if !slices.EqualFunc(there, all[name], func(a, b archiveFile) bool { return a.name == b.name }) {
			differs("%s: not the modules that the sources give", name)
		}
		if stale := stale(there, some[name]); stale != nil {
			differs("%s: not what the sources give: %s", name, strings.Join(stale, ", "))
		}
	}
	if errs != nil {
		differs("run: go generate ./coll/cuda/kernels")
	}
	return errors.Join(errs...)
}

// stale returns the names of the files in now that are not there with the same contents.
func stale(there, now []archiveFile) []string {
	var names []string
	for _, f := range now {
		if !slices.ContainsFunc(there, func(t archiveFile) bool { return t.name == f.name && bytes.Equal(t.content, f.content) }) {
			names = append(names, f.name)
		}
	}
	return names
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
