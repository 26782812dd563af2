package oci

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/validate"

	"github.com/assay-hpc/assay/internal/oci/ocitest"
)

func TestLayoutIsValid(t *testing.T) {
	l := newTarget(t, "fabric")
	if err := ocitest.Validate(t.Context(), l.Dir(), root(t, l, "fabric")); err != nil {
		t.Errorf("Validate: %v", err)
	}
	idx, err := layout.ImageIndexFromPath(l.Dir())
	if err != nil {
		t.Fatal(err)
	}
	if err := validate.Index(idx, validate.Fast); err != nil {
		t.Errorf("go-containerregistry: %v", err)
	}
	tmp, err := filepath.Glob(filepath.Join(l.Dir(), "blobs", "sha256", ".tmp-*"))
	if err != nil || len(tmp) > 0 {
		t.Errorf("temporary files remain: %q, %v", tmp, err)
	}
}

func TestAssembleIsDeterministic(t *testing.T) {
	l := newTarget(t, "fabric")
	first, err := l.Find("fabric")
	if err != nil {
		t.Fatal(err)
	}
	before, err := os.ReadFile(filepath.Join(l.Dir(), indexFile))
	if err != nil {
		t.Fatal(err)
	}
	if again := addTarget(t, l, "fabric", 1); again != first.Digest {
		t.Errorf("assembled twice: %s and %s", first.Digest, again)
	}
	after, err := os.ReadFile(filepath.Join(l.Dir(), indexFile))
	if err != nil {
		t.Fatal(err)
	}
	if string(before) != string(after) {
		t.Errorf("index.json changed:\n%s\n%s", before, after)
	}
}

func TestAssembleConcurrently(t *testing.T) {
	dir := t.TempDir()
	var wg sync.WaitGroup
	var want []string
	for i := range 8 {
		name := fmt.Sprintf("target%d", i)
		want = append(want, name)
		wg.Go(func() {
			l, err := Create(dir) // each its own, as processes would
			if err != nil {
				t.Error(err)
				return
			}
			addTarget(t, l, name, int64(i))
		})
	}
	wg.Wait()
	l, err := Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	got, err := l.Targets()
	if err != nil || !slices.Equal(got, want) {
		t.Errorf("Targets() = %q, %v; want %q", got, err, want)
	}
	for _, name := range want {
		p, err := l.plan(root(t, l, name))
		if err != nil || len(p.referrers) != 6 {
			t.Errorf("%s: %v, or its referrers are lost", name, err)
		}
	}
}

func TestAssembleDropsWhatItReplaces(t *testing.T) {
	l := newTarget(t, "fabric")
	addTarget(t, l, "other", 7)
	pending := writeImage(t, l, amd64, 55) // certified before it is assembled
	attach(t, l, pending, "certificate", "application/json")
	addTarget(t, l, "fabric", 2)
	idx, err := l.index()
	if err != nil {
		t.Fatal(err)
	}
	// Two targets with two platforms and six statements, and the pending one's.
	if n := len(idx.Manifests); n != 2*(1+2+6)+1 {
		t.Errorf("index.json has %d entries; want 19", n)
	}
}

func TestAssembleRefuses(t *testing.T) {
	l, err := Create(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	amd, arm := writeImage(t, l, amd64, 1), writeImage(t, l, arm64, 2)
	config, err := l.manifest(mustHash(t, amd))
	if err != nil {
		t.Fatal(err)
	}
	absent := "sha256:" + strings.Repeat("0", 64)
	for what, c := range map[string]struct {
		target string
		images []PlatformImage
		want   string
	}{
		"no images":      {"a", nil, "no images"},
		"bad name":       {"a b", []PlatformImage{{amd64, amd}}, "not a name for a target"},
		"wrong platform": {"a", []PlatformImage{{amd64, arm}}, "is for linux/arm64"},
		"twice":          {"a", []PlatformImage{{amd64, amd}, {amd64, amd}}, "two images for linux/amd64"},
		"bad digest":     {"a", []PlatformImage{{amd64, "latest"}}, `digest "latest"`},
		"absent":         {"a", []PlatformImage{{amd64, absent}}, "is missing from the layout"},
		"not a manifest": {"a", []PlatformImage{{amd64, config.Layers[0].Digest.String()}}, "is not a manifest"},
	} {
		_, err := l.Assemble(c.target, c.images, nil)
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: Assemble = %v; want an error with %q", what, err, c.want)
		}
	}
	if names, err := l.Targets(); err != nil || len(names) != 0 {
		t.Errorf("Targets() = %q, %v; want none", names, err)
	}
}

func TestAttachReplaces(t *testing.T) {
	l := newTarget(t, "fabric")
	d, err := l.Find("fabric/linux/amd64")
	if err != nil {
		t.Fatal(err)
	}
	signed := attach(t, l, d.Digest.String(), "certificate", "application/vnd.signed")
	note, err := l.Attach(d.Digest, Artifact{Type: "text/plain", Data: []byte("hello"), Annotations: map[string]string{"a": "b"}})
	if err != nil {
		t.Fatal(err)
	}
	refs, err := l.Referrers(d.Digest)
	if err != nil {
		t.Fatal(err)
	}
	has := func(h v1.Hash) bool {
		return slices.ContainsFunc(refs, func(d v1.Descriptor) bool { return d.Digest == h })
	}
	if len(refs) != 4 || !has(signed.Digest) || !has(note.Digest) {
		t.Errorf("referrers are %v; want the signed certificate in place of the unsigned one, and the note", refs)
	}
}

func TestFind(t *testing.T) {
	l := newTarget(t, "fabric")
	byName, err := l.Find("fabric")
	if err != nil {
		t.Fatal(err)
	}
	for _, ref := range []string{"", byName.Digest.String()} {
		if d, err := l.Find(ref); err != nil || d.Digest != byName.Digest || !d.MediaType.IsIndex() {
			t.Errorf("Find(%q) = %v, %v; want %v", ref, d, err, byName)
		}
	}
	if d, err := l.Find("fabric/linux/arm64"); err != nil || d.Platform.Architecture != "arm64" {
		t.Errorf("Find of a platform = %v, %v", d, err)
	}
	addTarget(t, l, "other", 2)
	for ref, want := range map[string]string{"": "which target? it holds fabric, other", "fabrik": `no target "fabrik"; it holds fabric, other`} {
		_, err := l.Find(ref)
		var nf *NotFoundError
		if !errors.As(err, &nf) || !strings.HasSuffix(err.Error(), want) {
			t.Errorf("Find(%q) = %v; want %q", ref, err, want)
		}
	}
}

func TestOpenRefusesOtherDirectories(t *testing.T) {
	dir := t.TempDir()
	if _, err := Open(dir); err == nil || !strings.Contains(err.Error(), "is not an OCI layout") {
		t.Errorf("Open of an empty directory = %v", err)
	}
	if err := os.WriteFile(filepath.Join(dir, indexFile), []byte("{"), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(dir); err == nil || !strings.Contains(err.Error(), indexFile) {
		t.Errorf("Open with half an index.json = %v", err)
	}
}

func TestValidateFindsAForeignLayer(t *testing.T) {
	l := newTarget(t, "fabric")
	d, err := l.Find("fabric/linux/amd64")
	if err != nil {
		t.Fatal(err)
	}
	m, err := l.manifest(d.Digest)
	if err != nil {
		t.Fatal(err)
	}
	m.Layers[0], m.Layers[1] = m.Layers[1], m.Layers[0]
	swapped, _, err := l.WriteBlob(bytes.NewReader(marshal(m)))
	if err != nil {
		t.Fatal(err)
	}
	if err := ocitest.Validate(t.Context(), l.Dir(), swapped); err == nil || !strings.Contains(err.Error(), "layer 0: uncompressed digest") {
		t.Errorf("Validate of an image with swapped layers = %v", err)
	}
}
