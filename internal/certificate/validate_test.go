package certificate_test

import (
	"encoding/json"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/assay-hpc/assay/internal/certificate"
	"github.com/assay-hpc/assay/internal/certificate/certificatetest"
	"github.com/assay-hpc/assay/internal/result"
)

// TestValidate damages one field of a certificate that has all of them. It is
// refused where it is made, where it is read and where it is verified.
func TestValidate(t *testing.T) {
	type statement = certificate.Statement
	first := func(s *statement) *result.Result { return &s.Predicate.Results[0] }
	measured := func(s *statement) *result.Measurement {
		for i := range s.Predicate.Results {
			for j := range s.Predicate.Results[i].Objects {
				if m := s.Predicate.Results[i].Objects[j].Measured; m != nil && m.Expected != 0 {
					return m
				}
			}
		}
		panic("nothing is measured")
	}
	for name, tt := range map[string]struct {
		damage func(*statement)
		want   string
	}{
		"suite of two lines":     {func(s *statement) { s.Predicate.Suite = "node\nx" }, "suite: "},
		"no list of results":     {func(s *statement) { s.Predicate.Results, s.Predicate.Verdict = nil, result.Skip }, "results: "},
		"begun never":            {func(s *statement) { s.Predicate.Started = time.Time{} }, "started, finished: "},
		"less than no processor": {func(s *statement) { s.Predicate.Environment.CPUs = -1 }, "environment: -1 processors"},
		"recipe that steers":     {func(s *statement) { s.Predicate.Environment.Recipe = "\x1b[31m" }, "environment: target"},
		"subject without digest": {func(s *statement) { s.Subject[0].Digest, s.Predicate.Node = map[string]string{"md5": "00"}, nil }, "subject"},
		"subject's digest":       {func(s *statement) { s.Subject[0].Digest["sha256"], s.Predicate.Node = "../x", nil }, "subject"},
		"subject's name": {func(s *statement) {
			s.Subject = append(s.Subject, certificate.Subject{Name: "a\x1bb", Digest: s.Subject[0].Digest})
		}, "subject"},
		"subject twice":          {func(s *statement) { s.Subject = append(s.Subject, s.Subject[0]) }, "subject"},
		"GPU below 0":            {func(s *statement) { s.Predicate.Node.GPUs[0].Index = -1 }, "node: gpus: GPU -1"},
		"GPU twice":              {func(s *statement) { s.Predicate.Node.GPUs[0].Index = s.Predicate.Node.GPUs[1].Index }, "node: gpus: "},
		"memory below 0":         {func(s *statement) { s.Predicate.Node.GPUs[0].Memory = -1 }, "node: gpus: "},
		"port without a name":    {func(s *statement) { s.Predicate.Node.Ports[0].Name = "" }, "node: ports: "},
		"port's rate":            {func(s *statement) { s.Predicate.Node.Ports[0].Gbit = -1 }, "node: ports: "},
		"part without a kind":    {func(s *statement) { s.Predicate.Node.Topology.Parts[0].Kind = "" }, "node: topology: the part"},
		"link of -1":             {func(s *statement) { s.Predicate.Node.Topology.Links[0].Count = -1 }, "node: topology: a link"},
		"id up the tree":         {func(s *statement) { first(s).ID = "../x" }, `result "../x": its id is not words`},
		"id with an empty word":  {func(s *statement) { first(s).ID = "a//b" }, `result "a//b": its id is not words`},
		"id that steers":         {func(s *statement) { first(s).ID = "a\x1b[2J" }, `result "a\x1b[2J": its id is not words`},
		"id from right to left":  {func(s *statement) { first(s).ID = "a\u202eb" }, "its id is not words"},
		"component of two lines": {func(s *statement) { first(s).Component = "a\nb" }, "component: "},
		"30 years":               {func(s *statement) { first(s).Seconds = 1e300 }, "it took 1e+300 seconds"},
		"object of two lines":    {func(s *statement) { first(s).Objects[0].Name = "GPU\n0" }, `object "GPU\n0"`},
		"unit that steers":       {func(s *statement) { measured(s).Unit = "GB/s\r" }, "unit: "},
		"another ratio":          {func(s *statement) { measured(s).Ratio *= 1.5 }, "ratio: "},
		"another value":          {func(s *statement) { measured(s).Value *= 1.5 }, "ratio: "},
		"ratio of nothing":       {func(s *statement) { m := measured(s); m.Expected, m.Source = 0, "" }, "and nothing is"},
		"curve without a name":   {func(s *statement) { s.Predicate.Results[4].Curves[0].Name = "\t" }, "the curve"},
		"machine twice":          {func(s *statement) { s.Predicate.Machines = machines("a", "a") }, "machines: "},
		"machine that steers":    {func(s *statement) { s.Predicate.Machines = machines("a\x1b") }, "machines: "},
		"identity without content": {func(s *statement) {
			n := *s.Predicate.Node
			n.Identity = []string{""}
			s.Subject = nil
			must(t, s.SetNode(&n))
		}, "node: identity: "},
		"a node's name": {func(s *statement) { n := *s.Predicate.Node; n.Name = "a\nb"; s.Subject = nil; must(t, s.SetNode(&n)) }, `"a\nb"`},
	} {
		t.Run(name, func(t *testing.T) {
			s := certificatetest.Node(2)
			if err := s.Predicate.Validate(); err != nil {
				t.Fatalf("before: %v", err)
			}
			tt.damage(s)
			s.Predicate.Verdict = result.Summary(s.Predicate.Results)
			if _, err := s.Marshal(); err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("Marshal: %v; want %s", err, tt.want)
			}
			b, err := json.Marshal(s)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := certificate.Parse(b); err == nil {
				t.Error("Parse takes it")
			}
			if err := s.Verify("sha256:" + strings.Repeat("0", 64)); err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("Verify: %v; want %s", err, tt.want)
			}
		})
	}
}

func machines(names ...string) (out []certificate.Machine) {
	for _, n := range names {
		out = append(out, certificate.Machine{Name: n, SHA256: strings.Repeat("0", 64)})
	}
	return out
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// FuzzValidate: what Parse takes, a signer takes, and so does a verifier after it;
// names of it can stand in a line.
func FuzzValidate(f *testing.F) {
	for gpus := 1; gpus < 4; gpus++ {
		b, err := certificatetest.Node(gpus).Marshal()
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		s, err := certificate.Parse(b)
		if err != nil {
			return
		}
		if err := s.Predicate.Validate(); err != nil {
			t.Fatalf("Parse took it: %v", err)
		}
		again, err := s.Marshal()
		if err != nil {
			t.Fatalf("what was read cannot be written: %v", err)
		}
		if _, err := certificate.Parse(again); err != nil {
			t.Fatalf("what was written cannot be read: %v", err)
		}
		for _, r := range s.Predicate.Results {
			if strings.ContainsAny(r.ID, "\n\r\x1b\u202e") || strings.HasPrefix(r.ID, "../") {
				t.Errorf("the id %q got through", r.ID)
			}
			if m := r.Measured; m != nil && m.Expected != 0 && math.Abs(m.Ratio-m.Value/m.Expected) > 1e-3*math.Abs(m.Ratio) {
				t.Errorf("%s: %v of %v has the ratio %v", r.ID, m.Value, m.Expected, m.Ratio)
			}
		}
	})
}
