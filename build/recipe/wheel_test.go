package recipe

import (
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"
)

// TestParseReport reads what pip 23.2 reported, shortened by what is not read.
func TestParseReport(t *testing.T) {
	text, err := os.ReadFile("testdata/pip-report.json")
	if err != nil {
		t.Fatal(err)
	}
	got, err := ParseReport(text)
	want := []Wheel{
		{"setuptools", "66.1.1", "https://wheels.example.org/files/setuptools-66.1.1-py3-none-any.whl", "ef1f3a7bf4474ec7d4dc1e4108fd3f3188d432242da6fa2708155fd2189642a8"},
		{"siteagent", "1.2.0", "https://wheels.example.org/files/siteagent-1.2.0-py3-none-any.whl", "302affc3a0e4a58b30c099c057b5394f4a8a70b82a19fc2cd770a3fb5dc76f13"},
	}
	if err != nil || !slices.Equal(got, want) {
		t.Errorf("ParseReport = %v, %v; want %v", got, err, want)
	}
	// pip 22 has the checksum in the older key alone, and an index may state none.
	old := strings.ReplaceAll(string(text), `"hashes"`, `"x"`)
	if got, err := ParseReport([]byte(old)); err != nil || !slices.Equal(got, want) {
		t.Errorf("ParseReport of an older pip = %v, %v", got, err)
	}
	none := strings.ReplaceAll(old, `"hash"`, `"y"`)
	if got, err := ParseReport([]byte(none)); err != nil || len(got) != 2 || got[0].SHA256 != "" {
		t.Errorf("ParseReport without checksums = %v, %v", got, err)
	}
	for bad, want := range map[string]string{
		"":                                `pip's report: `,
		"ERROR: no matching distribution": `pip's report: `,
		`{"version": "2", "install": []}`: `the format "2"`,
		`{"install": []}`:                 `the format ""`,
	} {
		if _, err := ParseReport([]byte(bad)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("ParseReport(%q): %v; want %q", bad, err, want)
		}
	}
}

func TestWheelFile(t *testing.T) {
	sum := strings.Repeat("0a", 32)
	for at, want := range map[string]string{
		"https://download.example.org/whl/cu130/torch-2.9.0%2Bcu130-cp312-cp312-manylinux_2_28_x86_64.whl": "torch-2.9.0+cu130-cp312-cp312-manylinux_2_28_x86_64.whl",
		"https://x.example.org/numpy-2.1.0-cp312-cp312-manylinux_2_17_x86_64.manylinux2014_x86_64.whl":     "numpy-2.1.0-cp312-cp312-manylinux_2_17_x86_64.manylinux2014_x86_64.whl",
		"https://x.example.org/epoch-1!2.0-py3-none-any.whl":                                               "epoch-1!2.0-py3-none-any.whl",
	} {
		w := Wheel{"a", "1", at, sum}
		if err := w.Validate(); err != nil || w.File() != want {
			t.Errorf("File of %s = %q, %v; want %q", at, w.File(), err, want)
		}
	}
	good := Wheel{"torch", "2.9.0+cu130", "https://x.example.org/torch-1-py3-none-any.whl", sum}
	for field, values := range map[string][]string{
		"Name":    {"", "../x", "a b", "-e", "$(id)", "a\n"},
		"Version": {"", "1;id", "-1", "1 2"},
		"SHA256":  {"", "00", sum + "00", strings.ToUpper(sum)},
		"URL":     {"", "https://x.example.org/a.tar.gz", "https://x.example.org/..%2f..%2fetc%2fx.whl", "https://me:secret@x.example.org/a-1-py3-none-any.whl", "file:///a-1-py3-none-any.whl", "https://x.example.org/-a.whl"},
	} {
		for _, v := range values {
			w := good
			reflect.ValueOf(&w).Elem().FieldByName(field).SetString(v)
			if err := w.Validate(); err == nil {
				t.Errorf("Validate accepts %s %q", field, v)
			}
		}
	}
}

// TestWheelsRequest: a set is asked for again if its index, its requirements or the stage whose Python
// answers has changed.
func TestWheelsRequest(t *testing.T) {
	stage := sample().Stages[0]
	want := WheelsRequest(stage, "https://x/simple", "torch==2.9.0\n")
	renamed, other := stage, stage
	renamed.Name, other.From.Digest = "other", "sha256:"+strings.Repeat("99", 32)
	if WheelsRequest(renamed, "https://x/simple", "torch==2.9.0\n") != want {
		t.Error("the stage's name changes the request")
	}
	for what, got := range map[string]string{
		"index":        WheelsRequest(stage, "https://y/simple", "torch==2.9.0\n"),
		"requirements": WheelsRequest(stage, "https://x/simple", "torch==2.9.1\n"),
		"base":         WheelsRequest(other, "https://x/simple", "torch==2.9.0\n"),
		"stage below":  WheelsRequest(stage, "https://x/simple", "torch==2.9.0\n", other),
	} {
		if got == want {
			t.Errorf("another %s has the same request", what)
		}
	}
}

func FuzzParseReport(f *testing.F) {
	text, err := os.ReadFile("testdata/pip-report.json")
	if err != nil {
		f.Fatal(err)
	}
	f.Add(text)
	f.Fuzz(func(t *testing.T, text []byte) {
		wheels, err := ParseReport(text)
		for _, w := range wheels {
			if err == nil && w.Validate() == nil && (strings.Contains(w.File(), "/") || w.File() == "" || strings.HasPrefix(w.File(), "-")) {
				t.Errorf("a valid wheel has the file %q", w.File())
			}
		}
	})
}
