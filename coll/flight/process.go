package flight

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// A State is whether a process can run.
type State string

// The values of State.
const (
	Running State = "running" // or it sleeps, as most do
	Stopped State = "stopped" // by a signal or a debugger
	Ended   State = "ended"   // it is gone, or its parent has not waited for it yet
)

// StateOf is the state of a process of this host.
func StateOf(pid int) State {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if errors.Is(err, fs.ErrNotExist) {
		return Ended
	}
	// The name before it, in parentheses, may have any characters. Then come the state and,
	// as the seventh, the flags.
	f := strings.Fields(string(b[strings.LastIndexByte(string(b), ')')+1:]))
	if len(f) < 7 {
		return Running
	}
	flags, _ := strconv.ParseUint(f[6], 10, 32)
	switch {
	case f[0] == "Z", f[0] == "X", flags&exiting != 0:
		return Ended
	case f[0] == "T", f[0] == "t":
		return Stopped
	}
	return Running
}

// exiting is PF_EXITING of the kernel's: the process has begun to end. Its connections are
// closed after that, and before it is a zombie; to close a GPU takes a while.
const exiting = 4

// Processes are those of this host that have a recorder and that this one may look into.
func Processes() (pids []int) {
	all, _ := filepath.Glob("/proc/[0-9]*")
	for _, dir := range all {
		if pid, err := strconv.Atoi(filepath.Base(dir)); err == nil {
			if _, err := find(pid); err == nil {
				pids = append(pids, pid)
			}
		}
	}
	slices.Sort(pids)
	return pids
}
