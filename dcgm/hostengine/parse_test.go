package hostengine

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/assay-hpc/assay/internal/result"
)

func fixture(t testing.TB, name string) []byte {
	t.Helper()
	b, err := os.ReadFile(filepath.Join("testdata", name))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// told is a document in a few lines.
func told(d *Document) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s, %s\n", d.Version, d.Driver)
	for _, t := range d.Tests {
		fmt.Fprintf(&b, "%s %s %s %s\n", t.Category, t.Test, t.Status, t.Reason)
		for _, f := range t.Findings {
			fmt.Fprintf(&b, "  %d %s %s | %s\n", f.GPU, f.Status, f.Text, f.Remedy)
		}
	}
	return b.String()
}

// TestParse: the forms that DCGM's versions have.
func TestParse(t *testing.T) {
	for _, tt := range []struct{ file, want string }{
		{"4.2-fail.json", `4.2.3, 580.95.05
Deployment software warn 
  1 warn Persistence mode for GPU 1 is disabled. (DCGM error 29) | correct the machine's configuration
Hardware memory fail 
  1 fail GPU 1 had uncorrectable memory errors. (DCGM error 52) | take the GPU out of service; if a run after a restart finds it again, replace it
Hardware diagnostic skip Test diagnostic is not allowed for this GPU.
Integration pcie fail 
  -1 fail CPU 0: DCGM says Paused, and not why | 
Stress targeted_power fail 
  -1 fail The test did not start. (DCGM error 200) | 
`},
		{"3.3.json", `3.3.5, 535.161.08
Deployment software warn 
  0 warn Persistence Mode: Persistence mode is off. (DCGM error 29) | correct the machine's configuration
Integration pcie pass 
Hardware memory fail 
  1 fail Memory mismatch. (DCGM error 58) | take the GPU out of service; if a run after a restart finds it again, replace it
Hardware pulse_test skip 
`},
		{"2.4.json", `, 
Deployment software fail 
  -1 fail Environment Variables: CUDA_PROFILE is set. | 
Stress targeted_stress fail 
  2 fail Too slow. | 
  2 fail Too hot. | 
`},
		{"4.4-pass.json", "4.4.1, 580.95.05\nDeployment software pass \nHardware memory pass \n"},
	} {
		d, err := parse(fixture(t, tt.file))
		if err != nil {
			t.Errorf("%s: %v", tt.file, err)
		} else if got := told(d); got != tt.want {
			t.Errorf("%s:\n%s\nwant\n%s", tt.file, got, tt.want)
		}
	}
}

// TestParseErrors: what is no document is no pass.
func TestParseErrors(t *testing.T) {
	for text, want := range map[string]string{
		"":                          "no JSON",
		"Error: no host engine":     "no JSON",
		"{":                         "unexpected EOF",
		"{}":                        `neither "DCGM Diagnostic" nor`,
		`{"DCGM Diagnostic": {}}`:   "has no test",
		`{"DCGM Diagnostic": null}`: "neither",
		`{"DCGM Diagnostic": {"version": "4.2.3", "runtime_error": "it takes root"}}`:                                    "dcgmi: it takes root",
		`{"DCGM GPU Diagnostic": {"test_categories": [{"tests": [null]}]}}`:                                              "has no test",
		`{"DCGM GPU Diagnostic": {"test_categories": [{"tests": [{"name": "PCIe", "results": [{"warnings": [[]]}]}]}]}}`: "what dcgmi printed: json",
	} {
		if d, err := parse([]byte(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %+v, %v; want %q", text, d, err, want)
		}
	}
}

// FuzzParse: what is taken has tests, with names and statuses; one that passes has
// no failure in it.
func FuzzParse(f *testing.F) {
	for _, name := range []string{"4.2-fail.json", "3.3.json", "2.4.json", "4.4-pass.json"} {
		f.Add(fixture(f, name))
	}
	f.Add([]byte(`{"DCGM Diagnostic": {"test_categories": [{"tests": [{"name": "x", "results": [{"status": "Fail", "entity_id": -1, "warnings": [null, 7, {}]}]}]}]}}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		d, err := parse(b)
		if err != nil {
			return
		}
		if len(d.Tests) == 0 {
			t.Error("no test")
		}
		for _, r := range d.Tests {
			if r.Test == "" || result.Worst(r.Status, result.Skip) != r.Status {
				t.Errorf("%+v", r)
			}
			for _, x := range r.Findings {
				if result.Worst(r.Status, x.Status) != r.Status {
					t.Errorf("%s, and found %+v", r.Status, x)
				}
			}
		}
	})
}
