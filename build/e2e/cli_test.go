package e2e

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/registry"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"

	"github.com/assay-hpc/assay/build/driver"
	"github.com/assay-hpc/assay/build/standin"
	"github.com/assay-hpc/assay/internal/certificate"
	"github.com/assay-hpc/assay/internal/oci"
	"github.com/assay-hpc/assay/internal/result"
)

// assay returns a command that runs the built binary.
func assay(t *testing.T, args ...string) *exec.Cmd {
	t.Helper()
	return exec.Command(assayBinary(t), args...)
}

// assayBinary returns the built program, which also runs gates.
func assayBinary(t *testing.T) string {
	t.Helper()
	path, err := filepath.Abs("../../bin/assay")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(path); err != nil {
		t.Skip("bin/assay is not built: make build")
	}
	return path
}

// TestPublishKilled kills assay in the middle of a push, at several places, and
// runs it again.
func TestPublishKilled(t *testing.T) {
	_, out, img := fabricImage(t)
	for _, after := range []int64{3, 8, 14} {
		t.Run(fmt.Sprint("after-", after), func(t *testing.T) {
			reg := registry.New(registry.WithReferrersSupport(true), registry.Logger(log.New(io.Discard, "", 0)))
			var changes atomic.Int64
			var victim atomic.Pointer[os.Process]
			srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if r.Method != http.MethodGet && r.Method != http.MethodHead && changes.Add(1) == after {
					if p := victim.Load(); p != nil {
						_ = p.Kill()
					}
				}
				reg.ServeHTTP(w, r)
			}))
			defer srv.Close()
			repo := strings.TrimPrefix(srv.URL, "http://") + "/assay"
			push := func() (*exec.Cmd, *bytes.Buffer) {
				cmd := assay(t, "publish", "--from", "oci:"+out, "--tag", "t", "--platform", img.Platform, fabric, repo)
				var text bytes.Buffer
				cmd.Stdout, cmd.Stderr = &text, &text
				return cmd, &text
			}
			first, _ := push()
			if err := first.Start(); err != nil {
				t.Fatal(err)
			}
			victim.Store(first.Process)
			var exit *exec.ExitError
			if err := first.Wait(); !errors.As(err, &exit) || exit.Sys().(syscall.WaitStatus).Signal() != syscall.SIGKILL {
				t.Fatalf("the first push was not killed: %v", err)
			}
			victim.Store(nil)
			if _, err := inspectImage(t, repo+":t"); err == nil {
				t.Fatal("the tag was there before everything was")
			}
			second, text := push()
			if err := second.Run(); err != nil {
				t.Fatalf("second push: %v\n%s", err, text)
			}
			rep, err := inspectImage(t, repo+":t")
			if err != nil {
				t.Fatal(err)
			}
			if rep.Images[0].Digest != img.Digest || rep.Images[0].Certificate == nil {
				t.Errorf("after the second push: %+v", rep.Images[0])
			}
		})
	}
}

// TestInterrupt: Ctrl-C ends a build with status 3 and leaves no builder.
func TestInterrupt(t *testing.T) {
	w, _, _ := fabricImage(t)
	state := t.TempDir()
	cmd := assay(t, "build", "--matrix", filepath.Join(filepath.Dir(w.LockPath), "matrix.yaml"), "--out", "oci:"+filepath.Join(state, "out"), "--progress", "plain", "--force")
	cmd.Env = append(os.Environ(), "ASSAY_STATE_DIR="+state, "BUILDKIT_HOST=")
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	var text bytes.Buffer
	cmd.Stdout, cmd.Stderr = &text, &text
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	sock := filepath.Join(state, "buildkit", "buildkitd.sock")
	waitFor(t, func() bool { _, err := os.Stat(sock); return err == nil })
	if err := cmd.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	err := cmd.Wait()
	if code := cmd.ProcessState.ExitCode(); code != 3 || !strings.Contains(text.String(), "interrupted") {
		t.Errorf("exit status %d (%v); want 3 and \"interrupted\":\n%s", code, err, text.String())
	}
	if out, _ := exec.Command("pgrep", "-f", "buildkitd.*"+state).Output(); len(out) > 0 {
		t.Errorf("a builder is left: %s", out)
	}
}

// waitFor polls until something is so. Its limit is for tests that hang.
func waitFor(t *testing.T, so func() bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
	defer cancel()
	for !so() {
		select {
		case <-ctx.Done():
			t.Fatal("it did not happen within ten minutes")
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// TestCertifyForeign certifies an image that assay did not build, from a
// registry: the harness is brought along.
func TestCertifyForeign(t *testing.T) {
	long(t)
	addr := buildkit(t)
	u := upstreams(t, standin.Options{})
	w := workspace(t, "testdata/standin-one.yaml", u.Mirrors())
	res, err := w.Certify(t.Context(), "docker.io/nvidia/cuda:12.9.1-devel-ubuntu22.04", driver.CertifyOptions{}, driver.BuildOptions{Builders: []string{addr}, Progress: progress()})
	if err != nil {
		t.Fatal(err)
	}
	if len(res) != 1 {
		t.Fatalf("%d results; want one", len(res))
	}
	st, err := certificate.Parse(res[0].Certificate)
	if err != nil {
		t.Fatalf("%v; %s", err, res[0].Error)
	}
	verdicts := map[string]result.Verdict{}
	for _, r := range st.Predicate.Results {
		verdicts[r.ID] = r.Verdict
	}
	if verdicts["libraries"] == "" || verdicts["declaration"] != result.Skip {
		t.Errorf("verdicts %v; want the libraries looked at and no declaration", verdicts)
	}
}

// TestCertifyLiar: an image that was made FROM ours inherits its label and its
// declaration, and brings a harness of its own, which finds everything well. It is
// asked only where a flag says so, and the certificate names it.
func TestCertifyLiar(t *testing.T) {
	w, out, img := fabricImage(t)
	from, err := oci.Open(out)
	if err != nil {
		t.Fatal(err)
	}
	ours, ok, err := from.Get(fabric + "/" + img.Platform)
	if err != nil || !ok {
		t.Fatalf("Get = %v, %v", ok, err)
	}
	forged := certificate.New(certificate.Predicate{Suite: "image", Harness: certificate.Harness{Origin: certificate.OriginAssay}, Results: []result.Result{{ID: "all", Title: "all is well", Verdict: result.Pass}}})
	doc, err := forged.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	script := "#!/bin/sh\necho '" + strings.TrimSpace(string(doc)) + "' > /run/assay/out/certificate.json\necho '{\"version\":1,\"packages\":[]}' > /run/assay/out/inventory.json\n"
	var text bytes.Buffer
	tw := tar.NewWriter(&text)
	err = tw.WriteHeader(&tar.Header{Name: "opt/assay/bin/harness", Mode: 0o755, Size: int64(len(script))})
	if err == nil {
		_, err = io.WriteString(tw, script)
	}
	if err := errors.Join(err, tw.Close()); err != nil {
		t.Fatal(err)
	}
	layer, err := tarball.LayerFromOpener(func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(text.Bytes())), nil }, tarball.WithMediaType(types.OCILayer))
	if err != nil {
		t.Fatal(err)
	}
	liar, err := mutate.AppendLayers(ours, layer)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	l, err := oci.Create(dir)
	if err == nil {
		err = l.Put("liar", liar)
	}
	if err != nil {
		t.Fatal(err)
	}
	res, err := w.Certify(t.Context(), "oci:"+dir+":liar", driver.CertifyOptions{}, driver.BuildOptions{Builders: []string{buildkit(t)}, Progress: progress()})
	if err != nil {
		t.Fatal(err)
	}
	st, err := certificate.Parse(res[0].Certificate)
	if err != nil {
		t.Fatalf("%v; %s", err, res[0].Error)
	}
	if p := st.Predicate; p.Harness.Origin != certificate.OriginAssay || len(p.Results) == 1 {
		t.Errorf("origin %q, %d results, %s", p.Harness.Origin, len(p.Results), res[0].Error)
	}
}
