package walk

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/types"

	"github.com/assay-hpc/assay/internal/attest"
	"github.com/assay-hpc/assay/internal/oci"
)

// A memory is a source that holds whatever a test puts into it.
type memory struct {
	blobs     map[v1.Hash][]byte
	referrers map[v1.Hash][]v1.Descriptor
	root      v1.Descriptor
	reads     int
}

func newMemory() *memory {
	return &memory{blobs: map[v1.Hash][]byte{}, referrers: map[v1.Hash][]v1.Descriptor{}}
}

func (m *memory) String() string                                          { return "memory" }
func (m *memory) Resolve(context.Context) (v1.Descriptor, error)          { return m.root, nil }
func (m *memory) Manifest(ctx context.Context, h v1.Hash) ([]byte, error) { return m.Blob(ctx, h) }
func (m *memory) Referrers(_ context.Context, h v1.Hash) ([]v1.Descriptor, error) {
	return m.referrers[h], nil
}

func (m *memory) Blob(_ context.Context, h v1.Hash) ([]byte, error) {
	m.reads++
	b, ok := m.blobs[h]
	if !ok {
		return nil, fmt.Errorf("no blob %s", h)
	}
	return b, nil
}

func (m *memory) Stat(ctx context.Context, d v1.Descriptor) error {
	_, err := m.Blob(ctx, d.Digest)
	return err
}

func (m *memory) Open(ctx context.Context, d v1.Descriptor) (io.ReadCloser, error) {
	b, err := m.Blob(ctx, d.Digest)
	return io.NopCloser(bytes.NewReader(b)), err
}

// put stores content, raw or encoded, and describes it.
func (m *memory) put(mt types.MediaType, v any) v1.Descriptor {
	b, ok := v.([]byte)
	if !ok {
		b, _ = json.Marshal(v)
	}
	sum := sha256.Sum256(b)
	h := v1.Hash{Algorithm: "sha256", Hex: hex.EncodeToString(sum[:])}
	m.blobs[h] = b
	return v1.Descriptor{MediaType: mt, Digest: h, Size: int64(len(b))}
}

// image stores an image with a configuration, as the root.
func (m *memory) image(config string) v1.Descriptor {
	m.root = m.put(types.OCIManifestSchema1, v1.Manifest{SchemaVersion: 2, MediaType: types.OCIManifestSchema1, Config: m.put(types.OCIConfigJSON, []byte(config))})
	return m.root
}

const kindType = "https://example.org/kind/v1"

var kinds = []attest.Kind{{Name: "kind", Type: kindType, Check: func(s *attest.Statement) (attest.Claims, error) {
	if string(s.Predicate) != `{"good":true}` {
		return attest.Claims{}, attest.ErrForeign
	}
	return attest.Claims{}, nil
}}}

// attach attaches a document to a manifest, with what the list says of it.
func (m *memory) attach(t *testing.T, to v1.Descriptor, predicateType string, predicate any, listed v1.Descriptor) {
	t.Helper()
	doc, err := attest.New(predicateType, "image", to.Digest.String(), predicate)
	if err != nil {
		t.Fatal(err)
	}
	d := m.put(types.OCIManifestSchema1, v1.Manifest{
		SchemaVersion: 2, MediaType: types.OCIManifestSchema1, ArtifactType: attest.TypeStatement,
		Config: m.put(oci.TypeEmpty, oci.Empty), Layers: []v1.Descriptor{m.put(attest.TypeStatement, doc)}, Subject: &to,
	})
	d.ArtifactType, d.Annotations = listed.ArtifactType, listed.Annotations
	m.referrers[to.Digest] = append(m.referrers[to.Digest], d)
}

const configOf = `{"os":"linux","architecture":"amd64","rootfs":{"type":"layers","diff_ids":[]}}`

// TestConfigurations: whatever the configuration is, it is an error or a problem.
func TestConfigurations(t *testing.T) {
	for _, config := range []string{"null", "{}", `{"config":null}`, `{"os":"","architecture":""}`, `{"os.features":[]}`, `{"config":{},"rootfs":{"type":"layers","diff_ids":[]}}`} {
		m := newMemory()
		m.image(config)
		ev, err := Verify(t.Context(), attest.Policy{}, m)
		if bad := (*Error)(nil); !errors.As(err, &bad) || !strings.Contains(err.Error(), "names no system or no architecture") {
			t.Errorf("%s: %v, %v; want that it names no system", config, ev, err)
		}
	}
	for _, config := range []string{"", "[]", `"x"`, "{"} {
		m := newMemory()
		m.image(config)
		if _, err := Verify(t.Context(), attest.Policy{}, m); err == nil || !strings.Contains(err.Error(), "configuration sha256:") {
			t.Errorf("%s: %v; want an error of the configuration", config, err)
		}
	}
}

// FuzzVerify: no index, manifest, configuration or document of a stranger ends the program.
func FuzzVerify(f *testing.F) {
	for _, seed := range [][4]string{
		{`{"manifests":[null,{}]}`, `null`, `null`, `null`}, {`null`, `{"config":null,"layers":[null]}`, `{}`, `{"subject":[null]}`},
		{`{"manifests":[{"platform":null,"annotations":null}]}`, `{"subject":null}`, configOf, `{"payloadType":"","signatures":[null]}`},
	} {
		f.Add(seed[0], seed[1], seed[2], seed[3])
	}
	f.Fuzz(func(t *testing.T, index, manifest, config, doc string) {
		m := newMemory()
		m.root = m.put(types.OCIImageIndex, []byte(index))
		Verify(t.Context(), attest.Policy{Kinds: kinds}, m)
		m.root = m.put(types.OCIManifestSchema1, []byte(manifest))
		Verify(t.Context(), attest.Policy{Kinds: kinds}, m)
		image := m.image(config)
		layer := m.put(attest.TypeEnvelope, []byte(doc))
		for _, raw := range []any{[]byte(manifest), v1.Manifest{ArtifactType: attest.TypeEnvelope, Layers: []v1.Descriptor{layer}, Subject: &image}} {
			m.referrers[image.Digest] = append(m.referrers[image.Digest], m.put(types.OCIManifestSchema1, raw))
		}
		Verify(t.Context(), attest.Policy{Kinds: kinds, Required: []string{"kind"}}, m)
	})
}

// TestManyReferrers: what is required is found among many that are not, with bounded work.
func TestManyReferrers(t *testing.T) {
	defer func(n int) { maxDocuments = n }(maxDocuments)
	maxDocuments = 2000
	statement := v1.Descriptor{ArtifactType: attest.TypeStatement}
	marked := v1.Descriptor{ArtifactType: attest.TypeStatement, Annotations: map[string]string{oci.AnnotationPredicate: kindType}}
	for _, tt := range []struct {
		name           string
		many           int
		other, listed  v1.Descriptor
		reads          int
		want           string
		otherPredicate string
	}{
		{"of other types", 1500, v1.Descriptor{ArtifactType: "application/x"}, statement, 2010, "", "https://example.org/x"},
		{"of other kinds", 1500, statement, marked, 2010, "", "https://example.org/x"},
		{"of the same kind, that count for nothing", 1500, marked, marked, 3010, "", kindType},
		{"what does not say what it is", 1500, v1.Descriptor{ArtifactType: "application/x"}, v1.Descriptor{}, 2010, "", "https://example.org/x"},
		{"too many", 2500, marked, marked, 4010, "(501 more documents are attached; at most 2000 of 512 MiB are read)", kindType},
	} {
		m := newMemory()
		image := m.image(configOf)
		for i := range tt.many {
			m.attach(t, image, tt.otherPredicate, i, tt.other)
		}
		m.attach(t, image, kindType, map[string]bool{"good": true}, tt.listed)
		ev, err := Verify(t.Context(), attest.Policy{Kinds: kinds, Required: []string{"kind"}}, m)
		if tt.want == "" && err != nil || tt.want != "" && (err == nil || !strings.Contains(err.Error(), tt.want)) {
			t.Errorf("%s: %v; want %q", tt.name, err, tt.want)
		}
		if m.reads > tt.reads || ev == nil {
			t.Errorf("%s: %d reads; want at most %d", tt.name, m.reads, tt.reads)
		}
	}
}

// TestManySignatures: an envelope with more signatures than anybody needs is not a document.
func TestManySignatures(t *testing.T) {
	sig := `{"sig":"AAAA"}`
	for n, want := range map[int]bool{attest.MaxSignatures: true, attest.MaxSignatures + 1: false} {
		doc := `{"payloadType":"` + attest.TypeStatement + `","payload":"e30=","signatures":[` + strings.Repeat(sig+",", n-1) + sig + `]}`
		if _, err := attest.Open([]byte(doc)); (err == nil) != want || err != nil && !strings.Contains(err.Error(), "it has 101 signatures; at most 100 are checked") {
			t.Errorf("%d signatures: %v", n, err)
		}
	}
}
