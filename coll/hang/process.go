package hang

import (
	"fmt"
	"os"

	"github.com/assay-hpc/assay/coll/flight"
)

// A Process identifies a rank's process and its GPU.
type Process struct {
	Host      string `json:"host"`
	PID       int    `json:"pid"`
	GPU       int    `json:"gpu"`
	Namespace string `json:"namespace"` // of process IDs
	Job       int    `json:"job"`       // the process's number in its job, as its launcher says; -1: unknown
}

// ThisProcess describes this process to the other ranks.
func ThisProcess(device, job int) Process {
	name, _ := os.Hostname()
	ns, _ := os.Readlink("/proc/self/ns/pid")
	return Process{name, os.Getpid(), device, ns, job}
}

// Processes are those of a communicator's ranks. All ranks know them from the beginning.
type Processes []Process

// name names a rank for people.
func (p Processes) name(rank int) string {
	w := p[rank]
	return fmt.Sprintf("rank %d (host %s, pid %d, GPU %d)", rank, w.Host, w.PID, w.GPU)
}

// halted maps the state of a process that does not run to the cause in a verdict.
var halted = map[flight.State]Cause{flight.Stopped: Stopped, flight.Ended: Dead}

// Halted returns the ranks on the host of a rank with processes that do not run, and why: Stopped
// or Dead.
func (p Processes) Halted(rank int) map[int]Cause {
	var found map[int]Cause
	own := p[rank]
	for r, w := range p {
		if w.Host != own.Host || w.Namespace != own.Namespace || w.Namespace == "" || w.PID == own.PID { // without a namespace, a PID may be another process's
			continue
		}
		if cause, ok := halted[flight.StateOf(w.PID)]; ok {
			if found == nil {
				found = map[int]Cause{}
			}
			found[r] = cause
		}
	}
	return found
}
