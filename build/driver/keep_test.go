package driver

import (
	"crypto/sha256"
	"encoding/hex"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/assay-hpc/assay/build/fetch"
	"github.com/assay-hpc/assay/build/lock"
	"github.com/assay-hpc/assay/build/matrix"
	"github.com/assay-hpc/assay/build/recipe"
)

// TestKeep: what a lock pins is kept once, and is fetched from the directory when the archives have
// dropped it.
func TestKeep(t *testing.T) {
	gone := false
	served := map[string]int{}
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		served[r.URL.Path]++
		if gone {
			http.NotFound(w, r)
			return
		}
		_, _ = w.Write([]byte("content of " + r.URL.Path))
	}))
	t.Cleanup(srv.Close)
	deb := func(name, scheme, root string) recipe.Deb {
		content := "content of " + root + "/pool/" + name + ".deb"
		sum := sha256.Sum256([]byte(content))
		return recipe.Deb{Name: name, Version: "1", Arch: "amd64", URL: scheme + "pool/" + strings.ReplaceAll(name, "+", "%2b") + ".deb", SHA256: hex.EncodeToString(sum[:]), Size: int64(len(content))}
	}
	const target = "fabric-debian12"
	module := ""
	selected := func(w *Workspace) []matrix.Target {
		targets, err := w.Select([]string{target})
		if err != nil {
			t.Fatal(err)
		}
		return targets
	}
	at := func(mirrors ...string) *Workspace {
		w := open(t, Options{Matrix: own(t), Mirrors: mirrors})
		w.Log, w.StateDir = t.Logf, t.TempDir()
		w.Lock.Debs = map[string]lock.PackageSet{
			"base-bookworm-minbase/amd64": {Packages: []recipe.Deb{deb("libc6+1", "debian:", "/d"), deb("apt", "debian:", "/d")}},
			target + "/amd64":             {Packages: []recipe.Deb{deb("libc6+1", "debian:", "/d"), deb("ssh", "debian-security:", "/s")}},
			"of-no-target/amd64":          {Packages: []recipe.Deb{deb("vim", "debian:", "/d")}},
		}
		need, err := w.needed(selected(w))
		if err != nil {
			t.Fatal(err)
		}
		module = slices.Min(slices.DeleteFunc(slices.Collect(maps.Keys(need)), func(key string) bool { return !strings.HasPrefix(key, "goproxy:") }))
		sum := sha256.Sum256([]byte("content of /g/" + strings.TrimPrefix(module, "goproxy:")))
		w.Lock.Downloads = map[string]lock.Entry{module: {Digest: "sha256:" + hex.EncodeToString(sum[:])}, "https://example.org/of-no-target": {Digest: "sha256:" + hex.EncodeToString(sum[:])}}
		return w
	}
	keep := func(w *Workspace, dir string) ([]string, error) {
		kept, err := w.Keep(t.Context(), selected(w), dir, fetch.Limits{})
		if err == nil && (kept.Packages != 3 || kept.Downloads != 1 || len(kept.Images) > 0) {
			t.Errorf("Keep = %+v; want 3 packages, 1 download", kept)
		}
		return kept.Rules, err
	}
	dir := filepath.Join(t.TempDir(), "store")
	if store, _, err := storeIn(dir); err != nil {
		t.Error(err)
	} else if file, err := store.URL("https://github.com/o/r%2b/v1.tar.gz?raw=1"); file != dir+"/https/github.com/o/r+/v1.tar.gz" || err != nil {
		t.Errorf("a source is kept as %s, %v", file, err)
	}
	servers := []string{"debian:=" + srv.URL + "/d", "debian-security:=" + srv.URL + "/s", "goproxy:=" + srv.URL + "/g"}
	w := at(servers...)
	rules, err := keep(w, dir)
	if want := []string{"goproxy:=" + dir + "/goproxy", "debian:=" + dir + "/debian", "debian-security:=" + dir + "/debian-security"}; err != nil || !slices.Equal(rules, want) {
		t.Fatalf("Keep = %q, %v; want %q", rules, err, want)
	}
	if _, err := keep(w, dir); err != nil {
		t.Error(err)
	}
	if want := map[string]int{"/d/pool/libc6+1.deb": 1, "/d/pool/apt.deb": 1, "/s/pool/ssh.deb": 1, "/g/" + strings.TrimPrefix(module, "goproxy:"): 1}; !maps.Equal(served, want) {
		t.Errorf("the archives served %v; want %v", served, want)
	}
	gone = true
	if _, err := keep(at(servers...), t.TempDir()); err == nil || !strings.Contains(err.Error(), "404") {
		t.Errorf("the archives have dropped the packages, and Keep = %v", err)
	}
	other := t.TempDir()
	if _, err := keep(at(rules...), other); err != nil {
		t.Errorf("from the directory: %v", err)
	}
	for _, name := range []string{"debian/pool/libc6+1.deb", "debian/pool/apt.deb", "debian-security/pool/ssh.deb", "goproxy/" + strings.TrimPrefix(module, "goproxy:")} {
		a, err := os.ReadFile(filepath.Join(dir, name))
		b, err2 := os.ReadFile(filepath.Join(other, name))
		if err != nil || err2 != nil || !cmp.Equal(a, b) {
			t.Errorf("%s: %v, %v; %q and %q", name, err, err2, a, b)
		}
	}
	changed := filepath.Join(dir, "debian/pool/libc6+1.deb")
	if err := os.WriteFile(changed, []byte(strings.Repeat("x", len("content of /d/pool/libc6+1.deb"))), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := keep(at(rules...), t.TempDir()); err == nil || !strings.Contains(err.Error(), "libc6") {
		t.Errorf("a package that was changed in the directory: Keep = %v", err)
	}
	if _, err := keep(w, dir); err != nil {
		t.Errorf("a file that was changed in the directory is written again: %v", err)
	}
	if b, err := os.ReadFile(changed); string(b) != "content of /d/pool/libc6+1.deb" {
		t.Errorf("the file that was changed is %q, %v", b, err)
	}
}

// TestKeepNamesImages: a base that is an image is in no directory, and is named.
func TestKeepNamesImages(t *testing.T) {
	w := open(t, Options{Matrix: own(t)})
	w.Log, w.StateDir = t.Logf, t.TempDir()
	targets, err := w.Select([]string{"cuda12.9.1-ubuntu24.04"})
	if err != nil {
		t.Fatal(err)
	}
	digest := "sha256:" + strings.Repeat("1", 64)
	base := "docker.io/" + strings.TrimPrefix(targets[0].Base.Image, "docker.io/")
	w.Lock = lock.New()
	w.Lock.Images = map[string]lock.Entry{base: {Digest: digest}, "docker.io/library/of-no-target:1": {Digest: digest}}
	kept, err := w.Keep(t.Context(), targets, t.TempDir(), fetch.Limits{})
	if want := []string{base + "@" + digest}; err != nil || !slices.Equal(kept.Images, want) || kept.Packages+kept.Downloads+len(kept.Rules) > 0 {
		t.Errorf("Keep = %+v, %v; want the images %q alone", kept, err, want)
	}
}
