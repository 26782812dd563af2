package diag

import (
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
)

// A request is the JSON that a child reads from its standard input.
type request struct {
	GPUs   []int              `json:"gpus"` // nil: all
	Params map[string]float64 `json:"params"`
}

// A message is a line that a child writes to its standard output.
type message struct {
	GPUs     []GPU   `json:"gpus,omitempty"`     // from the child that only lists them
	Missing  string  `json:"missing,omitempty"`  // why there are none
	Progress string  `json:"progress,omitempty"` // the current step
	Result   *Result `json:"result,omitempty"`   // the last line
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
		return list(env, enc)
	}
	t, ok := find(name)
	if !ok {
		return unknownTest(name)
	}
	var q request
	if err := json.NewDecoder(in).Decode(&q); err != nil {
		return fmt.Errorf("the request of a child: %w", err)
	}
	j := &job{env: env, params: q.Params, result: &Result{Test: t.Name, Category: t.Category, Status: result.Pass}}
	var writing sync.Mutex
	j.progress = func(format string, a ...any) {
		writing.Lock()
		defer writing.Unlock()
		_ = enc.Encode(message{Progress: fmt.Sprintf(format, a...)}) // if this fails, the parent has exited, which kills this process
	}
	begin := time.Now()
	if err := j.do(ctx, t, q.GPUs); err != nil {
		j.broke(NoGPU, err)
	}
	j.result.Seconds = time.Since(begin).Seconds()
	writing.Lock()
	defer writing.Unlock()
	return enc.Encode(message{Result: j.result})
}

func list(env Environment, enc *json.Encoder) error {
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
	progress  func(format string, a ...any)
	uncounted bool // the finding that the link errors are not known has been added

	mu     sync.Mutex
	result *Result
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

// findf adds a finding.
func (j *job) findf(gpu int, s result.Verdict, remedy, format string, a ...any) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.result.addf(gpu, s, remedy, format, a...)
}

// measure adds a measurement.
func (j *job) measure(m Measurement) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.result.Measurements = append(j.result.Measurements, m)
}

// hold adds a measurement, which fails if it is below its floor.
func (j *job) hold(m Measurement, remedy string) {
	j.measure(m)
	if m.Value >= m.Floor {
		return
	}
	if m.Reference > 0 {
		j.findf(m.GPU, result.Fail, remedy, "%s: %.4g %s is %.0f %% of %.4g (%s); %.4g or more is expected (%s)",
			m.Name, m.Value, m.Unit, 100*m.Value/m.Reference, m.Reference, m.Source, m.Floor, m.FloorSource)
		return
	}
	j.findf(m.GPU, result.Fail, remedy, "%s: %.4g %s; %.4g or more is expected (%s)", m.Name, m.Value, m.Unit, m.Floor, m.FloorSource)
}

// broke adds a finding for an error. An error that poisoned the GPU's context counts as a failure
// of the GPU, until shown otherwise. Other errors mean that the test could not be carried out.
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
