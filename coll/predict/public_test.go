package predict

import (
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"go.yaml.in/yaml/v3"

	"github.com/assay-hpc/assay/internal/platform"
	"github.com/assay-hpc/assay/internal/stat"
)

// A publicTable is an entry of testdata/public.yaml.
type publicTable struct {
	Use        string `yaml:"use"`
	Collective string `yaml:"collective"`
	GPU        string `yaml:"gpu"`
	PerNode    int    `yaml:"per_node"`
	Domain     int    `yaml:"domain"`
	Nodes      int    `yaml:"nodes"`
	GPUs       int    `yaml:"gpus"`
	PerProcess int    `yaml:"per_process"`
	NICs       struct {
		Count, Gbit int
		Kind        string
	} `yaml:"nics"`
	Source string       `yaml:"source"`
	Rows   [][2]float64 `yaml:"rows"`
}

// hardware is a file of one's own with the table's machine.
func (p publicTable) hardware() string {
	text := fmt.Sprintf("platforms:\n  mine:\n    gpu: %s\n    gpus_per_node: %d\n", p.GPU, p.PerNode)
	if p.Domain > 0 {
		text += fmt.Sprintf("    gpus_per_domain: %d\n", p.Domain)
	}
	if p.NICs.Count > 0 {
		text += fmt.Sprintf("    nics: {count: %d, gbit_each: %d, kind: %s}\n", p.NICs.Count, p.NICs.Gbit, p.NICs.Kind)
	}
	return text
}

// TestPublic predicts tables that people have published, each for a machine that a file describes. What docs/predict.md states
// of them is held: the errors of those that nothing was chosen by, and how many lie in the range.
func TestPublic(t *testing.T) {
	text, err := os.ReadFile("testdata/public.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var tables []publicTable
	if err := yaml.Unmarshal(text, &tables); err != nil {
		t.Fatal(err)
	}
	type class struct {
		errors []float64
		within int
	}
	classes := map[string]*class{}
	file := filepath.Join(t.TempDir(), "mine.yaml")
	for i, p := range tables {
		file := fmt.Sprintf("%s%d.yaml", file, i) // the database is read anew for each name
		if err := os.WriteFile(file, []byte(p.hardware()), 0o600); err != nil {
			t.Fatal(err)
		}
		t.Setenv(platform.OwnFile, file)
		db, err := platform.Load()
		if err != nil {
			t.Fatal(err)
		}
		c, ok := CollectiveOf(p.Collective)
		if !ok {
			t.Fatalf("%s: no model", p.Collective)
		}
		pr, err := NewPredictor(db, Job{Platform: "mine", GPUs: p.GPUs, Nodes: p.Nodes, Collective: c, PerProcess: p.PerProcess}, DefaultFitted)
		if err != nil {
			t.Fatalf("%s, %d GPUs: %v", p.Source, p.GPUs, err)
		}
		var own []float64
		for _, r := range p.Rows {
			got, err := pr.Predict(int64(r[0]))
			if err != nil {
				t.Fatal(err)
			}
			e := math.Abs(got.Time.Seconds()*1e6/r[1] - 1)
			own = append(own, e)
			size := "large"
			if r[0] <= smallSizes {
				size = "small"
			}
			kind := "rings and trees"
			if exchanged(c) {
				kind = "Sends and Recvs"
			}
			key := p.Use + ", " + kind + ", " + size
			if classes[key] == nil {
				classes[key] = &class{}
			}
			classes[key].errors = append(classes[key].errors, e)
			if bus := got.BusBW.of(r[1], got); bus >= got.Low && bus <= got.High {
				classes[key].within++
			}
		}
		t.Logf("%s %-14s %-11s %2d nodes, %3d GPUs: median %4.1f %%, max %5.1f", p.Use, p.Collective, p.GPU, p.Nodes, p.GPUs, 100*stat.Median(own), 100*slices.Max(own))
	}
	for key, want := range map[string]struct{ median, within float64 }{
		"held, rings and trees, small": {0.15, 0.88}, "held, rings and trees, large": {0.05, 0.88},
		"held, Sends and Recvs, small": {0.15, 0.88}, "held, Sends and Recvs, large": {0.04, 0.88},
	} {
		c := classes[key]
		if c == nil {
			t.Fatalf("%s: no row", key)
		}
		slices.Sort(c.errors)
		n := len(c.errors)
		median, within := c.errors[n/2], float64(c.within)/float64(n)
		t.Logf("%s: %d rows, median %.1f %%, nine of ten below %.1f, worst %.1f; %.0f %% in the range", key, n, 100*median, 100*c.errors[n*9/10], 100*c.errors[n-1], 100*within)
		if median > want.median || within < want.within {
			t.Errorf("%s: median %.3f, %.2f in the range; docs say %.2f, %.2f", key, median, within, want.median, want.within)
		}
	}
	for key, c := range classes {
		if key[:3] == "fit" {
			t.Logf("%s: %d rows, median %.1f %%", key, len(c.errors), 100*stat.Median(c.errors))
		}
	}
}

// of returns the bus bandwidth that a row has by its time.
func (b BytesPerSec) of(us float64, p Prediction) BytesPerSec {
	return b * BytesPerSec(p.Time.Seconds()*1e6/us)
}
