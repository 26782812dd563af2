package diag

import (
	"sync"
	"time"

	"github.com/assay-hpc/assay/internal/host/nvml"
	"github.com/assay-hpc/assay/internal/result"
)

// watchEvery is the time between two readings of all GPUs.
const watchEvery = 200 * time.Millisecond

// watched contains the readings of a GPU under load.
type watched struct {
	n       int
	celsius int     // the highest
	watts   float64 // the highest
	limit   float64
	mhz     int // the lowest
	sum     float64
	reasons nvml.Reasons // all that occurred
	err     error
}

func (w *watched) add(r nvml.Reading) {
	w.n++
	w.celsius, w.watts, w.limit = max(w.celsius, r.Celsius), max(w.watts, r.Watts), r.LimitWatts
	if w.mhz == 0 || r.MHz < w.mhz {
		w.mhz = r.MHz
	}
	w.sum += float64(r.MHz)
	w.reasons |= r.Reasons
}

// watch reads the sensors of the job's GPUs until the returned function is called. That function
// reports the readings, and passes them to judge if it is not nil. Without sensors it only adds a
// finding that nothing was watched.
func (j *job) watch() func(judge func(GPU, watched)) {
	if j.sensors == nil {
		why := j.noSensor
		return func(func(GPU, watched)) {
			j.findf(noGPU, result.Skip, "", "clocks, power and temperature were not watched: %v", why)
		}
	}
	seen := make([]watched, len(j.gpus))
	over := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		tick := time.NewTicker(watchEvery)
		defer tick.Stop()
		for {
			select {
			case <-over:
				return
			case <-tick.C:
			}
			for i, g := range j.gpus {
				if r, err := j.sensors.Read(g.Bus); err != nil {
					seen[i].err = err
				} else {
					seen[i].add(r)
				}
			}
		}
	})
	return func(judge func(GPU, watched)) {
		close(over)
		wg.Wait()
		for i, g := range j.gpus {
			j.watched(g, seen[i])
			if judge != nil {
				judge(g, seen[i])
			}
		}
	}
}

// watched reports the readings of one GPU.
func (j *job) watched(g GPU, w watched) {
	if w.n == 0 {
		if w.err != nil {
			j.findf(g.Index, result.Error, "", "its sensors cannot be read: %v", w.err)
		}
		return
	}
	for _, f := range []figure{
		g.figure("highest temperature", float64(w.celsius), "°C"),
		g.figure("highest power", w.watts, "W"),
		g.figure("mean clock", w.sum/float64(w.n), "MHz"),
	} {
		if f.Measured.Value > 0 {
			j.measure(f, "")
		}
	}
	const (
		remedy = "look at cooling, power supplies and temperatures (nvidia-smi -q -d TEMPERATURE,POWER,PERFORMANCE)"
		held   = nvml.HardwareSlowdown | nvml.ThermalSlowdown
	)
	switch {
	case w.reasons&nvml.HardwareSlowdown != 0:
		j.findf(g.Index, result.Fail, remedy, "clocks were held down under load: %s; the lowest was %d MHz", w.reasons&held, w.mhz)
	case w.reasons&nvml.ThermalSlowdown != 0:
		j.findf(g.Index, result.Warn, remedy, "clocks were held down under load: %s; the lowest was %d MHz", w.reasons&held, w.mhz)
	}
}
