package driver

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/assay-hpc/assay/build/state"
)

// times records how long steps took in earlier builds on this machine, by their names in the
// display. A step's name contains its component, version and architecture.
type times map[string]stepTimes

type stepTimes struct {
	Seconds []float64 `json:"seconds"` // the newest last
	Last    time.Time `json:"last"`    // when the newest was recorded
}

const (
	timesFile = "times.json"
	timesKept = 5                    // of one step
	timesAge  = 365 * 24 * time.Hour // a step that was not built for this long is dropped
)

type timesDocument struct {
	Version int   `json:"version"`
	Steps   times `json:"steps"`
}

// readTimes returns an empty map if there was no build yet.
func readTimes(stateDir string) (times, error) {
	file := filepath.Join(stateDir, timesFile)
	text, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		return times{}, nil
	}
	if err != nil {
		return nil, err
	}
	var d timesDocument
	if err := json.Unmarshal(text, &d); err != nil {
		return nil, fmt.Errorf("%s: %w; remove the file, which the next build writes anew", file, err)
	}
	if d.Version != 1 || d.Steps == nil {
		return times{}, nil // written by another version of assay
	}
	return d.Steps, nil
}

// rememberTimes adds the times of one build. Other builds may do so at the same time.
func rememberTimes(stateDir string, took map[string][]time.Duration) error {
	if len(took) == 0 {
		return nil
	}
	if err := os.MkdirAll(stateDir, 0o755); err != nil {
		return err
	}
	one, err := state.Lock(context.Background(), filepath.Join(stateDir, timesFile+".lock"), nil)
	if err != nil {
		return err
	}
	defer one.Close()
	all, err := readTimes(stateDir)
	if err != nil {
		all = times{} // a damaged file is discarded
	}
	all.add(took, time.Now().UTC())
	text, err := json.Marshal(timesDocument{1, all})
	if err != nil {
		return err
	}
	tmp, err := state.CreatePart(stateDir)
	if err != nil {
		return err
	}
	defer tmp.Close()
	if _, err := tmp.Write(text); err != nil {
		return errors.Join(err, os.Remove(tmp.Name()))
	}
	return errors.Join(tmp.Chmod(0o644), os.Rename(tmp.Name(), filepath.Join(stateDir, timesFile)))
}

func (ts times) add(took map[string][]time.Duration, now time.Time) {
	for name, list := range took {
		t := ts[name]
		for _, d := range list {
			t.Seconds = append(t.Seconds, float64(d.Milliseconds())/1000)
		}
		t.Seconds = t.Seconds[max(0, len(t.Seconds)-timesKept):]
		t.Last = now
		ts[name] = t
	}
	for name, t := range ts {
		if now.Sub(t.Last) > timesAge {
			delete(ts, name)
		}
	}
}

// together returns the median of a step plus the medians of the steps that belong to it.
func (ts times) together(step string, with ...string) *float64 {
	sum := ts.median(step)
	for _, name := range with {
		if m := ts.median(name); m != nil && sum != nil {
			*sum += *m
		}
	}
	return sum
}

// median returns how long a step took, in seconds; nil if it was never built here.
func (ts times) median(name string) *float64 {
	list := slices.Sorted(slices.Values(ts[name].Seconds))
	if len(list) == 0 {
		return nil
	}
	m := (list[(len(list)-1)/2] + list[len(list)/2]) / 2
	return &m
}
