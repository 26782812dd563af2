package perf

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
)

// jsonFile is nccl-tests' report (-J), version 3 of its layout.
type jsonFile struct {
	file *os.File // nil: not written
}

// header opens the file, so that a path that cannot be written is known before
// the sweep and not after it.
func (s *jsonFile) header(r *reporter) error {
	f, err := createNew(r.cfg.JSONFile)
	if err != nil {
		_, err = fmt.Fprintf(r.text(), "# skipping json output; %v\n", err)
		return err
	}
	s.file = f
	_, err = fmt.Fprintf(r.text(), "# Writing JSON output to %s\n", f.Name())
	return err
}

// createNew creates a file, under another name (.0, .1, …) if it exists.
func createNew(name string) (*os.File, error) {
	for i := -1; ; i++ {
		try := name
		if i >= 0 {
			try = fmt.Sprintf("%s.%d", name, i)
		}
		f, err := os.OpenFile(try, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o644)
		if !errors.Is(err, fs.ErrExist) || i == 9999 {
			return f, err
		}
	}
}

func (*jsonFile) row(*reporter, *Row) error { return nil }

func (s *jsonFile) footer(r *reporter, res *Result, cause error) error {
	if s.file == nil {
		return nil
	}
	var j jsonWriter
	j.object(func() { s.write(&j, r, res, cause) })
	_, err := s.file.WriteString(j.b.String())
	return errors.Join(err, s.file.Close())
}

func (s *jsonFile) write(j *jsonWriter, r *reporter, res *Result, cause error) {
	c := &r.cfg
	j.key("version")
	j.int(3)
	j.key("start_time")
	j.string(r.started.Format(timestamp))
	j.key("args")
	j.strings(append([]string{c.Program}, c.Args...))
	j.key("env")
	j.strings(reportedEnviron(r.std.Environ))
	j.key("nccl_version")
	j.int(int64(r.world.Version))
	j.key("config")
	j.object(func() { writeConfig(j, r) })
	j.key("results")
	j.array(func() {
		for i := range res.Rows {
			j.object(func() { writeRow(j, r, &res.Rows[i]) })
		}
	})
	j.key("out_of_bounds")
	j.object(func() {
		j.key("count")
		j.int(int64(res.OutOfBounds))
		j.key("okay")
		j.bool(res.OutOfBounds == 0)
	})
	j.key("average_bus_bandwidth")
	j.object(func() {
		j.key("bandwidth")
		j.float(res.AvgBusBW)
		j.key("okay")
		if res.MinBusBW > 0 {
			j.bool(res.fast())
		} else {
			j.string("unchecked")
		}
	})
	j.key("errors")
	j.array(func() {
		if cause != nil {
			j.string(cause.Error())
		}
	})
	j.key("end_time")
	j.string(r.host.now().Format(timestamp))
}

func writeConfig(j *jsonWriter, r *reporter) {
	c := &r.cfg
	ints := func(name string, v int64) { j.key(name); j.int(v) }
	ints("nthreads", int64(c.Threads))
	ints("ngpus", int64(c.GPUs))
	ints("minimum_bytes", c.MinBytes)
	ints("maximum_bytes", min(c.MaxBytes, r.limit))
	if c.StepFactor > 1 {
		ints("step_factor", int64(c.StepFactor))
	} else {
		ints("step_bytes", c.StepBytes)
	}
	ints("warmup_iters", int64(c.Warmup))
	ints("iterations", int64(c.Iters))
	ints("aggregated_iterations", int64(c.AggIters))
	ints("validation", int64(c.Check))
	ints("graph", int64(c.Graph))
	ints("blocking_collectives", int64(c.Blocking))
	j.key("per_iter_timing")
	j.bool(c.PerIter)
	ints("per_iter_skip", int64(c.PerIterSkip))
	j.key("parallel_init")
	j.bool(c.ParallelInit)
	j.key("devices")
	j.array(func() {
		for i := range r.ranks {
			if i == 0 || r.process[i] != r.process[i-1] { // the first of each process
				j.object(func() { writeDevice(j, i, &r.ranks[i]) })
			}
		}
	})
}

func writeDevice(j *jsonWriter, rank int, x *introduction) {
	for _, f := range []struct {
		name string
		v    int
	}{{"rank", rank}, {"group", x.Group}, {"pid", x.Pid}} {
		j.key(f.name)
		j.int(int64(f.v))
	}
	j.key("hostname")
	j.string(x.Host)
	j.key("device")
	j.int(int64(x.Device))
	j.key("device_hex")
	j.string(fmt.Sprintf("%04x:%02x:%02x", x.Bus[0], x.Bus[1], x.Bus[2]))
	j.key("device_info")
	j.string(x.Name)
}

func writeRow(j *jsonWriter, r *reporter, row *Row) {
	j.key("size")
	j.int(row.Bytes)
	j.key("count")
	j.int(row.Count)
	j.key("type")
	j.string(row.Type)
	j.key("redop")
	j.string(row.Redop)
	j.key("root")
	j.string(fmt.Sprintf("%6d", row.Root))
	for _, p := range []struct {
		name string
		*Placement
	}{{"out_of_place", &row.OutOfPlace}, {"in_place", &row.InPlace}} {
		j.key(p.name)
		j.object(func() { writePlacement(j, p.Placement, r.cfg.CPUTime) })
		if r.cfg.PerIter && p.Iter != nil {
			j.key(p.name + "_per_iter")
			j.object(func() { writeIter(j, p.Iter) })
		}
	}
	j.key("actual_iterations")
	j.int(int64(row.Iterations / r.cfg.AggIters))
	j.key("experiment_name")
	j.string(path.Base(r.cfg.Program))
}

func writePlacement(j *jsonWriter, p *Placement, cpu bool) {
	if cpu {
		j.key("cpu_time")
	} else {
		j.key("time")
	}
	j.float(p.Time)
	j.key("alg_bw")
	j.float(p.AlgBW)
	j.key("bus_bw")
	j.float(p.BusBW)
	j.key("nwrong")
	if p.Wrong < 0 {
		j.null()
	} else {
		j.int(p.Wrong)
	}
}

func writeIter(j *jsonWriter, s *IterStats) {
	j.key("skipped_iterations")
	j.int(int64(s.Skipped))
	for _, f := range []struct {
		name string
		v    float64
	}{
		{"min_us", s.Min}, {"max_us", s.Max}, {"avg_us", s.Mean}, {"p50_us", s.P50}, {"p95_us", s.P95},
		{"p99_us", s.P99}, {"stdev_us", s.Stdev}, {"cv_pct", s.CV},
	} {
		j.key(f.name)
		j.float(f.v)
	}
	j.key("times_us")
	j.floats(s.Times)
	if s.byProcess != nil {
		j.key("per_process_max_times_us")
		j.array(func() {
			for _, row := range s.byProcess {
				j.floats(row)
			}
		})
	}
}
