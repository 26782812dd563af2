package history

import (
	"encoding/binary"
	"encoding/json"
	"io"
	"math"
	"testing"
	"time"

	"github.com/assay-hpc/assay/internal/certificate/certificatetest"
	"github.com/assay-hpc/assay/internal/result"
)

// FuzzHistory: whatever was measured, and whenever, the history can be written as text and as JSON.
func FuzzHistory(f *testing.F) {
	values := func(v ...float64) (b []byte) {
		for _, x := range v {
			b = binary.LittleEndian.AppendUint64(b, math.Float64bits(x))
		}
		return b
	}
	f.Add(values(1, 1, 1, 1, 2, 2, 2, 2, 2), uint8(1), uint8(24))
	f.Add(values(0, 0, 0, 0, 5, 5, 5, 0, 0, 5), uint8(5), uint8(1))
	f.Add(values(1e308, -1e308, 1e308, 5e-324, 0, math.Copysign(0, -1), 1e300, 1e-300, 1e308, 1e308), uint8(2), uint8(0))
	f.Add(values(-1, -2, -1, -2, -1, -2, -9, -9, -9, -9, -9, -9), uint8(4), uint8(7))
	f.Add(values(1e300, 1e300, 1e300, 1e300, 1e300, 1e300, 1e-300, 1e-300, 1e-300, 1e-300, 1e-300), uint8(1), uint8(24))
	f.Fuzz(func(t *testing.T, data []byte, things, hours uint8) {
		n := int(things%6) + 1
		c := NewCollector(Options{})
		for day := 0; len(data) >= 8 && day < 40; day++ {
			st := certificatetest.Node(1)
			p := &st.Predicate
			p.Finished = p.Finished.Add(time.Duration(day) * time.Duration(hours) * time.Hour)
			p.Started = p.Started.Add(time.Duration(day)) // another certificate, also if it was finished at the same time
			r := result.Result{ID: "x", Verdict: result.Pass}
			for i := range n {
				if len(data) < 8 {
					break
				}
				v := math.Float64frombits(binary.LittleEndian.Uint64(data))
				data = data[8:]
				if math.IsNaN(v) || math.IsInf(v, 0) {
					continue
				}
				r.Objects = append(r.Objects, result.Object{Name: gpuName(i), Verdict: result.Pass, Measured: &result.Measurement{Value: v, Unit: "u"}})
			}
			p.Results = []result.Result{r}
			c.Add(st)
		}
		h := c.History()
		if _, err := json.Marshal(h); err != nil {
			t.Fatal(err)
		}
		if err := h.WriteText(io.Discard, TextOptions{Verbose: true}); err != nil {
			t.Fatal(err)
		}
	})
}

func gpuName(i int) string { return "GPU " + string(rune('0'+i)) }
