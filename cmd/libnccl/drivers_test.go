package main

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/assay-hpc/assay/internal/gputest"
)

// A situation is a machine without a device, with libraries of a driver's or without.
type situation struct {
	dir  string // of its libraries; "": there are none
	env  string // makes the loader find it
	cuda string // reason of whoever needs libcuda.so.1
	nvml string // the same of libnvidia-ml.so.1
}

// drivers are what TestDrivers knows of a version of the libraries.
var drivers = map[string]struct {
	cuda  int      // what cuDriverGetVersion says
	lacks []string // functions of names.h that it does not have, and that are not needed
}{
	"libnvidia-compute-535-server": {12020, []string{"cuFuncLoad"}},
	"libnvidia-compute-580-server": {13000, nil},
	"libnvidia-compute-595-server": {13020, nil},
	"libnvidia-compute-615-server": {13040, nil},
}

// TestDrivers: with the libraries of NVIDIA's drivers, where there is no device, and without a library
// all programs say what is missing. ASSAY_TEST_DRIVERS is a directory with one for each version, which
// .ci/drivers makes.
func TestDrivers(t *testing.T) {
	from := os.Getenv("ASSAY_TEST_DRIVERS")
	if from == "" {
		t.Skip("ASSAY_TEST_DRIVERS is not set: make test ONLY=drivers")
	}
	if _, err := os.Stat("/proc/driver/nvidia/version"); err == nil {
		t.Skip("this machine has NVIDIA's driver")
	}
	dir := engine(t)
	harness := filepath.Join(t.TempDir(), "harness")
	goBuild(t, "cuda nvml urfave_cli_no_docs", "-o", harness, "../harness")
	libraries := filepath.Join(t.TempDir(), "libraries")
	gputest.Tool(t, "gcc", "-Wall", "-o", libraries, "testdata/libraries.c", "-ldl")
	calls := program(t, dir, "nodevice")
	situations := map[string]situation{"none": {"", hidden(t), "libcuda.so.1: cannot open shared object file: No such file or directory", "libnvidia-ml.so.1 cannot be loaded"}}
	all, err := filepath.Glob(filepath.Join(from, "*"))
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range all {
		const unloaded = " is there, the kernel's driver is not loaded"
		situations[filepath.Base(d)] = situation{d, "LD_LIBRARY_PATH=" + d, "libcuda.so.1" + unloaded, "libnvidia-ml.so.1" + unloaded}
	}
	for name, d := range situations {
		t.Run(name, func(t *testing.T) {
			if d.dir != "" {
				testLibraries(t, name, d, libraries)
			}
			testPrograms(t, d, harness)
			noDevice(t, calls, "no NVIDIA driver: "+d.cuda, d.env)
		})
	}
}

// testLibraries: a driver has the functions that ours call, and answers as known.
func testLibraries(t *testing.T, name string, d situation, program string) {
	of, _, _ := strings.Cut(name, "_")
	known, ok := drivers[of]
	if !ok {
		t.Fatalf("%s is not in the table", name)
	}
	has := exported(t, filepath.Join(d.dir, "libcuda.so.1"))
	for _, n := range cudaCalls(t) {
		if slices.Contains(has, n) == slices.Contains(known.lacks, n) {
			t.Errorf("%s: the table and the library do not agree", n)
		}
	}
	has = exported(t, filepath.Join(d.dir, "libnvidia-ml.so.1"))
	for _, n := range nvmlCalls(t) {
		if !slices.Contains(has, n) {
			t.Errorf("the library has no %s, and package nvml calls it without asking for it first", n)
		}
	}
	cmd := exec.Command(program)
	cmd.Env = append(os.Environ(), d.env)
	out, err := cmd.CombinedOutput()
	want := fmt.Sprintf("cuDriverGetVersion 0 %d\ncuInit 100\ncuDeviceGetCount 3\nnvmlInit_v2 9\n", known.cuda)
	if err != nil || string(out) != want {
		t.Errorf("%v\n%swant\n%s", err, out, want)
	}
}

// testPrograms: what commands of the harness answer.
func testPrograms(t *testing.T, d situation, harness string) {
	out := t.TempDir()
	cuda, nvml := "no NVIDIA driver: "+d.cuda, "NVML cannot be used: "+d.nvml
	for _, c := range []struct {
		command string
		status  int
		says    string // a part of standard output
		error   string // all of standard error; "*": anything
	}{
		{"version", 0, "\nGPUs: skipped: " + cuda + "\n", ""},
		{"show topology", 0, "There are no GPUs.\nGPUs: skipped: " + nvml + "\n", ""},
		{"coll all_reduce -b 8 -e 8 -n 1 -w 0", 0, "# Out of bounds values : 0 OK\n", ""},
		{"coll all_reduce --device gpu", 3, "", "harness: coll: --device gpu: " + cuda + "\n"},
		{"bandwidth", 3, "", "harness: " + cuda + "\n"},
		{"diag", 3, "", "harness: " + cuda + "\n"},
		{"health --only driver/nvml", 0, "there is no GPU on PCI; " + nvml + "\n", ""},
		{"certify --suite quick --skip health/node --out " + out, 0, "there is no GPU on PCI; " + nvml, "*"},
	} {
		cmd := exec.Command(harness, strings.Fields(c.command)...)
		cmd.Env = append(os.Environ(), d.env)
		var said, errs bytes.Buffer
		cmd.Stdout, cmd.Stderr = &said, &errs
		err := cmd.Run()
		if cmd.ProcessState.ExitCode() != c.status || !strings.Contains(said.String(), c.says) || c.error != "*" && errs.String() != c.error {
			t.Errorf("harness %s: %v\n%s\n%swant status %d, %q and %q", c.command, err, said.String(), errs.String(), c.status, c.says, c.error)
		}
	}
}

// cudaCalls are the functions of the driver that ours may call, without the guesses of versions.
func cudaCalls(t *testing.T) (names []string) {
	t.Helper()
	for _, m := range regexp.MustCompile(`NAME\((\w+)\)`).FindAllStringSubmatch(read(t, "../../internal/gpu/driver/names.h"), -1) {
		if !regexp.MustCompile(`_v\d$`).MatchString(m[1]) {
			names = append(names, m[1])
		}
	}
	if len(names) < 150 {
		t.Fatalf("names.h has %d names", len(names))
	}
	return names
}

// nvmlCalls are the functions of NVML that package nvml calls through go-nvml, but for those that it
// looks for before.
func nvmlCalls(t *testing.T) []string {
	t.Helper()
	ours := read(t, "../../internal/host/nvml/*.go")
	module, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", "github.com/NVIDIA/go-nvml").Output()
	if err != nil {
		t.Fatal(err)
	}
	theirs := read(t, filepath.Join(strings.TrimSpace(string(module)), "pkg/nvml/*.go"))
	body := map[string]string{} // of go-nvml's functions, and methods of the library and of a device
	for _, m := range regexp.MustCompile(`(?ms)^func (?:\((?:l \*library|device nvmlDevice)\) )?(\w+)\([^\n]*\{\n(.*?)^\}`).FindAllStringSubmatch(theirs, -1) {
		if _, ok := body[m[1]]; !ok || strings.HasPrefix(m[0], "func (") {
			body[m[1]] = m[2]
		}
	}
	for _, m := range regexp.MustCompile(`(?m)^var (\w+) = (\w+_v1)$`).FindAllStringSubmatch(theirs, -1) {
		body[m[1]] = m[2] // replaced by a later version if the library has it
	}
	seen, symbols := map[string]bool{}, []string{}
	var follow func(name string)
	follow = func(name string) {
		if seen[name] {
			return
		}
		seen[name] = true
		for _, m := range regexp.MustCompile(`\bC\.(nvml[A-Z]\w*)\(|\b((?:nvml|device)[A-Z]\w*)`).FindAllStringSubmatch(body[name], -1) {
			if m[1] != "" {
				symbols = append(symbols, m[1])
			}
			follow(m[2])
		}
	}
	for _, m := range regexp.MustCompile(`\.([A-Z]\w*)`).FindAllStringSubmatch(ours, -1) {
		follow(m[1])
	}
	if len(symbols) < 40 {
		t.Fatalf("package nvml calls %v", symbols)
	}
	return slices.DeleteFunc(symbols, func(n string) bool { return strings.Contains(ours, `"`+n+`"`) })
}

// read returns the text of files that are no tests.
func read(t *testing.T, pattern string) string {
	t.Helper()
	files, err := filepath.Glob(pattern)
	if err != nil || len(files) == 0 {
		t.Fatalf("%s: %v, %v", pattern, files, err)
	}
	var text strings.Builder
	for _, f := range files {
		if strings.HasSuffix(f, "_test.go") || strings.HasSuffix(f, "_mock.go") {
			continue
		}
		b, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		text.Write(b)
	}
	return text.String()
}
