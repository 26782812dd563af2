package inspect

import (
	"bytes"
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	crand "crypto/rand"
	"crypto/rsa"
	"encoding/json"
	"fmt"
	"io"
	"log"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/types"

	"github.com/assay-hpc/assay/internal/attest"
	"github.com/assay-hpc/assay/internal/oci"
)

// A store is a signed layout that attacks are made on: two targets for two
// platforms, one of which is inspected.
type store struct {
	*oci.Layout
	t      *testing.T
	policy attest.Policy
	root   v1.Hash
	images []oci.PlatformImage // of the target
	other  []oci.PlatformImage // of the other one
}

func newStore(t *testing.T) *store {
	l := newTarget(t, "fabric", signingKey)
	addTarget(t, l, "cuda", 7, signingKey)
	s := &store{Layout: l, t: t, policy: attest.Policy{
		Target: "fabric", Platforms: []string{"linux/amd64", "linux/arm64"}, Keys: keys(signingKey), Required: All,
	}}
	s.root, s.images = s.target("fabric")
	_, s.other = s.target("cuda")
	if _, err := s.inspect(s.root.String()); err != nil {
		t.Fatalf("as it is: %v", err)
	}
	return s
}

func (s *store) target(name string) (root v1.Hash, images []oci.PlatformImage) {
	d, err := s.Find(name)
	if err != nil {
		s.t.Fatal(err)
	}
	for _, p := range []v1.Platform{amd64, arm64} {
		img, err := s.Find(name + "/" + p.String())
		if err != nil {
			s.t.Fatal(err)
		}
		images = append(images, oci.PlatformImage{Platform: p, Digest: img.Digest.String()})
	}
	return d.Digest, images
}

func (s *store) inspect(ref string) (*Report, error) {
	return Inspect(s.t.Context(), s.Source(ref), s.policy)
}

// blob stores bytes and returns their descriptor.
func (s *store) blob(mediaType types.MediaType, v any) v1.Descriptor {
	raw, ok := v.([]byte)
	if !ok {
		var err error
		if raw, err = json.Marshal(v); err != nil {
			s.t.Fatal(err)
		}
	}
	h, size, err := s.WriteBlob(bytes.NewReader(raw))
	if err != nil {
		s.t.Fatal(err)
	}
	return v1.Descriptor{MediaType: mediaType, Digest: h, Size: size}
}

func (s *store) read(h v1.Hash, v any) {
	raw, err := s.ReadBlob(h)
	if err == nil {
		err = json.Unmarshal(raw, v)
	}
	if err != nil {
		s.t.Fatal(err)
	}
}

// index is one over images of the layout, as Assemble makes it.
func (s *store) index(images ...v1.Descriptor) v1.Descriptor {
	return s.blob(types.OCIImageIndex, v1.IndexManifest{SchemaVersion: 2, MediaType: types.OCIImageIndex, Manifests: images})
}

func (s *store) image(img oci.PlatformImage) v1.Descriptor {
	d, err := s.Describe(mustHash(s.t, img.Digest))
	if err != nil {
		s.t.Fatal(err)
	}
	p := img.Platform
	d.Platform = &p
	return d
}

// reachable are the digests of all that an inspection of the target reads, and
// of the layers, which clients read.
func (s *store) reachable() (read, layers []v1.Hash) {
	read = append(read, s.root)
	for _, img := range s.images {
		h := mustHash(s.t, img.Digest)
		var m v1.Manifest
		s.read(h, &m)
		read = append(read, h, m.Config.Digest)
		for _, l := range m.Layers {
			layers = append(layers, l.Digest)
		}
		refs, err := s.Referrers(h)
		if err != nil {
			s.t.Fatal(err)
		}
		for _, r := range refs {
			var a v1.Manifest
			s.read(r.Digest, &a)
			read = append(read, r.Digest, a.Layers[0].Digest)
		}
	}
	return read, layers
}

// attacks counts attempts, none of which may be accepted.
type attacks struct {
	t *testing.T
	n int
}

func (a *attacks) refused(what string, rep *Report, err error) {
	a.t.Helper()
	a.n++
	if err == nil {
		a.t.Errorf("%s: accepted as %+v", what, rep)
	}
}

// attachments are one image's documents, by kind.
func (s *store) documents(img oci.PlatformImage) map[string][]byte {
	out := map[string][]byte{}
	refs, err := s.Referrers(mustHash(s.t, img.Digest))
	if err != nil {
		s.t.Fatal(err)
	}
	for _, r := range refs {
		var m v1.Manifest
		s.read(r.Digest, &m)
		doc, err := s.ReadBlob(m.Layers[0].Digest)
		if err != nil {
			s.t.Fatal(err)
		}
		for _, k := range Kinds {
			if m.Annotations[oci.AnnotationPredicate] == k.Type {
				out[k.Name] = doc
			}
		}
	}
	return out
}

func predicate(kind string) string {
	return Kinds[slices.IndexFunc(Kinds, func(k attest.Kind) bool { return k.Name == kind })].Type
}

// without runs f on a copy of the store in which an image's documents are these.
func (s *store) with(img oci.PlatformImage, docs map[string][]byte, f func(*store)) {
	c := *s
	dir := s.t.TempDir()
	if err := os.CopyFS(dir, os.DirFS(s.Dir())); err != nil {
		s.t.Fatal(err)
	}
	l, err := oci.Open(dir)
	if err != nil {
		s.t.Fatal(err)
	}
	c.Layout = l
	drop(s.t, dir, s, img)
	for kind, doc := range docs {
		put(s.t, l, img.Digest, oci.Artifact{Type: attest.MediaType(doc), Predicate: predicate(kind), Data: doc})
	}
	f(&c)
}

// drop takes what is attached to an image out of a layout's index.
func drop(t *testing.T, dir string, s *store, img oci.PlatformImage) {
	refs, err := s.Referrers(mustHash(t, img.Digest))
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(dir, "index.json")
	raw, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var idx v1.IndexManifest
	if err := json.Unmarshal(raw, &idx); err != nil {
		t.Fatal(err)
	}
	idx.Manifests = slices.DeleteFunc(idx.Manifests, func(d v1.Descriptor) bool {
		return slices.ContainsFunc(refs, func(r v1.Descriptor) bool { return r.Digest == d.Digest })
	})
	if raw, err = json.Marshal(idx); err == nil {
		err = os.WriteFile(file, raw, 0o644)
	}
	if err != nil {
		t.Fatal(err)
	}
}

func resigned(t *testing.T, doc []byte, key crypto.Signer) []byte {
	t.Helper()
	o, err := attest.Open(doc)
	if err != nil {
		t.Fatal(err)
	}
	if key == nil {
		return o.Payload
	}
	env, err := attest.Sign(attest.TypeStatement, o.Payload, key)
	if err != nil {
		t.Fatal(err)
	}
	return env
}

// TestTampering makes some 2,000 attempts at having something else accepted than
// what was signed.
func TestTampering(t *testing.T) {
	s := newStore(t)
	a := &attacks{t: t}
	s.flips(a)
	s.flipsInRegistry(a)
	s.stripped(a)
	s.swapped(a)
	s.replayed(a)
	s.edited(a)
	s.indexes(a)
	s.asked(a)
	if a.n < 2000 {
		t.Errorf("%d attempts; want 2,000", a.n)
	}
	t.Logf("%d attempts", a.n)
}

// flips changes a byte of each file of the layout, at places all over it.
func (s *store) flips(a *attacks) {
	rng := rand.New(rand.NewPCG(1, 2))
	read, layers := s.reachable()
	for _, h := range read {
		s.eachFlip(rng, h, 65, func(what string) {
			rep, err := s.inspect(s.root.String())
			a.refused(what, rep, err)
		})
	}
	// Layers are not read: they are found out when somebody uploads them.
	for _, h := range layers {
		s.eachFlip(rng, h, 12, func(what string) {
			srv := httptest.NewServer(registry.New(registry.Logger(log.New(io.Discard, "", 0))))
			defer srv.Close()
			repo, err := oci.OpenRepository(strings.TrimPrefix(srv.URL, "http://")+"/a/b", oci.Options{Retry: oci.Retry{Attempts: 1}})
			if err != nil {
				s.t.Fatal(err)
			}
			_, err = repo.Push(s.t.Context(), s.Layout, s.root)
			a.refused("pushing a layer, "+what, nil, err)
		})
	}
}

func (s *store) eachFlip(rng *rand.Rand, h v1.Hash, n int, f func(what string)) {
	file := filepath.Join(s.Dir(), "blobs", h.Algorithm, h.Hex)
	good, err := os.ReadFile(file)
	if err != nil {
		s.t.Fatal(err)
	}
	for range n {
		bad := bytes.Clone(good)
		i := rng.IntN(len(bad))
		bad[i] ^= byte(1 + rng.IntN(255))
		if err := os.WriteFile(file, bad, 0o644); err != nil {
			s.t.Fatal(err)
		}
		f(fmt.Sprintf("%s: byte %d is %q", h, i, bad[i]))
	}
	if err := os.WriteFile(file, good, 0o644); err != nil {
		s.t.Fatal(err)
	}
}

// flipsInRegistry has a registry answer with another byte.
func (s *store) flipsInRegistry(a *attacks) {
	rng := rand.New(rand.NewPCG(3, 4))
	var victim string // path's last element
	inner := registry.New(registry.Logger(log.New(io.Discard, "", 0)), registry.WithReferrersSupport(true))
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		rec := httptest.NewRecorder()
		inner.ServeHTTP(rec, r)
		body := rec.Body.Bytes()
		if r.Method == http.MethodGet && victim != "" && path.Base(r.URL.Path) == victim && !strings.Contains(r.URL.Path, "/referrers/") && len(body) > 0 {
			body[rng.IntN(len(body))] ^= byte(1 + rng.IntN(255))
		}
		for k, v := range rec.Header() {
			w.Header()[k] = v
		}
		w.WriteHeader(rec.Code)
		_, _ = w.Write(body)
	}))
	defer srv.Close()
	repo, err := oci.OpenRepository(strings.TrimPrefix(srv.URL, "http://")+"/owner/assay", oci.Options{Retry: oci.Retry{Attempts: 1}})
	if err != nil {
		s.t.Fatal(err)
	}
	if _, err := repo.Push(s.t.Context(), s.Layout, s.root); err != nil {
		s.t.Fatal(err)
	}
	read, _ := s.reachable()
	for _, h := range read {
		victim = h.String()
		for range 45 {
			// Each with a client that remembers nothing.
			fresh, err := oci.OpenRepository(repo.String(), oci.Options{Retry: oci.Retry{Attempts: 1}})
			if err != nil {
				s.t.Fatal(err)
			}
			rep, err := Inspect(s.t.Context(), fresh.Source(s.root), s.policy)
			a.refused("a registry's answer for "+victim, rep, err)
		}
	}
	victim = ""
	if _, err := Inspect(s.t.Context(), repo.Source(s.root), s.policy); err != nil {
		s.t.Errorf("as it was: %v", err)
	}
}

// stripped takes statements away: every set of them, from either image.
func (s *store) stripped(a *attacks) {
	for _, img := range s.images {
		all := s.documents(img)
		for set := range 7 { // but the whole
			docs := map[string][]byte{}
			for i, kind := range All {
				if set&(1<<i) != 0 {
					docs[kind] = all[kind]
				}
			}
			s.with(img, docs, func(c *store) {
				rep, err := c.inspect(s.root.String())
				a.refused(fmt.Sprintf("%s with no more than set %d", img.Platform, set), rep, err)
			})
		}
	}
}

// swapped attaches what was signed about another image.
func (s *store) swapped(a *attacks) {
	for i, img := range s.images {
		own := s.documents(img)
		for _, from := range append([]oci.PlatformImage{s.images[1-i]}, s.other...) {
			theirs := s.documents(from)
			for set := 1; set < 8; set++ {
				docs := map[string][]byte{}
				for j, kind := range All {
					docs[kind] = own[kind]
					if set&(1<<j) != 0 {
						docs[kind] = theirs[kind]
					}
				}
				s.with(img, docs, func(c *store) {
					rep, err := c.inspect(s.root.String())
					a.refused(fmt.Sprintf("%s with set %d of %s", img.Platform, set, from.Digest), rep, err)
				})
			}
		}
	}
}

// replayed signs the documents with other keys, or in forms that nobody signed.
func (s *store) replayed(a *attacks) {
	ec, err1 := ecdsa.GenerateKey(elliptic.P256(), crand.Reader)
	rs, err2 := rsa.GenerateKey(crand.Reader, 2048)
	if err1 != nil || err2 != nil {
		s.t.Fatal(err1, err2)
	}
	spoil := func(edit func(env, sig map[string]any)) func([]byte) []byte {
		return func(doc []byte) []byte {
			var env map[string]any
			if err := json.Unmarshal(doc, &env); err != nil {
				s.t.Fatal(err)
			}
			edit(env, env["signatures"].([]any)[0].(map[string]any))
			b, err := json.Marshal(env)
			if err != nil {
				s.t.Fatal(err)
			}
			return b
		}
	}
	forms := map[string]func([]byte) []byte{
		"unsigned":      func(d []byte) []byte { return resigned(s.t, d, nil) },
		"another key":   func(d []byte) []byte { return resigned(s.t, d, otherKey) },
		"ECDSA":         func(d []byte) []byte { return resigned(s.t, d, ec) },
		"RSA":           func(d []byte) []byte { return resigned(s.t, d, rs) },
		"no signature":  spoil(func(env, _ map[string]any) { env["signatures"] = []any{} }),
		"null":          spoil(func(env, _ map[string]any) { env["signatures"] = nil }),
		"empty":         spoil(func(_, sig map[string]any) { sig["sig"] = "" }),
		"zeros":         spoil(func(_, sig map[string]any) { sig["sig"] = strings.Repeat("A", 86) + "==" }),
		"another type":  spoil(func(env, _ map[string]any) { env["payloadType"] = "application/json" }),
		"no type":       spoil(func(env, _ map[string]any) { delete(env, "payloadType") }),
		"bare envelope": func(d []byte) []byte { return []byte(`{"payloadType":"","payload":"","signatures":[]}`) },
	}
	for _, img := range s.images {
		own := s.documents(img)
		for _, kind := range All {
			for name, form := range forms {
				docs := map[string][]byte{}
				for k, d := range own {
					docs[k] = d
				}
				docs[kind] = form(own[kind])
				s.with(img, docs, func(c *store) {
					rep, err := c.inspect(s.root.String())
					a.refused(fmt.Sprintf("%s, %s: %s", img.Platform, kind, name), rep, err)
				})
			}
		}
	}
	// Keys that cannot vouch for anything.
	for _, k := range []crypto.PublicKey{nil, "", 5, struct{}{}, ed25519.PublicKey{}, ed25519.PublicKey(make([]byte, 32)), (*ecdsa.PublicKey)(nil), &ecdsa.PublicKey{}, &rsa.PublicKey{}, otherKey.Public(), ec.Public(), rs.Public()} {
		p := s.policy
		p.Keys = []crypto.PublicKey{k}
		rep, err := Inspect(s.t.Context(), s.Source(s.root.String()), p)
		a.refused(fmt.Sprintf("the key %T", k), rep, err)
	}
}

// edited changes what a statement says, and keeps its signature.
func (s *store) edited(a *attacks) {
	other := s.other[0].Digest[len("sha256:"):]
	for _, img := range s.images {
		own := s.documents(img)
		for kind, doc := range own {
			o, err := attest.Open(doc)
			if err != nil {
				s.t.Fatal(err)
			}
			var env map[string]any
			if err := json.Unmarshal(doc, &env); err != nil {
				s.t.Fatal(err)
			}
			for _, edit := range [][2]string{
				{`"fabric"`, `"cuda"`}, {img.Digest[len("sha256:"):], other}, {`"verdict":"pass"`, `"verdict":"skip"`}, {`/v1`, `/v2`}, {`"name"`, `"nam"`}, {`{`, ` {`}, {`:`, ` :`},
			} {
				changed := strings.Replace(string(o.Payload), edit[0], edit[1], 1)
				if changed == string(o.Payload) {
					continue
				}
				env["payload"] = []byte(changed)
				b, err := json.Marshal(env)
				if err != nil {
					s.t.Fatal(err)
				}
				docs := map[string][]byte{}
				for k, d := range own {
					docs[k] = d
				}
				docs[kind] = b
				s.with(img, docs, func(c *store) {
					rep, err := c.inspect(s.root.String())
					a.refused(fmt.Sprintf("%s, %s: %q for %q", img.Platform, kind, edit[1], edit[0]), rep, err)
				})
			}
		}
	}
}

// indexes puts other indexes over images of the layout.
func (s *store) indexes(a *attacks) {
	amd, arm := s.image(s.images[0]), s.image(s.images[1])
	evil := s.image(oci.PlatformImage{Platform: amd64, Digest: writeImage(s.t, s.Layout, amd64, 666)})
	evilArm := s.image(oci.PlatformImage{Platform: arm64, Digest: writeImage(s.t, s.Layout, arm64, 667)})
	cuda, cudaArm := s.image(s.other[0]), s.image(s.other[1])
	nested := func(depth int, ds ...v1.Descriptor) v1.Descriptor {
		d := s.index(ds...)
		for range depth {
			d = s.index(d)
		}
		return d
	}
	change := func(d v1.Descriptor, f func(*v1.Descriptor)) v1.Descriptor {
		f(&d)
		return d
	}
	unknown := func(d *v1.Descriptor) { d.Platform = &v1.Platform{OS: "unknown", Architecture: "unknown"} }
	tries := map[string]v1.Descriptor{
		"empty":                       s.index(),
		"one platform":                s.index(amd),
		"the other platform":          s.index(arm),
		"a platform twice":            s.index(amd, arm, amd),
		"unsigned beside":             s.index(amd, arm, evil),
		"unsigned first":              s.index(evil, amd, arm),
		"unsigned for one":            s.index(evil, arm),
		"unsigned for both":           s.index(evil, evilArm),
		"another target":              s.index(cuda, cudaArm),
		"another target for one":      s.index(amd, cudaArm),
		"wrong platform":              s.index(change(amd, func(d *v1.Descriptor) { d.Platform = arm.Platform }), arm),
		"wrong size":                  s.index(change(amd, func(d *v1.Descriptor) { d.Size++ }), arm),
		"a document for an image":     s.index(amd, arm, change(amd, func(d *v1.Descriptor) { d.MediaType = "application/json" })),
		"hidden without annotation":   s.index(amd, arm, change(evil, unknown)),
		"an image that is an index":   s.index(amd, arm, change(s.index(evil), func(d *v1.Descriptor) { d.MediaType = types.OCIManifestSchema1 })),
		"an index that is an image":   s.index(amd, arm, change(evil, func(d *v1.Descriptor) { d.MediaType = types.OCIImageIndex })),
		"of no type":                  s.index(amd, arm, change(evil, func(d *v1.Descriptor) { d.MediaType = "" })),
		"a blob that is not there":    s.index(amd, arm, change(evil, func(d *v1.Descriptor) { d.Digest.Hex = strings.Repeat("0", 64) })),
		"a digest of another kind":    s.index(amd, arm, change(evil, func(d *v1.Descriptor) { d.Digest.Algorithm = "sha512" })),
		"a referrer for an image":     s.index(amd, arm, s.referrer(s.images[0])),
		"an image with its statement": s.index(amd, arm, change(s.referrer(s.images[0]), func(d *v1.Descriptor) { d.Platform = amd.Platform })),
	}
	for depth := range 7 {
		tries[fmt.Sprintf("unsigned, nested %d deep", depth)] = nested(depth, evil, evilArm)
		tries[fmt.Sprintf("unsigned, nested %d deep beside ours", depth)] = s.index(amd, arm, nested(depth, evil))
		tries[fmt.Sprintf("ours, nested %d deep beside unsigned", depth)] = s.index(nested(depth, amd, arm), evil)
		tries[fmt.Sprintf("another target, nested %d deep", depth)] = nested(depth, cuda, cudaArm)
	}
	for what, d := range tries {
		rep, err := s.inspect(d.Digest.String())
		a.refused(what, rep, err)
	}
	for _, d := range []v1.Descriptor{evil, cuda, amd, s.referrer(s.images[0])} { // a single image for an index
		rep, err := s.inspect(d.Digest.String())
		a.refused("the manifest "+d.Digest.String(), rep, err)
	}
	// T1: with a key, an index of nothing but an unsigned, nested one.
	p := attest.Policy{Keys: keys(signingKey), Required: All}
	rep, err := Inspect(s.t.Context(), s.Source(nested(1, evil).Digest.String()), p)
	a.refused("an index of a nested index, whatever the target", rep, err)
	if rep == nil || len(rep.Images) != 1 {
		s.t.Errorf("the nested image is not in the report: %+v", rep)
	}
	// As nested as that, what was signed is accepted.
	if _, err := s.inspect(nested(2, amd, arm).Digest.String()); err != nil {
		s.t.Errorf("signed images in a nested index: %v", err)
	}
}

func (s *store) referrer(img oci.PlatformImage) v1.Descriptor {
	refs, err := s.Referrers(mustHash(s.t, img.Digest))
	if err != nil || len(refs) == 0 {
		s.t.Fatal(refs, err)
	}
	return v1.Descriptor{MediaType: refs[0].MediaType, Digest: refs[0].Digest, Size: refs[0].Size}
}

// asked asks for something else than there is.
func (s *store) asked(a *attacks) {
	for what, change := range map[string]func(*attest.Policy){
		"another target":       func(p *attest.Policy) { p.Target = "cuda" },
		"another digest":       func(p *attest.Policy) { p.Digest = s.other[0].Digest },
		"one platform":         func(p *attest.Policy) { p.Platforms = p.Platforms[:1] },
		"a third platform":     func(p *attest.Policy) { p.Platforms = append(p.Platforms, "linux/riscv64") },
		"no platform":          func(p *attest.Policy) { p.Platforms = []string{} },
		"a kind nobody checks": func(p *attest.Policy) { p.Required = append(slices.Clone(p.Required), "blessing") },
	} {
		p := s.policy
		change(&p)
		rep, err := Inspect(s.t.Context(), s.Source(s.root.String()), p)
		a.refused(what, rep, err)
	}
}

// TestForeignReferrers: what cosign, GitHub and others attach beside ours is
// listed and left alone, with a key and without one.
func TestForeignReferrers(t *testing.T) {
	s := newStore(t)
	img := s.images[0]
	subject := mustHash(t, img.Digest)
	statement := func(predicateType string, predicate any) []byte {
		b, err := attest.New(predicateType, "image", img.Digest, predicate)
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	sign := func(doc []byte) []byte { return resigned(t, doc, otherKey) }
	bundle := []byte(`{"mediaType":"application/vnd.dev.sigstore.bundle.v0.3+json","verificationMaterial":{"certificate":{"rawBytes":"AAAA"}},"dsseEnvelope":{"payloadType":"application/vnd.in-toto+json","payload":"e30=","signatures":[{"sig":"AAAA"}]}}`)
	note := map[string]string{"dev.sigstore.bundle.content": "dsse-envelope", "dev.sigstore.bundle.predicateType": "https://slsa.dev/provenance/v1"}
	github := map[string]any{"buildDefinition": map[string]any{"buildType": "https://actions.github.io/buildtypes/workflow/v1", "externalParameters": map[string]any{}}, "runDetails": map[string]any{"builder": map[string]any{"id": "https://github.com/actions"}}}
	spdx := map[string]any{"spdxVersion": "SPDX-2.3", "name": "image", "documentNamespace": "https://anchore.com/syft/image/x", "SPDXID": "SPDXRef-DOCUMENT"}
	for _, a := range []oci.Artifact{
		{Type: "application/vnd.dev.sigstore.bundle.v0.3+json", Data: bundle, Annotations: note},
		{Type: "application/vnd.dev.cosign.artifact.sig.v1+json", Data: []byte(`{"critical":{}}`)},
		{Type: "application/spdx+json", Data: []byte(`{"spdxVersion":"SPDX-2.3"}`)},
		{Type: attest.TypeEnvelope, Data: sign(statement("https://slsa.dev/provenance/v1", github))},
		{Type: "application/vnd.dsse.envelope.v1+json;x=1", Data: sign(statement("https://cosign.sigstore.dev/attestation/v1", map[string]any{"Data": "x"}))},
		{Type: attest.TypeStatement, Data: statement("https://spdx.dev/Document/v2.3", spdx)},
		{Type: attest.TypeEnvelope, Predicate: "x", Data: []byte(`{"payloadType":"application/vnd.in-toto+json","payload":"e30=","signatures":[{"sig":"AAAA"}]}`)},
		{Type: attest.TypeStatement, Predicate: "y", Data: []byte("no JSON")},
		{Type: attest.TypeStatement + "; kind=vuln", Data: statement("https://cosign.sigstore.dev/attestation/vuln/v1", map[string]any{"scanner": 1})},
	} {
		put(t, s.Layout, subject.String(), a)
	}
	with, err := s.inspect(s.root.String())
	if err != nil {
		t.Fatalf("with a key: %v", err)
	}
	if n := len(with.Images[0].Attached); n != 3+9 {
		t.Errorf("%d documents are listed; want ours and nine", n)
	}
	p := s.policy
	p.Keys = nil
	if _, err := Inspect(t.Context(), s.Source(s.root.String()), p); err != nil {
		t.Errorf("without a key: %v", err)
	}
}
