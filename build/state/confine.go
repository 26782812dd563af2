package state

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"syscall"
)

// enter runs in the new namespaces before the program.
const enter = `mount -t proc proc /proc
for dir in $EMPTY; do
  mkdir -p "$dir"
  mount -t tmpfs -o mode=711 assay "$dir"
done
unset EMPTY
exec "$@"`

// Start starts a program as root in mount and process namespaces of its own: however the program
// or its caller ends, no process and no mount outlives it. The program gets a process group of
// its own, so that Ctrl-C reaches only the caller. The directories in empty are empty for the
// program, and what it writes there disappears when it ends. The returned function waits for its
// end.
func Start(cmd *exec.Cmd, empty ...string) (wait func() error, err error) {
	if cmd.Err != nil {
		return nil, cmd.Err
	}
	cmd.Env = append(cmd.Environ(), "EMPTY="+strings.Join(empty, " "))
	cmd.Args = append([]string{"/bin/sh", "-euc", enter, "sh", cmd.Path}, cmd.Args[1:]...)
	cmd.Path = cmd.Args[0]
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags: syscall.CLONE_NEWPID, Unshareflags: syscall.CLONE_NEWNS, // Go makes an unshared mount namespace private
		Setpgid: true, Pdeathsig: syscall.SIGKILL,
	}
	started := make(chan error)
	ended := make(chan error, 1)
	go func() {
		// The kernel sends the death signal when the starting thread ends, so
		// that thread must live as long as the program.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := cmd.Start()
		if errors.Is(err, syscall.EINVAL) && !mountPoint("/") {
			err = fmt.Errorf("%w: the root directory is not a mount point, as after chroot; mount it to itself before (mount --bind DIR DIR)", err)
		}
		started <- err
		if err == nil {
			ended <- cmd.Wait()
		}
	}()
	return func() error { return <-ended }, <-started
}

// mountPoint reports whether something is mounted at a directory, which private mount namespaces
// need of the root directory. It is true if that is not known.
func mountPoint(dir string) bool {
	b, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return true
	}
	for line := range strings.Lines(string(b)) {
		if f := strings.Fields(line); len(f) > 4 && f[4] == dir {
			return true
		}
	}
	return false
}
