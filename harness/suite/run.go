package suite

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/assay-hpc/assay/internal/result"
)

// Options say how to run a list of checks. The zero value runs all, one at a time.
type Options struct {
	Parallel int           // checks at once; less than 1 means 1
	Timeout  time.Duration // for checks without their own; 0 means DefaultTimeout
	// Grace is how long a check may take to return after its time limit. Then it is abandoned,
	// together with its goroutine. 0 means DefaultGrace.
	Grace time.Duration
	// Select says whether a check is wanted, and if not, the reason. The needs of a wanted check
	// are wanted, too. nil selects all.
	Select func(Check) (wanted bool, reason string)
	// Earlier are results of an interrupted run: these checks are not run again.
	Earlier []result.Result
	// Observe is called for every start and end, and for every text that checks Tell, one call at
	// a time.
	Observe func(Event)
}

// Defaults for Options. A minute is long for anything in a finished image except measurements,
// which set their own limit.
const (
	DefaultTimeout = time.Minute
	DefaultGrace   = 5 * time.Second
)

// MaxOutput is how many bytes at the end of a check's output are stored.
const MaxOutput = 16 << 10

// An Event is a check's start, a text from Tell (Text), or a check's end (Result).
type Event struct {
	Check  Check
	Text   string
	Result *result.Result
	Done   int // checks that have ended
	Total  int
}

type telling struct{}

// Tell reports a check's progress to the user. It never blocks: texts are lost if the runner is
// too busy.
func Tell(ctx context.Context, text string) {
	if tell, ok := ctx.Value(telling{}).(func(string)); ok {
		tell(text)
	}
}

// Run runs the checks and returns their results in the order of the list. It only returns errors
// of [Validate]: everything else is in the results. When ctx ends, running checks are cancelled
// and the others get an error.
//
// The caller's goroutine decides what starts and owns all state. A running check has two more
// goroutines, which end with it unless it had to be abandoned.
func Run(ctx context.Context, env *Env, checks []Check, opt Options) ([]result.Result, error) {
	if err := Validate(checks); err != nil {
		return nil, err
	}
	r := newRunner(env, checks, opt)
	for r.pending(ctx) || r.running > 0 {
		if r.running == 0 {
			continue // something was settled without running; check again
		}
		select {
		case s := <-r.said:
			r.observe(Event{Check: checks[s.index], Text: s.text})
		case d := <-r.ended:
			r.running--
			for _, name := range checks[d.index].Uses {
				delete(r.used, name)
			}
			r.settle(d.index, d.result, d.took)
		}
	}
	return r.results, nil
}

type runner struct {
	env      *Env
	opt      Options
	checks   []Check
	index    map[string]int
	unwanted map[int]string // reason, for checks that Select excluded
	started  []bool
	results  []result.Result // settled if the verdict is set
	running  int
	used     map[string]bool // in use by running checks
	done     int
	ended    chan ended
	said     chan checkOutput
}

type checkOutput struct {
	index int
	text  string
}

type ended struct {
	index  int
	result result.Result
	took   time.Duration
}

func newRunner(env *Env, checks []Check, opt Options) *runner {
	opt.Parallel = max(1, opt.Parallel)
	opt.Timeout = cmp.Or(opt.Timeout, DefaultTimeout)
	opt.Grace = cmp.Or(opt.Grace, DefaultGrace)
	r := &runner{
		env: env, opt: opt, checks: checks, index: map[string]int{},
		started: make([]bool, len(checks)), results: make([]result.Result, len(checks)),
		used: map[string]bool{}, ended: make(chan ended), said: make(chan checkOutput, 64),
	}
	for i, c := range checks {
		r.index[c.ID] = i
	}
	r.unwanted = r.selection()
	for _, earlier := range opt.Earlier {
		i, ok := r.index[earlier.ID]
		if _, out := r.unwanted[i]; ok && !out && !r.started[i] {
			r.started[i] = true
			r.enter(i, earlier)
		}
	}
	return r
}

// selection returns the checks that are not wanted, with the reason.
func (r *runner) selection() map[int]string {
	unwanted, wanted := map[int]string{}, map[int]bool{}
	var want func(int)
	want = func(i int) {
		if !wanted[i] {
			wanted[i] = true
			for _, need := range r.checks[i].Needs {
				want(r.index[need])
			}
		}
	}
	for i, c := range r.checks {
		ok, reason := true, ""
		if r.opt.Select != nil {
			ok, reason = r.opt.Select(c)
		}
		if ok {
			want(i)
		}
		unwanted[i] = reason
	}
	for i := range wanted {
		delete(unwanted, i)
	}
	return unwanted
}

// pending settles checks that need no run, starts those that may run, in the list's order, and
// reports whether any is still to be started.
func (r *runner) pending(ctx context.Context) bool {
	left := false
	for i := range r.checks {
		if r.started[i] {
			continue
		}
		res, ready := r.without(ctx, i)
		switch {
		case res != nil:
			r.started[i] = true
			r.settle(i, *res, 0)
		case ready && r.running < r.opt.Parallel && r.take(i):
			r.started[i] = true
			r.start(ctx, i)
		default:
			left = true
		}
	}
	return left
}

// take reserves what a check uses, unless another check uses some of it.
func (r *runner) take(i int) bool {
	uses := r.checks[i].Uses
	if slices.ContainsFunc(uses, func(name string) bool { return r.used[name] }) {
		return false
	}
	for _, name := range uses {
		r.used[name] = true
	}
	return true
}

// without returns the result of a check that must not run at all; otherwise it returns whether
// all of its needs have passed.
func (r *runner) without(ctx context.Context, i int) (*result.Result, bool) {
	settled := func(res result.Result) (*result.Result, bool) { return &res, false }
	if reason, ok := r.unwanted[i]; ok {
		return settled(result.Skipped("%s", reason))
	}
	for _, need := range r.checks[i].Needs {
		dep := r.results[r.index[need]]
		switch dep.Verdict {
		case result.Pass, result.Warn:
		case "": // when ctx has ended, too, it gets a result
			return nil, false
		default:
			return settled(result.Skipped("it needs %s, which did not pass (%s)", need, dep.Verdict))
		}
	}
	if ctx.Err() != nil {
		return settled(result.Errored("cancelled before its turn"))
	}
	return nil, true
}

func (r *runner) start(ctx context.Context, i int) {
	c := r.checks[i]
	r.running++
	r.observe(Event{Check: c})
	go func() {
		begin := time.Now()
		res := r.attempt(context.WithValue(ctx, telling{}, func(text string) {
			select {
			case r.said <- checkOutput{i, text}:
			default:
			}
		}), c)
		r.ended <- ended{i, res, time.Since(begin)}
	}()
}

// attempt runs one check within its time limit.
func (r *runner) attempt(ctx context.Context, c Check) result.Result {
	limit := c.Timeout
	limit = cmp.Or(limit, r.opt.Timeout)
	ctx, cancel := context.WithTimeoutCause(ctx, limit, errTimeout)
	defer cancel()
	out := make(chan result.Result, 1) // buffered: an abandoned check must not block
	go func() { out <- protect(ctx, r.env, c) }()
	select {
	case res := <-out:
		return late(ctx, limit, res)
	case <-ctx.Done():
	}
	grace := time.NewTimer(r.opt.Grace)
	defer grace.Stop()
	select {
	case res := <-out:
		return late(ctx, limit, res)
	case <-grace.C:
		return late(ctx, limit, result.Errored("it does not stop"))
	}
}

// protect converts a panic to a result.
func protect(ctx context.Context, env *Env, c Check) (res result.Result) {
	defer func() {
		if v := recover(); v != nil {
			res = result.Errored("the check itself panicked: %v", v).WithOutput(string(debug.Stack()))
		}
	}()
	return c.Run(ctx, env)
}

// late replaces the result of a check that returns after its time limit: a timeout is never a
// pass, and a check that fails because it was killed has not failed.
func late(ctx context.Context, limit time.Duration, res result.Result) result.Result {
	if ctx.Err() == nil {
		return res
	}
	reason := "cancelled while it ran"
	if errors.Is(context.Cause(ctx), errTimeout) {
		reason = fmt.Sprintf("no result within %v", limit)
	}
	if res.Reason != "" {
		reason += ": " + res.Reason
	}
	return result.Errored("%s", reason).WithOutput(res.Output).WithRemedy(res.Remedy)
}

// settle records a check's only result.
func (r *runner) settle(i int, res result.Result, took time.Duration) {
	c := r.checks[i]
	entry := result.Result{
		ID: c.ID, Component: c.Component, Title: c.Title, Verdict: res.Verdict, Reason: sentence(res.Reason),
		Wanted: sentence(res.Wanted), Remedy: sentence(res.Remedy), Measured: res.Measured, Seconds: took.Round(time.Microsecond).Seconds(), Output: tail(res.Output),
		Objects: res.Objects, Curves: res.Curves,
	}
	for i := range entry.Objects {
		entry.Objects[i].Reason = sentence(entry.Objects[i].Reason)
	}
	if err := entry.Validate(); err != nil {
		entry.Verdict, entry.Measured, entry.Objects, entry.Curves = result.Error, nil, nil, nil
		entry.Reason = sentence("the check broke the rules of checks: " + err.Error())
	}
	r.enter(i, entry)
}

func (r *runner) enter(i int, entry result.Result) {
	r.results[i] = entry
	r.done++
	r.observe(Event{Check: r.checks[i], Result: &entry})
}

func (r *runner) observe(e Event) {
	if r.opt.Observe != nil {
		e.Done, e.Total = r.done, len(r.checks)
		r.opt.Observe(e)
	}
}

// sentence converts a reason to one line that JSON preserves.
func sentence(s string) string {
	return strings.Join(strings.Fields(strings.ToValidUTF8(s, "\uFFFD")), " ")
}

// tail returns the end of an output, from the start of a line if possible.
func tail(s string) string {
	if len(s) > MaxOutput {
		s = s[len(s)-MaxOutput:]
		if i := strings.IndexByte(s, '\n'); i >= 0 && i < len(s)-1 {
			s = s[i+1:]
		}
		for len(s) > 0 && !utf8.RuneStart(s[0]) {
			s = s[1:]
		}
		s = "[…]\n" + s
	}
	return strings.ToValidUTF8(s, "\uFFFD")
}
