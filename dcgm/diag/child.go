package diag

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"runtime"
	"slices"
	"sync"
	"time"

	"github.com/assay-hpc/assay/internal/gpu/driver"
	"github.com/assay-hpc/assay/internal/host/nvml"
	"github.com/assay-hpc/assay/internal/host/sysfs"
	"github.com/assay-hpc/assay/internal/platform"
	"github.com/assay-hpc/assay/internal/result"
	"github.com/assay-hpc/assay/internal/words"
)

// A request is the JSON that a child reads from its standard input.
type request struct {
	GPUs   []int                  `json:"gpus"` // nil: all
	Params map[string]float64     `json:"params"`
	Limits map[string]result.Rule `json:"limits,omitempty"`
}

// A message is a line that a child writes to its standard output.
type message struct {
	GPUs     []GPU          `json:"gpus,omitempty"`     // from the child that only lists them
	Missing  string         `json:"missing,omitempty"`  // why there are none
	Progress string         `json:"progress,omitempty"` // the current step
	Result   *result.Result `json:"result,omitempty"`   // the last line
}

// ListGPUs is given to a child instead of the name of a test, to list the GPUs.
const ListGPUs = "gpus"

// Environment contains what a child uses.
type Environment struct {
	Open    func() (Machine, error)
	Sensors func() (Sensors, error)
	Links   func() (map[sysfs.BusID]nvml.Links, error) // of all GPUs, by PCI address
	DB      *platform.DB
	Root    string // of the file system: /
	Environ []string
}

// Child runs one test on this process's GPUs, as "harness diag --child" does.
func Child(ctx context.Context, name string, env Environment, in io.Reader, out io.Writer) error {
	enc := json.NewEncoder(out)
	if name == ListGPUs {
		return listGPUs(env, enc)
	}
	t, ok := testNamed(name)
	if !ok {
		return unknownTest(name)
	}
	var q request
	if err := json.NewDecoder(in).Decode(&q); err != nil {
		return fmt.Errorf("the request of a child: %w", err)
	}
	j := newJob(t, env, q)
	var writing sync.Mutex
	j.progress = func(format string, a ...any) {
		writing.Lock()
		defer writing.Unlock()
		_ = enc.Encode(message{Progress: fmt.Sprintf(format, a...)}) // if this fails, the parent has exited, which kills this process
	}
	begin := time.Now()
	if err := j.do(ctx, t, q.GPUs); err != nil {
		j.broke(noGPU, err)
	}
	j.sum()
	j.result.Seconds = time.Since(begin).Seconds()
	writing.Lock()
	defer writing.Unlock()
	return enc.Encode(message{Result: &j.result})
}

func listGPUs(env Environment, enc *json.Encoder) error {
	m, err := env.Open()
	if errors.Is(err, driver.ErrNoDriver) || errors.Is(err, driver.ErrNoDevice) {
		return enc.Encode(message{Missing: err.Error()})
	}
	if err != nil {
		return err
	}
	return errors.Join(enc.Encode(message{GPUs: m.GPUs()}), m.Close())
}

// A job is a running test.
type job struct {
	env       Environment
	machine   Machine
	sensors   Sensors // nil: none, noSensor contains the reason
	noSensor  error
	gpus      []GPU
	expect    platform.Expectation // of all GPUs of the machine
	params    map[string]float64
	limits    map[string]result.Rule // the user's, by figure
	progress  func(format string, a ...any)
	uncounted bool // the finding that the link errors are not known has been added

	mu     sync.Mutex
	result result.Result
}

func newJob(t Test, env Environment, q request) *job {
	return &job{env: env, params: q.Params, limits: q.Limits, result: result.Result{ID: t.Name, Title: Title(t), Verdict: result.Pass}}
}

// do opens what the test uses, and runs the test.
func (j *job) do(ctx context.Context, t Test, gpus []int) (err error) {
	if j.machine, err = j.env.Open(); err != nil {
		return fmt.Errorf("opening the GPUs: %w", err)
	}
	defer func() { err = errors.Join(err, j.machine.Close()) }()
	for _, g := range j.machine.GPUs() {
		if gpus == nil || slices.Contains(gpus, g.Index) {
			j.gpus = append(j.gpus, g)
		}
	}
	if j.sensors, j.noSensor = j.env.Sensors(); j.noSensor != nil {
		j.sensors = nil
	} else {
		defer func() { err = errors.Join(err, j.sensors.Close()) }()
	}
	j.expect = j.expectation()
	return t.run(ctx, j)
}

// noGPU means no particular GPU.
const noGPU = -1

// findf adds a problem with its remedy. A skip is only a remark.
func (j *job) findf(gpu int, v result.Verdict, remedy, format string, a ...any) {
	text := fmt.Sprintf(format, a...)
	if gpu != noGPU {
		text = gpuName(gpu) + ": " + text
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	j.result.Add(v, text, remedy)
}

// skip marks the test as not applicable.
func (j *job) skip(format string, a ...any) {
	j.result.Verdict, j.result.Reason = result.Skip, fmt.Sprintf(format, a...)
}

// measure adds a figure, and a failure with the remedy if it is below its limit. The user's rule,
// if there is one, then replaces the limit.
func (j *job) measure(f figure, remedy string) {
	m := f.Measured
	if f.Hold(); f.Verdict == result.Fail {
		of := ""
		if m.Expected > 0 {
			of = fmt.Sprintf(" is %.0f %% of %.4g (%s)", 100*m.Ratio, m.Expected, m.Source)
		}
		j.findf(noGPU, result.Fail, remedy, "%s: %s: %.4g %s%s; %.4g or more is expected (%s)", f.Name, f.Quantity, m.Value, m.Unit, of, m.Limit.Value, m.Limit.Source)
	}
	if rule, ok := j.limits[f.Quantity]; ok {
		rule.Judge(f.Quantity, &f.Object, f.expected.Of)
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	j.result.Objects = append(j.result.Objects, f.Object)
}

// sum completes the result. Figures that break the user's rules make a better result as bad as they
// are.
func (j *job) sum() {
	r := &j.result
	r.Measured = result.Speaking("diag/"+r.ID, result.Distinct(r.Objects))
	if own := result.Sum(r.Objects); r.Verdict != result.Error && result.Worst(own.Verdict, r.Verdict) != r.Verdict {
		r.Verdict, r.Reason = own.Verdict, own.Reason
	}
	if r.Verdict == result.Pass {
		r.Reason = cmp.Or(r.Reason, words.Count(len(j.gpus), "GPU"))
	}
}

// broke adds a finding for an error. An error that poisoned the GPU's context counts as a failure
// of the GPU, until shown otherwise. Other errors mean that the test could not run.
func (j *job) broke(gpu int, err error) {
	var e *driver.Error
	if errors.As(err, &e) && e.Lost() {
		j.findf(gpu, result.Fail, "look for Xid messages of this GPU in the kernel's log; reset the GPU and run the test again", "%v", err)
		return
	}
	j.findf(gpu, result.Error, "", "%v", err)
}

// each runs f for all GPUs at the same time, each on its own thread. An error affects only its GPU.
func (j *job) each(f func(GPU, Device) error) {
	var wg sync.WaitGroup
	for _, g := range j.gpus {
		wg.Go(func() { j.alone(g, f) })
	}
	wg.Wait()
}

// alone runs f for a GPU, on a thread that is not shared.
func (j *job) alone(g GPU, f func(GPU, Device) error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if err := j.with(g, f); err != nil {
		j.broke(g.Index, err)
	}
}

// with calls f with a device, and frees what f allocated.
func (j *job) with(g GPU, f func(GPU, Device) error) error {
	d, err := j.machine.Device(g.Index)
	if err != nil {
		return err
	}
	return errors.Join(f(g, d), d.Free())
}
