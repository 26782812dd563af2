package hang

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"sync/atomic"
	"time"
)

// A Cause is why a communicator hangs or has failed.
type Cause string

// The causes.
const (
	NotCalled Cause = "not called" // a rank has not called what the others wait for
	Differs   Cause = "differs"    // ranks called different operations, counts, types, reductions or roots
	Unmatched Cause = "unmatched"  // a Send without its Recv, or a Recv without its Send
	Stopped   Cause = "stopped"    // a rank's process is stopped, by a signal or a debugger
	Dead      Cause = "dead"       // a rank's process has ended
	Silent    Cause = "silent"     // a rank does not answer, for an unknown reason
	Cut       Cause = "network"    // nothing arrives from any rank of a host
	Blocked   Cause = "blocked"    // a rank's operation waits behind other work
	Elsewhere Cause = "elsewhere"  // a rank has not called it because it waits in another communicator, whose verdict says why
	Order     Cause = "order"      // ranks called operations of two communicators in different orders
	GPU       Cause = "gpu"        // a GPU, or its driver, does not answer or has failed
	Unclear   Cause = "unclear"    // all ranks have called the operation, and it does not end
	Flipped   Cause = "flipped"    // an operation that was verified had a wrong result; Ranks are those whose GPUs may be at fault
	Resumed   Cause = "resumed"    // the communicator continues after a verdict
)

// A Verdict says why a communicator hangs or has failed, or what a verified operation has shown.
type Verdict struct {
	Schema       string    `json:"schema"` // VerdictSchema
	Time         time.Time `json:"time"`
	Communicator string    `json:"communicator"`
	Size         int       `json:"size"`
	By           int       `json:"by"` // the rank that gives the verdict
	Cause        Cause     `json:"cause"`
	Ranks        []int     `json:"ranks"` // that are the cause; none if it is unclear
	Text         string    `json:"text"`  // a sentence for people, without the communicator's name
	States       []State   `json:"states,omitempty"`

	File string `json:"-"` // where the verdict is written; "": nowhere
}

// String formats the verdict for people.
func (v Verdict) String() string {
	s := fmt.Sprintf("communicator %q: %s", v.Communicator, v.Text)
	if v.File != "" {
		s += " (" + v.File + ")"
	}
	return s
}

// VerdictSchema is the name of a Verdict's JSON schema.
const VerdictSchema = "assay.hang/1"

// A State is what is known of a rank.
type State struct {
	Rank     int    `json:"rank"`
	Host     string `json:"host"`
	PID      int    `json:"pid"`
	GPU      int    `json:"gpu"`
	Answered bool   `json:"answered"`
	Called   uint32 `json:"called"`    // collectives
	Last     string `json:"last"`      // its last call
	Ago      int    `json:"ago"`       // seconds since then
	Doing    string `json:"doing"`     // idle, begun, behind, slow, stuck; "": unknown
	WaitsFor []int  `json:"waits_for"` // ranks, if it has begun
}

// verdicts counts the verdicts that this process has written.
var verdicts atomic.Int64

// write writes a verdict to a new file in a directory. The file must not exist before: a
// directory for temporary files belongs to other users as well, and they may have put a link there.
func (v *Verdict) write(dir string) (err error) {
	b, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		return err
	}
	if dir == "" {
		dir = os.TempDir()
	}
	host, _ := os.Hostname()
	name := filepath.Join(dir, fmt.Sprintf("assay-hang-%s-%d-%d.json", host, os.Getpid(), verdicts.Add(1)))
	_ = os.Remove(name) // left by an earlier process with this PID
	f, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(append(b, '\n'))
	if closed := f.Close(); err == nil {
		err = closed
	}
	if err == nil {
		v.File = name
	}
	return err
}
