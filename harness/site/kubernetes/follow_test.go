package kubernetes

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/assay-hpc/assay/internal/attest"
	"github.com/assay-hpc/assay/internal/certificate"
	"github.com/assay-hpc/assay/internal/result"
)

// TestMayFollow: a pass undoes only what was written before its checks began; a fail is written in
// any case.
func TestMayFollow(t *testing.T) {
	at := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	stamp := func(after time.Duration) string { return at.Add(after).Format(time.RFC3339) }
	own := statementAt(result.Pass, at)
	for _, tt := range []struct {
		name                 string
		label, digest, noted string
		status, transition   string
		taint                map[string]any
		ok                   bool
		superseded           bool
	}{
		{name: "a new node", ok: true},
		{name: "again", label: "pass", digest: own.Digest(), noted: stamp(time.Second), status: "True", transition: stamp(time.Hour), ok: true},
		{name: "a later pass was applied", label: "pass", digest: "sha256:other", noted: stamp(time.Hour), status: "True", superseded: true},
		{name: "an earlier pass was applied", label: "pass", digest: "sha256:other", noted: stamp(-time.Hour), status: "True", ok: true},
		{name: "failed before", label: "fail", digest: "sha256:other", noted: stamp(-time.Minute), status: "False", transition: stamp(-time.Minute), ok: true},
		{name: "failed later", label: "fail", digest: "sha256:other", noted: stamp(time.Hour), status: "False", transition: stamp(time.Hour)},
		{name: "failed later, as the condition alone says", label: "fail", status: "False", transition: stamp(time.Hour)},
		{name: "failed later, as the annotation alone says", label: "fail", digest: "sha256:other", noted: stamp(time.Hour)},
		{name: "failed in the meantime", label: "fail", digest: "sha256:other", noted: stamp(500 * time.Millisecond), status: "False", transition: stamp(time.Second)},
		{name: "could not run later", digest: "sha256:other", noted: stamp(time.Hour), status: "Unknown", transition: stamp(time.Hour)},
		{name: "waits since later", label: "pending", digest: own.Digest(), noted: stamp(time.Second), status: "Unknown", transition: stamp(time.Hour)},
		{name: "waited before", label: "pending", digest: "sha256:other", noted: stamp(-time.Hour), status: "Unknown", transition: stamp(-time.Minute), ok: true},
		{name: "tainted later", label: "pass", digest: own.Digest(), taint: map[string]any{"key": verdictKey, "timeAdded": stamp(time.Hour)}},
		{name: "another's taint", label: "pass", digest: own.Digest(), taint: map[string]any{"key": "gpu", "timeAdded": stamp(time.Hour)}, ok: true},
		{name: "silent since", label: "stale", digest: own.Digest(), noted: stamp(time.Second), status: "True", transition: stamp(time.Hour), ok: true},
		{name: "nobody knows since when", label: "fail", ok: true},
	} {
		n := new(node)
		n.Metadata.Labels = map[string]string{verdictKey: tt.label}
		n.Metadata.Annotations = map[string]string{certificateKey: tt.digest, finishedKey: tt.noted}
		if tt.status != "" {
			n.Status.Conditions = []nodeCondition{{Type: "Ready", Status: "False", LastTransitionTime: stamp(24 * time.Hour)}, {Type: conditionType, Status: tt.status, LastTransitionTime: tt.transition}}
		}
		if tt.taint != nil {
			n.Spec.Taints = append(n.Spec.Taints, tt.taint)
		}
		err := n.mayFollow(own, time.Time{})
		var s *Superseded
		if (err == nil) != tt.ok || err != nil && !errors.Is(err, attest.ErrTime) || errors.As(err, &s) != tt.superseded {
			t.Errorf("%s: %v; want ok = %v", tt.name, err, tt.ok)
		}
		if err := n.mayFollow(statementAt(result.Fail, at), time.Time{}); err != nil {
			t.Errorf("%s: a fail: %v", tt.name, err)
		}
	}
}

// TestIs: the node is the machine that the certificate is about.
func TestIs(t *testing.T) {
	now := time.Now()
	dmi := statementOf(result.Pass, now, "dmi 4c4c4544-0042")
	gpu := statementOf(result.Pass, now, "GPU-1")
	for _, tt := range []struct {
		name              string
		boot, uuid, known string // of the node
		o                 Options
		dmi               bool
		want              string
	}{
		{"nothing is known", "", "", "", Options{Boot: "b1"}, false, ""},
		{"this machine", "b1", "OTHER", "sha256:old", Options{Boot: "B1"}, true, ""}, // a board was replaced
		{"another machine", "b2", "", "", Options{Boot: "b1"}, false, "another machine than the node"},
		{"vouched", "b2", "", "sha256:old", Options{Boot: "b1", Vouched: true}, false, ""},
		{"vouched, the same UUID", "b2", "4C4C4544-0042", "", Options{Vouched: true}, true, ""},
		{"vouched, another UUID", "b2", "4C4C4544-0043", "", Options{Vouched: true}, true, "has 4C4C4544-0043"},
		{"its UUID and no boot id", "", "4C4C4544-0043", "", Options{Boot: "b1"}, true, "has 4C4C4544-0043"},
		{"last another", "", "", "sha256:old", Options{Boot: "b1"}, false, "was last the machine sha256:old"},
		{"last this", "", "", gpu.Identity(), Options{}, false, ""},
	} {
		n, adm := new(node), gpu
		if tt.dmi {
			adm = dmi
		}
		n.Status.NodeInfo.BootID, n.Status.NodeInfo.SystemUUID = tt.boot, tt.uuid
		n.Metadata.Annotations = map[string]string{identityKey: tt.known}
		err := n.is(adm, tt.o)
		if (err == nil) != (tt.want == "") || err != nil && (!errors.Is(err, attest.ErrSubject) || !strings.Contains(err.Error(), tt.want)) {
			t.Errorf("%s: %v; want %q", tt.name, err, tt.want)
		}
	}
}

// TestRefusedIsNotWritten: a certificate that may not follow leaves the node as it is.
func TestRefusedIsNotWritten(t *testing.T) {
	s := startServer(t)
	s.newNode(t, "gpu-1")
	now := time.Now().Truncate(time.Second)
	c := open(t, s.as(harness), now)
	o := Options{Node: "gpu-1", Taint: "NoSchedule"}
	if _, err := c.Act(t.Context(), statementAt(result.Fail, now.Add(-time.Minute)), o); err != nil {
		t.Fatal(err)
	}
	before := s.read(t, "gpu-1")
	for _, adm := range []struct {
		name string
		want error
		act  func() error
	}{
		{"older", attest.ErrTime, func() error {
			_, err := c.Act(t.Context(), statementAt(result.Pass, now.Add(-time.Hour)), o)
			return err
		}},
		{"another machine", attest.ErrSubject, func() error {
			_, err := c.Act(t.Context(), statementOf(result.Pass, now.Add(time.Second), "GPU-2"), o)
			return err
		}},
		{"another machine's fail", attest.ErrSubject, func() error {
			_, err := c.Act(t.Context(), statementOf(result.Fail, now.Add(time.Second), "GPU-2"), o)
			return err
		}},
	} {
		if err := adm.act(); !errors.Is(err, adm.want) {
			t.Errorf("%s: %v; want %v", adm.name, err, adm.want)
		}
		if got := s.read(t, "gpu-1"); got != before {
			t.Errorf("%s: the node was %+v, and is %+v", adm.name, before, got)
		}
	}
	if _, err := c.Act(t.Context(), repaired(now.Add(time.Second), "gpu/ecc"), o); err != nil {
		t.Errorf("a later pass: %v", err)
	}
	if got := s.read(t, "gpu-1"); got.Label != "pass" || got.Taint != "" {
		t.Errorf("after a later pass: %+v", got)
	}
}

// TestRepair: a node that failed comes back by a pass that measured all that it failed by, harder.
func TestRepair(t *testing.T) {
	s := startServer(t)
	s.newNode(t, "gpu-1")
	now := time.Now().Truncate(time.Second)
	c := open(t, s.as(harness), now)
	o := Options{Node: "gpu-1", Taint: "NoSchedule"}
	fail := func(id string) result.Result { return result.Result{ID: id, Verdict: result.Fail, Reason: "why"} }
	plain := certificateOf(now.Add(3*time.Second), "GPU-1", nil, result.Result{ID: certificate.GPUsID, Verdict: result.Pass}, result.Result{ID: "a", Verdict: result.Pass})
	for i, tt := range []struct {
		name   string
		adm    *certificate.Admitted
		failed string // the annotation then
		want   string // part of the error
	}{
		{"the failure", certificateOf(now, "GPU-1", nil, fail("a"), fail("b/c")), "a,b/c", ""},
		{"another failure", certificateOf(now.Add(time.Second), "GPU-1", nil, fail("d"), fail("a")), "d,a,b/c", ""},
		{"one is answered, another fails", certificateOf(now.Add(2*time.Second), "GPU-1", &certificate.After{Checks: []string{"d"}, Times: 3}, result.Result{ID: "d", Verdict: result.Pass}, fail("a")), "a,b/c", ""},
		{"a check could not be run", certificateOf(now.Add(2*time.Second), "GPU-1", nil, result.Result{ID: "a", Verdict: result.Error, Reason: "why"}), "a,b/c", ""},
		{"a usual pass", plain, "a,b/c", "the node failed by a, b/c, which the certificate did not measure harder than usual; certify --after"},
		{"a part", repaired(now.Add(4*time.Second), "a"), "a,b/c", "the node failed by b/c, which"},
		{"all", repaired(now.Add(5*time.Second), "a", "b/c"), "", ""},
		{"a usual pass, then", certificateOf(now.Add(6*time.Second), "GPU-1", nil, result.Result{ID: certificate.GPUsID, Verdict: result.Pass}), "", ""},
	} {
		_, err := c.Act(t.Context(), tt.adm, o)
		if (err != nil) != (tt.want != "") || err != nil && (!errors.Is(err, attest.ErrUse) || !strings.Contains(err.Error(), tt.want)) {
			t.Errorf("%d, %s: %v; want %q", i, tt.name, err, tt.want)
		}
		failed, err := c.Failed(t.Context(), o)
		if got := strings.Join(failed, ","); err != nil || got != tt.failed || s.node(t, "gpu-1").Annotations[failedKey] != got {
			t.Errorf("%d, %s: failed by %q, %v; want %q", i, tt.name, got, err, tt.failed)
		}
		if got := s.read(t, "gpu-1"); i == 0 && got.Message != "assay: a: why (+1 more: b/c)" {
			t.Errorf("the condition says %q", got.Message)
		}
		if tt.name == "all" {
			if got := s.read(t, "gpu-1"); got.Label != "pass" || got.Taint != "" || got.Message != "assay: suite node, 3 checks passed; after repair: a, b/c, 3 times" {
				t.Errorf("after repair: %+v", got)
			}
		}
	}
	// Another machine has that name now.
	if _, err := c.Act(t.Context(), certificateOf(now.Add(7*time.Second), "GPU-1", nil, fail("a")), o); err != nil {
		t.Fatal(err)
	}
	o.Vouched = true
	if _, err := c.Act(t.Context(), statementOf(result.Pass, now.Add(8*time.Second), "GPU-2"), o); err != nil {
		t.Errorf("another machine: %v", err)
	}
}

// TestClockWasAhead: a certificate that was just made takes back a node whose marks are of a time to
// come, since a clock was wrong; one that somebody applies does not, and neither undoes a failure of
// this hour.
func TestClockWasAhead(t *testing.T) {
	s := startServer(t)
	s.newNode(t, "gpu-1")
	now := time.Now().Truncate(time.Second)
	o := Options{Node: "gpu-1", Taint: "NoSchedule"}
	ahead := open(t, s.as(harness), now.Add(30*24*time.Hour))
	if _, err := ahead.Act(t.Context(), statementAt(result.Pass, now.Add(30*24*time.Hour)), o); err != nil {
		t.Fatal(err)
	}
	if err := ahead.Withdraw(t.Context(), o, "its certificate is old"); err != nil {
		t.Fatal(err)
	}
	c, made := open(t, s.as(harness), now), statementAt(result.Pass, now)
	if _, err := c.Act(t.Context(), made, o); !errors.Is(err, attest.ErrTime) {
		t.Errorf("somebody's certificate: %v", err)
	}
	o.Fresh = true
	if _, err := c.Act(t.Context(), made, o); err != nil {
		t.Fatal(err)
	}
	if got := s.read(t, "gpu-1"); got.Label != "pass" || got.Status != "True" {
		t.Errorf("%+v", got)
	}
	o.Fresh = false
	if _, err := c.Act(t.Context(), made, o); err != nil {
		t.Errorf("the same certificate later: %v", err)
	}
	if _, err := c.Act(t.Context(), statementAt(result.Fail, now.Add(time.Minute)), o); err != nil {
		t.Fatal(err)
	}
	o.Fresh = true
	if _, err := c.Act(t.Context(), made, o); !errors.Is(err, attest.ErrTime) {
		t.Errorf("a failure in the meantime: %v", err)
	}
}
