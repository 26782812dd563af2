// Package train runs a few steps of a real training job: a small GPT in PyTorch with data
// parallelism, a process for each GPU of each machine. It shows what no benchmark of a part does:
// that computing, memory, links and network work at the same time, that the loss falls, and that all
// GPUs end with the same weights.
package train

import (
	"bytes"
	"cmp"
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"net"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/assay-hpc/assay/internal/result"
	"github.com/assay-hpc/assay/internal/stat"
	"github.com/assay-hpc/assay/internal/words"
)

// ResultID and Title are those of the result.
const (
	ResultID = "train"
	Title    = "a real training step runs on all GPUs, the loss falls, and all have the same weights"
)

//go:embed train.py
var script string

// A Group is the set of processes of the job, one on each machine.
type Group interface {
	Rank() int
	Size() int
	AllGather(ctx context.Context, b []byte) ([][]byte, error)
}

// Options of a run, the same on all machines but for Addr, Host, and Python.
type Options struct {
	Device  string // gpu or cpu
	Ranks   int    // processes on this machine
	Steps   int    // that are timed
	Python  string // interpreter
	Addr    string // of this machine, at which the others reach it
	Host    string // its name
	Warmup  int    // steps before those that are timed
	Timeout time.Duration
}

// A model is the shape of the GPT.
type model struct {
	Layers     int `json:"layers"`
	Width      int `json:"width"`
	Heads      int `json:"heads"`
	Length     int `json:"length"` // of a sequence, in tokens
	Vocabulary int `json:"vocabulary"`
	Batch      int `json:"batch"` // sequences on each rank
}

// The models: on a GPU half a billion weights, which with gradients and AdamW's state take 8 GB,
// and the activations of 8,192 tokens as much again; on processors one that any of them can do.
var models = map[string]model{
	"gpu": {Layers: 8, Width: 2048, Heads: 16, Length: 2048, Vocabulary: 32000, Batch: 4},
	"cpu": {Layers: 2, Width: 64, Heads: 4, Length: 64, Vocabulary: 512, Batch: 4},
}

// arguments are those of the script.
type arguments struct {
	model
	Device string `json:"device"`
	Steps  int    `json:"steps"`
	Warmup int    `json:"warmup"`
}

// measured is what rank 0's script prints. Lists are by rank.
type measured struct {
	Torch      string    `json:"torch"`
	NCCL       string    `json:"nccl"`
	Device     string    `json:"device"`
	Parameters float64   `json:"parameters"`
	Steps      []float64 `json:"steps"`  // seconds of each timed step of rank 0
	Alone      []float64 `json:"alone"`  // median seconds to compute without the sum of gradients
	Firsts     []loss    `json:"firsts"` // of the first timed step
	Lasts      []loss    `json:"lasts"`  // and of the last
	Sums       []int64   `json:"sums"`   // of the bits of all weights
}

// A loss is null in JSON if it is no number.
type loss float64

// UnmarshalJSON implements json.Unmarshaler.
func (l *loss) UnmarshalJSON(b []byte) error {
	if string(b) == "null" {
		*l = loss(math.NaN())
		return nil
	}
	return json.Unmarshal(b, (*float64)(l))
}

// member is what a machine states about itself.
type member struct {
	Host  string `json:"host"`
	Addr  string `json:"addr"` // host:port of the first machine's store
	Ranks int    `json:"ranks"`
	Lacks string `json:"lacks,omitempty"` // why it cannot run PyTorch
	Error string `json:"error,omitempty"` // of its processes
	Late  bool   `json:"late,omitempty"`  // they were stopped at the limit
}

// Run trains. All machines of the group call it; the first one gets the result, the others one
// without a verdict.
func Run(ctx context.Context, o Options, g Group) (res result.Result, err error) {
	me := member{Host: o.Host, Ranks: o.Ranks, Lacks: lacks(ctx, o)}
	if g.Rank() == 0 {
		port, err := freePort(o.Addr)
		if err != nil {
			return res, err
		}
		me.Addr = net.JoinHostPort(o.Addr, port)
	}
	all, err := exchange(ctx, g, me)
	if err != nil {
		return res, err
	}
	for _, m := range all {
		switch {
		case m.Lacks != "":
			return result.Skipped("%s: %s", m.Host, m.Lacks), nil
		case m.Ranks != all[0].Ranks:
			return result.Errored("%s has %s, and %s has %d: each machine takes as many", m.Host, words.Count(m.Ranks, "rank"), all[0].Host, all[0].Ranks), nil
		}
	}
	out, failed := processes(ctx, o, g, all)
	if failed != nil {
		me.Error, me.Late = failed.Error(), errors.Is(failed, errLate)
	}
	if all, err = exchange(ctx, g, me); err != nil {
		return res, err
	}
	if g.Rank() != 0 {
		return res, nil
	}
	var problems []string
	broken := false // not only late
	for _, m := range all {
		if m.Error == "" {
			continue
		}
		if broken = broken || !m.Late; m.Late {
			problems = append(problems, m.Host+": "+m.Error)
		} else {
			problems = slices.Insert(problems, 0, m.Host+": "+m.Error)
		}
	}
	switch text := strings.Join(problems, "\n"); {
	case len(problems) > 0 && !broken:
		return result.Errored("no result within %v: the machine is busy, or PyTorch hangs on %s", o.Timeout, words.Count(len(problems), "machine")).WithOutput(text).
			WithRemedy("run it again where nothing else runs, with a longer --limit; then with NCCL_DEBUG=INFO, and give the output to harness explain"), nil
	case broken:
		return result.Failed("PyTorch cannot train: %s", problems[0]).WithOutput(text).
			WithRemedy("run the output through harness explain; compare with harness coll all_reduce --engine nccl on the same machines"), nil
	}
	var m measured
	if err := json.Unmarshal(out, &m); err != nil || len(m.Steps) == 0 || len(m.Alone) != len(all)*o.Ranks {
		return result.Errored("PyTorch's report cannot be read: %.200q", out), nil
	}
	return judge(o, all, &m), nil
}

func exchange(ctx context.Context, g Group, me member) ([]member, error) {
	b, err := json.Marshal(me)
	if err != nil {
		return nil, err
	}
	blocks, err := g.AllGather(ctx, b)
	if err != nil {
		return nil, err
	}
	all := make([]member, len(blocks))
	for i, b := range blocks {
		if err := json.Unmarshal(b, &all[i]); err != nil {
			return nil, fmt.Errorf("process %d gave %.80q: all must run the same harness", i, b)
		}
	}
	return all, nil
}

// lacks returns why this machine cannot train with PyTorch; "": it can.
func lacks(ctx context.Context, o Options) string {
	ask := "import torch, torch.distributed as d; print('torch', d.is_available(), torch.cuda.device_count())"
	out, err := exec.CommandContext(ctx, o.Python, "-c", ask).Output()
	var gpus int
	var have string
	switch n, _ := fmt.Sscanf(string(out), "torch %s %d", &have, &gpus); {
	case errors.Is(err, exec.ErrNotFound) || errors.Is(err, fs.ErrNotExist):
		return "there is no " + o.Python
	case err != nil || n < 2:
		return o.Python + " has no PyTorch"
	case have != "True":
		return "its PyTorch was built without torch.distributed"
	case o.Device == "gpu" && gpus < o.Ranks:
		return fmt.Sprintf("its PyTorch finds %s, not %d", words.Count(gpus, "GPU"), o.Ranks)
	}
	return ""
}

func freePort(addr string) (string, error) {
	l, err := net.Listen("tcp", net.JoinHostPort(addr, "0"))
	if err != nil {
		return "", err
	}
	defer l.Close()
	_, port, err := net.SplitHostPort(l.Addr().String())
	return port, err
}

// errLate: a process was stopped at the limit.
var errLate = errors.New("stopped at the limit")

// processes runs this machine's processes, and returns what the first one printed. When one fails,
// the others are stopped.
func processes(ctx context.Context, o Options, g Group, all []member) ([]byte, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, o.Timeout, errLate)
	defer cancel()
	args, err := json.Marshal(arguments{models[o.Device], o.Device, o.Steps, o.Warmup})
	if err != nil {
		return nil, err
	}
	host, port, err := net.SplitHostPort(all[0].Addr)
	if err != nil {
		return nil, err
	}
	var mu sync.Mutex
	var first error
	var wg sync.WaitGroup
	outs := make([]bytes.Buffer, o.Ranks)
	for i := range o.Ranks {
		var stderr bytes.Buffer
		cmd := exec.CommandContext(ctx, o.Python, "-c", script, string(args))
		cmd.Env = append(os.Environ(), "RANK="+strconv.Itoa(g.Rank()*o.Ranks+i), "WORLD_SIZE="+strconv.Itoa(len(all)*o.Ranks), "LOCAL_RANK="+strconv.Itoa(i),
			"LOCAL_WORLD_SIZE="+strconv.Itoa(o.Ranks), "MASTER_ADDR="+host, "MASTER_PORT="+port)
		cmd.Stdout, cmd.Stderr = &outs[i], &stderr
		cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
		cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
		cmd.WaitDelay = 5 * time.Second
		wg.Go(func() {
			err := cmd.Run()
			if err == nil {
				return
			}
			mu.Lock()
			defer mu.Unlock()
			if first == nil {
				first = fmt.Errorf("%s", cmp.Or(lastLine(stderr.String()), err.Error()))
				if ctx.Err() != nil {
					first = context.Cause(ctx)
				}
			}
			cancel()
		})
	}
	wg.Wait()
	return outs[0].Bytes(), first
}

func lastLine(text string) string {
	lines := strings.Split(strings.TrimSpace(text), "\n")
	return strings.TrimSpace(lines[len(lines)-1])
}

// late is how much longer than the median rank a GPU computes until it is named, and spreads how
// many times the usual deviation that must be.
const (
	late    = 0.05
	spreads = 6
)

// judge judges a run.
func judge(o Options, all []member, m *measured) result.Result {
	step := stat.Median(m.Steps)
	alone := stat.Median(m.Alone)
	shape, ranks := models[o.Device], len(m.Alone)
	tokens := float64(shape.Batch * shape.Length)
	// Six operations for each weight and token, and the products of attention: PaLM, appendix B.
	flops := tokens * (6*m.Parameters + 12*float64(shape.Layers*shape.Width*shape.Length))
	share := math.Min(1, alone/step)
	res := result.Passed("%s, %.4g ms a step, %.4g tokens/s, %.4g TFLOP/s a rank; %.0f %% of a step is computing; loss %.3g to %.3g; PyTorch %s%s",
		words.Count(ranks, "rank"), step*1e3, tokens*float64(ranks)/step, flops/step/1e12, share*100, mean(m.Firsts), mean(m.Lasts), m.Torch, prefixed(", NCCL ", m.NCCL))
	res.Measured = &result.Measurement{Value: tokens * float64(ranks) / step, Unit: "tokens/s"}
	name := func(rank int) string {
		if o.Device == "gpu" {
			return fmt.Sprintf("GPU %d of %s", rank%o.Ranks, all[rank/o.Ranks].Host)
		}
		return fmt.Sprintf("rank %d on %s", rank, all[rank/o.Ranks].Host)
	}
	wrong := func(rank int, quantity, format string, a ...any) {
		res.Objects = append(res.Objects, result.Object{Name: name(rank), Quantity: quantity, Verdict: result.Fail, Reason: fmt.Sprintf(format, a...)})
	}
	usual := mostFrequent(m.Sums)
	for rank := range m.Alone {
		switch first, last := m.Firsts[rank], m.Lasts[rank]; {
		case math.IsNaN(float64(last)):
			wrong(rank, "loss", "the loss is no number after %d steps", len(m.Steps))
		case last >= first:
			wrong(rank, "loss", "the loss went from %.4g to %.4g in %d steps on the same data", first, last, len(m.Steps))
		}
		if m.Sums[rank] != usual {
			wrong(rank, "weights", "its weights differ from those of most ranks, after the same sums of gradients")
		}
	}
	if len(res.Objects) > 0 {
		first := res.Objects[0]
		res.Verdict, res.Reason = result.Fail, first.Name+": "+first.Reason
		res.Remedy = "do not use this GPU: run harness diag -r 3 there, and harness certify --only coll/same-bits --suite full"
	}
	if o.Device == "gpu" { // a processor is late whenever something else runs
		deviation := stat.MAD(m.Alone)
		for rank, took := range m.Alone {
			if took < alone*(1+late) || took < alone+spreads*deviation {
				continue
			}
			obj := result.Object{Name: name(rank), Quantity: "computing alone", Verdict: result.Warn,
				Measured: &result.Measurement{Value: took * 1e3, Unit: "ms", Expected: alone * 1e3, Source: "the median rank", Ratio: took / alone},
				Reason:   fmt.Sprintf("it computes %.0f %% longer than the median GPU, and all wait for it", 100*(took/alone-1))}
			res.Objects = append(res.Objects, obj)
			if res.Verdict == result.Pass {
				res.Verdict, res.Reason = result.Warn, obj.Name+": "+obj.Reason
				res.Remedy = "look at its clocks, power limit and temperature (harness health), and at what else runs there"
			}
		}
	}
	return res
}

func prefixed(prefix, s string) string {
	if s == "" {
		return ""
	}
	return prefix + s
}

func mean(values []loss) float64 {
	sum := 0.0
	for _, v := range values {
		sum += float64(v)
	}
	return sum / float64(len(values))
}

func mostFrequent(values []int64) (most int64) {
	n := map[int64]int{}
	for _, v := range values {
		n[v]++
	}
	best := slices.MaxFunc(values, func(a, b int64) int { return n[a] - n[b] })
	return best
}
