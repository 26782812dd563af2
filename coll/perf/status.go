package perf

import "fmt"

// A Status is the exit status of nccl-tests' programs.
type Status int

// The statuses. Their values are the exit codes.
const (
	OK             Status = 0
	InternalError  Status = 1
	DeviceError    Status = 2 // nccl-tests: CUDA; here: memory
	EngineError    Status = 3 // nccl-tests: NCCL
	TimedOut       Status = 4
	NotImplemented Status = 5
	InvalidUsage   Status = 6
	BadData        Status = 7 // wrong results, or bandwidth below NCCL_TESTS_MIN_BW
)

// A Failure is why a run ended early.
type Failure struct {
	Status Status
	Rank   int    // on which it happened; -1: none in particular
	Where  string // file:line of this package where it was noticed
	Err    error
	Last   string // the engine's additional message
}

func (f *Failure) Error() string {
	if f.Rank < 0 {
		return f.Err.Error()
	}
	return fmt.Sprintf("rank %d: %v", f.Rank, f.Err)
}
func (f *Failure) Unwrap() error { return f.Err }

// Lines returns nccl-tests' two lines about a failure, for stderr.
func (f *Failure) Lines(host string, pid, timeout int) string {
	tail := fmt.Sprintf(" .. %s pid %d: Test failure %s\n", host, pid, f.Where)
	switch f.Status {
	case TimedOut:
		return fmt.Sprintf("%s: Test timeout (%ds) %s\n%s", host, timeout, f.Where, tail)
	case EngineError:
		return fmt.Sprintf("%s: Test NCCL failure %s '%v / %s'\n%s", host, f.Where, f.Err, f.Last, tail)
	}
	return fmt.Sprintf("%s: Test failure %s '%v'\n%s", host, f.Where, f.Err, tail)
}
