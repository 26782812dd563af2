package bootstrap

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/assay-hpc/assay/coll/predict/scale/scaletest"
	"github.com/assay-hpc/assay/internal/meet"
)

// assemble brings a group of n together in this process, but for the ranks that stay
// away; those have nil.
func assemble(t *testing.T, n int, o Options, away ...int) ([]*Group, []error) {
	t.Helper()
	groups, errs := make([]*Group, n), make([]error, n)
	job := jobOf(t, n)
	var wg sync.WaitGroup
	for r := range n {
		if slices.Contains(away, r) {
			continue
		}
		wg.Go(func() {
			groups[r], errs[r] = Await(t.Context(), job(r), fmt.Appendf(nil, "host%d", r), o)
		})
	}
	wg.Wait()
	return groups, errs
}

// jobOf makes the worlds of a job whose ranks find one another at an address.
func jobOf(t *testing.T, n int) func(rank int) World {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	addr := l.Addr().String()
	l.Close()
	return func(rank int) World {
		w, err := Detect(env(fmt.Sprintf("RANK=%d", rank), fmt.Sprintf("WORLD_SIZE=%d", n), "MASTER_ADDR=127.0.0.1", "NCCL_COMM_ID="+addr, "ASSAY_JOB_SECRET=s3cret"))
		if err != nil {
			t.Error(err)
		}
		return w
	}
}

func closeGroup(groups []*Group) {
	var wg sync.WaitGroup
	for _, c := range groups {
		if c != nil {
			wg.Go(func() { c.Close(nil) })
		}
	}
	wg.Wait()
}

// say has all living ranks give their names, and returns what rank 0 answered each.
func say(t *testing.T, ctx context.Context, groups []*Group) ([]string, []error) {
	t.Helper()
	out, errs := make([]string, len(groups)), make([]error, len(groups))
	var wg sync.WaitGroup
	for r, c := range groups {
		if c == nil {
			continue
		}
		wg.Go(func() {
			ctx := ctx
			if r != 0 {
				ctx = context.WithoutCancel(ctx) // a deadline is rank 0's
			}
			b, err := c.Exchange(ctx, fmt.Appendf(nil, "r%d", r), func(all [][]byte) ([][]byte, error) {
				var text []string
				answers := make([][]byte, len(all))
				for rank, b := range all {
					if b == nil {
						b = []byte("-")
					}
					text = append(text, string(b))
					answers[rank] = fmt.Appendf(nil, "%d:", rank)
				}
				for rank := range answers {
					answers[rank] = append(answers[rank], strings.Join(text, " ")...)
				}
				return answers, nil
			})
			out[r], errs[r] = string(b), err
		})
	}
	wg.Wait()
	return out, errs
}

func TestCrew(t *testing.T) {
	groups, errs := assemble(t, 5, local())
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		got, errs := say(t, t.Context(), groups)
		for r := range groups {
			if want := fmt.Sprintf("%d:r0 r1 r2 r3 r4", r); errs[r] != nil || got[r] != want {
				t.Errorf("rank %d was answered %q, %v; want %q", r, got[r], errs[r], want)
			}
		}
	}
	for r, c := range groups {
		if c.Rank() != r || c.Size() != 5 || !c.Addr().IsLoopback() || !c.First().IsLoopback() {
			t.Errorf("rank %d takes itself for %d of %d at %v, rank 0 for %v", r, c.Rank(), c.Size(), c.Addr(), c.First())
		}
		if got := groups[0].Here(r); string(got) != fmt.Sprintf("host%d", r) {
			t.Errorf("rank %d said of itself %q", r, got)
		}
		if string(c.Key("x")) != string(groups[0].Key("x")) || string(c.Key("x")) == string(c.Key("y")) {
			t.Error("keys are not the group's")
		}
	}
	closeGroup(groups)
	if _, err := groups[1].Exchange(t.Context(), nil, nil); err == nil {
		t.Error("an exchange after the end")
	}
}

// What rank 0 says when it cannot judge is what all hear.
func TestCrewRefusal(t *testing.T) {
	groups, _ := assemble(t, 3, local())
	defer closeGroup(groups)
	var wg sync.WaitGroup
	for r, c := range groups {
		wg.Go(func() {
			_, err := c.Exchange(t.Context(), nil, func([][]byte) ([][]byte, error) { return nil, errors.New("they do not fit together") })
			if err == nil || err.Error() != "they do not fit together" {
				t.Errorf("rank %d: %v", r, err)
			}
		})
	}
	wg.Wait()
	if got, errs := say(t, t.Context(), groups); errors.Join(errs...) != nil || got[2] != "2:r0 r1 r2" {
		t.Errorf("after it: %q, %v", got, errs)
	}
}

// A death is the end of one, and not of the others.
func TestCrewDeath(t *testing.T) {
	o := local()
	type death struct {
		rank int
		why  string
	}
	deaths := make(chan death, 8)
	o.OnDeath = func(rank int, why string) { deaths <- death{rank, why} }
	groups, errs := assemble(t, 4, o)
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
	dead := groups[2]
	groups[2] = nil
	heard := []<-chan struct{}{groups[0].NextLoss(), groups[3].NextLoss()}
	dead.up.breakOff(errors.New("killed"))
	got, errs := say(t, t.Context(), groups)
	if errors.Join(errs...) != nil || got[3] != "3:r0 r1 - r3" {
		t.Errorf("after a death: %q, %v", got, errs)
	}
	if d := <-deaths; d.rank != 2 || d.why != "the connection was closed" {
		t.Errorf("told of the death of %v", d)
	}
	for _, c := range heard {
		<-c
	}
	// One that gives up says why.
	gone := groups[1]
	groups[1] = nil
	gone.Close(errors.New("no space left"))
	if got, errs := say(t, t.Context(), groups); errors.Join(errs...) != nil || got[0] != "0:r0 - - r3" {
		t.Errorf("after two: %q, %v", got, errs)
	}
	if lost := groups[0].Lost(); len(lost) != 2 || lost[1] != "it has ended: no space left" || lost[2] != "the connection was closed" {
		t.Errorf("lost: %v", lost)
	}
	dead.Close(nil)
	closeGroup(groups)
}

// A process that is stopped keeps its connection, and says nothing.
func TestCrewSilence(t *testing.T) {
	o := local()
	o.Silence = 300 * time.Millisecond
	groups, errs := assemble(t, 3, o)
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
	frozen := groups[1]
	groups[1] = nil
	frozen.up.mu.Lock() // neither reads nor writes
	got, errs := say(t, t.Context(), groups)
	if errors.Join(errs...) != nil || got[0] != "0:r0 - r2" {
		t.Errorf("with one frozen: %q, %v", got, errs)
	}
	if why := groups[0].Lost()[1]; why != "nothing was heard of it for 300ms" {
		t.Errorf("lost because %q", why)
	}
	frozen.up.mu.Unlock()
	frozen.Close(nil)
	closeGroup(groups)
}

// Who is alive and does not come is lost when the deadline passes.
func TestCrewDeadline(t *testing.T) {
	groups, errs := assemble(t, 3, local())
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
	stuck := groups[2]
	groups[2] = nil
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	got, errs := say(t, ctx, groups)
	if errors.Join(errs...) != nil || got[1] != "1:r0 r1 -" {
		t.Errorf("with one stuck: %q, %v", got, errs)
	}
	if _, err := stuck.Exchange(t.Context(), nil, nil); err == nil || !strings.Contains(err.Error(), "taken for lost") {
		t.Errorf("who was given up hears %v", err)
	}
	stuck.Close(nil)
	closeGroup(groups)
}

// Who does not come is waited for so long, and comes too late then.
func TestCrewMissing(t *testing.T) {
	o := local()
	o.Timeout = time.Second
	n := 4
	job := jobOf(t, n)
	groups, errs := make([]*Group, n), make([]error, n)
	var wg sync.WaitGroup
	for _, r := range []int{0, 1, 3} {
		wg.Go(func() { groups[r], errs[r] = Await(t.Context(), job(r), nil, o) })
	}
	wg.Wait()
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
	if why := groups[0].Lost()[2]; why != "it did not join within 1s" {
		t.Errorf("who stays away is lost because %q", why)
	}
	if got, errs := say(t, t.Context(), groups); errors.Join(errs...) != nil || got[3] != "3:r0 r1 - r3" {
		t.Errorf("without it: %q, %v", got, errs)
	}
	if _, err := Await(t.Context(), job(2), nil, o); err == nil || !strings.Contains(err.Error(), "joined too late") {
		t.Errorf("who comes late hears %v", err)
	}
	if _, err := Await(t.Context(), job(1), nil, o); err == nil || !strings.Contains(err.Error(), "joined twice") {
		t.Errorf("who comes twice hears %v", err)
	}
	closeGroup(groups)
}

// Without rank 0 nobody goes on, and all know why.
func TestCrewWithoutFirst(t *testing.T) {
	for name, tt := range map[string]struct {
		end  func(first *Group)
		want string
	}{
		"killed": {func(first *Group) {
			for _, m := range first.hub.ranks[1:] {
				m.conn.Close()
			}
		}, "rank 0 is lost: "}, // closed, or reset
		"gave up": {func(first *Group) { first.Close(errors.New("no such suite")) }, "rank 0 has ended: no such suite"},
	} {
		t.Run(name, func(t *testing.T) {
			groups, errs := assemble(t, 3, local())
			if err := errors.Join(errs...); err != nil {
				t.Fatal(err)
			}
			var wg sync.WaitGroup
			for _, c := range groups[1:] {
				wg.Go(func() {
					if _, err := c.Exchange(t.Context(), nil, nil); err == nil || !strings.HasPrefix(err.Error(), tt.want) {
						t.Errorf("rank %d: %v", c.Rank(), err)
					}
					if c.Context().Err() == nil {
						t.Error("its context goes on")
					}
					c.Close(nil)
				})
			}
			tt.end(groups[0])
			wg.Wait()
			groups[0].Close(nil)
		})
	}
}

// FuzzCrew: whatever a rank says to rank 0, or rank 0 to a rank, is taken or refused.
func FuzzCrew(f *testing.F) {
	f.Add(byte(framePart), []byte{0, 0, 0, 0, 'x'}, byte(framePart), []byte{0, 0, 0, 1, 'x'})
	f.Add(byte(frameLeave), []byte("why"), byte(frameBeat), []byte(nil))
	f.Add(byte(framePart), []byte{1}, byte(frameGo), []byte(nil))
	f.Add(byte(frameFailed), []byte{0, 0, 0, 1}, byte(frameFailed), []byte("text"))
	f.Fuzz(func(t *testing.T, k1 byte, p1 []byte, k2 byte, p2 []byte) {
		a, b := net.Pipe()
		defer a.Close()
		defer b.Close()
		h := newCrewHub(0, 3, local().withDefaults(), randomSecret())
		m := &arrival{hub: h.hub, size: 3}
		m.link = newLink(m, time.Hour, 1, a)
		h.hub.arrivals[m] = true
		h.enter(m)
		_ = m.handle(nil, meet.Kind(k1), p1)
		_ = m.handle(nil, meet.Kind(k2), p2)
		gone := len(h.lostBy)
		if h.parts[1] != nil {
			gone++
		}
		if h.absent < 3-gone || h.absent > 3-len(h.lostBy) {
			t.Errorf("%d of 3 ranks are waited for; %v are lost, %q was given", h.absent, h.lostBy, h.parts)
		}
		c := &Group{rank: 1, size: 3, answers: make(chan answer, 1), loss: new(loss), lostBy: map[int]string{}}
		c.ended, c.end = context.WithCancelCause(context.Background())
		up := newLink(c, time.Hour, 0, b)
		_ = c.handle(up, meet.Kind(k1), p1)
		_ = c.handle(up, meet.Kind(k2), p2)
	})
}

// TestCrewScaleTable prints what the meeting of a Group and an exchange cost as
// ranks grow, all of them in this process.
func TestCrewScaleTable(t *testing.T) {
	list := []int{8, 64, 360}
	if !testing.Short() {
		for _, n := range []int{1440, 4096, 12500} {
			if files := 3*n + 100; scaletest.Files(files) {
				list = append(list, n)
			} else {
				t.Logf("skipped: %d ranks: the limit of open files (ulimit -n) cannot be raised to %d", n, files)
			}
		}
	}
	var rows [][]float64
	for _, n := range list {
		o := local()
		o.Timeout = 2 * time.Minute
		begun, used := time.Now(), scaletest.Processor(t)
		groups, errs := assemble(t, n, o)
		if err := errors.Join(errs...); err != nil {
			t.Fatal(err)
		}
		up, work := time.Since(begun), scaletest.Processor(t)-used
		var wg sync.WaitGroup
		begun, used = time.Now(), scaletest.Processor(t)
		for _, c := range groups {
			wg.Go(func() {
				_, err := c.Exchange(t.Context(), make([]byte, 100), func(all [][]byte) ([][]byte, error) { return all, nil })
				if err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		exchange, exchanged := time.Since(begun), scaletest.Processor(t)-used
		if lost := groups[0].Lost(); len(lost) > 0 {
			t.Errorf("of %d ranks %d are lost", n, len(lost))
		}
		closeGroup(groups)
		t.Logf("%5d ranks: up %.3f s, %.3f processor-s; an exchange %.4f s, %.4f processor-s", n, up.Seconds(), work, exchange.Seconds(), exchanged)
		rows = append(rows, []float64{float64(n), up.Seconds(), work, exchange.Seconds(), exchanged})
	}
	scaletest.Record(t, "group", []string{"machines", "seconds", "processor seconds", "exchange seconds", "exchange processor seconds"}, rows)
}
