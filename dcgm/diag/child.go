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

	"github.com/assay-hpc/assay/coll/cuda/driver"
	"github.com/assay-hpc/assay/harness/platform"
)

// A request is what a child reads from its standard input, as JSON.
type request struct {
	GPUs   []int              `json:"gpus"` // nil: all
	Params map[string]float64 `json:"params"`
}

// A message is a line that a child writes to its standard output.
type message struct {
	GPUs     []GPU   `json:"gpus,omitempty"`     // of the child that only lists them
	Missing  string  `json:"missing,omitempty"`  // or why there are none
	Progress string  `json:"progress,omitempty"` // what it is at
	Result   *Result `json:"result,omitempty"`   // the last line
}

// ListGPUs is what a child is given in place of a test to list the GPUs.
const ListGPUs = "gpus"

// Environment is what a child has.
type Environment struct {
	Open    func() (Machine, error)
	Sensors func() (Sensors, error)
	DB      *platform.DB
	Root    string // of the file system: /
	Environ []string
}

// Child runs one test of this process's GPUs: what "harness diag --child" does.
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
	j := &job{env: env, params: q.Params, result: &Result{Test: t.Name, Category: t.Category, Status: Pass}}
	var writing sync.Mutex
	j.progress = func(format string, a ...any) {
		writing.Lock()
		defer writing.Unlock()
		_ = enc.Encode(message{Progress: fmt.Sprintf(format, a...)}) // the parent has gone, and kills this
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

// A job is a test that runs.
type job struct {
	env      Environment
	machine  Machine
	sensors  Sensors // nil: none, noSensors says why
	noSensor error
	gpus     []GPU
	params   map[string]float64
	progress func(format string, a ...any)

	mu     sync.Mutex
	result *Result
}

// do opens what the test uses.
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
	return t.run(ctx, j)
}

// findf adds a finding.
func (j *job) findf(gpu int, s Status, remedy, format string, a ...any) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.result.addf(gpu, s, remedy, format, a...)
}

// measure adds a figure.
func (j *job) measure(m Measurement) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.result.Measurements = append(j.result.Measurements, m)
}

// hold adds a figure with a reference: below the floor, a fraction of it, it fails.
func (j *job) hold(m Measurement, floor float64, remedy string) {
	if m.Reference > 0 {
		m.Floor = floor
	}
	j.measure(m)
	if m.Reference > 0 && m.Value < floor*m.Reference {
		j.findf(m.GPU, Fail, remedy, "%s: %.4g %s is %.0f %% of %.4g (%s); %.0f %% or more is expected",
			m.Name, m.Value, m.Unit, 100*m.Value/m.Reference, m.Reference, m.Source, 100*floor)
	}
}

// broke is for errors. One that poisoned the GPU's context is the GPU's failure,
// until shown otherwise; the others say that the test could not be carried out.
func (j *job) broke(gpu int, err error) {
	var e *driver.Error
	if errors.As(err, &e) && e.Lost() {
		j.findf(gpu, Fail, "look for Xid messages of this GPU in the kernel's log; reset the GPU and run the test again", "%v", err)
		return
	}
	j.findf(gpu, Error, "", "%v", err)
}

// each runs f for all GPUs at the same time, each on a thread of its own. An error
// is of that GPU alone.
func (j *job) each(f func(GPU, Device) error) {
	var wg sync.WaitGroup
	for _, g := range j.gpus {
		wg.Go(func() {
			runtime.LockOSThread()
			defer runtime.UnlockOSThread()
			if err := j.with(g, f); err != nil {
				j.broke(g.Index, err)
			}
		})
	}
	wg.Wait()
}

// with gives f a device, and takes back what f allocated.
func (j *job) with(g GPU, f func(GPU, Device) error) error {
	d, err := j.machine.Device(g.Index)
	if err != nil {
		return err
	}
	return errors.Join(f(g, d), d.Free())
}

// model is what the data base says of a GPU; nil: nothing.
func (j *job) model(g GPU) *platform.GPU {
	if j.env.DB == nil || g.PCIDevice == "" {
		return nil
	}
	_, m := j.env.DB.GPUByPCI(g.PCIDevice)
	return m
}

// figure fills in the reference of a measurement.
func (m Measurement) figure(f platform.Figure) Measurement {
	if f.Known() && f.Value > 0 {
		m.Reference, m.Source = f.Value, f.Source
	}
	return m
}

// given is a reference that somebody gave as a parameter: it must be reached in
// full.
func (m Measurement) given(v float64) (Measurement, bool) {
	if v > 0 {
		m.Reference, m.Source = v, "parameter"
	}
	return m, v > 0
}
