// Package state manages the directories that assay works in. A program can end at any moment and
// by force, so nothing here depends on cleanup by the previous one: the kernel releases its
// locks, ends its children and drops their mounts, and the next program removes its files.
package state

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// Lock acquires the lock of a file, and waits for it if another program or goroutine holds it.
// Before it waits, it calls wait once, unless wait is nil. The lock lasts until the file is
// closed here and in every process that inherited it.
func Lock(ctx context.Context, file string, wait func()) (*os.File, error) {
	f, err := os.OpenFile(file, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	for told := false; ; told = true {
		err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		if err == nil {
			return f, nil
		}
		if !errors.Is(err, unix.EWOULDBLOCK) && !errors.Is(err, unix.EINTR) {
			f.Close()
			return nil, fmt.Errorf("lock %s: %w", file, err)
		}
		if !told && wait != nil {
			wait()
		}
		select {
		case <-ctx.Done():
			f.Close()
			return nil, context.Cause(ctx)
		case <-time.After(100 * time.Millisecond):
		}
	}
}

// A Work is a directory for files that one run of the program creates and that are not needed
// after it.
type Work struct {
	Dir  string
	lock *os.File
}

// lockName is a file in the directory. Its lock says that a process uses the directory.
const lockName = "lock"

// Claim creates a new directory below dir, and removes those of processes that have ended without
// removing them.
func Claim(dir string) (*Work, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	// One at a time: otherwise a directory could be mistaken for an abandoned one between its
	// creation and its locking.
	one, err := Lock(context.Background(), filepath.Join(dir, lockName), nil)
	if err != nil {
		return nil, err
	}
	defer one.Close()
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	for _, e := range entries {
		if old := filepath.Join(dir, e.Name()); e.IsDir() && !used(old) {
			if err := Remove(old); err != nil {
				return nil, fmt.Errorf("remove what an earlier run left: %w", err)
			}
		}
	}
	name, err := os.MkdirTemp(dir, "")
	if err != nil {
		return nil, err
	}
	lock, err := Lock(context.Background(), filepath.Join(name, lockName), nil)
	return &Work{Dir: name, lock: lock}, err
}

// used reports whether a process holds the lock of a work directory.
func used(dir string) bool {
	f, err := os.OpenFile(filepath.Join(dir, lockName), os.O_RDWR, 0)
	if err != nil {
		return !errors.Is(err, fs.ErrNotExist)
	}
	defer f.Close()
	return unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB) != nil
}

// Close removes the directory.
func (w *Work) Close() error {
	return errors.Join(Remove(w.Dir), w.lock.Close())
}

// Remove removes a tree, after unmounting what is mounted in it.
func Remove(dir string) error {
	if err := Unmount(dir); err != nil {
		return err
	}
	return os.RemoveAll(dir)
}

// Unmount unmounts everything that is mounted below dir, the last mounted first. A mount that is
// in use disappears with its last user. A mount on dir itself stays: it belongs to the user.
func Unmount(dir string) error {
	real, err := filepath.EvalSymlinks(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	f, err := os.Open("/proc/self/mountinfo")
	if err != nil {
		return err
	}
	defer f.Close()
	points, err := mountsBelow(f, real)
	if err != nil {
		return err
	}
	for _, p := range points {
		err := unix.Unmount(p, unix.UMOUNT_NOFOLLOW)
		if errors.Is(err, unix.EBUSY) {
			err = unix.Unmount(p, unix.UMOUNT_NOFOLLOW|unix.MNT_DETACH)
		}
		if err != nil && !errors.Is(err, unix.EINVAL) && !errors.Is(err, unix.ENOENT) { // another process was faster
			return fmt.Errorf("unmount %s: %w", p, err)
		}
	}
	return nil
}

// mountsBelow returns the mount points of a mountinfo file that lie below
// dir, the last mounted first.
func mountsBelow(mountinfo io.Reader, dir string) ([]string, error) {
	var points []string
	sc := bufio.NewScanner(mountinfo)
	sc.Buffer(nil, 1<<20) // an overlay lists all its layers
	for sc.Scan() {
		f := strings.Fields(sc.Text())
		if len(f) < 5 {
			return nil, fmt.Errorf("mountinfo: %q has no mount point", sc.Text())
		}
		if p := unescape(f[4]); strings.HasPrefix(p, strings.TrimSuffix(dir, "/")+"/") {
			points = append(points, p)
		}
	}
	slices.Reverse(points)
	return points, sc.Err()
}

// unescape decodes the kernel's octal escapes, such as \040 for a space.
func unescape(s string) string {
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] == '\\' && i+3 < len(s) {
			if n, err := strconv.ParseUint(s[i+1:i+4], 8, 8); err == nil {
				b.WriteByte(byte(n))
				i += 3
				continue
			}
		}
		b.WriteByte(s[i])
	}
	return b.String()
}
