package standin

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/types"
	"github.com/google/go-containerregistry/pkg/v1/validate"
)

var prepare = sync.OnceValues(func() (*Upstreams, error) {
	dir, err := CacheDir()
	if err != nil {
		return nil, err
	}
	return New(context.Background(), dir, Options{Bases: []Base{{"12.9.1", "22.04"}, {"13.0.2", "24.04"}}, Log: os.Stderr})
})

// start returns running stand-ins, or skips the test where they cannot be made.
func start(t *testing.T) *Upstreams {
	t.Helper()
	if os.Getenv("ASSAY_TEST_ALL") == "" {
		t.Skip("making stand-ins takes minutes: make test ONLY=images does it (ASSAY_TEST_ALL=1)")
	}
	if err := Available(); err != nil {
		t.Skip(err)
	}
	u, err := prepare()
	if err != nil {
		t.Fatal(err)
	}
	if err := u.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := u.Close(); err != nil {
			t.Error(err)
		}
	})
	u.ResetStats()
	return u
}

// mirrored returns where u serves an upstream URL.
func mirrored(t *testing.T, u *Upstreams, url string) string {
	t.Helper()
	for from, to := range u.Mirrors() {
		if rest, ok := strings.CutPrefix(url, from+"/"); ok {
			return to + "/" + rest
		}
	}
	t.Fatalf("no mirror for %s", url)
	return ""
}

func fetch(t *testing.T, url string) (status int, sum string, size int64) {
	t.Helper()
	resp, err := http.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	h := sha256.New()
	n, err := io.Copy(h, resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, "sha256:" + hex.EncodeToString(h.Sum(nil)), n
}

func TestEveryURL(t *testing.T) {
	u := start(t)
	var want Count
	for url, sum := range u.Checksums() {
		status, got, size := fetch(t, mirrored(t, u, url))
		if status != http.StatusOK || got != sum {
			t.Errorf("GET %s = %d, %s; want 200, %s", url, status, got, sum)
		}
		want.Requests++
		want.Bytes += size
	}
	// A request is counted when its handler returns, which may be after the
	// client has read the last byte.
	got := u.Total()
	for range 100 {
		if got == want {
			break
		}
		time.Sleep(10 * time.Millisecond)
		got = u.Total()
	}
	if got != want {
		t.Errorf("Total() = %+v; want %+v", got, want)
	}
	for _, url := range []string{
		"https://github.com/NVIDIA/nccl/archive/refs/tags/v2.27.6-1.tar.gz",
		"https://github.com/linux-rdma/perftest/archive/refs/tags/perftest-26.01.5.tar.gz",
		"https://content.mellanox.com/hpc/hpc-x/v2.23/hpcx-v2.23-gcc-doca_ofed-ubuntu22.04-cuda12-x86_64.tbz",
		"https://content.mellanox.com/hpc/hpc-x/v2.26_cuda13/hpcx-v2.26-gcc-doca_ofed-ubuntu24.04-cuda13-x86_64.tbz",
		"https://efa-installer.amazonaws.com/aws-efa-installer-1.47.0.tar.gz",
		"https://developer.download.nvidia.com/compute/cuda/repos/ubuntu2404/x86_64/datacenter-gpu-manager_3.3.6_amd64.deb",
		"https://linux.mellanox.com/public/repo/doca/2.10.0/ubuntu22.04/x86_64/InRelease",
	} {
		if u.Checksums()[url] == "" {
			t.Errorf("%s is not served", url)
		}
	}
	if status, _, _ := fetch(t, "http://"+u.Addr()+"/github.com/NVIDIA/nccl/archive/refs/tags/v0.tar.gz"); status != http.StatusNotFound {
		t.Errorf("an unknown version gives %d; want 404", status)
	}
}

func TestDamage(t *testing.T) {
	u := start(t)
	const url = "https://github.com/NVIDIA/gdrcopy/archive/refs/tags/v2.5.2.tar.gz"
	if err := u.Damage(url, true); err != nil {
		t.Fatal(err)
	}
	if _, sum, _ := fetch(t, mirrored(t, u, url)); sum == u.Checksums()[url] {
		t.Error("a damaged download has the right checksum")
	}
	if err := u.Damage(url, false); err != nil {
		t.Fatal(err)
	}
	if _, sum, _ := fetch(t, mirrored(t, u, url)); sum != u.Checksums()[url] {
		t.Error("a repaired download has the wrong checksum")
	}
	if err := u.Damage("https://github.com/none", true); err == nil {
		t.Error("an unknown URL can be damaged")
	}
}

func TestImages(t *testing.T) {
	u := start(t)
	for from, digest := range u.Images() {
		ref, err := name.ParseReference(strings.Replace(from, "docker.io", u.Mirrors()["docker.io"], 1))
		if err != nil {
			t.Fatal(err)
		}
		desc, err := remote.Get(ref)
		if err != nil {
			t.Fatal(err)
		}
		if desc.Digest.String() != digest || desc.MediaType != types.OCIImageIndex {
			t.Errorf("%s is %s %s; want an index %s", from, desc.MediaType, desc.Digest, digest)
		}
		img, err := desc.Image()
		if err != nil {
			t.Fatal(err)
		}
		var how []validate.Option
		if strings.Contains(from, "12.9.1") {
			how = append(how, validate.Fast) // the other one reads the layers, which they share
		}
		if err := validate.Image(img, how...); err != nil {
			t.Errorf("%s: %v", from, err)
		}
		cf, err := img.ConfigFile()
		if err != nil {
			t.Fatal(err)
		}
		tag := ref.Identifier()
		cuda, _, _ := strings.Cut(tag, "-")
		if cf.OS != "linux" || cf.Architecture != "amd64" || !slices.Contains(cf.Config.Env, "CUDA_VERSION="+cuda) {
			t.Errorf("%s: %s/%s with environment %q", from, cf.OS, cf.Architecture, cf.Config.Env)
		}
	}
	resp, err := http.Post("http://"+u.Addr()+"/v2/nvidia/cuda/blobs/uploads/", "", nil)
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if resp.StatusCode != http.StatusMethodNotAllowed {
		t.Errorf("a push gives %d; want 405", resp.StatusCode)
	}
}

func TestSignatures(t *testing.T) {
	u := start(t)
	checked := 0
	for path, file := range u.files {
		args := []string{"--keyring", u.KeyFile()}
		switch {
		case strings.HasSuffix(path, "/InRelease"):
			args = append(args, file)
		case strings.HasSuffix(path, "/Release.gpg"), strings.HasSuffix(path, ".tar.gz.sig"):
			args = append(args, file, u.files[strings.TrimSuffix(strings.TrimSuffix(path, ".gpg"), ".sig")])
		default:
			continue
		}
		checked++
		if out, err := exec.Command("gpgv", args...).CombinedOutput(); err != nil {
			t.Errorf("gpgv %s: %v\n%s", path, err, out)
		}
	}
	if checked < 10 {
		t.Errorf("%d signatures; want at least 10", checked)
	}
}

// The archives' bytes are a function of the sources here.
func TestArchivesAreReproducible(t *testing.T) {
	var sums [2]map[string]string
	for i := range sums {
		m := &maker{Options: Options{Log: io.Discard}, store: &store{dir: t.TempDir(), log: io.Discard}}
		m.up = &Upstreams{files: map[string]string{}, checksums: map[string]string{}}
		if err := m.makeArchives(t.Context()); err != nil {
			t.Fatal(err)
		}
		sums[i] = m.up.Checksums()
	}
	if a, b := fmt.Sprint(sums[0]), fmt.Sprint(sums[1]); a != b {
		t.Errorf("two runs: %s and %s", a, b)
	}
}

func TestFaultsChangeChecksums(t *testing.T) {
	m := &maker{Options: Options{Faults: map[string]Fault{"nccl": WrongVersion, "gdrcopy": Unresolved}}, store: &store{dir: t.TempDir(), log: io.Discard}}
	for _, c := range []struct{ component, file, want string }{
		{"nccl", "nccl-2.27.6-1/makefiles/version.mk", "NCCL_MINOR   := 0"},
		{"gdrcopy", "gdrcopy-2.5.2/standin.mk", "FAULT := unresolved"},
		{"perftest", "perftest-26.04.17/standin.mk", "VERSION := 26.04.17"},
	} {
		i := slices.IndexFunc(archives, func(a archive) bool { return a.component == c.component })
		entries, err := archives[i].entries(version(c.file), m.Faults[c.component])
		if err != nil {
			t.Fatal(err)
		}
		j := slices.IndexFunc(entries, func(e archiveEntry) bool { return e.name == c.file })
		if j < 0 || !strings.Contains(string(entries[j].content), c.want) {
			t.Errorf("%s does not say %q", c.file, c.want)
		}
	}
	if _, err := New(t.Context(), t.TempDir(), Options{Faults: map[string]Fault{"ncll": WrongVersion}}); err == nil {
		t.Error("New accepts a fault of an unknown component")
	}
}

// version returns "2.27.6-1" of "nccl-2.27.6-1/…".
func version(file string) string {
	top, _, _ := strings.Cut(filepath.ToSlash(file), "/")
	_, v, _ := strings.Cut(top, "-")
	return v
}
