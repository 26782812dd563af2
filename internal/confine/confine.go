// Package confine runs programs that are not trusted, such as those of an image that is being
// certified, so that nothing they do decides anything but their own exit status and output.
//
// A supervisor ([Main]) starts the program as a user of its own, without a way to new privileges,
// and stops it with all its descendants when it ends or exceeds a limit. Only the supervisor writes
// the [Outcome]: the program has a pipe to it, and may neither trace nor signal it. [Local] starts a
// supervisor on this machine; a [Remote] asks the other end of a connection, which [Serve] runs, for
// one in a container.
package confine

import (
	"context"
	"fmt"
	"time"
)

// Path is where a container has the program whose command "confine" is [Main], alone in its directory.
const Path = "/run/assay/bin/harness"

// A Runner runs programs.
type Runner interface {
	// Run runs a program to its end. Its time limit is also the context's deadline.
	Run(context.Context, Program) Outcome
	// Self is the path that this program has for those that Run starts.
	Self() string
}

// A Program is what is to be run, and within which limits.
type Program struct {
	File string   `json:"file"` // absolute path
	Args []string `json:"args"` // with the program's name
	Env  []string `json:"env"`  // the whole environment
	// Dirs are absolute paths of directories that the program needs, owned by root with mode 0755.
	Dirs []string `json:"dirs,omitempty"`
	// Files are written, for the program's user alone, before it starts, and removed afterwards.
	Files  []File `json:"files,omitempty"`
	Limits Limits `json:"limits"`
	// Strict says that the program is not started at all if its privileges cannot be dropped.
	Strict bool `json:"strict,omitempty"`
}

// A File is one file that a program needs, in a directory that anybody may write to.
type File struct {
	Path string `json:"path"` // absolute
	Data []byte `json:"data"`
}

// Limits are what a program may use, with all its descendants. 0 means the default.
type Limits struct {
	Seconds   float64 `json:"seconds,omitempty"`   // on the clock
	Memory    int64   `json:"memory,omitempty"`    // bytes of anonymous memory, /dev/shm and /tmp
	Processes int     `json:"processes,omitempty"` // threads count as processes
	Output    int     `json:"output,omitempty"`    // bytes that are kept; the rest is read and dropped
}

// defaultLimits are far above what a check of an image needs.
var defaultLimits = Limits{Seconds: 60, Memory: 4 << 30, Processes: 1024, Output: 4 << 20}

func (l Limits) orDefault() Limits {
	d := defaultLimits
	if l.Seconds > 0 {
		d.Seconds = l.Seconds
	}
	if l.Memory > 0 {
		d.Memory = l.Memory
	}
	if l.Processes > 0 {
		d.Processes = l.Processes
	}
	if l.Output > 0 {
		d.Output = l.Output
	}
	return d
}

func (l Limits) wall() time.Duration { return time.Duration(l.Seconds * float64(time.Second)) }

// until returns the limits with the time that is left until the context's deadline.
func (l Limits) until(ctx context.Context) Limits {
	if end, ok := ctx.Deadline(); ok {
		left := max(time.Until(end), time.Millisecond).Seconds()
		if l.Seconds == 0 || left < l.Seconds {
			l.Seconds = left
		}
	}
	return l
}

// An Outcome is how a program ended.
type Outcome struct {
	Status  int    `json:"status"`            // its exit status
	Signal  int    `json:"signal,omitempty"`  // that ended it
	Stopped string `json:"stopped,omitempty"` // the limit that it exceeded
	Failed  string `json:"failed,omitempty"`  // why it could not be started, or followed to its end
	Output  []byte `json:"output,omitempty"`  // stdout and stderr, up to the limit
}

// Failure returns an outcome without a program.
func Failure(format string, args ...any) Outcome {
	return Outcome{Failed: fmt.Sprintf(format, args...)}
}
