package keep

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/assay-hpc/assay/harness/certificate"
	"github.com/assay-hpc/assay/harness/result"
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
	stored         *certificate.Statement
	now            time.Time
	log            []string
}

func (f *fake) Act(_ context.Context, st *certificate.Statement) error {
	f.log = append(f.log, "act "+st.Predicate.Suite+" "+string(st.Predicate.Verdict))
	return nil
}

func (f *fake) Withdraw(_ context.Context, why string) error {
	f.log = append(f.log, "withdraw: "+why)
	return nil
}

func (f *fake) Busy(context.Context) ([]string, error) { return f.busy, nil }

func statement(suite string, v result.Verdict) *certificate.Statement {
	st := certificate.New(certificate.Predicate{Suite: suite, Results: []result.Result{{ID: "gpu/ecc", Verdict: v, Reason: "x"}}})
	return st
}

func (f *fake) keeper(dir string) *Keeper {
	return &Keeper{
		Dir: dir, Suite: []string{"--suite", "quick"}, GPUs: 1, Every: time.Minute, MaxAge: 10 * time.Hour, Retry: time.Hour,
		Site: f, Now: func() time.Time { return f.now }, Note: func(string, ...any) {},
		Identify: func(context.Context) (Machine, error) { return f.machine, nil },
		Health:   func(context.Context) (*certificate.Statement, error) { return statement("health", f.health), nil },
		Certify: func(context.Context) (*certificate.Statement, error) {
			f.log = append(f.log, "certify")
			if f.err != nil {
				return nil, f.err
			}
			f.stored = statement("quick", f.verify)
			return f.stored, nil
		},
		Stored: func() (*certificate.Statement, error) {
			if f.stored == nil {
				return nil, os.ErrNotExist
			}
			return f.stored, nil
		},
	}
}

// TestTurns: one node through what may happen to it. Each turn is another process, as after a crash.
func TestTurns(t *testing.T) {
	dir := t.TempDir()
	f := &fake{
		machine: Machine{Boot: "1", Driver: "580", GPUs: map[string]string{"GPU-a": "x"}, Energy: map[string]uint64{"GPU-a": 100}},
		health:  result.Pass, verify: result.Pass, now: time.Date(2026, 3, 1, 0, 0, 0, 0, time.UTC),
	}
	stored := func() { f.stored = statement("quick", result.Warn) }
	for _, tt := range []struct {
		name  string
		later time.Duration
		what  func()
		want  string
	}{
		{"it joins, with work", 0, func() { f.busy = []string{"a/b"} }, "withdraw: it was never certified"},
		{"it is free", time.Minute, func() { f.busy = nil }, "withdraw: it was never certified; certify; act quick pass"},
		{"the driver is gone", time.Minute, func() { f.machine.GPUs = nil }, "withdraw: of 1 GPUs the driver shows 0; error: of 1 GPUs the driver shows 0"},
		{"nothing happens", time.Minute, func() {
			f.machine.GPUs, f.machine.Energy = map[string]string{"GPU-a": "x"}, map[string]uint64{"GPU-a": 300}
		}, "act quick pass"},
		{"a reset", time.Minute, func() { f.machine.Energy = map[string]uint64{"GPU-a": 200} }, "withdraw: GPU-a was reset, or its driver loaded again; certify; act quick pass"},
		{"it is half as old as it may get, with work", 6 * time.Hour, func() { f.busy = []string{"a/b"} }, "act quick pass"},
		{"too old, with work", 5 * time.Hour, nil, "withdraw: its certificate is 11h0m0s old"},
		{"free", 0, func() { f.busy = nil }, "withdraw: its certificate is 11h0m0s old; certify; act quick pass"},
		{"half as old, free", 6 * time.Hour, nil, "withdraw: its certificate is 6h0m0s old; certify; act quick pass"},
		{"a check without load fails", time.Minute, func() { f.health = result.Fail }, "act health fail"},
		{"it goes on", time.Minute, nil, "act health fail"},
		{"it is repaired, and slow", time.Minute, func() { f.health, f.verify = result.Pass, result.Fail }, "withdraw: a check without load had failed; certify; act quick fail"},
		{"soon after", time.Minute, nil, "act quick fail"},
		{"tried again", 2 * time.Hour, func() { f.verify = result.Pass }, "withdraw: its last verdict was fail; certify; act quick pass"},
		{"a boot, and then the certification cannot be carried out", time.Minute, func() { f.machine.Boot, f.err = "2", errors.New("hangs") }, "withdraw: the node was booted; certify; error: hangs"},
		{"the certificate of before is no pass for what is now", time.Minute, nil, "withdraw: the certification could not be carried out"},
		{"later", 2 * time.Hour, func() { f.err = nil }, "withdraw: its last verdict was error; certify; act quick pass"},
		{"somebody else writes a certificate there", time.Minute, stored, "withdraw: another certificate is in the place of its own; certify; act quick pass"},
		{"the certificate is deleted", time.Minute, func() { f.stored = nil }, "withdraw: its certificate cannot be read; certify; act quick pass"},
		{"the record is damaged", time.Minute, func() { os.WriteFile(filepath.Join(dir, file), []byte("{"), 0o644) }, "withdraw: it was never certified; certify; act quick pass"},
		{"the process dies while it certifies", time.Minute, func() {
			k := f.keeper(dir)
			r, err := k.read()
			r.Verdict = ""
			if err = errors.Join(err, k.write(r)); err != nil {
				t.Fatal(err)
			}
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
	}
	f.log = nil
	k := f.keeper(dir)
	k.Suite = []string{"--suite", "node"}
	if err := k.Turn(t.Context()); err != nil || !slices.Contains(f.log, `withdraw: it was certified by "--suite quick"`) {
		t.Errorf("another suite: %v, %v", f.log, err)
	}
}

// TestRun: it ends with its context, and tells of what went wrong.
func TestRun(t *testing.T) {
	f := &fake{health: result.Pass, verify: result.Pass}
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

// TestClockSetBack: a certificate of the future does not hold until then.
func TestClockSetBack(t *testing.T) {
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	k := Keeper{Suite: []string{"x"}, MaxAge: 10 * time.Hour, Retry: time.Hour, Now: func() time.Time { return now }}
	for ahead, want := range map[time.Duration][2]bool{0: {false, false}, time.Minute: {false, false}, 2 * time.Hour: {true, false}, 365 * 24 * time.Hour: {true, true}} {
		r := record{Version: 1, Suite: k.Suite, Verdict: result.Pass, Finished: now.Add(ahead)}
		why, urgent := k.reason(r, Machine{})
		if (why != "") != want[0] || urgent != want[1] {
			t.Errorf("%v ahead: %q, urgent: %v; want %v", ahead, why, urgent, want)
		}
	}
}
