package keep

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/assay-hpc/assay/internal/attest"
	"github.com/assay-hpc/assay/internal/certificate"
	"github.com/assay-hpc/assay/internal/result"
)

func TestSince(t *testing.T) {
	base := func() Machine {
		return Machine{Boot: "b1", Driver: "580.1", GPUs: map[string]string{"GPU-a": "0000:17:00.0 VBIOS 1", "GPU-b": "0000:65:00.0 VBIOS 1"}, Energy: map[string]uint64{"GPU-a": 100, "GPU-b": 200}}
	}
	for _, tt := range []struct {
		name   string
		change func(*Machine)
		want   string
	}{
		{"nothing", func(*Machine) {}, ""},
		{"energy was used", func(m *Machine) { m.Energy["GPU-a"] = 150 }, ""},
		{"boot", func(m *Machine) { m.Boot = "b2"; m.Energy["GPU-a"] = 1 }, "the node was booted"},
		{"driver", func(m *Machine) { m.Driver = "580.2" }, "the driver is 580.2, and was 580.1"},
		{"no driver", func(m *Machine) { m.Driver, m.GPUs = "", nil }, "the driver is none, and was 580.1; GPU-a is gone; GPU-b is gone"},
		{"reset", func(m *Machine) { m.Energy["GPU-b"] = 3 }, "GPU-b was reset, or its driver loaded again"},
		{"energy is not known", func(m *Machine) { delete(m.Energy, "GPU-b") }, ""},
		{"another GPU", func(m *Machine) { m.GPUs["GPU-c"] = m.GPUs["GPU-b"]; delete(m.GPUs, "GPU-b") }, "GPU-c is new; GPU-b is gone"},
		{"VBIOS", func(m *Machine) { m.GPUs["GPU-a"] = "0000:17:00.0 VBIOS 2" }, "GPU-a is 0000:17:00.0 VBIOS 2, and was 0000:17:00.0 VBIOS 1"},
	} {
		m := base()
		tt.change(&m)
		if got := strings.Join(m.Since(base()), "; "); got != tt.want {
			t.Errorf("%s: %q; want %q", tt.name, got, tt.want)
		}
	}
}

// A fake is a site and a machine, which records what is done with it.
type fake struct {
	machine        Machine
	health, verify result.Verdict
	err            error // of Certify
	busy           []string
	arrives        []string // while the keeper settles
	limits         string
	stored         *certificate.Statement
	now            time.Time
	log            []string
	api            *api
}

func (f *fake) Act(_ context.Context, st *certificate.Statement, due string) error {
	f.tell("act "+st.Predicate.Suite+" "+string(st.Predicate.Verdict), due)
	return nil
}

func (f *fake) Withdraw(_ context.Context, why string) error {
	f.tell("withdraw", why)
	f.busy, f.arrives = append(f.busy, f.arrives...), nil
	return nil
}

func (f *fake) Void(_ context.Context, why string) error {
	f.tell("void", why)
	return nil
}

func (f *fake) Observe(_ context.Context, st *certificate.Statement, due string) error {
	f.tell("observe "+string(st.Predicate.Verdict), due)
	return nil
}

func (f *fake) tell(what, why string) {
	if why != "" {
		what += ": " + why
	}
	f.log = append(f.log, what)
}

func (f *fake) Busy(context.Context) ([]string, error) { return f.busy, nil }

// statement is a certificate; those of other times are others.
func statement(suite string, v result.Verdict, at time.Time) *certificate.Statement {
	return certificate.New(certificate.Predicate{Suite: suite, Started: at, Finished: at, Results: []result.Result{{ID: "gpu/ecc", Verdict: v, Reason: "x"}}})
}

func (f *fake) keeper(dir string) *Keeper {
	return &Keeper{
		Node: "n1", Dir: dir, Suite: []string{"--suite", "quick"}, GPUs: 1, Every: time.Minute, MaxAge: 10 * time.Hour, Retry: time.Hour, Share: Share{Percent: 5},
		Site: f, Slots: f.api, Now: func() time.Time { return f.now }, Note: func(string, ...any) {},
		Identify: func(context.Context) (Machine, error) { return f.machine, nil },
		Health: func(context.Context) (*certificate.Statement, error) {
			return statement("health", f.health, f.now), nil
		},
		Certify: func(context.Context) (*certificate.Statement, error) {
			f.log = append(f.log, "certify")
			if f.err != nil {
				return nil, f.err
			}
			f.stored = statement("quick", f.verify, f.now)
			return f.stored, nil
		},
		Stored: func() (*certificate.Statement, error) {
			if f.stored == nil {
				return nil, os.ErrNotExist
			}
			return f.stored, nil
		},
		Limits: func() (string, error) { return f.limits, nil },
	}
}

func newFake() *fake {
	return &fake{
		machine: Machine{Boot: "1", Driver: "580", GPUs: map[string]string{"GPU-a": "x"}, Energy: map[string]uint64{"GPU-a": 100}},
		health:  result.Pass, verify: result.Pass, now: time.Date(2026, 3, 1, 0, 0, 0, 0, time.UTC), api: newAPI(1),
	}
}

// TestTurns: one node through what may happen to it. Each turn is another process, as after a crash.
func TestTurns(t *testing.T) {
	dir := t.TempDir()
	f := newFake()
	stored := func() { f.stored = statement("quick", result.Warn, f.now) }
	const full = "as many nodes as may be are being certified"
	for _, tt := range []struct {
		name  string
		later time.Duration
		what  func()
		want  string
	}{
		{"it joins, with work", 0, func() { f.busy = []string{"a/b"} }, "void: it was never certified; it waits for a/b"},
		{"it is free, and another one is being certified", time.Minute, func() { f.busy = nil; f.api.take(0, "n2") }, "void: it was never certified; " + full},
		{"it is free", time.Minute, func() { f.api.take(0, "") }, "withdraw: it was never certified; certify; act quick pass"},
		{"the driver is gone", time.Minute, func() { f.machine.GPUs = nil }, "void: of 1 GPUs the driver shows 0; error: of 1 GPUs the driver shows 0"},
		{"nothing happens", time.Minute, func() {
			f.machine.GPUs, f.machine.Energy = map[string]string{"GPU-a": "x"}, map[string]uint64{"GPU-a": 300}
		}, "act quick pass"},
		{"a reset, with work", time.Minute, func() { f.machine.Energy = map[string]uint64{"GPU-a": 200}; f.busy = []string{"a/b"} }, "act quick pass: GPU-a was reset, or its driver loaded again; it waits for a/b"},
		{"it is not forgotten", time.Minute, func() { f.machine.Energy = map[string]uint64{"GPU-a": 400}; f.machine.Boot = "2" }, "act quick pass: the node was booted; it waits for a/b"},
		{"free", time.Minute, func() { f.busy = nil }, "withdraw: the node was booted; certify; act quick pass"},
		{"a boot, and work arrives when it is withdrawn", time.Minute, func() { f.machine.Boot, f.arrives = "3", []string{"a/b"} }, "withdraw: the node was booted; act quick pass: the node was booted; it waits for a/b"},
		{"free", time.Minute, func() { f.busy = nil }, "withdraw: the node was booted; certify; act quick pass"},
		{"more than half as old as it may get, with work", 7*time.Hour + time.Minute, func() { f.busy = []string{"a/b"} }, "act quick pass"},
		{"too old, with work", 3 * time.Hour, nil, "act quick pass: its certificate is 10h1m0s old; it waits for a/b"},
		{"twice as old, with work, and the slot taken", 10 * time.Hour, func() { f.api.take(0, "n2") }, "act quick pass: its certificate is 20h1m0s old; it waits for a/b"},
		{"free", 0, func() { f.busy = nil; f.api.take(0, "") }, "withdraw: its certificate is 20h1m0s old; certify; act quick pass"},
		{"half as old, free", 7*time.Hour + time.Minute, nil, "withdraw: its certificate is 7h1m0s old; certify; act quick pass"},
		{"a check without load fails", time.Minute, func() { f.health = result.Fail }, "act health fail"},
		{"it goes on", time.Minute, nil, "act health fail"},
		{"it is repaired, and slow", time.Minute, func() { f.health, f.verify = result.Pass, result.Fail }, "withdraw: a check without load had failed; certify; act quick fail"},
		{"soon after", time.Minute, nil, "act quick fail"},
		{"tried again", 2 * time.Hour, func() { f.verify = result.Pass }, "withdraw: its last verdict was fail; certify; act quick pass"},
		{"a boot, and then the certification cannot run", time.Minute, func() { f.machine.Boot, f.err = "4", errors.New("hangs") }, "withdraw: the node was booted; certify; void: the certification could not run; error: hangs"},
		{"the certificate of before is no pass for what is now", time.Minute, nil, "void: the certification could not run"},
		{"later", 2 * time.Hour, func() { f.err = nil }, "withdraw: its last verdict was error; certify; act quick pass"},
		{"somebody else writes a certificate there", time.Minute, stored, "withdraw: another certificate is in the place of its own; certify; act quick pass"},
		{"the same, with work", time.Minute, func() { stored(); f.busy = []string{"a/b"} }, "void: another certificate is in the place of its own; it waits for a/b"},
		{"the certificate is deleted", time.Minute, func() { f.stored = nil; f.busy = nil }, "withdraw: its certificate cannot be read; certify; act quick pass"},
		{"another GPU, with work", time.Minute, func() { f.machine.GPUs = map[string]string{"GPU-b": "x"}; f.busy = []string{"a/b"} }, "void: GPU-b is new, GPU-a is gone; it waits for a/b"},
		{"free", time.Minute, func() { f.busy = nil }, "withdraw: GPU-b is new, GPU-a is gone; certify; act quick pass"},
		{"other limits", time.Minute, func() { f.limits = "2" }, "withdraw: it was certified by other limits; certify; act quick pass"},
		{"the record is damaged", time.Minute, func() { os.WriteFile(filepath.Join(dir, file), []byte("{"), 0o644) }, "withdraw: it was never certified; certify; act quick pass"},
		{"the process dies while it certifies", time.Minute, func() {
			k := f.keeper(dir)
			r, err := k.read()
			r.Verdict = ""
			if err = errors.Join(err, k.write(r)); err != nil {
				t.Fatal(err)
			}
			f.api.take(0, "n1") // its own slot
		}, "withdraw: its certification did not end; certify; act quick pass"},
	} {
		f.now = f.now.Add(tt.later)
		if tt.what != nil {
			tt.what()
		}
		f.log = nil
		if err := f.keeper(dir).Turn(t.Context()); err != nil {
			f.log = append(f.log, "error: "+err.Error())
		}
		if got := strings.Join(f.log, "; "); got != tt.want {
			t.Errorf("%s:\n got %s\nwant %s", tt.name, got, tt.want)
		}
		if h := f.api.slots[0].Holder; h == "n1" {
			t.Errorf("%s: the slot is not given back", tt.name)
		}
	}
	f.log = nil
	k := f.keeper(dir)
	k.Suite = []string{"--suite", "node"}
	if err := k.Turn(t.Context()); err != nil || !slices.Contains(f.log, `withdraw: it was certified by "--suite quick"`) {
		t.Errorf("another suite: %v, %v", f.log, err)
	}
}

// TestDrained: a node at work whose certificate is twice as old as it may get gets no new work, for
// some time.
func TestDrained(t *testing.T) {
	f := newFake()
	k := f.keeper("")
	k.memory = new(record)
	turn := func(later time.Duration, want string) {
		t.Helper()
		f.now, f.log = f.now.Add(later), nil
		if err := k.Turn(t.Context()); err != nil {
			f.log = append(f.log, "error: "+err.Error())
		}
		if got := strings.Join(f.log, "; "); got != want {
			t.Errorf("got %s\nwant %s", got, want)
		}
	}
	turn(0, "withdraw: it was never certified; certify; act quick pass")
	f.busy = []string{"a/b"}
	turn(20*time.Hour, "act quick pass: its certificate is 20h0m0s old; it waits for a/b")
	turn(time.Minute, "act quick pass: its certificate is 20h1m0s old; it waits for a/b") // patient
	turn(time.Minute, "withdraw: its certificate is 20h2m0s old; it waits for a/b")
	turn(time.Hour, "withdraw: its certificate is 21h2m0s old; it waits for a/b")
	turn(time.Minute, "act quick pass: its certificate is 21h3m0s old; it waits for a/b") // a tenth of MaxAge
	turn(time.Minute, "act quick pass: its certificate is 21h4m0s old; it waits for a/b")
	turn(time.Hour, "act quick pass: its certificate is 22h4m0s old; it waits for a/b")
	turn(time.Minute, "withdraw: its certificate is 22h5m0s old; it waits for a/b")
	f.busy = nil
	turn(time.Minute, "withdraw: its certificate is 22h6m0s old; certify; act quick pass")
}

// TestObserve: it says what it would do, and does nothing.
func TestObserve(t *testing.T) {
	f := newFake()
	k := f.keeper(t.TempDir())
	k.Observe = true
	for v, want := range map[result.Verdict]string{result.Pass: "observe pass: it was never certified", result.Fail: "observe fail"} {
		f.health, f.log = v, nil
		if err := k.Turn(t.Context()); err != nil || strings.Join(f.log, "; ") != want {
			t.Errorf("%s: %q, %v; want %q", v, f.log, err, want)
		}
	}
}

// TestRun: it ends with its context, and tells of what went wrong.
func TestRun(t *testing.T) {
	f := newFake()
	k := f.keeper(t.TempDir())
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	turns := 0
	k.Every = time.Millisecond
	k.Identify = func(context.Context) (Machine, error) {
		if turns++; turns == 3 {
			stop()
		}
		return Machine{}, errors.New("no driver")
	}
	var notes []string
	k.Note = func(format string, a ...any) { notes = append(notes, format) }
	k.Run(ctx)
	if turns != 3 || len(notes) != 2 {
		t.Errorf("%d turns, notes %q", turns, notes)
	}
}

// refusing is a site whose policy no longer accepts what is stored.
type refusing struct {
	*fake
	refuse int // so many times
}

func (r *refusing) Act(ctx context.Context, st *certificate.Statement, due string) error {
	if st.Predicate.Suite != "health" && r.refuse > 0 {
		r.refuse--
		return fmt.Errorf("%w: older than the mark", attest.ErrTime)
	}
	return r.fake.Act(ctx, st, due)
}

// TestRefused: a stored certificate that the site's policy refuses is made again; if a new one is
// refused, too, it is tried again after Retry, not at each turn.
func TestRefused(t *testing.T) {
	dir := t.TempDir()
	f := newFake()
	site := &refusing{fake: f}
	turn := func(later time.Duration) (did string, err error) {
		f.log, f.now = nil, f.now.Add(later)
		k := f.keeper(dir)
		k.Site = site
		err = k.Turn(t.Context())
		return strings.Join(f.log, "; "), err
	}
	if did, err := turn(0); err != nil || !strings.HasSuffix(did, "act quick pass") {
		t.Fatalf("at first: %q, %v", did, err)
	}
	site.refuse = 1
	if did, err := turn(time.Minute); err != nil || did != "void: its certificate is no longer accepted" {
		t.Errorf("refused: %q, %v", did, err)
	}
	if did, err := turn(time.Minute); err != nil || did != "withdraw: its certificate is no longer accepted; certify; act quick pass" {
		t.Errorf("after that: %q, %v", did, err)
	}
	site.refuse = 2
	if did, err := turn(time.Minute); err != nil || did != "void: its certificate is no longer accepted" {
		t.Errorf("refused again: %q, %v", did, err)
	}
	if did, err := turn(time.Minute); !errors.Is(err, attest.ErrTime) || did != "withdraw: its certificate is no longer accepted; certify; void: its certificate is not accepted" {
		t.Errorf("the new one refused: %q, %v", did, err)
	}
	if did, err := turn(time.Minute); err != nil || did != "void: the certification could not run" {
		t.Errorf("after that: %q, %v", did, err)
	}
	if did, err := turn(2 * time.Hour); err != nil || !strings.HasSuffix(did, "certify; act quick pass") {
		t.Errorf("after Retry: %q, %v", did, err)
	}
}

// TestClockSetBack: a certificate of the future does not hold until then.
func TestClockSetBack(t *testing.T) {
	for ahead, due := range map[time.Duration]bool{0: false, time.Minute: false, 2 * time.Hour: true, 365 * 24 * time.Hour: true} {
		f := newFake()
		k := f.keeper(t.TempDir())
		if err := k.Turn(t.Context()); err != nil {
			t.Fatal(err)
		}
		f.log, f.now = nil, f.now.Add(-ahead)
		if err := k.Turn(t.Context()); err != nil || due != strings.Contains(strings.Join(f.log, "; "), "the clock was set back") {
			t.Errorf("%v ahead: %q, %v; due: %v", ahead, f.log, err, due)
		}
	}
}
