package main

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/assay-hpc/assay/harness/certificate"
	"github.com/assay-hpc/assay/harness/certificate/certificatetest"
)

// TestMerged makes one certificate of a machine that failed, one that only warns,
// and one of which nothing came.
func TestMerged(t *testing.T) {
	bad, warned := certificatetest.Node(2), certificatetest.Node(2)
	warned.Predicate.Node.Name = "node08"
	warned.Subject = nil
	var kept []certificate.Result
	for _, r := range warned.Predicate.Results {
		if r.Verdict == certificate.Pass || r.Verdict == certificate.Warn {
			kept = append(kept, r)
		}
	}
	warned.Predicate.Results, warned.Predicate.Verdict = kept, certificate.Pass
	if err := warned.SetNode(warned.Predicate.Node); err != nil {
		t.Fatal(err)
	}
	f := &fabric{names: []string{"node07", "node08", "a/b"}}
	st := f.merged([]*certificate.Statement{bad, warned, nil}, errors.New("rank 2 was lost"), func(id string) bool { return strings.HasPrefix(id, "coll/") })
	doc, err := st.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	if err := certificatetest.Validate(doc); err != nil {
		t.Error(err)
	}
	if len(st.Subject) != 2 || st.Predicate.Verdict != certificate.Fail {
		t.Errorf("%d subjects, %s; want 2, fail", len(st.Subject), st.Predicate.Verdict)
	}
	for i, want := range []struct {
		id      string
		verdict certificate.Verdict
		reason  string
		objects int
	}{
		{"node/node07", certificate.Fail, "bandwidth/h2d: GPU 0: 31.2 GB/s, less than 48; and 1 more", 3},
		{"node/node08", certificate.Warn, "health/xid: Xid 94 on GPU 1", 1},
		{"node/a_b", certificate.Error, "no certificate came of it: rank 2 was lost", 0},
		{"coll/all_reduce", certificate.Pass, "", 0},
	} {
		r := st.Predicate.Results[i]
		if r.ID != want.id || r.Verdict != want.verdict || !strings.HasPrefix(r.Reason, want.reason) || len(r.Objects) != want.objects {
			t.Errorf("%s: %s: %s, %d objects; want %+v", r.ID, r.Verdict, r.Reason, len(r.Objects), want)
		}
	}
}

// TestOutcome: what went wrong anywhere is told by the machine's name.
func TestOutcome(t *testing.T) {
	f := &fabric{names: []string{"node0", "node1"}}
	say := func(e end) []byte {
		b, err := json.Marshal(e)
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	stdout, err := compressed([]byte("the report"))
	if err != nil {
		t.Fatal(err)
	}
	good := say(end{Stdout: stdout})
	for name, tt := range map[string]struct {
		other end
		want  string
	}{
		"good":      {end{}, ""},
		"failed":    {end{Status: 1, Error: "two results were wrong"}, ""},
		"not done":  {end{Status: 3, Error: "no such device"}, "node1: status 3: no such device"},
		"not begun": {end{Error: "no such program"}, "node1: status 0: no such program"},
		"killed":    {end{Status: -1, Error: "killed"}, "node1: status -1"},
	} {
		out, err := f.outcome([][]byte{good, say(tt.other)})
		if tt.want == "" && (err != nil || string(out.Stdout) != "the report") || tt.want != "" && (err == nil || !strings.Contains(err.Error(), tt.want)) {
			t.Errorf("%s: %q, %v; want %s", name, out.Stdout, err, tt.want)
		}
	}
	if _, err := f.outcome([][]byte{[]byte("{"), good}); err == nil {
		t.Error("nonsense was an outcome")
	}
}
