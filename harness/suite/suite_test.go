package suite

import (
	"context"
	"fmt"
	"math"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/assay-hpc/assay/internal/result"
)

func pass(context.Context, *Env) result.Result { return result.Passed("") }

func always(r result.Result) func(context.Context, *Env) result.Result {
	return func(context.Context, *Env) result.Result { return r }
}

func mustRun(t *testing.T, ctx context.Context, checks []Check, opt Options) map[string]result.Result {
	t.Helper()
	results, err := Run(ctx, &Env{}, checks, opt)
	if err != nil {
		t.Fatal(err)
	}
	if len(results) != len(checks) {
		t.Fatalf("%d results for %d checks", len(results), len(checks))
	}
	m := map[string]result.Result{}
	for i, r := range results {
		if r.ID != checks[i].ID {
			t.Errorf("result %d is of %q; want %q", i, r.ID, checks[i].ID)
		}
		if err := r.Validate(); err != nil {
			t.Error(err)
		}
		m[r.ID] = r
	}
	return m
}

func verdict(t *testing.T, r result.Result, want result.Verdict, reason string) {
	t.Helper()
	if r.Verdict != want || !strings.Contains(r.Reason, reason) {
		t.Errorf("%s: %s (%s); want %s (…%s…)", r.ID, r.Verdict, r.Reason, want, reason)
	}
}

// TestTrust runs checks that do not behave.
func TestTrust(t *testing.T) {
	nan := result.Result{Verdict: result.Pass, Measured: &result.Measurement{Value: math.NaN(), Unit: "GB/s"}}
	got := mustRun(t, t.Context(), []Check{
		{ID: "good", Run: always(result.Passed("all\n is  well"))},
		{ID: "panics", Run: func(context.Context, *Env) result.Result { panic("ouch") }},
		{ID: "says nothing", Run: always(result.Result{})},
		{ID: "invents a verdict", Run: always(result.Result{Verdict: "splendid"})},
		{ID: "skips without reason", Run: always(result.Result{Verdict: result.Skip})},
		{ID: "measures nothing", Run: always(nan)},
		{ID: "prints rubbish", Run: always(result.Failed("\xff").WithOutput("\xff\xfe").WithRemedy("mend\n it"))},
		{ID: "prints much", Run: always(result.Passed("").WithOutput(strings.Repeat("line of text ü\n", 1e5)))},
		{ID: "after all", Run: pass},
	}, Options{})
	verdict(t, got["good"], result.Pass, "all is well")
	verdict(t, got["panics"], result.Error, "ouch")
	verdict(t, got["says nothing"], result.Error, "broke the rules")
	verdict(t, got["invents a verdict"], result.Error, "splendid")
	verdict(t, got["skips without reason"], result.Error, "without a reason")
	verdict(t, got["measures nothing"], result.Error, "not a number")
	verdict(t, got["prints rubbish"], result.Fail, "\uFFFD")
	if r := got["prints rubbish"].Remedy; r != "mend it" {
		t.Errorf("remedy = %q", r)
	}
	verdict(t, got["after all"], result.Pass, "")
	if !strings.Contains(got["panics"].Output, "suite_test.go") {
		t.Errorf("the panic's output has no stack: %q", got["panics"].Output)
	}
	if n := len(got["prints much"].Output); n > MaxOutput+10 || n < MaxOutput/2 {
		t.Errorf("%d bytes of output were kept; want about %d", n, MaxOutput)
	}
}

func TestTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		got := mustRun(t, t.Context(), []Check{
			{ID: "waits", Timeout: time.Hour, Run: func(ctx context.Context, _ *Env) result.Result {
				<-ctx.Done()
				return result.Failed("killed").WithOutput("so far")
			}},
			{ID: "claims to pass", Timeout: time.Second, Run: func(ctx context.Context, _ *Env) result.Result {
				<-ctx.Done()
				return result.Passed("")
			}},
			{ID: "hangs", Run: func(context.Context, *Env) result.Result { <-release; return result.Passed("") }},
			{ID: "needs it", Needs: []string{"hangs"}, Run: pass},
			{ID: "next", Run: pass},
		}, Options{Timeout: time.Minute, Grace: time.Second})
		close(release)
		verdict(t, got["waits"], result.Error, "no result within 1h0m0s: killed")
		verdict(t, got["claims to pass"], result.Error, "no result within 1s")
		verdict(t, got["hangs"], result.Error, "no result within 1m0s: it does not stop")
		verdict(t, got["needs it"], result.Skip, "needs hangs")
		verdict(t, got["next"], result.Pass, "")
		if got["waits"].Output != "so far" || got["hangs"].Seconds != 61 {
			t.Errorf("output %q, %v s; want the output so far, 61 s", got["waits"].Output, got["hangs"].Seconds)
		}
	})
}

// TestUses has checks that share something take turns, and others run beside them.
func TestUses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var gpu, all, most atomic.Int32
		use := func(n *atomic.Int32) func(context.Context, *Env) result.Result {
			return func(context.Context, *Env) result.Result {
				if n.Add(1) > 1 {
					t.Error("two checks use the same thing")
				}
				now := all.Add(1)
				if now > most.Load() {
					most.Store(now)
				}
				time.Sleep(time.Second)
				all.Add(-1)
				n.Add(-1)
				return result.Passed("")
			}
		}
		var own [2]atomic.Int32
		begin := time.Now()
		mustRun(t, t.Context(), []Check{
			{ID: "a", Uses: []string{"gpu"}, Run: use(&gpu)},
			{ID: "b", Uses: []string{"net", "gpu"}, Run: use(&gpu)},
			{ID: "c", Uses: []string{"gpu"}, Run: use(&gpu)},
			{ID: "d", Run: use(&own[0])},
			{ID: "e", Uses: []string{"net"}, Run: use(&own[1])},
		}, Options{Parallel: 8})
		if took := time.Since(begin); took != 3*time.Second || most.Load() != 3 {
			t.Errorf("%v, %d at once; want 3s, 3", took, most.Load())
		}
	})
}

func TestCancel(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		checks := []Check{
			{ID: "before", Run: pass},
			{ID: "running", Run: func(ctx context.Context, _ *Env) result.Result {
				cancel()
				<-ctx.Done()
				return result.Passed("")
			}},
			{ID: "waiting", Needs: []string{"running"}, Run: pass},
			{ID: "after", Run: pass},
			{ID: "behind", Needs: []string{"after"}, Run: pass},
		}
		got := mustRun(t, ctx, checks, Options{})
		verdict(t, got["before"], result.Pass, "")
		verdict(t, got["running"], result.Error, "cancelled while it ran")
		verdict(t, got["waiting"], result.Skip, "needs running")
		verdict(t, got["after"], result.Error, "cancelled before its turn")
		verdict(t, got["behind"], result.Skip, "needs after")
	})
}

func TestNeeds(t *testing.T) {
	ran := map[string]bool{}
	record := func(id string, r result.Result) func(context.Context, *Env) result.Result {
		return func(context.Context, *Env) result.Result { ran[id] = true; return r }
	}
	got := mustRun(t, t.Context(), []Check{
		{ID: "last", Needs: []string{"fails"}, Run: record("last", result.Passed(""))},
		{ID: "also", Needs: []string{"last"}, Run: record("also", result.Passed(""))},
		{ID: "fine", Needs: []string{"first"}, Run: record("fine", result.Passed(""))},
		{ID: "of a skip", Needs: []string{"skips"}, Run: record("of a skip", result.Passed(""))},
		{ID: "fails", Run: record("fails", result.Failed("no"))},
		{ID: "skips", Run: record("skips", result.Skipped("none here"))},
		{ID: "first", Run: record("first", result.Passed(""))},
	}, Options{})
	verdict(t, got["last"], result.Skip, "it needs fails, which did not pass (fail)")
	verdict(t, got["also"], result.Skip, "it needs last")
	verdict(t, got["of a skip"], result.Skip, "it needs skips")
	verdict(t, got["fine"], result.Pass, "")
	if ran["last"] || ran["also"] || !ran["fine"] {
		t.Errorf("ran = %v", ran)
	}
}

func TestSelect(t *testing.T) {
	got := mustRun(t, t.Context(), []Check{
		{ID: "a", Run: pass}, {ID: "b", Needs: []string{"a"}, Run: pass}, {ID: "c", Run: pass},
	}, Options{Select: func(c Check) (bool, string) { return c.ID == "b", "not asked for" }})
	verdict(t, got["a"], result.Pass, "")
	verdict(t, got["b"], result.Pass, "")
	verdict(t, got["c"], result.Skip, "not asked for")
}

func TestParallel(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var now, most atomic.Int32
		var checks []Check
		for i := range 20 {
			checks = append(checks, Check{ID: fmt.Sprint(i), Run: func(context.Context, *Env) result.Result {
				most.Store(max(most.Load(), now.Add(1)))
				time.Sleep(time.Second)
				now.Add(-1)
				return result.Passed("")
			}})
		}
		begin := time.Now()
		events := 0
		mustRun(t, t.Context(), checks, Options{Parallel: 5, Observe: func(e Event) {
			if events++; e.Total != 20 || (e.Result != nil) != (e.Done > 0 && e.Result != nil) {
				t.Errorf("event %+v", e)
			}
		}})
		if most.Load() != 5 || time.Since(begin) != 4*time.Second || events != 40 {
			t.Errorf("%d at once, %v, %d events; want 5, 4s, 40", most.Load(), time.Since(begin), events)
		}
	})
}

func TestOrder(t *testing.T) {
	var order []string
	note := func(id string) func(context.Context, *Env) result.Result {
		return func(context.Context, *Env) result.Result { order = append(order, id); return result.Passed("") }
	}
	mustRun(t, t.Context(), []Check{
		{ID: "b", Needs: []string{"c"}, Run: note("b")}, {ID: "a", Run: note("a")}, {ID: "c", Run: note("c")}, {ID: "d", Run: note("d")},
	}, Options{})
	if got := strings.Join(order, ""); got != "acbd" {
		t.Errorf("order = %s; want acbd: as in the list where needs allow", got)
	}
}

func TestValidate(t *testing.T) {
	for want, checks := range map[string][]Check{
		"lacks its id":         {{Run: pass}},
		"its function":         {{ID: "a"}},
		`two checks have`:      {{ID: "a", Run: pass}, {ID: "a", Run: pass}},
		"does not exist":       {{ID: "a", Needs: []string{"b"}, Run: pass}},
		"needs itself":         {{ID: "a", Needs: []string{"a"}, Run: pass}},
		`"a" needs itself, th`: {{ID: "a", Needs: []string{"b"}, Run: pass}, {ID: "b", Needs: []string{"a"}, Run: pass}},
	} {
		if _, err := Run(t.Context(), &Env{}, checks, Options{}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("Run = %v; want …%s…", err, want)
		}
	}
	if got := mustRun(t, t.Context(), nil, Options{}); len(got) != 0 {
		t.Errorf("no checks gave %v", got)
	}
}

func TestEnv(t *testing.T) {
	env := Env{Environ: []string{"A=1", "AB=2", "A=3"}}
	if got := env.Getenv("A"); got != "3" {
		t.Errorf("Getenv(A) = %q; want the last one, 3", got)
	}
}
