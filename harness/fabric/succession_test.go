package fabric

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/assay-hpc/assay/coll/bootstrap"
	"github.com/assay-hpc/assay/internal/certificate/certificatetest"
)

// TestFirstMachine is the first machine of the tests below, in a process of its own: it
// joins, takes part in one command, says so, and waits for its end.
func TestFirstMachine(t *testing.T) {
	at := os.Getenv("FABRIC_TEST_FIRST")
	if at == "" {
		t.Skip("a part of other tests")
	}
	f, err := Join(t.Context(), worldOf(t, 0, 4, at), optionsOf(0, func(ctx context.Context, _ []string, _ ...string) (Output, error) {
		return Output{Stdout: []byte("of four")}, nil
	}))
	if err != nil {
		t.Fatal(err)
	}
	out, err := f.Run(t.Context(), "coll")
	fmt.Printf("\nran %s %v\n", out.Stdout, err)
	f.o.Run = func(ctx context.Context, _ []string, _ ...string) (Output, error) {
		fmt.Println("running")
		select {}
	}
	f.Run(t.Context(), "coll")
}

func worldOf(t *testing.T, rank, n int, at string) bootstrap.World {
	w, err := bootstrap.Detect(func(name string) string {
		return map[string]string{
			"RANK": strconv.Itoa(rank), "WORLD_SIZE": strconv.Itoa(n), "MASTER_ADDR": "127.0.0.1", "NCCL_COMM_ID": at, "ASSAY_JOB_SECRET": "s3cret",
		}[name]
	})
	if err != nil {
		t.Fatal(err)
	}
	return w
}

func optionsOf(rank int, run Runner) Options {
	return Options{Name: fmt.Sprintf("node%d", rank), Run: run, Boot: bootstrap.Options{Ifname: "lo", Family: "AF_INET", Timeout: time.Minute, Silence: 5 * time.Second}}
}

// TestFirstKilled kills the first machine while all run a command. The others run it again,
// with the next one as the first, which has the output of the earlier command; a machine
// that has missed the outcome of an operation gets it; certificates are gathered there.
func TestFirstKilled(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	at := l.Addr().String()
	l.Close()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	first := exec.CommandContext(t.Context(), self, "-test.run=^TestFirstMachine$", "-test.v")
	first.Env = append(os.Environ(), "FABRIC_TEST_FIRST="+at)
	first.Stderr = os.Stderr
	stdout, err := first.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := first.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { first.Process.Kill(); first.Wait() }()
	said := bufio.NewScanner(stdout)
	until := func(prefix string) string {
		for said.Scan() {
			if strings.HasPrefix(said.Text(), prefix) {
				return said.Text()
			}
		}
		t.Errorf("the first machine never said %q", prefix)
		return ""
	}

	var mu sync.Mutex
	var lost []string
	fs := make([]*Fabric, 4)
	machine := func(do func(rank int)) {
		var wg sync.WaitGroup
		for rank := 1; rank < 4; rank++ {
			wg.Go(func() { do(rank) })
		}
		wg.Wait()
	}
	machine(func(rank int) {
		o := optionsOf(rank, func(ctx context.Context, environ []string, _ ...string) (Output, error) {
			return Output{Stdout: fmt.Appendf(nil, "of rank %d", rank)}, nil
		})
		o.Lost = func(name, why string) {
			mu.Lock()
			defer mu.Unlock()
			lost = append(lost, fmt.Sprintf("%d: %s: %s", rank, name, why))
		}
		var err error
		if fs[rank], err = Join(t.Context(), worldOf(t, rank, 4, at), o); err != nil {
			t.Error(err)
		}
	})
	if t.Failed() {
		return
	}
	defer machine(func(rank int) { fs[rank].Leave(nil) })
	machine(func(rank int) {
		if out, err := fs[rank].Run(t.Context(), "coll"); err != nil || string(out.Stdout) != "of four" {
			t.Errorf("rank %d: %q, %v; want the first machine's output", rank, out.Stdout, err)
		}
	})
	until("ran of four <nil>")

	machine(func(rank int) {
		f := fs[rank]
		if rank == 1 {
			f.o.Run = func(ctx context.Context, environ []string, _ ...string) (Output, error) {
				if slices.Contains(environ, "WORLD_SIZE=4") {
					until("running")
					first.Process.Kill()
				}
				return Output{Stdout: []byte("of three")}, nil
			}
		}
		if out, err := f.Run(t.Context(), "coll"); err != nil || string(out.Stdout) != "of three" {
			t.Errorf("rank %d: %q, %v; want the next first machine's output", rank, out.Stdout, err)
		}
	})
	if f := fs[1]; !f.First() || fs[2].First() || f.Name(0) != "node0" || len(f.Lost()) != 1 || !strings.Contains(f.Lost()[0], "rank 1 took over") || f.Minority() {
		t.Errorf("first: %v; %s is lost: %v", f.First(), f.Name(0), f.Lost())
	}
	mu.Lock()
	if len(lost) != 1 || !strings.HasPrefix(lost[0], "1: node0: ") {
		t.Errorf("told: %q", lost)
	}
	mu.Unlock()

	var g *Gathered
	machine(func(rank int) {
		st := certificatetest.Node(2)
		st.Predicate.Suite = fmt.Sprintf("of %d", rank)
		err := fs[rank].Together(func() error {
			got, err := fs[rank].Gather(t.Context(), st)
			if rank == 1 {
				g = got
			}
			return err
		})
		if err != nil {
			t.Error(err)
		}
	})
	for rank, st := range g.Certificates {
		if (st == nil) != (rank == 0) || st != nil && st.Predicate.Suite != fmt.Sprintf("of %d", rank) {
			t.Errorf("of rank %d there is %v", rank, st)
		}
	}
	if st, err := fs[1].Merge(g, nil); err != nil || len(st.Predicate.Machines) != 3 || st.Predicate.Suite != "of 1" || st.Predicate.Results[0].ID != "node/node0" {
		t.Errorf("%+v, %v", st, err)
	}
}

// TestMissed: who has missed the outcome of an operation gets it from who has it, with the
// most that any has.
func TestMissed(t *testing.T) {
	said := func(o ...*outcome) (all [][]byte) {
		for _, one := range o {
			var b []byte
			if one != nil {
				b = []byte(fmt.Sprintf(`{"done":%d,"answer":%q}`, one.Done, one.Answer))
			}
			all = append(all, b)
		}
		return all
	}
	b64 := func(text string) []byte { return []byte(text) } // base64 already
	got, err := missing(said(nil, &outcome{Done: 3, Answer: b64("AAAA")}, &outcome{Done: 2, Answer: b64("BBBBBBBBBBBB")}, &outcome{Done: 3, Answer: b64("CCCCCCCC")}))
	if err != nil || got[0] != nil || got[1] != nil || got[3] != nil || string(got[2]) != `{"done":3,"answer":"CCCCCCCC"}` {
		t.Errorf("%q, %v", got, err)
	}
	if got, err := missing(said(&outcome{Done: 1}, &outcome{Done: 1})); err != nil || got[0] != nil || got[1] != nil {
		t.Errorf("nobody has missed anything: %q, %v", got, err)
	}
}
