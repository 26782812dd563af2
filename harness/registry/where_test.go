package registry

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/types"

	"github.com/assay-hpc/assay/harness/history"
	"github.com/assay-hpc/assay/internal/attest"
	"github.com/assay-hpc/assay/internal/certificate/certificatetest"
	"github.com/assay-hpc/assay/internal/exit"
	"github.com/assay-hpc/assay/internal/oci"
)

// TestRead: one certificate is read from wherever it is, and what a push prints is such a place.
func TestRead(t *testing.T) {
	s := serve(t, true)
	st := certificatetest.Node(2)
	doc, err := st.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	repo, err := Open(s.host+"/o/nodes", Options{})
	if err != nil {
		t.Fatal(err)
	}
	pushed, err := repo.Push(t.Context(), doc, st)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	l, err := oci.Create(filepath.Join(dir, "lay"))
	if err != nil {
		t.Fatal(err)
	}
	stored := filepath.Join(dir, "certificate.json")
	if err := os.WriteFile(stored, doc, 0o644); err != nil {
		t.Fatal(err)
	}
	cfg := &v1.ConfigFile{OS: "linux", Architecture: "amd64", RootFS: v1.RootFS{Type: "layers"}}
	made, err := mutate.ConfigFile(mutate.MediaType(empty.Image, types.OCIManifestSchema1), cfg)
	if err != nil {
		t.Fatal(err)
	}
	img, err := l.Add(mutate.ConfigMediaType(made, types.OCIConfigJSON))
	if err != nil {
		t.Fatal(err)
	}
	artifact, err := l.Attach(img.Digest, oci.Artifact{Type: attest.TypeStatement, Predicate: st.PredicateType, Data: doc})
	if err != nil {
		t.Fatal(err)
	}
	index, err := l.Assemble("target", []oci.PlatformImage{{Platform: v1.Platform{OS: "linux", Architecture: "amd64"}, Digest: img.Digest.String()}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	images, err := oci.OpenRepository(s.host+"/o/images", oci.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := images.Push(t.Context(), l, index); err != nil {
		t.Fatal(err)
	}
	if _, err := images.Tag(t.Context(), l, index, []string{"target"}); err != nil {
		t.Fatal(err)
	}
	for _, where := range []string{
		stored, "-", pushed, s.host + "/o/nodes:" + Tag(st), "oci:" + l.Dir(), "oci:" + l.Dir() + "@" + artifact.Digest.String(), "oci:" + l.Dir() + "@" + img.Digest.String(),
		// An index: what is attached to its images.
		"oci:" + l.Dir() + ":target", "oci:" + l.Dir() + "@" + index.String(), s.host + "/o/images:target", s.host + "/o/images@" + index.String(),
	} {
		got, err := Read(t.Context(), where, bytes.NewReader(doc), Options{})
		if err != nil || !bytes.Equal(got.Data, doc) {
			t.Errorf("%s: %q, %v", where, got.Name, err)
		}
		r := Reader{To: history.NewCollector(history.Options{}), Stdin: bytes.NewReader(doc)}
		if err := r.Read(t.Context(), where); err != nil || r.Seen() != 1 {
			t.Errorf("%s: a history sees %d, %v", where, r.Seen(), err)
		}
	}
	for where, status := range map[string]int{
		dir + "/none.json": exit.Usage, "none": exit.Usage, "oci:" + dir: exit.Usage, "oci:" + l.Dir() + ":none": exit.Usage, s.host + "/o/nodes@sha256:0": exit.Usage,
		s.host + "/o/nodes:none": exit.NotDone, s.host + "/o/nodes@sha256:" + strings.Repeat("0", 64): exit.NotDone,
	} {
		if _, err := Read(context.Background(), where, nil, Options{Retry: oci.Retry{Attempts: 1}}); exit.Of(err) != status {
			t.Errorf("%s: status %d, %v; want %d", where, exit.Of(err), err, status)
		}
	}
}
