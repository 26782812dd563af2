package flight

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// fileName is the name of the memory in /proc/PID/fd: "/memfd:assay-flight (deleted)".
const fileName = "assay-flight"

// newArea returns memory for blocks. If shared is set, other processes can read it, where the
// system supports that.
func newArea(shared bool) []byte {
	if shared {
		if b, err := newShared(); err == nil {
			return b
		}
	}
	b, err := unix.Mmap(-1, 0, areaBytes, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON)
	if err != nil {
		return make([]byte, areaBytes)
	}
	return b
}

// newShared leaves its descriptor open: other processes open the memory through it.
func newShared() ([]byte, error) {
	fd, err := unix.MemfdCreate(fileName, unix.MFD_CLOEXEC)
	if err != nil {
		return nil, err
	}
	if err = unix.Ftruncate(fd, int64(areaBytes)); err == nil {
		var b []byte
		if b, err = unix.Mmap(fd, 0, areaBytes, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED); err == nil {
			*(*header)(unsafe.Pointer(&b[0])) = header{[8]byte([]byte(magic)), version, uint32(blockBytes)}
			return b, nil
		}
	}
	_ = unix.Close(fd)
	return nil, err
}

// A Snapshot is what a communicator of a process had called at one moment.
type Snapshot struct {
	Name               string
	Rank, Size, Device int
	Jobs               []int     // the numbers of the ranks in their job, -1 where unknown; nil: there are too many
	Calls              uint64    // number of calls so far
	Ended              uint64    // number of these that are known to have ended
	EndedAt            time.Time // when that was seen
	Last               []Entry   // the latest calls, oldest first
	Said               string    // the last verdict
	SaidAt             time.Time
}

// ErrNone: the process has no recorder.
var ErrNone = errors.New("the process has no flight recorder: it has made no communicator of assay's on a GPU")

// Read reads the recorder of a process, which need not be able to run.
func Read(pid int) ([]Snapshot, error) {
	name, err := recorderPath(pid)
	if err != nil {
		return nil, err
	}
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if info.Size() < headerBytes || info.Size() > 64<<20 {
		return nil, fmt.Errorf("the flight recorder of process %d has %d bytes: it is of another version of assay", pid, info.Size())
	}
	b, err := unix.Mmap(int(f.Fd()), 0, int(info.Size()), unix.PROT_READ, unix.MAP_SHARED)
	if err != nil {
		return nil, fmt.Errorf("the flight recorder of process %d: %w", pid, err)
	}
	defer func() { _ = unix.Munmap(b) }()
	h := *(*header)(unsafe.Pointer(&b[0]))
	if string(h.magic[:]) != magic || h.version != version || int(h.bytes) != blockBytes {
		return nil, fmt.Errorf("the flight recorder of process %d is of another version of assay", pid)
	}
	var all []Snapshot
	for at := headerBytes; at+blockBytes <= len(b); at += blockBytes {
		if c := blockAt(b, at); c.used.Load() == 1 {
			all = append(all, c.snapshot())
		}
	}
	return all, nil
}

func (b *block) snapshot() Snapshot {
	s := Snapshot{
		Name: b.name.String(), Rank: int(b.rank), Size: int(b.size), Device: int(b.device),
		Calls: b.calls.Load(), Ended: b.ended.Load(), EndedAt: time.Unix(0, b.endedAt.Load()),
	}
	if s.Size <= maxJobs {
		for _, job := range b.jobs[:s.Size] {
			s.Jobs = append(s.Jobs, int(job))
		}
	}
	if at := b.said.Load(); at != 0 {
		s.Said, s.SaidAt = b.sentence.String(), time.Unix(0, at)
	}
	for n := s.Calls - min(s.Calls, Entries); n < s.Calls; n++ {
		if e, ok := b.at(n); ok {
			s.Last = append(s.Last, e)
		}
	}
	return s
}

// recorderPath returns the path of a process's recorder.
func recorderPath(pid int) (string, error) {
	dir := fmt.Sprintf("/proc/%d/fd", pid)
	fds, err := os.ReadDir(dir)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return "", fmt.Errorf("there is no process %d", pid)
	case err != nil:
		return "", fmt.Errorf("process %d: %w", pid, err)
	}
	for _, fd := range fds {
		name := filepath.Join(dir, fd.Name())
		if to, err := os.Readlink(name); err == nil && strings.HasPrefix(to, "/memfd:"+fileName) {
			return name, nil
		}
	}
	return "", ErrNone
}
