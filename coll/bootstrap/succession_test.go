package bootstrap

import (
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/assay-hpc/assay/internal/meet"
)

// kill ends a rank as kill -9 does: its connections break, and nobody listens there.
func (c *Group) kill() {
	if c.hub != nil {
		c.hub.mu.Lock()
		for m := range c.hub.arrivals {
			m.left.Store(true)
			go m.breakOff(errors.New("killed"))
		}
		clear(c.hub.arrivals)
		c.hub.mu.Unlock()
	} else {
		c.up.drop()
	}
	c.Close(nil)
}

// succeed has all ranks that are not nil go on without their root.
func succeed(t *testing.T, groups []*Group) ([]*Group, []error) {
	t.Helper()
	out, errs := make([]*Group, len(groups)), make([]error, len(groups))
	var wg sync.WaitGroup
	for r, c := range groups {
		if c == nil {
			continue
		}
		wg.Go(func() {
			<-c.Context().Done()
			if out[r], errs[r] = c.Next(t.Context()); errs[r] != nil {
				c.Close(errs[r])
			}
		})
	}
	wg.Wait()
	return out, errs
}

// TestNext kills one root after the other: the others go on with the next, which knows
// who is lost, and of all that joined what they said.
func TestNext(t *testing.T) {
	o := local()
	o.Silence = 3 * time.Second
	groups, errs := assemble(t, 6, o)
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
	groups[2].kill()
	groups[2] = nil
	if got, errs := say(t, t.Context(), groups); errors.Join(errs...) != nil || got[5] != "5:r0 r1 - r3 r4 r5" {
		t.Fatalf("without one: %q, %v", got, errs)
	}
	for _, tt := range []struct {
		old, root int
		want      string
		lost      []int
	}{
		{0, 1, "5:- r1 - r3 r4 r5", []int{0, 2}}, {1, 3, "5:- - - r3 r4 r5", []int{0, 1, 2}}, {3, 4, "5:- - - - r4 r5", []int{0, 1, 2, 3}},
	} {
		groups[tt.old].kill()
		groups[tt.old] = nil
		groups, errs = succeed(t, groups)
		if err := errors.Join(errs...); err != nil {
			t.Fatal(err)
		}
		if got, errs := sayTo(t, groups, tt.root); errors.Join(errs...) != nil || got[5] != tt.want {
			t.Fatalf("root %d: %q, %v; want %q", tt.root, got, errs, tt.want)
		}
		root := groups[tt.root]
		for r, c := range groups {
			if c != nil && (c.Root() != tt.root || string(c.Key("x")) != string(root.Key("x"))) {
				t.Errorf("rank %d follows %d; want %d", r, c.Root(), tt.root)
			}
			if got := root.Here(r); string(got) != fmt.Sprintf("host%d", r) {
				t.Errorf("rank %d knows of rank %d %q", tt.root, r, got)
			}
		}
		lost := root.Lost()
		for _, r := range tt.lost {
			if lost[r] == "" {
				t.Errorf("rank %d is not known to be lost: %v", r, lost)
			}
		}
		if want := fmt.Sprintf("; rank %d took over)", tt.root); len(lost) != len(tt.lost) || !strings.HasSuffix(lost[tt.old], want) {
			t.Errorf("lost: %v; want %d, and of rank %d …%s", lost, len(tt.lost), tt.old, want)
		}
	}
	closeGroup(groups)
}

// sayTo is say where root is not rank 0.
func sayTo(t *testing.T, groups []*Group, root int) ([]string, []error) {
	t.Helper()
	if groups[root] == nil || groups[root].hub == nil {
		t.Fatalf("rank %d is not the root", root)
	}
	return say(t, t.Context(), groups)
}

// TestNextWithDeputy: the root and the next one die at once.
func TestNextWithDeputy(t *testing.T) {
	t.Parallel()
	o := local()
	o.Silence = 2 * time.Second
	groups, errs := assemble(t, 5, o)
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	for _, r := range []int{0, 1} {
		wg.Go(groups[r].kill)
		groups[r] = nil
	}
	wg.Wait()
	groups, errs = succeed(t, groups)
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
	if got, errs := sayTo(t, groups, 2); errors.Join(errs...) != nil || got[4] != "4:- - r2 r3 r4" {
		t.Errorf("%q, %v", got, errs)
	}
	closeGroup(groups)
}

// TestNextAlone: a rank that alone has lost its root goes on neither by itself nor with
// another, and the others do without it.
func TestNextAlone(t *testing.T) {
	t.Parallel()
	for _, alone := range []int{1, 3} {
		t.Run(fmt.Sprint(alone), func(t *testing.T) {
			o := local()
			o.Silence = 500 * time.Millisecond
			groups, errs := assemble(t, 5, o)
			if err := errors.Join(errs...); err != nil {
				t.Fatal(err)
			}
			cut := groups[alone]
			groups[alone] = nil
			cut.up.breakOff(errors.New("cut"))
			<-cut.Context().Done()
			begun := time.Now()
			_, err := cut.Next(t.Context())
			if err == nil || !strings.Contains(err.Error(), "is not lost to rank") {
				t.Errorf("it hears %v", err)
			}
			if took := time.Since(begun); took > time.Minute {
				t.Errorf("after %v", took)
			}
			cut.Close(err)
			if _, errs := say(t, t.Context(), groups); errors.Join(errs...) != nil {
				t.Errorf("the others: %v", errs)
			}
			closeGroup(groups)
		})
	}
}

// TestNextFew: less than half of the ranks do not go on, if the others may be alive.
func TestNextFew(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("-short: half a minute until those that do not answer are given up")
	}
	o := local()
	o.Silence = 500 * time.Millisecond
	groups, errs := assemble(t, 5, o)
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	for _, r := range []int{3, 4} {
		for i := range groups[r].roster.deputies {
			if d := &groups[r].roster.deputies[i]; d.rank < 3 {
				d.door = meet.AddrPort(silent.Addr())
			}
		}
	}
	var wg sync.WaitGroup
	for r := range 3 {
		wg.Go(groups[r].kill)
		groups[r] = nil
	}
	wg.Wait()
	for _, r := range []int{3, 4} {
		groups[r].mu.Lock() // the root told them of nothing
		clear(groups[r].lostBy)
		groups[r].mu.Unlock()
	}
	_, errs = succeed(t, groups)
	for _, r := range []int{3, 4} {
		if errs[r] == nil || !strings.Contains(errs[r].Error(), "2 of 5 machines came to rank 3, which is less than half") {
			t.Errorf("rank %d: %v", r, errs[r])
		}
	}
}

// TestStopped: a process that was stopped does not go on, whatever it was.
func TestStopped(t *testing.T) {
	t.Parallel()
	for rank := range 2 {
		o := local()
		o.Silence = time.Hour
		groups, errs := assemble(t, 3, o)
		if err := errors.Join(errs...); err != nil {
			t.Fatal(err)
		}
		groups[rank].pulse.last.Store(-2 * int64(time.Hour))
		if rank > 0 {
			groups[0].kill()
			<-groups[rank].Context().Done()
			if _, err := groups[rank].Next(t.Context()); err == nil || !strings.Contains(err.Error(), "was stopped") {
				t.Errorf("rank %d: %v", rank, err)
			}
		} else {
			var wg sync.WaitGroup
			for _, c := range groups[1:] {
				wg.Go(func() { c.Exchange(t.Context(), nil, nil) })
			}
			if _, err := groups[0].Exchange(t.Context(), nil, nil); err == nil || !strings.Contains(err.Error(), "was stopped") {
				t.Errorf("the root: %v", err)
			}
			groups[0].Close(nil)
			wg.Wait()
		}
		closeGroup(groups)
	}
}

// FuzzRoster: whatever the root says of the others is taken or refused.
func FuzzRoster(f *testing.F) {
	f.Add([]byte{0})
	f.Add(append([]byte{1, 0, 0, 0, 1}, make([]byte, addrBytes+2*2*4)...))
	f.Fuzz(func(t *testing.T, b []byte) {
		var r roster
		if err := r.decode(b, 2); err == nil && (len(r.deputies) > 255 || len(r.heres) != 0 && len(r.heres) != 2) {
			t.Errorf("%+v", r)
		}
	})
}
