package main

import (
	"bytes"
	"context"
	"debug/elf"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/assay-hpc/assay/coll/cuda/emutest"
	"github.com/assay-hpc/assay/internal/golden"
	"github.com/assay-hpc/assay/internal/gputest"
)

// library compiles libnccl.so.2 and returns its directory.
func library(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	t.Setenv("CFLAGS", "-Werror")
	gputest.Tool(t, "./build", dir)
	return dir
}

// program compiles a C program of testdata that is linked against the library.
func program(t *testing.T, dir, name string, flags ...string) string {
	t.Helper()
	p := filepath.Join(t.TempDir(), name)
	args := append([]string{"-std=gnu11", "-O1", "-Wall", "-o", p, filepath.Join("testdata", name+".c"), filepath.Join(dir, "libnccl.so.2"), "-Wl,-rpath," + dir, "-pthread"}, flags...)
	gputest.Tool(t, "gcc", args...)
	return p
}

// TestFront: what the C side asks of its engine is what a program asked for.
func TestFront(t *testing.T) {
	dir := library(t)
	gputest.Tool(t, "gcc", "-std=gnu11", "-shared", "-fPIC", "-o", filepath.Join(dir, "libassay-coll.so"), "testdata/fake_engine.c")
	p := program(t, dir, "front")
	run := func(name string, arg []string, env ...string) {
		t.Helper()
		cmd := exec.Command(p, arg...)
		cmd.Env = append(os.Environ(), env...)
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
		golden.Check(t, name+".golden", strings.ReplaceAll(string(out), dir, "DIR"))
	}
	run("front", nil)
	run("other_version", []string{"none"}, "FAKE_ABI=9")
	if err := os.Remove(filepath.Join(dir, "libassay-coll.so")); err != nil {
		t.Fatal(err)
	}
	run("no_engine", []string{"none"})
}

var hung = regexp.MustCompile(`(?m)^libnccl \(assay\): communicator "dp": it stands still: rank 2 \(host \S+, pid \d+, GPU 2\) has not called AllReduce of int32 with sum, 1000 elements, operation #2: its last call was AllReduce of int32 with sum, 1000 elements, operation #1, \d+ s ago \(\S+\.json\)$`)

// engine compiles the library with its engine, and returns their directory.
func engine(t *testing.T) string {
	t.Helper()
	if testing.Short() {
		t.Skip("the engine takes a minute to compile")
	}
	dir := library(t)
	goBuild(t, "cuda urfave_cli_no_docs", "-buildmode=c-shared", "-o", filepath.Join(dir, "libassay-coll.so"), ".")
	return dir
}

// goBuild compiles a package with cgo.
func goBuild(t *testing.T, tags string, args ...string) {
	t.Helper()
	cmd := exec.Command("go", append([]string{"build", "-tags", tags}, args...)...)
	cmd.Env = append(os.Environ(), "CGO_ENABLED=1")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
}

// once says that each program runs once, and not with all settings.
var once = os.Getenv("ASSAY_TEST_ONCE") != ""

// TestEmulated: programs of several ranks, on a driver whose GPUs are emulated.
func TestEmulated(t *testing.T) {
	dir, emulator := engine(t), emutest.Driver(t, "../../coll/cuda")
	t.Run("Ranks", func(t *testing.T) { testRanks(t, emulator, dir) })
	t.Run("Fallback", func(t *testing.T) { testFallback(t, emulator, dir) })
	t.Run("Misuse", func(t *testing.T) { testMisuse(t, emulator, dir) })
	t.Run("Answers", func(t *testing.T) { testAnswers(t, emulator, dir) })
	t.Run("NoDevice", func(t *testing.T) { testNoDevice(t, dir) })
	t.Run("Faults", func(t *testing.T) { testFaults(t, emulator, dir) })
}

// differences says why ours answers some cases otherwise than NVIDIA's library does.
var differences = []struct{ cases, why string }{
	{"all_gather_from_null all_reduce_from_null all_reduce_to_null broadcast_from_null mem_alloc_null reduce_scatter_to_null reduce_to_null", "an argument is NULL that must not be; there, CUDA says so"},
	{"init_all_of_0 premul_null premul_scalar_null register_to_null scalable_of_0", "there, the process crashes"},
	{"premul_type_99", "the argument is wrong, not the library"},
	{"premul_residence_9", "there is no such residence; there, the scalar counts as one on the device"},
	{"config_net_empty config_net_missing set_net_missing", "a setting names a network of NCCL's or of a plugin; ours takes its own, and a job for another cluster runs"},
	{"set_graph_file_missing", "ours reads no file of graphs"},
	{"operation_after_finalize", "NCCL's guide: after ncclCommFinalize a communicator takes no operations"},
	{"pair_abort", "there, the first ncclCommAbort waits for the second one's"},
	{"pair_all_gather_base pair_overlap pair_reduce_scatter_base", "the buffers overlap otherwise than in place: the result depends on which rank is faster"},
	{"send_100_recv_50_to_self", "the lengths differ, and data would be lost"},
	{"unblocked_wrong_call", "a call that is refused changes nothing; there, the communicator has failed"},
	{"signal_handlers", "the Go runtime, which chains those of the program (below)"},
	{"pair_default_stream", "on the emulator alone, which has no default stream; on GPUs the answers are the same"},
}

// testAnswers: what calls return, case by case. answers.golden is what ours gives on the emulator,
// answers.nvidia what NVIDIA's library 2.28.9 gives on two H200, where ./run api asks both. Each
// difference has its reason.
func testAnswers(t *testing.T, emulator, dir string) {
	p := filepath.Join(t.TempDir(), "answers")
	gputest.Tool(t, "gcc", "-std=gnu11", "-O1", "-Wall", "-o", p, "testdata/answers.c", "-ldl", "-pthread")
	cmd := exec.Command(p)
	cmd.Env = append(os.Environ(), "ANSWERS_LIBRARY="+filepath.Join(dir, "libnccl.so.2"), "LD_LIBRARY_PATH="+emulator, "FAKE_DEVICES=2", "ASSAY_HANG_AFTER=0")
	var log bytes.Buffer
	cmd.Stderr = &log
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v\n%s", err, log.String())
	}
	lines := strings.Split(strings.TrimSpace(string(out)), "\n")
	slices.Sort(lines)
	golden.Check(t, "answers.golden", strings.Join(lines, "\n")+"\n")
	b, err := os.ReadFile("testdata/answers.nvidia")
	if err != nil {
		t.Fatal(err)
	}
	ours, theirs, why := answers(lines), answers(strings.Split(string(b), "\n")), map[string]string{}
	var table strings.Builder
	differ := 0
	for _, d := range differences {
		for name := range strings.FieldsSeq(d.cases) {
			why[name] = d.why
			if ours[name] == theirs[name] {
				t.Errorf("%s: the answers are the same, and a reason is given", name)
			}
			fmt.Fprintf(&table, "| `%s` | %s | %s | %s |\n", name, ours[name], theirs[name], d.why)
			differ++
		}
	}
	for name, answer := range ours {
		if other, ok := theirs[name]; !ok {
			t.Errorf("%s: testdata/answers.nvidia does not have it; ./run api of make test-gpu's bundle asks", name)
		} else if answer != other && why[name] == "" {
			t.Errorf("%s: ours answers %q, NVIDIA's %q", name, answer, other)
		}
	}
	golden.Part(t, "../../docs/libnccl.md", "<!-- answers -->\n", "<!-- end of answers -->\n", fmt.Sprintf("Of %d cases, %d have the same answer:\n\n| case | ours | NVIDIA's | why |\n|---|---|---|---|\n%s", len(ours), len(ours)-differ, table.String()))
}

// answers returns the answers by case.
func answers(lines []string) map[string]string {
	all := map[string]string{}
	for _, l := range lines {
		if name, answer, ok := strings.Cut(l, "\t"); ok {
			all[name] = answer
		}
	}
	return all
}

// mixed are measured rules by which the library does what is long.
const mixed = `{"schema":2,"tables":[
{"gpu":"emulator","ranks":2,"collective":"AllReduce","rows":[{"choice":"reduce_ll:1:256:0","took":[[4096,3000]]},{"choice":"nvidia","took":[[0,9000]]}]},
{"gpu":"emulator","ranks":2,"collective":"Broadcast","rows":[{"choice":"nvidia","took":[[100,3000]]},{"choice":"exchange_ll:1:256:0","took":[[0,9000]]}]},
{"gpu":"emulator","ranks":2,"collective":"AllToAll","rows":[{"choice":"nvidia","took":[[0,9000]]}]},
{"gpu":"emulator","ranks":2,"collective":"SendRecv","rows":[{"choice":"exchange_ll:1:512:0","took":[[2000,3000]]},{"choice":"nvidia","took":[[0,9000]]}]}
]}`

// testFallback: what another library does for the engine. That is a copy of our own: to
// the engine it is NCCL, with its functions and nothing else.
func testFallback(t *testing.T, emulator, dir string) {
	p, other := program(t, dir, "ranks", "-ldl"), t.TempDir()
	if err := os.CopyFS(other, os.DirFS(dir)); err != nil {
		t.Fatal(err)
	}
	rules := filepath.Join(t.TempDir(), "rules.json")
	if err := os.WriteFile(rules, []byte(mixed), 0o600); err != nil {
		t.Fatal(err)
	}
	const (
		all    = "ASSAY_GPU_ALGO=nvidia"
		staged = "NCCL_P2P_DISABLE=1 NCCL_SHM_DISABLE=1"
	)
	measured := "ASSAY_TUNING=" + rules
	done := map[string]bool{}
	does := map[string]string{
		all:      "does all operations: ASSAY_GPU_ALGO",
		staged:   "does all operations: the NCCL_P2P_ settings do not allow peer access; NCCL_SHM_DISABLE does not allow windows in the processor's memory",
		measured: "does AllReduce of 4097 bytes and more, Broadcast of 0 to 100 bytes, AllToAll of any size, Gather of any size, Scatter of any size, SendRecv of 2001 bytes and more: measured rules",
	}
	for _, c := range []struct{ test, ranks, env string }{
		{"collectives", "3", all},
		{"collectives", "2", staged},
		{"collectives", "2", measured},
		{"streams", "2", measured},
		{"split", "4", all},
		{"fault", "2", measured},
		{"hang", "3", all + " ASSAY_HANG_AFTER=1"},
		{"suspended", "2", staged},
		{"nested", "2", measured},
		{"captured", "2", measured},
		{"single", "3", all},
		{"single", "2", measured},
		{"processes", "3", all},
		{"dies", "3", all},
	} {
		if done[c.test] {
			continue
		}
		done[c.test] = once
		t.Run(c.test+" "+c.ranks+" "+c.env, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
			defer cancel()
			cmd := exec.CommandContext(ctx, p, c.test, c.ranks)
			cmd.Env = append(os.Environ(), "LD_LIBRARY_PATH="+emulator, "FAKE_DEVICES="+c.ranks, "NCCL_DEBUG=INFO", "ASSAY_NCCL_FALLBACK="+other, "ASSAY_HANG_DIR="+t.TempDir())
			cmd.Env = append(cmd.Env, strings.Fields(c.env)...)
			out, err := cmd.CombinedOutput()
			env := strings.TrimSuffix(c.env, " ASSAY_HANG_AFTER=1")
			if err != nil || !strings.Contains(string(out), "NVIDIA's NCCL 2.30.7 ("+other+"/libnccl.so.2) "+does[env]) {
				t.Errorf("%v\n%s", err, out)
			}
			if c.test == "hang" && !hung.Match(out) {
				t.Errorf("no verdict:\n%s", out)
			}
		})
	}
}

func testRanks(t *testing.T, emulator, dir string) {
	p := program(t, dir, "ranks", "-ldl")
	done := map[string]bool{}
	for _, c := range []struct{ test, ranks, devices, env string }{
		{"collectives", "2", "2", ""},
		{"collectives", "3", "3", ""},
		{"collectives", "1", "1", ""},
		{"collectives", "2", "2", "NCCL_P2P_DISABLE=1"}, // windows in the processor's memory
		{"normed", "2", "2", ""},
		{"normed", "3", "3", "NCCL_P2P_DISABLE=1"},
		{"normed", "1", "1", ""},
		{"windows", "2", "2", "ASSAY_GPU_ALGO=exchange_direct NCCL_DEBUG=INFO"},
		{"windows", "3", "3", "ASSAY_GPU_ALGO=exchange_direct NCCL_DEBUG=INFO"},
		{"windows", "2", "2", "NCCL_P2P_DISABLE=1"},
		{"windows", "1", "1", ""},
		{"lsa", "2", "2", ""},
		{"lsa", "4", "2", "NCCL_MULTI_RANK_GPU_ENABLE=1"}, // two ranks on each device
		{"lsa", "3", "3", ""},
		{"lsa", "1", "1", ""},
		{"lsa", "2", "2", "FAKE_NO_VMM=1"},
		{"lsa", "2", "2", "NCCL_P2P_DISABLE=1"},
		{"lsa", "2", "2", "NCCL_P2P_DISABLE=1 NCCL_SHM_DISABLE=1"},
		{"apart", "3", "3", ""},
		{"streams", "2", "2", ""},
		{"split", "4", "4", ""},
		{"fault", "2", "2", ""},
		{"parts", "2", "2", ""},
		{"parts", "3", "3", ""},
		{"parts", "4", "4", ""},
		{"shrink", "3", "3", ""},
		{"grow", "3", "3", ""},
		{"hang", "3", "3", "ASSAY_HANG_AFTER=1"},
		{"nonblocking", "2", "2", ""},
		{"memory", "2", "2", ""},
		{"memory", "2", "2", "ASSAY_GPU_ALGO=copy"}, // with copy buffers, which communicators share
		{"configured", "2", "2", ""},
		{"suspended", "2", "2", "FAKE_APART=1"},
		{"suspended", "2", "2", "ASSAY_GPU_ALGO=copy FAKE_APART=1"},
		{"suspended", "2", "2", "NCCL_P2P_DISABLE=1"},
		{"suspended", "2", "2", "NCCL_P2P_DISABLE=1 NCCL_SHM_DISABLE=1"},
		{"scarce", "2", "2", ""},
		{"restarts", "2", "2", "NCCL_BUFFSIZE=4096"}, // small windows
		{"counts", "2", "2", ""},
		{"nested", "2", "2", ""},
		{"forks", "1", "1", ""},
		{"captured", "2", "2", ""},
		{"captured", "2", "2", "NCCL_GRAPH_MIXING_SUPPORT=0 FAKE_NO_EXTERNAL=1"},
		{"mixed", "2", "2", ""},
		{"mixed", "3", "3", ""},
		{"orders", "2", "2", ""},
		{"orders", "3", "3", "ASSAY_GPU_ALGO=copy"},
		{"allocation", "1", "1", ""},
		{"allocation", "1", "1", "FAKE_NO_VMM=1"},
		{"simulate", "2", "2", ""},
		{"simulate", "2", "2", "NCCL_P2P_DISABLE=1"},
		{"simulate", "2", "2", "NCCL_P2P_DISABLE=1 NCCL_SHM_DISABLE=1"}, // staged
		{"single", "3", "3", ""},
		{"single", "3", "3", "ASSAY_GPU_ALGO=exchange_direct NCCL_DEBUG=INFO"},
		{"processes", "3", "3", ""},
		{"dies", "3", "3", ""},
	} {
		if done[c.test] {
			continue
		}
		done[c.test] = once
		t.Run(c.test+" "+c.ranks+" "+c.env, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute) // it stands still
			defer cancel()
			cmd := exec.CommandContext(ctx, p, c.test, c.ranks)
			cmd.Env = append(os.Environ(), "LD_LIBRARY_PATH="+emulator, "FAKE_DEVICES="+c.devices, "ASSAY_HANG_DIR="+t.TempDir())
			cmd.Env = append(cmd.Env, strings.Fields(c.env)...)
			out, err := cmd.CombinedOutput()
			if err != nil {
				t.Errorf("%v\n%s", err, out)
			}
			if strings.Contains(c.env, "exchange_direct") && !strings.Contains(string(out), "are written by other ranks directly") {
				t.Errorf("windows are not written directly:\n%s", out)
			}
			if verdicts := strings.Count(string(out), "stands still"); c.test == "hang" {
				if !hung.Match(out) || verdicts != 1 {
					t.Errorf("%s", out)
				}
			} else if verdicts > 0 {
				t.Errorf("%s", out)
			}
		})
	}
	t.Run("replaces", func(t *testing.T) { replaces(t, dir, append(os.Environ(), "LD_LIBRARY_PATH="+emulator)) })
}

// exported are the functions that a library exports, sorted.
func exported(t *testing.T, library string) (names []string) {
	t.Helper()
	f, err := elf.Open(library)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	symbols, err := f.DynamicSymbols()
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range symbols {
		if s.Section != elf.SHN_UNDEF {
			names = append(names, s.Name)
		}
	}
	slices.Sort(names)
	return names
}

// replaces: a program that was linked with another libnccl.so.2 runs on this one when it
// is preloaded, or put in the other one's place.
func replaces(t *testing.T, dir string, environ []string) {
	other := t.TempDir()
	var source strings.Builder
	for _, name := range exported(t, filepath.Join(dir, "libnccl.so.2")) {
		if name == "ncclGetLastError" {
			source.WriteString("const char *ncclGetLastError(void *c) { return \"the other library\"; }\n")
		} else {
			source.WriteString("int " + name + "(void) { return 3; }\n")
		}
	}
	c := filepath.Join(other, "other.c")
	if err := os.WriteFile(c, []byte(source.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	gputest.Tool(t, "gcc", "-shared", "-fPIC", "-Wl,-soname,libnccl.so.2", "-o", filepath.Join(other, "libnccl.so.2"), c)
	p := program(t, other, "ranks", "-ldl")
	run := func(want bool, env ...string) {
		t.Helper()
		cmd := exec.CommandContext(t.Context(), p, "collectives", "1")
		cmd.Env = slices.Concat(environ, []string{"FAKE_DEVICES=1"}, env)
		out, err := cmd.CombinedOutput()
		if (err == nil) != want || !want && !strings.Contains(string(out), "the other library") {
			t.Errorf("with %v: %v\n%s", env, err, out)
		}
	}
	run(false)
	run(true, "LD_PRELOAD="+filepath.Join(dir, "libnccl.so.2"))
	for _, name := range []string{"libnccl.so.2", "libassay-coll.so"} {
		b, err := os.ReadFile(filepath.Join(dir, name))
		if err == nil {
			err = os.Remove(filepath.Join(other, name))
			if errors.Is(err, os.ErrNotExist) {
				err = nil
			}
		}
		if err == nil {
			err = os.WriteFile(filepath.Join(other, name), b, 0o700)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	run(true)
}

// TestSymbols: the library exports NCCL's functions under both of their names, and
// nothing else. docs/libnccl.md has them all, and no other.
func TestSymbols(t *testing.T) {
	path := filepath.Join(library(t), "libnccl.so.2")
	f, err := elf.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if name, err := f.DynString(elf.DT_SONAME); err != nil || !slices.Equal(name, []string{"libnccl.so.2"}) {
		t.Errorf("the SONAME is %v, %v", name, err)
	}
	var plain, others, twice []string
	for _, name := range exported(t, path) {
		switch {
		case strings.HasPrefix(name, "nccl"):
			plain = append(plain, name)
		case strings.HasPrefix(name, "pnccl"):
			twice = append(twice, name[1:])
		default:
			others = append(others, name)
		}
	}
	if !slices.Equal(plain, twice) || len(others) > 0 {
		t.Errorf("exported: %v; with a p before them: %v; others: %v", plain, twice, others)
	}
	text, err := os.ReadFile("../../docs/libnccl.md")
	if err != nil {
		t.Fatal(err)
	}
	var said []string
	for _, m := range regexp.MustCompile("(?m)^\\| `(nccl\\w+)` ").FindAllStringSubmatch(string(text), -1) {
		said = append(said, m[1])
	}
	slices.Sort(said)
	if !slices.Equal(plain, said) {
		t.Errorf("docs/libnccl.md and the library differ in %v", differ(plain, said))
	}
}

// differ is what only one of two sorted lists has.
func differ(a, b []string) (only []string) {
	for _, s := range slices.Concat(a, b) {
		if slices.Contains(a, s) != slices.Contains(b, s) {
			only = append(only, s)
		}
	}
	return only
}
