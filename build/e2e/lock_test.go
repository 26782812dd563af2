package e2e

import (
	"bytes"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-containerregistry/pkg/registry"

	"github.com/assay-hpc/assay/build/base"
	"github.com/assay-hpc/assay/build/lock"
)

// lockMatrix has a row whose base is in no registry before one that can be
// resolved but for some of its downloads.
const lockMatrix = `version: 1
repository: registry.example/owner/assay
images:
  - name: gone
    distro: ubuntu
    release: "24.04"
    base: {image: "docker.io/library/gone:1"}
    platforms: [linux/ARCH]
    tag: "{name}-{recipe}"
    components: {numactl: distro, harness: source}
  - name: whole
    distro: debian
    release: "12"
    base: {debootstrap: {suite: bookworm, variant: minbase}}
    platforms: [linux/ARCH]
    tag: "{name}-{recipe}"
    components: {numactl: distro, harness: source}
`

// lockServer is a module proxy that lacks some modules. It calls back at the n-th
// download, which it does not answer then.
type lockServer struct {
	*httptest.Server
	mu     sync.Mutex
	asked  []string
	at     int
	callee func()
}

func (s *lockServer) serve(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	callee := s.callee
	file := strings.HasSuffix(r.URL.Path, ".zip") || strings.HasSuffix(r.URL.Path, ".mod")
	if file {
		s.asked = append(s.asked, r.URL.Path)
	}
	if callee == nil || len(s.asked) != s.at {
		callee = nil
	} else {
		s.callee = nil
	}
	s.mu.Unlock()
	if callee != nil {
		callee()
		<-r.Context().Done() // the one who asked is dead
		return
	}
	if !file || strings.Contains(r.URL.Path, "/golang.org/x/text/") {
		http.NotFound(w, r)
		return
	}
	fmt.Fprintln(w, "content of", r.URL.Path)
}

// requests returns what was asked for since the last call.
func (s *lockServer) requests() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	asked := s.asked
	s.asked = nil
	return asked
}

// TestLockKilled: a run of assay lock that is killed by force has lost nothing of
// what it had resolved, and the next does not ask for that again. What cannot be
// resolved stops nothing else; it is listed, with the reasons, and so is what waits
// for it.
func TestLockKilled(t *testing.T) {
	addr := buildkit(t)
	if err := base.Check(); err != nil {
		t.Skip(err)
	}
	dir := temporary(t)
	matrix := filepath.Join(dir, "matrix.yaml")
	if err := os.WriteFile(matrix, []byte(strings.ReplaceAll(lockMatrix, "ARCH", runtime.GOARCH)), 0o644); err != nil {
		t.Fatal(err)
	}
	s := &lockServer{}
	s.Server = httptest.NewServer(http.HandlerFunc(s.serve))
	t.Cleanup(s.Close)
	reg := httptest.NewServer(registry.New(registry.Logger(log.New(io.Discard, "", 0))))
	t.Cleanup(reg.Close)
	run := func(kill bool) (string, int) {
		cmd := assay(t, "lock", "--matrix", matrix, "--builder", addr, "--progress", progress(),
			"--mirror", "docker.io="+strings.TrimPrefix(reg.URL, "http://"), "--mirror", "goproxy:="+s.URL, "--mirror", "https://sum.golang.org="+s.URL)
		cmd.Env = append(os.Environ(), "ASSAY_STATE_DIR="+stateDir(t))
		var out bytes.Buffer
		cmd.Stdout = &out
		if kill {
			s.mu.Lock()
			s.at, s.callee = 8, func() { _ = cmd.Process.Kill() }
			s.mu.Unlock()
		} else {
			cmd.Stderr = os.Stderr
		}
		_ = cmd.Run()
		return out.String(), cmd.ProcessState.ExitCode()
	}
	read := func() *lock.Lock {
		f, err := os.Open(filepath.Join(dir, "matrix.lock"))
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		l, err := lock.Read("matrix.lock", f)
		if err != nil {
			t.Fatal(err)
		}
		return l
	}
	resolved := func(l *lock.Lock) (urls []string) {
		for url, e := range l.Downloads {
			if e.Digest != "" {
				urls = append(urls, "/"+strings.TrimPrefix(url, "goproxy:"))
			}
		}
		slices.Sort(urls)
		return urls
	}

	if _, status := run(true); status != -1 {
		t.Fatalf("the first run ended with status %d; it was to be killed", status)
	}
	if n := len(s.requests()); n != 8 {
		t.Fatalf("%d downloads before the end; want 8", n)
	}
	kept := resolved(read())
	if len(kept) == 0 || len(kept) > 7 {
		t.Fatalf("the lock has %d downloads, %q; 7 were answered, some by not found", len(kept), kept)
	}

	out, status := run(false)
	if status != 1 {
		t.Errorf("exit status %d with unresolved entries; want 1", status)
	}
	for _, url := range s.requests() {
		if slices.Contains(kept, url) {
			t.Errorf("the second run asks for %s again", url)
		}
	}
	l := read()
	var want []string
	for url, e := range l.Downloads {
		bad := strings.Contains(url, "/x/text/") || strings.Contains(url, "/toolchain/")
		if bad != (e.Digest == "") || !bad && e.Size == 0 {
			t.Errorf("%s is %+v in the lock; no server has it: %v", url, e, bad)
		}
		if bad {
			want = append(want, url)
		}
	}
	waits := []string{"gone/" + runtime.GOARCH, "go-gone-1-695d8e/" + runtime.GOARCH} // the image, and the toolchain of its harness
	for key, set := range l.Debs {
		if slices.Contains(waits, key) != (len(set.Packages) == 0) {
			t.Errorf("%s has %d packages", key, len(set.Packages))
		}
	}
	if len(l.Debs) != 5 {
		t.Errorf("%d package sets; want those of the base, two toolchains and two images", len(l.Debs))
	}
	want = append(append(want, "docker.io/library/gone:1"), waits...)
	slices.Sort(want)
	var got []string
	seen := false
	for line := range strings.Lines(out) {
		m := regexp.MustCompile(`^unresolved  (\S+): (.+)\n`).FindStringSubmatch(line)
		if m == nil {
			if seen && strings.HasPrefix(line, "resolved ") {
				t.Error("what is unresolved is not at the end")
			}
			continue
		}
		seen = true
		got = append(got, m[1])
		if slices.Contains(waits, m[1]) && m[2] != "it waits for docker.io/library/gone:1, which is unresolved" || strings.Contains(m[1], "/x/text/") && !strings.Contains(m[2], "404") {
			t.Errorf("the reason of %s is %q", m[1], m[2])
		}
	}
	if !slices.Equal(got, want) {
		t.Errorf("listed as unresolved:\n%s\nwant:\n%s\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"), out)
	}

	// Once more: it asks for what is missing alone.
	if _, status := run(false); status != 1 {
		t.Errorf("exit status %d of the third run; want 1", status)
	}
	for _, url := range s.requests() {
		if !strings.Contains(url, "/x/text/") && !strings.Contains(url, "/toolchain/") {
			t.Errorf("the third run asks for %s again", url)
		}
	}
}
