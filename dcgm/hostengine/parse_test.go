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
func told(by versions, tests []result.Result) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s\n", by)
	for _, t := range tests {
		fmt.Fprintf(&b, "%s %s: %s | %s\n", t.ID, t.Verdict, t.Reason, t.Remedy)
	}
	return b.String()
}

// TestParse: the forms that DCGM's versions have.
func TestParse(t *testing.T) {
	for _, tt := range []struct{ file, want string }{
		{"4.2-fail.json", `version 4.2.3, driver 580.95.05
dcgm/software warn: GPU 1 as dcgm counts: Persistence mode for GPU 1 is disabled. (DCGM error 29) | correct the machine's configuration
dcgm/memory fail: GPU 1 as dcgm counts: GPU 1 had uncorrectable memory errors. (DCGM error 52) | take the GPU out of service; if a run after a restart finds it again, replace it
dcgm/diagnostic skip: Test diagnostic is not allowed for this GPU. | 
dcgm/pcie fail: CPU 0: DCGM says Paused, and not why | 
dcgm/targeted_power fail: The test did not start. (DCGM error 200) | 
`},
		{"3.3.json", `version 3.3.5, driver 535.161.08
dcgm/software warn: GPU 0 as dcgm counts: Persistence Mode: Persistence mode is off. (DCGM error 29) | correct the machine's configuration
dcgm/pcie pass: 1 GPU | 
dcgm/memory fail: GPU 1 as dcgm counts: Memory mismatch. (DCGM error 58) | take the GPU out of service; if a run after a restart finds it again, replace it
dcgm/pulse_test skip:  | 
`},
		{"2.4.json", `
dcgm/software fail: Environment Variables: CUDA_PROFILE is set. | 
dcgm/targeted_stress fail: GPU 2 as dcgm counts: Too slow.; GPU 2 as dcgm counts: Too hot. | 
`},
		{"4.4-pass.json", "version 4.4.1, driver 580.95.05\ndcgm/software pass: 1 GPU | \ndcgm/memory pass: 1 GPU | \n"},
	} {
		by, tests, err := parse(fixture(t, tt.file))
		if err != nil {
			t.Errorf("%s: %v", tt.file, err)
		} else if got := told(by, tests); got != tt.want {
			t.Errorf("%s:\n%s\nwant\n%s", tt.file, got, tt.want)
		}
	}
}

// TestCollect: outcomes of one test on several GPUs.
func TestCollect(t *testing.T) {
	const pass, fail, skip = `{"entity_id": 0, "status": "Pass"}`, `{"entity_id": 1, "status": "Fail", "warnings": [{"warning": "Wrong.", "error_severity": 6}]}`,
		`{"entity_id": 2, "status": "Skip", "info": ["Not here.", "Nor there."]}`
	const all = `{"entity_id": -1, "status": "Fail", "warnings": ["All."]}`
	const warn, worse = `{"entity_id": 3, "status": "Warn", "warnings": [{"warning": "Odd.", "error_severity": 5}]}`, `{"entity_id": 1, "status": "Fail"}`
	for _, tt := range []struct {
		outcomes []string
		want     string
	}{
		{[]string{skip}, "skip: Not here. | "},
		{[]string{all}, "fail: All. | "},
		{[]string{skip, pass}, "pass: 1 GPU | "},
		{[]string{pass, pass, `{"entity_id": 4, "status": "Pass"}`}, "pass: 2 GPUs | "},
		{[]string{`{"gpu_ids": "0,1,2,3", "status": "PASS"}`}, "pass: 4 GPUs | "},
		{[]string{`{"entity_group": "CPU", "entity_id": 0, "status": "Pass"}`}, "pass:  | "},
		{[]string{skip, fail}, "fail: GPU 1 as dcgm counts: Wrong. | reset the GPU, or restart the machine"},
		{[]string{fail, skip}, "fail: GPU 1 as dcgm counts: Wrong. | reset the GPU, or restart the machine"},
		{[]string{warn, fail, pass}, "fail: GPU 3 as dcgm counts: Odd.; GPU 1 as dcgm counts: Wrong. | reset the GPU, or restart the machine"},
		{[]string{fail, warn}, "fail: GPU 1 as dcgm counts: Wrong.; GPU 3 as dcgm counts: Odd. | reset the GPU, or restart the machine"},
		{[]string{warn, worse}, "fail: GPU 3 as dcgm counts: Odd.; GPU 1 as dcgm counts: DCGM says Fail, and not why | "},
	} {
		_, tests, err := parse([]byte(`{"DCGM Diagnostic": {"test_categories": [{"tests": [{"name": "pcie", "results": [` + strings.Join(tt.outcomes, ",") + `]}]}]}}`))
		if got := told(versions{}, tests); err != nil || got != "\ndcgm/pcie "+tt.want+"\n" {
			t.Errorf("%s: %s, %v; want %s", tt.outcomes, got, err, tt.want)
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
		if _, tests, err := parse([]byte(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %+v, %v; want %q", text, tests, err, want)
		}
	}
}

// FuzzParse: what is taken has tests, with names and verdicts; what is bad has a reason.
func FuzzParse(f *testing.F) {
	for _, name := range []string{"4.2-fail.json", "3.3.json", "2.4.json", "4.4-pass.json"} {
		f.Add(fixture(f, name))
	}
	f.Add([]byte(`{"DCGM Diagnostic": {"test_categories": [{"tests": [{"name": "x", "results": [{"status": "Fail", "entity_id": -1, "warnings": [null, 7, {}]}]}]}]}}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		_, tests, err := parse(b)
		if err != nil {
			return
		}
		if len(tests) == 0 {
			t.Error("no test")
		}
		for _, r := range tests {
			if r.ID == Name+"/" || result.Worst(r.Verdict, result.Skip) != r.Verdict || r.Verdict.Bad() && r.Reason == "" {
				t.Errorf("%+v", r)
			}
		}
	})
}
