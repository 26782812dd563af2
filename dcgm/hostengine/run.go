package hostengine

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os/exec"
	"runtime"
	"strings"
	"syscall"
	"time"

	"github.com/assay-hpc/assay/internal/result"
)

// Program is the program that is run, found by PATH.
const Program = "dcgmi"

// ErrMissing means that there is no dcgmi.
var ErrMissing = errors.New("dcgmi is not installed")

// endDelay is how long dcgmi may take to stop what its host engine runs.
const endDelay = 15 * time.Second

// runDCGM runs dcgmi diag with tests, a level or a comma-separated list of names, within a time. It
// returns the results of the tests and, the last one, of the run. The only error is ErrMissing; any
// other failure is a result.
func runDCGM(ctx context.Context, tests string, timeout time.Duration) ([]result.Result, error) {
	program, err := exec.LookPath(Program)
	if err != nil {
		return nil, fmt.Errorf("%w: there is no %s on PATH; install NVIDIA's datacenter-gpu-manager, or use --engine assay", ErrMissing, Program)
	}
	ctx, stop := context.WithTimeoutCause(ctx, timeout, fmt.Errorf("timed out: dcgmi diag was not done within %v", timeout))
	defer stop()
	begin := time.Now()
	stdout, stderr, err := command(ctx, program, tests)
	seconds := time.Since(begin).Seconds()
	if cause := context.Cause(ctx); cause != nil && err != nil {
		return ended(seconds, versions{}, broke(cause, stdout, stderr)), nil
	}
	by, results, wrong := parse(stdout)
	if wrong != nil {
		return ended(seconds, by, broke(errors.Join(wrong, explain(err)), stdout, stderr)), nil
	}
	if w := worst(results); err != nil && (w == result.Pass || w == result.Skip) {
		// Exit status and report have each been wrong in the field, so both must show success.
		results = append(results, broke(fmt.Errorf("%w, though its report has no failure", explain(err)), stderr))
	}
	return ended(seconds, by, results...), nil
}

// ended adds the result of the run to those of its tests.
func ended(seconds float64, by versions, tests ...result.Result) []result.Result {
	own := skipped("it skipped all tests")
	if own.Seconds = seconds; worst(tests) != result.Skip {
		own.Verdict, own.Reason = result.Pass, by.String()
	}
	return append(tests, own)
}

// skipped is the result of a run that tested nothing.
func skipped(reason string) result.Result {
	return result.Result{ID: Name, Title: "the diagnostics of " + Name + " ran", Verdict: result.Skip, Reason: reason}
}

// command runs dcgmi in its own process group, and kills the rest of the group at the end.
func command(ctx context.Context, program, tests string) (stdout, stderr []byte, err error) {
	// Pdeathsig is sent when the thread that started the child exits, so keep that thread.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	var out, errOut bytes.Buffer
	cmd := exec.CommandContext(ctx, program, "diag", "-r", tests, "-j")
	cmd.Stdout, cmd.Stderr = &out, &errOut
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGTERM}
	// On this signal dcgmi stops what runs in the host engine.
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGTERM) }
	cmd.WaitDelay = endDelay
	if err := cmd.Start(); err != nil {
		return nil, nil, err
	}
	err = cmd.Wait()
	_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) // remaining processes of the group, if any
	return out.Bytes(), errOut.Bytes(), err
}

// maxOutput is the number of bytes that are stored of a failed run's output.
const maxOutput = 4 << 10

// broke is the result of a run that did not finish.
func broke(err error, outputs ...[]byte) result.Result {
	all := bytes.TrimSpace(bytes.Join(outputs, nil))
	one := named(Program, result.Error)
	one.Reason, one.Output = err.Error(), strings.ToValidUTF8(string(all[:min(len(all), maxOutput)]), "?")
	return one
}

// statuses are the exit statuses of dcgmi that have a meaning for the user: DCGM's return values
// modulo 256.
var statuses = map[int]string{
	190: "it was stopped",
	198: "none of the tests is there",
	202: "diagnostics are paused",
	203: "the diagnostic was killed",
	204: "the diagnostic's program is missing",
	205: "an error for which the GPU is to be taken out of service",
	215: "the diagnostic could not be started",
	216: "the diagnostic gave no result that can be read",
	217: "another diagnostic runs on this host engine",
	226: "a test found an error",
	227: "it takes root",
	233: "the GPUs are of different models",
	235: "the host engine went away",
	245: "DCGM's own time limit",
	250: "not supported here",
	254: "it does not know an argument",
	255: "a parameter is wrong",
}

// explain returns an error that describes an exit status of dcgmi.
func explain(err error) error {
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		if text := statuses[exit.ExitCode()]; text != "" {
			return fmt.Errorf("dcgmi ended with status %d: %s", exit.ExitCode(), text)
		}
	}
	if err != nil {
		return fmt.Errorf("dcgmi: %w", err)
	}
	return nil
}
