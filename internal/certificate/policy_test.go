package certificate_test

import (
	"bytes"
	"crypto"
	"crypto/ed25519"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/assay-hpc/assay/internal/attest"
	"github.com/assay-hpc/assay/internal/certificate"
	"github.com/assay-hpc/assay/internal/result"
)

var (
	policyNow   = time.Date(2026, 3, 8, 12, 0, 0, 0, time.UTC)
	policyKey   = ed25519.NewKeyFromSeed([]byte(strings.Repeat("k", ed25519.SeedSize)))
	policyOther = ed25519.NewKeyFromSeed([]byte(strings.Repeat("o", ed25519.SeedSize)))
	imageDigest = "sha256:" + strings.Repeat("0a", 32)
)

// A facet is what a certificate is about.
type facet struct {
	suite, node, image, target, recipe string
	finished                           time.Time
	verdict                            result.Verdict
	gpus                               []result.Result // the result of --gpus
	origin                             string
	selected                           *certificate.Selected
}

func (f facet) statement() []byte {
	st := certificate.New(certificate.Predicate{
		Suite: f.suite, Started: f.finished.Add(-time.Minute), Finished: f.finished,
		Results:     append([]result.Result{{ID: "a/b", Title: "a", Verdict: f.verdict, Reason: "r"}}, f.gpus...),
		Environment: certificate.Environment{Platform: "linux/amd64", Target: f.target, Recipe: f.recipe},
		Harness:     certificate.Harness{Origin: f.origin}, Selected: f.selected,
	})
	var err error
	if f.node != "" {
		err = st.SetNode(&certificate.Node{Name: "gpu-" + f.node, Identity: []string{"dmi " + f.node}})
	}
	if err == nil && f.image != "" {
		err = st.AddSubject("image", f.image)
	}
	b, merr := st.Marshal()
	if err = errors.Join(err, merr); err != nil {
		panic(err)
	}
	return b
}

// A use is one that a certificate is put to, with one that serves it.
type use struct {
	name   string
	good   facet
	accept func(doc []byte) error
}

func uses() []use {
	keys := []crypto.PublicKey{policyKey.Public()}
	counted := []result.Result{{ID: certificate.GPUsID, Title: "GPUs", Verdict: result.Pass}}
	machine := facet{suite: "node", node: "1", finished: policyNow.Add(-time.Hour), verdict: result.Pass, gpus: counted}
	image := facet{suite: "image", image: imageDigest, target: "fabric", recipe: strings.Repeat("5", 64), finished: policyNow.Add(-time.Hour), verdict: result.Pass, origin: certificate.OriginAssay}
	identity := certificate.NodeDigest([]string{"dmi 1"})
	admit := func(mark time.Time) func([]byte) error {
		return func(doc []byte) error {
			adm, err := certificate.Admit(doc, attest.Policy{Node: identity, Suites: []string{"node", "quick"}, MaxAge: 7 * 24 * time.Hour, Now: policyNow, Keys: keys})
			if err == nil && adm.Statement().Predicate.Verdict == result.Pass {
				err = adm.Supersedes("the drain", mark)
			}
			return err
		}
	}
	verify := func(p attest.Policy, digest string) func([]byte) error {
		return func(doc []byte) error {
			p := p
			p.Keys, p.Now = keys, policyNow
			_, _, err := certificate.Accept(doc, digest, p)
			return err
		}
	}
	return []use{
		{"apply", machine, admit(policyNow.Add(-2 * time.Hour))},
		{"verify a machine's", machine, verify(attest.Policy{Use: attest.Passing, Node: identity, Suites: []string{"node"}, MaxAge: 48 * time.Hour}, identity)},
		{"verify an image's", image, verify(attest.Policy{Use: attest.Passing, Suites: []string{"image"}, Target: "fabric", Recipe: "5555555", MaxAge: 48 * time.Hour}, imageDigest)},
		{"inspect and publish", image, verify(attest.Policy{Target: "fabric", Recipe: "5555555", MaxAge: 48 * time.Hour}, imageDigest)},
	}
}

// TestUncounted: a pass that does not say how many GPUs the node should have takes none back, and a
// fail drains without it.
func TestUncounted(t *testing.T) {
	policy := attest.Policy{Node: certificate.NodeDigest([]string{"dmi 1"}), Suites: []string{"node"}, Now: policyNow}
	for _, tt := range []struct {
		verdict result.Verdict
		gpus    []result.Result
		want    bool
	}{
		{result.Pass, nil, false},
		{result.Pass, []result.Result{{ID: certificate.GPUsID, Verdict: result.Skip, Reason: "r"}}, false},
		{result.Pass, []result.Result{{ID: "gpus/x", Verdict: result.Pass}}, false},
		{result.Pass, []result.Result{{ID: certificate.GPUsID, Verdict: result.Pass}}, true},
		{result.Fail, nil, true},
	} {
		f := facet{suite: "node", node: "1", finished: policyNow.Add(-time.Hour), verdict: tt.verdict, gpus: tt.gpus}
		if _, err := certificate.Admit(f.statement(), policy); (err == nil) != tt.want || err != nil && !errors.Is(err, attest.ErrUse) {
			t.Errorf("%s with %v: %v", tt.verdict, tt.gpus, err)
		}
	}
}

// TestGate: what an image could have written itself is not its gate, nor is what left checks out.
// Both are kept beside the image, and may be shown and verified.
func TestGate(t *testing.T) {
	for _, tt := range []struct {
		origin   string
		selected *certificate.Selected
		want     bool
	}{
		{certificate.OriginAssay, nil, true},
		{"", nil, false},
		{"Assay", nil, false},
		{certificate.OriginAssay, &certificate.Selected{Only: []string{"a"}}, false},
		{certificate.OriginAssay, &certificate.Selected{Skip: []string{"a/*"}}, false},
	} {
		f := facet{suite: "image", image: imageDigest, finished: policyNow.Add(-time.Hour), verdict: result.Pass, origin: tt.origin, selected: tt.selected}
		_, _, err := certificate.Accept(f.statement(), imageDigest, attest.Policy{Now: policyNow})
		if (err == nil) != tt.want || err != nil && !errors.Is(err, attest.ErrUse) {
			t.Errorf("origin %q, selected %v: as a gate: %v", tt.origin, tt.selected, err)
		}
		if _, _, err = certificate.Accept(f.statement(), imageDigest, attest.Policy{Use: attest.Passing, Now: policyNow}); err != nil {
			t.Errorf("origin %q, selected %v: as a pass: %v", tt.origin, tt.selected, err)
		}
	}
}

// attempt returns a document that does not serve the use: something was changed at random.
func attempt(rng *rand.Rand, good facet) (what string, doc []byte) {
	f, key := good, crypto.Signer(policyKey)
	sign := func(st []byte) []byte {
		env, err := attest.Sign(attest.TypeStatement, bytes.TrimSpace(st), key)
		if err != nil {
			panic(err)
		}
		return env
	}
	pick := func(names ...string) string { return names[rng.IntN(len(names))] }
	about := func() {
		if good.node == "" {
			f.image = "sha256:" + strings.Repeat(fmt.Sprintf("%02x", 11+rng.IntN(200)), 32)
		} else {
			f.node = fmt.Sprint(2 + rng.IntN(1000))
		}
	}
	n := rng.IntN(14)
	switch n {
	case 0:
		about()
		return "about another", sign(f.statement())
	case 1:
		f.suite = pick("one-check", "health2", "Node", "node ", "images", "nodes")
		f.suite = strings.TrimSpace(f.suite) + "x"
		return "of another suite", sign(f.statement())
	case 2:
		f.finished = policyNow.Add(-time.Duration(8*24+rng.IntN(50000)) * time.Hour)
		return "too old", sign(f.statement())
	case 3:
		f.finished = policyNow.Add(time.Duration(6+rng.IntN(1e6)) * time.Minute)
		return "from the future", sign(f.statement())
	case 4:
		key = policyOther
		return "by another key", sign(f.statement())
	case 5:
		return "unsigned", f.statement()
	case 6: // the other kind's
		if good.node == "" {
			f.node = "1"
			f.suite = pick("image", "node")
		} else {
			f.node, f.image, f.suite = "", certificate.NodeDigest([]string{"dmi 1"}), pick("image", "node")
		}
		return "of the other kind", sign(f.statement())
	case 7:
		if good.node != "" { // older than what it would undo, or too old to verify
			f.finished = policyNow.Add(-50*time.Hour - time.Duration(rng.IntN(100))*time.Minute)
			return "replayed", sign(f.statement())
		}
		f.target = pick("cuda", "fabri", "fabricx", "")
		return "of another target", sign(f.statement())
	case 8:
		if good.node != "" {
			about()
			f.verdict = result.Fail
			return "another machine's fail", sign(f.statement())
		}
		f.recipe = pick(strings.Repeat("4", 64), "", "555555", "4"+strings.Repeat("5", 63))
		return "of another recipe", sign(f.statement())
	case 9: // cut off
		doc = sign(f.statement())
		return "cut off", doc[:rng.IntN(len(doc)-2)]
	case 10, 11: // a name twice, or one that some readers take for it, in what was signed
		st := string(f.statement())
		name := pick("suite", "verdict", "finished", "subject", "predicateType", "_type", "results", "platform", "sha256")
		other := name
		if n == 11 {
			other = pick(strings.ToUpper(name), strings.Replace(name, "s", "\u017f", 1), strings.ToUpper(name[:1])+name[1:])
		}
		at := strings.Index(st, `"`+name+`":`)
		if n == 11 && other == name {
			other = strings.ToUpper(name)
		}
		if n == 11 { // spelled otherwise alone: the field is missing
			st = st[:at] + `"` + other + `":` + st[at+len(name)+3:]
		} else {
			st = st[:at] + `"` + other + `":"x",` + st[at:]
		}
		return fmt.Sprintf("%q for %q, signed", other, name), sign([]byte(st))
	case 12: // the same in the envelope
		doc = sign(f.statement())
		name := pick("payload", "payloadType", "signatures")
		other := pick(name, strings.ToUpper(name), strings.Replace(name, "s", "\u017f", 1)+"", strings.ToUpper(name[:1])+name[1:])
		bad := base64.StdEncoding.EncodeToString(facet{suite: "image", image: imageDigest, finished: policyNow, verdict: result.Pass}.statement())
		value := map[string]string{"payload": `"` + bad + `"`, "payloadType": `"application/vnd.in-toto+json"`, "signatures": `[]`}[name]
		if !strings.Contains(name, "s") && other == name {
			other = name
		}
		if rng.IntN(2) == 0 {
			return fmt.Sprintf("%q in the envelope, first", other), append([]byte(`{"`+other+`":`+value+`,`), doc[1:]...)
		}
		doc = bytes.TrimSpace(doc)
		return fmt.Sprintf("%q in the envelope, last", other), append(doc[:len(doc)-1:len(doc)-1], []byte(`,"`+other+`":`+value+`}`)...)
	}
	// Another payload under the signature.
	var env map[string]any
	if err := json.Unmarshal(sign(f.statement()), &env); err != nil {
		panic(err)
	}
	f.finished = f.finished.Add(-time.Duration(1+rng.IntN(1000)) * time.Millisecond)
	env["payload"] = base64.StdEncoding.EncodeToString(bytes.TrimSpace(f.statement()))
	doc, err := json.Marshal(env)
	if err != nil {
		panic(err)
	}
	return "another payload", doc
}

// TestPolicy makes thousands of documents that do not serve a use: none is accepted, while each
// unchanged one is, for its use alone.
func TestPolicy(t *testing.T) {
	rng := rand.New(rand.NewPCG(9, 10))
	all := uses()
	for _, u := range all {
		doc, err := attest.Sign(attest.TypeStatement, bytes.TrimSpace(u.good.statement()), policyKey)
		if err != nil {
			t.Fatal(err)
		}
		if err := u.accept(doc); err != nil {
			t.Errorf("%s: as it is: %v", u.name, err)
		}
		for _, other := range all { // an image's is not a machine's, nor the other way round
			if (other.good.node == "") != (u.good.node == "") {
				if err := other.accept(doc); err == nil {
					t.Errorf("what serves %q serves %q, too", u.name, other.name)
				}
			}
		}
	}
	fail := all[0].good
	fail.verdict = result.Fail
	doc, err := attest.Sign(attest.TypeStatement, bytes.TrimSpace(fail.statement()), policyKey)
	if err != nil {
		t.Fatal(err)
	}
	for i, u := range all {
		if err := u.accept(doc); (err == nil) != (i == 0) {
			t.Errorf("%s of a fail: %v", u.name, err)
		}
	}
	kinds := map[string]int{}
	const each = 1500
	for _, u := range all {
		for range each {
			what, doc := attempt(rng, u.good)
			kinds[what]++
			if err := u.accept(doc); err == nil {
				t.Errorf("%s: %s: accepted: %s", u.name, what, doc)
			}
		}
	}
	if len(kinds) < 30 {
		t.Errorf("there were only %d kinds of attempts", len(kinds))
	}
}
