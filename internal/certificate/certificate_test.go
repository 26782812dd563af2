package certificate

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"math"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	intoto "github.com/in-toto/attestation/go/v1"
	"google.golang.org/protobuf/encoding/protojson"

	"github.com/assay-hpc/assay/internal/attest"
	"github.com/assay-hpc/assay/internal/result"
)

var digest = "sha256:" + strings.Repeat("0a", 32)

func sample(t testing.TB) *Statement {
	t.Helper()
	begin := time.Date(2026, 1, 2, 3, 4, 5, 678_000_111, time.FixedZone("", 3600))
	s := New(Predicate{
		Suite: "image", Started: begin, Finished: begin.Add(3 * time.Second), Harness: Harness{Version: "v1"},
		Environment: Environment{Platform: "linux/amd64", OS: "Debian <12> & co"},
		Results: []result.Result{
			{ID: "a", Title: "A", Verdict: result.Pass, Seconds: 0.25, Measured: &result.Measurement{Value: 3.5, Unit: "GB/s", Expected: 4, Source: "sheet", Ratio: 0.875}},
			{ID: "b", Title: "B", Verdict: result.Skip, Reason: "no GPU", Output: "line\n\u2028"},
		},
	})
	if err := s.SetSubject("ghcr.io/x/assay", digest); err != nil {
		t.Fatal(err)
	}
	return s
}

func marshal(t testing.TB, s *Statement) []byte {
	t.Helper()
	b, err := s.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func TestRoundTrip(t *testing.T) {
	s := sample(t)
	b := marshal(t, s)
	for name, in := range map[string][]byte{"compact": b, "indented": indent(t, b)} {
		got, err := Parse(in)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if d := cmp.Diff(s, got); d != "" {
			t.Errorf("%s (-want +got):\n%s", name, d)
		}
		if again := marshal(t, got); !bytes.Equal(b, again) {
			t.Errorf("%s: encoded again: %s; want %s", name, again, b)
		}
	}
}

func indent(t testing.TB, b []byte) []byte {
	var out bytes.Buffer
	if err := json.Indent(&out, b, "", "  "); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

// TestInToto holds the plain types against in-toto's own library.
func TestInToto(t *testing.T) {
	var s intoto.Statement
	if err := protojson.Unmarshal(marshal(t, sample(t)), &s); err != nil {
		t.Fatal(err)
	}
	if err := s.Validate(); err != nil {
		t.Error(err)
	}
	if got := s.GetPredicate().GetFields()["verdict"].GetStringValue(); got != "pass" {
		t.Errorf("verdict = %q; want pass", got)
	}
}

func TestSummary(t *testing.T) {
	for in, want := range map[string]result.Verdict{"": result.Skip, "s": result.Skip, "sp": result.Pass, "pse": result.Error, "psef": result.Fail, "pp": result.Pass, "sw": result.Pass, "wse": result.Error} {
		var rs []result.Result
		for _, c := range in {
			rs = append(rs, result.Result{Verdict: map[rune]result.Verdict{'s': result.Skip, 'p': result.Pass, 'e': result.Error, 'f': result.Fail, 'w': result.Warn}[c]})
		}
		if got := result.Summary(rs); got != want {
			t.Errorf("Summary(%s) = %s; want %s", in, got, want)
		}
	}
}

func TestParseRefuses(t *testing.T) {
	good := string(marshal(t, sample(t)))
	for name, edit := range map[string][2]string{
		"field missing":       {`,"seconds":0.25`, ``},
		"repeated field":      {`"suite":"image"`, `"suite":"x","suite":"image"`},
		"other case":          {`"suite":`, `"Suite":`},
		"other type":          {"Statement/v1", "Statement/v2"},
		"other predicate":     {"certificate/v1", "certificate/v2"},
		"other schema":        {`"schema":1`, `"schema":2`},
		"verdict not borne":   {`"verdict":"pass","started"`, `"verdict":"fail","started"`},
		"result hidden":       {`"id":"a"`, `"id":"b"`},
		"skip without reason": {`"reason":"no GPU",`, ``},
		"unknown verdict":     {`"verdict":"skip"`, `"verdict":"good"`},
		"finer time":          {`05.678Z`, `05.6781Z`},
		"time backwards":      {`"finished":"2026`, `"finished":"2025`},
		"no subject name":     {`"name":"ghcr.io/x/assay"`, `"name":""`},
		"unit missing":        {`"unit":"GB/s"`, `"unit":""`},
		"more after it":       {"}\n", "} {}\n"},
	} {
		bad := strings.Replace(good, edit[0], edit[1], 1)
		if bad == good {
			t.Errorf("%s: the edit changes nothing", name)
		}
		if _, err := Parse([]byte(bad)); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
	if _, err := Parse(make([]byte, MaxSize+1)); err == nil || !strings.Contains(err.Error(), "too many") {
		t.Errorf("Parse of too much = %v", err)
	}
}

// TestParseTolerates: what newer versions add, and how others write JSON.
func TestParseTolerates(t *testing.T) {
	good := string(marshal(t, sample(t)))
	for name, edit := range map[string][2]string{
		"unknown field of the statement": {`{"_type"`, `{"new":{"a":[1]},"_type"`},
		"unknown field of the predicate": {`"suite":`, `"extra":1,"suite":`},
		"unknown field of a result":      {`"id":"a"`, `"new":true,"id":"a"`},
		"unknown field of a measurement": {`"value":3.5`, `"better":"higher","value":3.5`},
		"other number":                   {`"seconds":0.25`, `"seconds":0.250`},
		"other escape":                   {`Debian`, `\u0044ebian`},
	} {
		changed := strings.Replace(good, edit[0], edit[1], 1)
		if changed == good {
			t.Errorf("%s: the edit changes nothing", name)
		}
		s, err := Parse([]byte(changed))
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if d := cmp.Diff(sample(t), s); d != "" {
			t.Errorf("%s (-want +got):\n%s", name, d)
		}
	}
}

// TestMachinesKeepWhatTheySay: a certificate inside another one keeps its digest
// where a newer version made it.
func TestMachinesKeepWhatTheySay(t *testing.T) {
	inside := strings.Replace(strings.TrimSpace(string(marshal(t, sample(t)))), `"suite":`, `"new":"field","suite":`, 1)
	sum := sha256.Sum256([]byte(inside + "\n"))
	outer := sample(t)
	outer.Predicate.Machines = []Machine{{Name: "n1", SHA256: hex.EncodeToString(sum[:])}}
	doc := strings.Replace(string(marshal(t, outer)), `"}],"results"`, `","certificate":`+inside+`}],"results"`, 1)
	s, err := Parse([]byte(doc))
	if err != nil {
		t.Fatal(err)
	}
	if again := marshal(t, s); strings.TrimSpace(string(again)) != strings.TrimSpace(doc) {
		t.Errorf("Marshal = %s; want %s", again, doc)
	}
	if _, err := Parse([]byte(strings.Replace(doc, `"new":"field"`, `"new":"other"`, 1))); err == nil {
		t.Error("a change in a field that is not known was not noticed")
	}
}

func TestMarshalRefuses(t *testing.T) {
	s := sample(t)
	s.Predicate.Results[0].Measured.Value = math.Inf(1)
	if _, err := s.Marshal(); err == nil {
		t.Error("an infinite value was written")
	}
}

func TestVerify(t *testing.T) {
	s := sample(t)
	if err := s.Verify(digest); err != nil {
		t.Error(err)
	}
	other := "sha256:" + strings.Repeat("0b", 32)
	if err := s.Verify(other); !errors.Is(err, attest.ErrSubject) {
		t.Errorf("Verify(other) = %v; want attest.ErrSubject", err)
	}
	for _, bad := range []string{"", "sha256:0", strings.ToUpper(digest), digest[7:]} {
		if err := s.Verify(bad); err == nil || errors.Is(err, attest.ErrSubject) {
			t.Errorf("Verify(%q) = %v; want another error", bad, err)
		}
	}
	s.Subject = []Subject{}
	if err := s.Verify(digest); !errors.Is(err, attest.ErrSubject) {
		t.Errorf("Verify without subject = %v; want attest.ErrSubject", err)
	}
	if err := s.SetSubject("", digest); err == nil {
		t.Error("a subject without a name was accepted")
	}
}

func TestInventory(t *testing.T) {
	inv := &Inventory{Version: 1, Packages: []InstalledPackage{{Name: "a", Version: "1", Arch: "all", Licenses: []string{NoAssertion}}}}
	b, err := inv.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	got, err := ParseInventory(b)
	if d := cmp.Diff(inv, got); d != "" || err != nil {
		t.Errorf("ParseInventory: %v\n%s", err, d)
	}
	for _, bad := range []string{`{"version":2,"packages":[]}`, `{"version":1,"packages":[{"name":"a","version":"1","arch":"","licenses":[]}]}`, `[]`} {
		if _, err := ParseInventory([]byte(bad)); err == nil {
			t.Errorf("ParseInventory(%s) succeeded", bad)
		}
	}
}

func TestParseSpec(t *testing.T) {
	good := `{"version":1,"target":"t","platform":"linux/amd64","recipe":"ab","components":[]}`
	if s, err := ParseSpec([]byte(good)); err != nil || s.Target != "t" {
		t.Errorf("ParseSpec = %+v, %v", s, err)
	}
	for _, bad := range []string{"", "{}", good + "x", strings.Replace(good, "target", "tarket", 1), strings.Replace(good, ":1", ":2", 1)} {
		if _, err := ParseSpec([]byte(bad)); err == nil {
			t.Errorf("ParseSpec(%s) succeeded", bad)
		}
	}
}

// TestLight keeps command line and network out of what every program imports.
func TestLight(t *testing.T) {
	out, err := exec.Command("go", "list", "-deps", ".").Output()
	if err != nil {
		t.Skip("no go command: ", err)
	}
	for p := range strings.FieldsSeq(string(out)) {
		if strings.Contains(p, "urfave/cli") || p == "net/http" || strings.Contains(p, "protobuf") {
			t.Errorf("package certificate imports %s", p)
		}
	}
}

// FuzzParse: what is accepted can be written, and is then read as the same.
func FuzzParse(f *testing.F) {
	f.Add(marshal(f, sample(f)))
	f.Add(indent(f, marshal(f, sample(f))))
	f.Fuzz(func(t *testing.T, b []byte) {
		s, err := Parse(b)
		if err != nil {
			return
		}
		written := marshal(t, s)
		if again, err := Parse(written); err != nil {
			t.Errorf("%s, which is what is read of %s: %v", written, b, err)
		} else if twice := marshal(t, again); !bytes.Equal(twice, written) {
			t.Errorf("%s is %s when it is read again", written, twice)
		}
	})
}

// TestClockSetBack: what is made with a clock that was set back in between is a certificate.
func TestClockSetBack(t *testing.T) {
	at := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	st := New(Predicate{Suite: "image", Started: at, Finished: at.Add(-time.Hour)})
	b, err := st.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	if st, err = Parse(b); err != nil || !st.Predicate.Finished.Equal(at.Add(-time.Hour)) {
		t.Errorf("%v, %v", st, err)
	}
}
