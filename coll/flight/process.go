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
	Ended   State = "ended"   // it is gone, or nobody has waited for it yet
)

// StateOf is the state of a process of this host.
func StateOf(pid int) State {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if errors.Is(err, fs.ErrNotExist) {
		return Ended
	}
	// The name before it, in parentheses, may have any characters.
	switch rest := string(b[strings.LastIndexByte(string(b), ')')+1:]); {
	case strings.HasPrefix(rest, " T"), strings.HasPrefix(rest, " t"):
		return Stopped
	case strings.HasPrefix(rest, " Z"), strings.HasPrefix(rest, " X"):
		return Ended
	}
	return Running
}

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
