package train

import (
	"context"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/assay-hpc/assay/internal/result"
)

// alone is a group of one machine.
type alone struct{}

func (alone) Rank() int { return 0 }
func (alone) Size() int { return 1 }
func (alone) AllGather(ctx context.Context, b []byte) ([][]byte, error) {
	return [][]byte{b}, ctx.Err()
}

// python writes an interpreter that runs a shell script.
func python(t *testing.T, script string) string {
	t.Helper()
	name := filepath.Join(t.TempDir(), "python3")
	if err := os.WriteFile(name, []byte("#!/bin/sh\n"+script), 0o755); err != nil {
		t.Fatal(err)
	}
	return name
}

// answers is an interpreter that has PyTorch, and then does what script says.
const answers = "case \"$2\" in import*) echo torch True 2; exit;; esac\n"

func TestRun(t *testing.T) {
	good := `{"torch":"2.9","device":"CPU","parameters":1000,"steps":[1,1,1],"alone":[0.9,0.9],"firsts":[6,6],"lasts":[5,5],"sums":[7,7]}`
	for name, tt := range map[string]struct {
		python string
		want   result.Verdict
		reason string
	}{
		"no interpreter":        {"", result.Skip, "there is no "},
		"no PyTorch":            {"echo ModuleNotFoundError >&2; exit 1", result.Skip, "has no PyTorch"},
		"without distributed":   {"echo torch False 0", result.Skip, "built without torch.distributed"},
		"it trains":             {answers + "[ $RANK = 1 ] || echo '" + good + "'", result.Pass, "2 ranks, 1000 ms a step"},
		"one process fails":     {answers + "[ $RANK = 0 ] && sleep 100; echo 'Traceback'; echo 'rank 1 on h: OutOfMemoryError: CUDA' >&2; exit 1", result.Fail, "OutOfMemoryError"},
		"the loss is no number": {answers + "[ $RANK = 1 ] || echo '" + strings.Replace(good, "[5,5]", "[5,null]", 1) + "'", result.Fail, "rank 1 on h: the loss is no number"},
		"it prints nonsense":    {answers + "echo nonsense", result.Error, "cannot be read"},
		"it prints too little":  {answers + `echo '{"steps":[1],"alone":[1]}'`, result.Error, "cannot be read"},
	} {
		t.Run(name, func(t *testing.T) {
			o := Options{Device: "cpu", Ranks: 2, Steps: 3, Addr: "127.0.0.1", Host: "h", Timeout: time.Minute, Python: filepath.Join(t.TempDir(), "none")}
			if tt.python != "" {
				o.Python = python(t, tt.python)
			}
			res, err := Run(t.Context(), o, alone{})
			if err != nil {
				t.Fatal(err)
			}
			if res.Verdict != tt.want || !strings.Contains(res.Reason, tt.reason) {
				t.Errorf("%s: %s; want %s: %s", res.Verdict, res.Reason, tt.want, tt.reason)
			}
		})
	}
}

// TestRunHangs: processes that do not end are stopped, and that is no verdict about the machine.
func TestRunHangs(t *testing.T) {
	o := Options{Device: "cpu", Ranks: 2, Steps: 3, Addr: "127.0.0.1", Host: "h", Timeout: time.Second, Python: python(t, answers+"sleep 1000")}
	res, err := Run(t.Context(), o, alone{})
	if err != nil || res.Verdict != result.Error || !strings.Contains(res.Reason, "no result within 1s") {
		t.Errorf("%s: %s, %v", res.Verdict, res.Reason, err)
	}
}

func TestJudge(t *testing.T) {
	all := []member{{Host: "a"}, {Host: "b"}}
	well := func() *measured {
		return &measured{Torch: "2.9", Parameters: 1e6, Steps: []float64{1, 1.1, 0.9}, Alone: []float64{0.8, 0.81, 0.8, 0.79}, Firsts: []loss{6, 6, 6, 6}, Lasts: []loss{5, 5, 5, 5}, Sums: []int64{1, 1, 1, 1}}
	}
	for name, tt := range map[string]struct {
		change func(*measured)
		want   result.Verdict
		reason string
	}{
		"well":                        {func(*measured) {}, result.Pass, "4 ranks, 1000 ms a step"},
		"a straggler":                 {func(m *measured) { m.Alone[2] = 0.95 }, result.Warn, "GPU 0 of b: it computes 18 % longer"},
		"a little slower":             {func(m *measured) { m.Alone[2] = 0.83 }, result.Pass, ""},
		"other weights":               {func(m *measured) { m.Sums[3] = 2 }, result.Fail, "GPU 1 of b: its weights differ"},
		"a loss that is no number":    {func(m *measured) { m.Lasts[1] = loss(math.NaN()) }, result.Fail, "GPU 1 of a: the loss is no number"},
		"a loss that rises":           {func(m *measured) { m.Lasts[0] = 7 }, result.Fail, "GPU 0 of a: the loss went from 6 to 7"},
		"what is wrong before a late": {func(m *measured) { m.Alone[0], m.Sums[3] = 2, 2 }, result.Fail, "GPU 1 of b: its weights differ"},
	} {
		m := well()
		tt.change(m)
		res := judge(Options{Device: "gpu", Ranks: 2}, all, m)
		if res.Verdict != tt.want || !strings.HasPrefix(res.Reason, tt.reason) {
			t.Errorf("%s: %s: %s; want %s: %s", name, res.Verdict, res.Reason, tt.want, tt.reason)
		}
		res.ID = ResultID
		if err := res.Validate(); err != nil || res.Verdict.Bad() && res.Remedy == "" {
			t.Errorf("%s: %v, remedy %q", name, err, res.Remedy)
		}
	}
}

// TestPyTorch trains for real, where there is PyTorch.
func TestPyTorch(t *testing.T) {
	if testing.Short() {
		t.Skip("starts PyTorch twice")
	}
	for _, python := range []string{os.Getenv("ASSAY_PYTHON"), "python3", "/usr/bin/python3"} {
		if python == "" || lacks(t.Context(), Options{Python: python}) != "" {
			continue
		}
		res, err := Run(t.Context(), Options{Device: "cpu", Ranks: 2, Steps: 4, Addr: "127.0.0.1", Host: "h", Warmup: 1, Timeout: 10 * time.Minute, Python: python}, alone{})
		if err != nil || res.Verdict != result.Pass {
			t.Errorf("%s: %s, %v\n%s", res.Verdict, res.Reason, err, res.Output)
		}
		t.Log(res.Reason)
		return
	}
	t.Skip("there is no PyTorch: apt-get install python3-torch")
}
