package driver

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/assay-hpc/assay/harness/result"
	"github.com/assay-hpc/assay/internal/exit"
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
