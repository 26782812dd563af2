package driver

import (
	"strings"
	"testing"

	"github.com/assay-hpc/assay/harness/certificate"
	"github.com/assay-hpc/assay/harness/result"
)

// TestRecordIsNotBelieved: a record that is read back must pass as the gate does,
// whatever it says of itself.
func TestRecordIsNotBelieved(t *testing.T) {
	w := open(t, Options{Matrix: own(t)})
	w.Lock.Epoch = 1
	pin(t, w, w.Targets[:1])
	target := w.Targets[0]
	b := &build{Workspace: w}
	mk, err := w.Recipe(target, amd64, amd64)
	if err != nil {
		t.Fatal(err)
	}
	image, certifier, other := "sha256:"+strings.Repeat("1", 64), "sha256:"+strings.Repeat("2", 64), "sha256:"+strings.Repeat("3", 64)
	made := func(change func(*certificate.Predicate)) []byte {
		p := certificate.Predicate{
			Suite: "image", Started: w.Epoch(), Finished: w.Epoch(), Harness: certificate.Harness{Version: "1", Origin: certificate.OriginAssay},
			Environment: certificate.Environment{Platform: "linux/amd64", Target: target.Name, Recipe: mk.Recipe.Declared()},
			Results:     []result.Result{{ID: "image/files", Title: "files", Verdict: result.Pass}},
		}
		change(&p)
		st := certificate.New(p)
		if err := st.SetSubject("image", image); err != nil {
			t.Fatal(err)
		}
		if err := st.AddSubject("image-certify", certifier); err != nil {
			t.Fatal(err)
		}
		doc, err := st.Marshal()
		if err != nil {
			t.Fatal(err)
		}
		return doc
	}
	good := record{Digest: image, Certifier: certifier, Certificate: made(func(*certificate.Predicate) {})}
	if err := b.verify(target, amd64, good); err != nil {
		t.Fatalf("as it was made: %v", err)
	}
	for what, change := range map[string]func(*record){
		"no certificate":    func(r *record) { r.Certificate = nil },
		"no document":       func(r *record) { r.Certificate = []byte("{}") },
		"no image":          func(r *record) { r.Digest = "" },
		"another image":     func(r *record) { r.Digest = other },
		"another certifier": func(r *record) { r.Certifier = other },
		"another target's": func(r *record) {
			r.Certificate = made(func(p *certificate.Predicate) { p.Environment.Target = "cuda" })
		},
		"of no target": func(r *record) { r.Certificate = made(func(p *certificate.Predicate) { p.Environment.Target = "" }) },
		"another platform's": func(r *record) {
			r.Certificate = made(func(p *certificate.Predicate) { p.Environment.Platform = "linux/arm64" })
		},
		"another recipe's": func(r *record) {
			r.Certificate = made(func(p *certificate.Predicate) { p.Environment.Recipe = strings.Repeat("0", 64) })
		},
		"one that failed": func(r *record) {
			r.Certificate = made(func(p *certificate.Predicate) { p.Results[0].Verdict, p.Results[0].Reason = result.Fail, "x" })
		},
		"one with only skips": func(r *record) {
			r.Certificate = made(func(p *certificate.Predicate) { p.Results[0].Verdict, p.Results[0].Reason = result.Skip, "x" })
		},
		"a verdict of its own": func(r *record) {
			r.Certificate = []byte(strings.Replace(string(made(func(p *certificate.Predicate) { p.Results[0].Verdict, p.Results[0].Reason = result.Fail, "x" })), `"verdict":"fail"`, `"verdict":"pass"`, 1))
		},
	} {
		r := good
		change(&r)
		if err := b.verify(target, amd64, r); err == nil {
			t.Errorf("%s: believed", what)
		}
	}
}
