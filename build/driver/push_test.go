package driver

import (
	"errors"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"

	"github.com/assay-hpc/assay/build/recipe"
	"github.com/assay-hpc/assay/internal/certificate"
	"github.com/assay-hpc/assay/internal/exit"
	"github.com/assay-hpc/assay/internal/oci"
	"github.com/assay-hpc/assay/internal/oci/ocitest"
	"github.com/assay-hpc/assay/internal/result"
)

// TestPushIsCheckedFirst: a repository that cannot be pushed to ends a build before it starts a
// builder.
func TestPushIsCheckedFirst(t *testing.T) {
	var asked atomic.Int64
	registry := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked.Add(1)
		if r.URL.Path == "/v2/" {
			return
		}
		http.Error(w, `{"errors":[{"code":"DENIED","message":"not yours"}]}`, http.StatusForbidden)
	}))
	defer registry.Close()
	host := strings.TrimPrefix(registry.URL, "http://")
	site(t)
	w := open(t, Options{})
	for push, want := range map[string]struct {
		text   string
		status int
	}{
		"Not A Name":             {"--push: ", exit.Usage},
		"ghcr.io/owner/assay:v1": {"names a tag", exit.Usage},
		host + "/owner/assay":    {"docker login", exit.NotDone},
	} {
		dir := t.TempDir()
		_, err := w.Build(t.Context(), BuildOptions{Names: []string{w.Targets[0].Name}, OutDir: dir, Push: push, Builders: []string{"tcp://127.0.0.1:1"}})
		if err == nil || !strings.Contains(err.Error(), want.text) || exit.Of(err) != want.status || strings.Contains(err.Error(), "builder") {
			t.Errorf("--push %q: %v (status %d); want %q, status %d, and no builder", push, err, exit.Of(err), want.text, want.status)
		}
	}
	if asked.Load() == 0 {
		t.Error("the registry was not asked")
	}
}

// TestBuildStatus: what could not be judged is told apart from what failed.
func TestBuildStatus(t *testing.T) {
	site(t)
	gate := ImageResult{}.failed(exit.With(exit.NotDone, errors.New("no space")))
	step := ImageResult{}.failed(errors.New("a step failed"))
	for _, tt := range []struct {
		name   string
		images [][]ImageResult
		want   int
	}{
		{"a gate", [][]ImageResult{{gate}}, exit.NotDone},
		{"a step", [][]ImageResult{{step}}, exit.Fail},
		{"a gate and a step", [][]ImageResult{{gate, step}}, exit.Fail},
		{"a gate, and a step of another target", [][]ImageResult{{gate}, {step}}, exit.Fail},
		{"nothing", nil, exit.Pass},
	} {
		res := &BuildResult{Targets: make([]TargetResult, len(tt.images))}
		for i, images := range tt.images {
			res.Targets[i].Images = images
			(&build{}).assemble(open(t, Options{}).Targets[0], &res.Targets[i])
		}
		if got := res.Status(); got != tt.want {
			t.Errorf("%s: status %d; want %d", tt.name, got, tt.want)
		}
	}
	for verdict, want := range map[result.Verdict]bool{"": true, result.Error: true, result.Skip: true, result.Fail: false, result.Pass: false} {
		r := ImageResult{Verdict: verdict}.failed(errors.New("x"))
		if r.NotDone() != want {
			t.Errorf("verdict %q: not done: %v", verdict, r.NotDone())
		}
	}
}

// TestTagsComeLast: no tag moves before the image and its certifier are there, and none of the
// image's before all of the certifier's.
func TestTagsComeLast(t *testing.T) {
	var refuse string
	inner := registry.New(registry.WithReferrersSupport(true), registry.Logger(log.New(io.Discard, "", 0)))
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPut && refuse != "" && strings.HasSuffix(r.URL.Path, "/manifests/"+refuse) {
			w.WriteHeader(http.StatusForbidden)
			return
		}
		inner.ServeHTTP(w, r)
	}))
	defer srv.Close()
	repo, err := oci.OpenRepository(strings.TrimPrefix(srv.URL, "http://")+"/o/assay", oci.Options{})
	if err != nil {
		t.Fatal(err)
	}
	w := open(t, Options{Matrix: own(t)})
	w.Lock.Epoch = 1
	pin(t, w, w.Targets[:1])
	target := w.Targets[0]
	b := &build{Workspace: w, o: BuildOptions{Platforms: []recipe.Platform{amd64}}}
	if b.layout, err = oci.Create(t.TempDir()); err != nil {
		t.Fatal(err)
	}
	var images []string
	for seed := range int64(2) {
		d, err := b.layout.Add(ocitest.Image(t, v1.Platform{OS: "linux", Architecture: "amd64"}, seed))
		if err != nil {
			t.Fatal(err)
		}
		images = append(images, d.Digest.String())
	}
	st := certificate.New(certificate.Predicate{
		Suite: "image", Started: w.Epoch(), Finished: w.Epoch(), Harness: certificate.Harness{Version: "1", Origin: certificate.OriginAssay},
		Environment: certificate.Environment{Platform: "linux/amd64", Target: target.Name, Recipe: strings.Repeat("0", 64)},
		Results:     []result.Result{{ID: "image/files", Title: "files", Verdict: result.Pass}},
	})
	if err := errors.Join(st.SetSubject("image", images[0]), st.AddSubject("image-certify", images[1])); err != nil {
		t.Fatal(err)
	}
	rec := record{Digest: images[0], Certifier: images[1], Started: w.Epoch(), Finished: w.Epoch(), Inventory: []byte(`{"version":1,"packages":[]}`)}
	if rec.Certificate, err = st.Marshal(); err != nil {
		t.Fatal(err)
	}
	results := []ImageResult{{Platform: "linux/amd64", rec: rec}}
	if _, err := b.index(target, target.Name, results, func(r record) string { return r.Digest }); err != nil {
		t.Fatal(err)
	}
	certifier, err := b.index(target, target.Name+certifySuffix, results, func(r record) string { return r.Certifier })
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		refuse string
		want   []string
	}{
		{certifier.String(), nil},
		{"moving-certify", []string{"full-certify"}},
		{"moving", []string{"full", "full-certify", "moving-certify"}},
		{"", []string{"full", "full-certify", "moving", "moving-certify"}},
	} {
		refuse = tt.refuse
		if _, err := b.push(t.Context(), repo, target, []string{"full", "moving"}); (err == nil) != (refuse == "") {
			t.Errorf("%q is refused: %v", refuse, err)
		}
		tags, err := repo.Tags(t.Context())
		slices.Sort(tags)
		if err != nil && len(tt.want) > 0 || !slices.Equal(tags, tt.want) {
			t.Errorf("%q is refused: the tags are %q, %v; want %q", tt.refuse, tags, err, tt.want)
		}
	}
}
