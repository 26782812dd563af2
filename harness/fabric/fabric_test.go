package fabric

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/assay-hpc/assay/coll/bootstrap"
	"github.com/assay-hpc/assay/internal/certificate"
	"github.com/assay-hpc/assay/internal/certificate/certificatetest"
	"github.com/assay-hpc/assay/internal/result"
)

// machines joins n machines in this process; change, if not nil, changes the
// options of each.
func machines(t *testing.T, n int, change func(rank int, o *Options)) []*Fabric {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	at := l.Addr().String()
	l.Close()
	out, errs := make([]*Fabric, n), make([]error, n)
	all(n, func(rank int) {
		w, err := bootstrap.Detect(func(name string) string {
			return map[string]string{
				"RANK": strconv.Itoa(rank), "WORLD_SIZE": strconv.Itoa(n), "MASTER_ADDR": "127.0.0.1",
				"NCCL_COMM_ID": at, "ASSAY_JOB_SECRET": "s3cret",
			}[name]
		})
		if err != nil {
			errs[rank] = err
			return
		}
		o := Options{Name: fmt.Sprintf("node%d", rank), Boot: bootstrap.Options{Ifname: "lo", Family: "AF_INET", Timeout: 2 * time.Minute}}
		if change != nil {
			change(rank, &o)
		}
		out[rank], errs[rank] = Join(t.Context(), w, o)
	})
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		all(n, func(rank int) { out[rank].Leave(nil) })
	})
	return out
}

// all does something on n machines at once.
func all(n int, do func(rank int)) {
	var wg sync.WaitGroup
	for rank := range n {
		wg.Go(func() { do(rank) })
	}
	wg.Wait()
}

func TestNames(t *testing.T) {
	fs := machines(t, 3, func(rank int, o *Options) {
		if rank > 0 {
			o.Name = "same"
		}
	})
	var names []string
	for rank := range fs {
		names = append(names, fs[0].Name(rank))
	}
	if want := []string{"node0", "same", "same (rank 2)"}; !slices.Equal(names, want) {
		t.Errorf("names %q, want %q", names, want)
	}
}

// TestRun: each machine's process finds its place in a job of its own, and what
// went wrong anywhere is told by the machine's name.
func TestRun(t *testing.T) {
	for name, tt := range map[string]struct {
		ends func(rank string) Output
		want string
	}{
		"good": {func(string) Output { return Output{Stdout: []byte("the report")} }, ""},
		"failed": {func(string) Output {
			return Output{Stdout: []byte("the report"), Status: 1, Stderr: "harness: two are wrong"}
		}, ""},
		"undecided":    {func(string) Output { return Output{Stdout: []byte("the report"), Status: 3} }, ""},
		"not done":     {ending1(Output{Status: 3, Stderr: "trace\nharness: no such device"}), "node1: status 3: no such device"},
		"killed":       {ending1(Output{Status: -9, Stderr: "killed by signal 9"}), "node1: status -9: killed by signal 9"},
		"wrong usage":  {ending1(Output{Status: 2, Stderr: "harness: -x"}), "node1: status 2: -x"},
		"not at first": {func(rank string) Output { return map[bool]Output{true: {Status: 4}}[rank == "0"] }, "node0: status 4"},
	} {
		t.Run(name, func(t *testing.T) {
			var mu sync.Mutex
			seen := map[string]map[string]string{}
			fs := machines(t, 3, func(_ int, o *Options) {
				o.Run = func(_ context.Context, environ []string, args ...string) (Output, error) {
					env := map[string]string{}
					for _, kv := range environ {
						k, v, _ := strings.Cut(kv, "=")
						env[k] = v
					}
					mu.Lock()
					defer mu.Unlock()
					seen[env["RANK"]] = env
					if !slices.Equal(args, []string{"coll", "x"}) {
						t.Errorf("it ran %q", args)
					}
					return tt.ends(env["RANK"]), nil
				}
			})
			all(3, func(rank int) {
				out, err := fs[rank].Run(t.Context(), "coll", "x")
				switch {
				case tt.want != "" && (err == nil || !strings.HasPrefix(err.Error(), tt.want)):
					t.Errorf("rank %d: %v, want %s", rank, err, tt.want)
				case tt.want == "" && (err != nil || rank == 0 && string(out.Stdout) != "the report"):
					t.Errorf("rank %d: %q, %v", rank, out.Stdout, err)
				}
			})
			for rank, env := range seen {
				if env["WORLD_SIZE"] != "3" || env["MASTER_ADDR"] != "127.0.0.1" || env["TORCHELASTIC_RUN_ID"] != seen["0"]["TORCHELASTIC_RUN_ID"] || env["ASSAY_JOB_SECRET"] == "" || env["ASSAY_JOB_SECRET"] == "s3cret" {
					t.Errorf("rank %s has %q", rank, env)
				}
			}
		})
	}
}

// ending1 ends well but for rank 1.
func ending1(o Output) func(string) Output {
	return func(rank string) Output {
		if rank == "1" {
			return o
		}
		return Output{Stdout: []byte("the report")}
	}
}

// TestRunLoss: a machine that dies while a command runs ends it, and those that are
// left run it again; a command that goes on by itself is not disturbed.
func TestRunLoss(t *testing.T) {
	for _, on := range []bool{false, true} {
		t.Run(map[bool]string{false: "again", true: "on"}[on], func(t *testing.T) {
			var mu sync.Mutex
			begun := 0
			kill := make(chan struct{})
			fs := machines(t, 3, func(_ int, o *Options) {
				o.Run = func(ctx context.Context, environ []string, _ ...string) (Output, error) {
					mu.Lock()
					if begun++; begun == 3 {
						close(kill)
					}
					mu.Unlock()
					if slices.Contains(environ, "WORLD_SIZE=2") {
						return Output{Stdout: []byte("of two")}, nil
					}
					if on {
						return Output{Stdout: []byte("of all")}, nil
					}
					<-ctx.Done() // a collective whose peer is gone
					return Output{}, context.Cause(ctx)
				}
			})
			want := "of two"
			if on {
				want = "of all"
			}
			var wg sync.WaitGroup
			wg.Go(func() {
				<-kill
				fs[2].group.Close(errors.New("killed"))
			})
			all(3, func(rank int) {
				f := fs[rank]
				run := f.Run
				if on {
					run = f.RunOn
				}
				out, err := run(t.Context())
				if rank < 2 && err != nil || rank == 0 && string(out.Stdout) != want {
					t.Errorf("rank %d: %q, %v; want %q", rank, out.Stdout, err, want)
				}
			})
			wg.Wait()
			if lost := fs[0].Lost(); len(lost) != 1 || lost[2] != "it has ended: killed" {
				t.Errorf("lost: %v", lost)
			}
		})
	}
}

// TestGather: certificates of all that are left come to the first one, over the
// tree.
func TestGather(t *testing.T) {
	const n = 12
	fs := machines(t, n, nil)
	fs[3].Leave(errors.New("killed"))
	var g *Gathered
	all(n, func(rank int) {
		if rank == 3 {
			return
		}
		st := certificatetest.Node(2)
		st.Predicate.Suite = fmt.Sprintf("of %d", rank)
		got, err := fs[rank].Gather(t.Context(), st)
		if err != nil {
			t.Errorf("rank %d: %v", rank, err)
		}
		if rank == 0 {
			g = got
		}
	})
	for rank, st := range g.Certificates {
		if rank == 3 {
			if st != nil || g.Missing[3] != "it has ended: killed" {
				t.Errorf("of who is lost there is %v, %v", st, g.Missing)
			}
		} else if st == nil || st.Predicate.Suite != fmt.Sprintf("of %d", rank) {
			t.Errorf("rank %d: %v", rank, st)
		}
	}
	if g.Summary.Ranks != n-1 || len(g.Missing) != 1 {
		t.Errorf("%d ranks, missing %v", g.Summary.Ranks, g.Missing)
	}
}

// TestMerge makes one certificate of a machine that failed, one that only warns,
// and one of which nothing came.
func TestMerge(t *testing.T) {
	bad, warned := certificatetest.Node(2), certificatetest.Node(2)
	warned.Predicate.Node.Name = "node08"
	warned.Subject = nil
	var kept []result.Result
	for _, r := range warned.Predicate.Results {
		if r.Verdict == result.Pass || r.Verdict == result.Warn {
			kept = append(kept, r)
		}
	}
	warned.Predicate.Results, warned.Predicate.Verdict = kept, result.Pass
	if err := warned.SetNode(warned.Predicate.Node); err != nil {
		t.Fatal(err)
	}
	f := &Fabric{names: []string{"node07", "node08", "a/b"}}
	g := &Gathered{Certificates: []*certificate.Statement{bad, warned, nil}, Missing: map[int]string{2: "it is silent"}}
	together := []result.Result{{ID: "coll/all_reduce", Title: "all", Verdict: result.Pass}}
	st, err := f.Merge(g, together)
	if err != nil {
		t.Fatal(err)
	}
	doc, err := st.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	if err := certificatetest.Validate(doc); err != nil {
		t.Error(err)
	}
	if _, err := certificate.Parse(doc); err != nil {
		t.Error(err)
	}
	if len(st.Subject) != 2 || st.Predicate.Verdict != result.Fail {
		t.Errorf("%d subjects, %s; want 2, fail", len(st.Subject), st.Predicate.Verdict)
	}
	if m := st.Predicate.Machines; len(m) != 2 || m[0].Name != "node07" || m[1].Certificate != warned {
		t.Errorf("inside are %+v", m)
	}
	for i, want := range []struct {
		id      string
		verdict result.Verdict
		reason  string
	}{
		{"node/node07", result.Fail, "bandwidth/h2d: GPU 0: 31.2 GB/s, less than 48; and "},
		{"node/node08", result.Warn, "health/xid: Xid 94 on GPU 1"},
		{"node/a_b", result.Error, "no certificate was created: it is silent"},
		{"coll/all_reduce", result.Pass, ""},
	} {
		r := st.Predicate.Results[i]
		if r.ID != want.id || r.Verdict != want.verdict || !strings.HasPrefix(r.Reason, want.reason) {
			t.Errorf("%s: %s: %s; want %+v", r.ID, r.Verdict, r.Reason, want)
		}
	}
	// A byte of what is inside is not the machine's any more.
	st.Predicate.Machines[0].SHA256 = st.Predicate.Machines[1].SHA256
	if _, err := st.Marshal(); err == nil {
		t.Error("a certificate inside that has another digest was taken")
	}
}
