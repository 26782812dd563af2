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

// A State says whether a process can run.
type State string

// The values of State.
const (
	Running State = "running" // or sleeping, as most processes are
	Stopped State = "stopped" // by a signal or a debugger
	Ended   State = "ended"   // it no longer exists, or its parent has not waited for it yet
)

// StateOf returns the state of a process of this host.
func StateOf(pid int) State {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if errors.Is(err, fs.ErrNotExist) {
		return Ended
	}
	// The name in parentheses may have any characters. After it come the state and, as the
	// seventh field, the flags.
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

// exiting is the kernel's PF_EXITING: the process has begun to exit. Its connections are closed
// after that, and before it is a zombie; closing a GPU takes a while.
const exiting = 4

// Processes returns the processes of this host that have a recorder which this process may read.
func Processes() (pids []int) {
	all, _ := filepath.Glob("/proc/[0-9]*")
	for _, dir := range all {
		if pid, err := strconv.Atoi(filepath.Base(dir)); err == nil {
			if _, err := recorderPath(pid); err == nil {
				pids = append(pids, pid)
			}
		}
	}
	slices.Sort(pids)
	return pids
}
