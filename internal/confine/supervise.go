package confine

import (
	"bytes"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/big"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// termDelay is how long a program that is to end may clean up: mpirun stops its ranks in this time.
const termDelay = 2 * time.Second

// Users of their own for programs: systemd's range for such users, which no system gives away.
const firstUser, users = 61184, 65520 - 61184

// Main is the supervisor: the command "confine". It reads a [Program] from stdin, runs it, and
// writes its [Outcome] to stdout. When stdin ends before that, the program is stopped. With the names
// of two files it reads the first instead, and writes the second.
func Main(files []string, stdin io.Reader, stdout io.Writer) error {
	var gone chan struct{}
	switch len(files) {
	case 0:
		gone = make(chan struct{})
	case 2:
		b, err := os.ReadFile(files[0])
		if err != nil {
			return err
		}
		file, err := os.OpenFile(files[1], os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
		if err != nil {
			return err
		}
		defer file.Close()
		stdin, stdout = bytes.NewReader(b), file
	default:
		return errors.New("confine wants two files, or none")
	}
	var p Program
	in := json.NewDecoder(stdin)
	if err := in.Decode(&p); err != nil {
		return fmt.Errorf("read the program to run: %w", err)
	}
	if gone != nil {
		go func() {
			defer close(gone)
			_, _ = io.Copy(io.Discard, stdin)
		}()
	}
	runtime.LockOSThread() // which privileges a child can gain is the thread's
	return json.NewEncoder(stdout).Encode(supervise(p, gone))
}

func supervise(p Program, gone <-chan struct{}) Outcome {
	p.Limits = p.Limits.orDefault()
	if err := raiseLoopback(); err != nil && p.Strict {
		return Failure("bring the network interface lo up: %v", err)
	}
	user, err := dropPrivileges(p)
	if err != nil {
		return Failure("%v", err)
	}
	if user != nil { // the image's may be root's
		p.Env = append(p.Env, "HOME=/tmp")
	}
	for _, f := range p.Files {
		defer os.Remove(f.Path)
		if err := f.write(user); err != nil {
			return Failure("%v", err)
		}
	}
	out := &output{room: p.Limits.Output}
	cmd := exec.Command(p.File)
	cmd.Args, cmd.Env, cmd.Dir = p.Args, p.Env, "/"
	cmd.Stdout, cmd.Stderr = out, out
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Credential: user}
	cmd.WaitDelay = termDelay // descendants that hold the output are stopped then
	usage := newUsage(p.Strict)
	if err := cmd.Start(); err != nil {
		return Failure("%v", err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	stopped := follow(cmd.Process.Pid, p.Limits, usage, ended, gone)
	err = <-ended
	endDescendants()
	o := Outcome{Stopped: stopped, Output: out.bytes()}
	var exit *exec.ExitError
	switch {
	case errors.As(err, &exit):
		if st, ok := exit.Sys().(syscall.WaitStatus); ok && st.Signaled() {
			o.Signal = int(st.Signal())
		}
		o.Status = exit.ExitCode()
	case errors.Is(err, exec.ErrWaitDelay): // it ended well, and left others behind
	case err != nil:
		o.Failed = err.Error()
	}
	return o
}

// follow waits for the end of a program, and stops it when it exceeds a limit. The end is left in
// ended.
func follow(pid int, l Limits, usage *usage, ended chan error, gone <-chan struct{}) (stopped string) {
	limit := time.NewTimer(l.wall())
	defer limit.Stop()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for stopped == "" {
		select {
		case err := <-ended:
			ended <- err
			return ""
		case <-gone:
			stopped = "nobody waits for it any more"
		case <-limit.C:
			stopped = fmt.Sprintf("it ran longer than %v", l.wall().Round(time.Millisecond))
		case <-tick.C:
			stopped = usage.exceeds(l)
		}
	}
	_ = syscall.Kill(-pid, syscall.SIGTERM)
	select {
	case err := <-ended:
		ended <- err
	case <-time.After(termDelay):
		killDescendants()
	}
	return stopped
}

// dropPrivileges prepares this thread for starting the program, and returns the user that it is
// to run as: nil for the own one.
func dropPrivileges(p Program) (*syscall.Credential, error) {
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		return nil, fmt.Errorf("adopt what the program leaves behind: %w", err)
	}
	for _, dir := range p.Dirs {
		if err := makeDir(dir); err != nil && p.Strict {
			return nil, err
		}
	}
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return nil, fmt.Errorf("forbid new privileges: %w", err)
	}
	if err := unix.Setrlimit(unix.RLIMIT_CORE, &unix.Rlimit{}); err != nil {
		return nil, fmt.Errorf("limit core dumps: %w", err)
	}
	user, err := ownUser()
	if err != nil && p.Strict {
		return nil, err
	}
	if user == nil {
		return nil, nil
	}
	processes := uint64(p.Limits.Processes)
	if err := unix.Setrlimit(unix.RLIMIT_NPROC, &unix.Rlimit{Cur: processes, Max: processes}); err != nil {
		return nil, fmt.Errorf("limit processes: %w", err)
	}
	return user, nil
}

// makeDir makes sure that a directory exists which only its owner, root, may change.
func makeDir(dir string) error {
	err := os.Mkdir(dir, 0o755)
	if errors.Is(err, os.ErrExist) {
		err = os.Chmod(dir, 0o755)
	}
	return err
}

// write creates the file for a user; nil: this process's own.
func (f File) write(user *syscall.Credential) error {
	file, err := os.OpenFile(f.Path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	defer file.Close()
	if _, err := file.Write(f.Data); err != nil || user == nil {
		return err
	}
	return file.Chown(int(user.Uid), int(user.Gid))
}

// ownUser returns a user that nothing else runs as; an error if this process may not become it.
func ownUser() (*syscall.Credential, error) {
	if os.Geteuid() != 0 {
		return nil, errors.New("only root can run a program as a user of its own")
	}
	n, err := rand.Int(rand.Reader, big.NewInt(users))
	if err != nil {
		return nil, err
	}
	id := firstUser + uint32(n.Int64())
	for _, file := range []string{"/proc/self/uid_map", "/proc/self/gid_map"} {
		b, err := os.ReadFile(file)
		if err != nil {
			return nil, err
		}
		if !maps(string(b), id) {
			return nil, fmt.Errorf("the user namespace has no user %d: it needs 65,536 of them (/etc/subuid)", id)
		}
	}
	var caps [2]unix.CapUserData
	if err := unix.Capget(&unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}, &caps[0]); err != nil {
		return nil, fmt.Errorf("read this process's capabilities: %w", err)
	}
	if needed := uint32(1<<unix.CAP_SETUID | 1<<unix.CAP_SETGID); caps[0].Effective&needed != needed {
		return nil, errors.New("this process lacks the capabilities SETUID and SETGID, by which it runs a program as a user of its own")
	}
	return &syscall.Credential{Uid: id, Gid: id}, nil
}

// maps reports whether a user namespace's map, as in /proc/self/uid_map, contains an id.
func maps(text string, id uint32) bool {
	for line := range strings.Lines(text) {
		var inside, outside, length uint64
		if n, _ := fmt.Sscan(line, &inside, &outside, &length); n == 3 && uint64(id) >= inside && uint64(id)-inside < length {
			return true
		}
	}
	return false
}

// output stores what fits, and drops the rest.
type output struct {
	mu   sync.Mutex
	b    []byte
	room int
}

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.b = append(o.b, p[:min(len(p), o.room-len(o.b))]...)
	return len(p), nil
}

func (o *output) bytes() []byte {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.b
}

// usage measures what this process's descendants use.
type usage struct {
	alone  bool
	before int64
}

// newUsage starts a measurement. alone says that the memory of this process's control group, and
// /tmp and /dev/shm, are the program's alone, as in a container.
func newUsage(alone bool) *usage {
	u := &usage{alone: alone}
	u.before = u.memory(nil)
	return u
}

// memory returns the bytes that are in use: of the control group, which counts memory that no
// process has mapped, or else what the processes have alone and the files in memory.
func (u *usage) memory(all []process) (n int64) {
	if u.alone {
		if n, ok := groupMemory(); ok {
			return n
		}
		for _, dir := range []string{"/tmp", "/dev/shm"} {
			var st unix.Statfs_t
			if unix.Statfs(dir, &st) == nil && st.Type == unix.TMPFS_MAGIC {
				n += int64(st.Blocks-st.Bfree) * st.Bsize
			}
		}
	}
	for _, p := range all {
		n += p.memory()
	}
	return n
}

// groupFiles are where a container sees its own control group, of version 2 and of version 1, with
// the names of what cannot be reclaimed.
var groupFiles = []struct{ file, anonymous, shared string }{
	{"/sys/fs/cgroup/memory.stat", "anon", "shmem"},
	{"/sys/fs/cgroup/memory/memory.stat", "total_rss", "total_shmem"},
}

// groupMemory returns the memory of this process's control group that cannot be reclaimed.
func groupMemory() (n int64, ok bool) {
	for _, g := range groupFiles {
		b, err := os.ReadFile(g.file)
		if err != nil {
			continue
		}
		for line := range strings.Lines(string(b)) {
			var name string
			var v int64
			if k, _ := fmt.Sscan(line, &name, &v); k == 2 && (name == g.anonymous || name == g.shared) {
				n, ok = n+v, true
			}
		}
		return n, ok
	}
	return 0, false
}

// exceeds returns which limit is exceeded; "": none.
func (u *usage) exceeds(l Limits) string {
	all := descendants()
	switch {
	case u.memory(all)-u.before > l.Memory:
		return fmt.Sprintf("it used more than %d MiB of memory", l.Memory>>20)
	case len(all) > l.Processes:
		return fmt.Sprintf("it started more than %d processes", l.Processes)
	}
	return ""
}

// A process is a descendant of this one.
type process struct{ pid, parent int }

// memory returns the bytes that only this process has.
func (p process) memory() int64 {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/statm", p.pid))
	if err != nil {
		return 0
	}
	var size, resident, shared int64
	if n, _ := fmt.Sscan(string(b), &size, &resident, &shared); n < 3 {
		return 0
	}
	return (resident - shared) * int64(os.Getpagesize())
}

// descendants returns this process's descendants. Those whose parents have died are this one's
// children: it is their subreaper.
func descendants() (out []process) {
	dir, err := os.Open("/proc")
	if err != nil {
		return nil
	}
	defer dir.Close()
	names, _ := dir.Readdirnames(-1)
	children := map[int][]process{}
	for _, name := range names {
		var pid int
		if _, err := fmt.Sscanf(name, "%d", &pid); err != nil {
			continue
		}
		b, err := os.ReadFile("/proc/" + name + "/stat")
		if err != nil {
			continue
		}
		var state string
		p := process{pid: pid}
		text := string(b)
		// The name, in parentheses, may hold anything.
		if n, _ := fmt.Sscan(text[strings.LastIndexByte(text, ')')+1:], &state, &p.parent); n == 2 && state != "Z" {
			children[p.parent] = append(children[p.parent], p)
		}
	}
	next := []int{os.Getpid()}
	for len(next) > 0 {
		for _, p := range children[next[0]] {
			out, next = append(out, p), append(next, p.pid)
		}
		next = next[1:]
	}
	return out
}

// killDescendants kills all descendants, without waiting for their end. The first process of a
// container kills all in one step.
func killDescendants() {
	if os.Getpid() == 1 {
		_ = syscall.Kill(-1, syscall.SIGKILL)
		return
	}
	all := descendants()
	for _, p := range all {
		_ = syscall.Kill(p.pid, syscall.SIGSTOP) // so that none forks while others are killed
	}
	for _, p := range all {
		_ = syscall.Kill(p.pid, syscall.SIGKILL)
	}
}

// endDescendants kills all descendants, also those that others start meanwhile, and waits for their
// end. The program itself must have been waited for.
func endDescendants() {
	for deadline := time.Now().Add(10 * time.Second); time.Now().Before(deadline); time.Sleep(time.Millisecond) {
		killDescendants()
		for {
			pid, err := syscall.Wait4(-1, nil, syscall.WNOHANG, nil)
			if errors.Is(err, syscall.ECHILD) {
				return
			}
			if pid <= 0 {
				break
			}
		}
	}
}
