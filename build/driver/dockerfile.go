package driver

import (
	"bufio"
	"bytes"
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/assay-hpc/assay/internal/exit"
)

// dockerfileSums is the file by which assay knows a directory that it wrote: the SHA-256 of every
// other file in it, as sha256sum prints and checks them.
const dockerfileSums = "assay-dockerfile.sha256"

// WriteDockerfile writes files, by relative path, as a whole new directory. Until it is complete,
// the directory is what it was. A directory that exists must be empty, or be as WriteDockerfile
// left it.
func WriteDockerfile(dir string, files map[string]string) error {
	dir, old, err := replaceable(dir)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(dir), 0o777); err != nil {
		return err
	}
	temp := filepath.Join(filepath.Dir(dir), ".part-"+rand.Text())
	defer os.RemoveAll(temp)
	var sums strings.Builder
	for _, name := range slices.Sorted(maps.Keys(files)) {
		fmt.Fprintf(&sums, "%x  %s\n", sha256.Sum256([]byte(files[name])), name)
		if err := writeSynced(filepath.Join(temp, name), files[name]); err != nil {
			return err
		}
	}
	if err := writeSynced(filepath.Join(temp, dockerfileSums), sums.String()); err != nil {
		return err
	}
	if old == nil {
		return os.Rename(temp, dir)
	}
	if err := os.Chmod(temp, old.Mode().Perm()); err != nil {
		return err
	}
	return exchange(temp, dir)
}

// exchange gives two directories each other's name. A file system that cannot do that at once has
// no directory for a moment.
func exchange(temp, dir string) error {
	err := unix.Renameat2(unix.AT_FDCWD, temp, unix.AT_FDCWD, dir, unix.RENAME_EXCHANGE)
	if !errors.Is(err, unix.EINVAL) && !errors.Is(err, unix.ENOSYS) {
		if err != nil {
			return &os.LinkError{Op: "exchange", Old: temp, New: dir, Err: err}
		}
		return nil
	}
	old := temp + "-old"
	if err := os.Rename(dir, old); err != nil {
		return err
	}
	if err := os.Rename(temp, dir); err != nil {
		return errors.Join(err, os.Rename(old, dir))
	}
	return os.RemoveAll(old)
}

func writeSynced(name, content string) error {
	if err := os.MkdirAll(filepath.Dir(name), 0o777); err != nil {
		return err
	}
	f, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o666)
	if err != nil {
		return err
	}
	_, err = f.WriteString(content)
	return errors.Join(err, f.Sync(), f.Close())
}

// replaceable returns where a directory is, without links, and what it is if it exists. It refuses
// one in which anything would be lost.
func replaceable(dir string) (string, fs.FileInfo, error) {
	abs, err := filepath.Abs(dir)
	if err != nil {
		return "", nil, err
	}
	real, err := filepath.EvalSymlinks(abs)
	if errors.Is(err, fs.ErrNotExist) {
		if st, err := os.Lstat(abs); err == nil && st.Mode()&fs.ModeSymlink != 0 {
			return "", nil, exit.Usagef("%s is a link to nothing; name another directory", dir)
		}
		return abs, nil, nil
	}
	if err != nil {
		return "", nil, err
	}
	st, err := os.Stat(real)
	if err != nil {
		return "", nil, err
	}
	if !st.IsDir() {
		return "", nil, exit.Usagef("%s is not a directory; name another", dir)
	}
	if wd, err := os.Getwd(); err == nil {
		if wd, err = filepath.EvalSymlinks(wd); err == nil && (wd == real || strings.HasPrefix(wd, strings.TrimSuffix(real, "/")+"/")) {
			return "", nil, exit.Usagef("%s is or contains the working directory, and would be replaced as a whole; name another directory", dir)
		}
	}
	return real, st, unchanged(dir, real)
}

// unchanged reports what there is in a directory that assay did not write, or not so.
func unchanged(name, dir string) error {
	sums, err := readSums(filepath.Join(dir, dockerfileSums))
	if err != nil {
		return err
	}
	return filepath.WalkDir(dir, func(file string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		rel, err := filepath.Rel(dir, file)
		if err != nil || rel == dockerfileSums && sums != nil {
			return err
		}
		want, ok := sums[rel]
		if !ok || !d.Type().IsRegular() {
			return exit.Usagef("%s contains %s, which assay did not write there (see its %s); name another directory, or an empty one", name, rel, dockerfileSums)
		}
		text, err := os.ReadFile(file)
		if err == nil && fmt.Sprintf("%x", sha256.Sum256(text)) != want {
			err = exit.Usagef("%s in %s has been changed since assay wrote it, and would be replaced; name another directory, or move the file out", rel, name)
		}
		return err
	})
}

// readSums returns the sums by file, nil if there are none.
func readSums(name string) (map[string]string, error) {
	text, err := os.ReadFile(name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	sums := map[string]string{}
	for s := bufio.NewScanner(bytes.NewReader(text)); s.Scan(); {
		if sum, file, ok := strings.Cut(s.Text(), "  "); ok {
			sums[file] = sum
		}
	}
	return sums, nil
}
