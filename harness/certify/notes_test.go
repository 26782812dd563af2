package certify

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/assay-hpc/assay/internal/certificate"
	"github.com/assay-hpc/assay/internal/result"
)

// TestTimes: a run whose clock was set back has a certificate with the time that it took.
func TestTimes(t *testing.T) {
	began := time.Now()
	for _, tt := range []struct {
		name string
		n    notes
		now  time.Time
		took time.Duration
	}{
		{name: "a run", n: notes{began: began}, now: began.Add(time.Minute), took: time.Minute},
		{name: "a resumed run", n: notes{began: began, before: time.Hour}, now: began.Add(time.Minute), took: time.Hour + time.Minute},
		{name: "a clock without a monotonic one, set back", n: notes{began: began.Round(0)}, now: began.Round(0).Add(-time.Hour)},
	} {
		started, finished := tt.n.times(tt.now)
		if !finished.Equal(tt.now) || finished.Sub(started) != tt.took {
			t.Errorf("%s: from %v to %v; want %v until %v", tt.name, started, finished, tt.took, tt.now)
		}
		st := certificate.New(certificate.Predicate{Suite: "x", Started: started, Finished: finished, Results: []result.Result{}})
		if _, err := st.Marshal(); err != nil {
			t.Errorf("%s: %v", tt.name, err)
		}
	}
}

// TestResumeAfterClock: notes of a run that seems to have begun in the future are those of a clock
// that was set back.
func TestResumeAfterClock(t *testing.T) {
	for _, ahead := range []time.Duration{-time.Hour, 0, time.Hour, 365 * 24 * time.Hour} {
		name := filepath.Join(t.TempDir(), notesFile)
		began := time.Now()
		head, err := json.Marshal(noted{"same", began.Add(ahead)})
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, append(head, '\n'), 0o600); err != nil {
			t.Fatal(err)
		}
		n := notes{began: began}
		if err := n.read(name, "same"); err != nil {
			t.Fatal(err)
		}
		started, finished := n.times(began.Add(time.Minute))
		if took, want := finished.Sub(started).Round(time.Second), time.Minute+max(0, -ahead); took != want {
			t.Errorf("%v ahead: it took %v; want %v", ahead, took, want)
		}
	}
}
