package e2e

import (
	"bytes"
	"compress/gzip"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/x509"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"io/fs"
	"log"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/google/go-containerregistry/pkg/registry"

	"github.com/assay-hpc/assay/build/archive"
	"github.com/assay-hpc/assay/build/mirror"
)

// A planted credential is looked for in all that assay writes.
type planted struct {
	what     string
	password string
	used     atomic.Int64 // requests that came with it
}

func plant(t *testing.T, what string) *planted {
	t.Helper()
	raw := make([]byte, 12)
	if _, err := rand.Read(raw); err != nil {
		t.Fatal(err)
	}
	return &planted{what: what, password: "pw" + hex.EncodeToString(raw)}
}

const robot = "robot"

// asks is a handler that wants the credential.
func (p *planted) asks(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		user, password, _ := r.BasicAuth()
		if user != robot || password != p.password {
			w.Header().Set("WWW-Authenticate", `Basic realm="test"`)
			http.Error(w, "no", http.StatusUnauthorized)
			return
		}
		p.used.Add(1)
		r.Header.Del("Authorization")
		h.ServeHTTP(w, r)
	})
}

// forms are the ways in which the credential could be written.
func (p *planted) forms() []string {
	forms := []string{p.password, hex.EncodeToString([]byte(p.password))}
	for _, text := range []string{p.password, robot + ":" + p.password} {
		for skip := range 3 { // wherever in a longer text it begins
			enc := base64.RawStdEncoding.EncodeToString([]byte(strings.Repeat("x", skip) + text))
			forms = append(forms, enc[4:len(enc)-2])
		}
	}
	return forms
}

// TestPlanted locks, builds, signs and pushes an image with credentials for
// everything that can want one, and looks for them in all that was written.
func TestPlanted(t *testing.T) {
	addr := buildkit(t)
	debianRoot, err := mirror.DefaultArchive(archive.Of("bookworm", runtime.GOARCH))
	if err != nil {
		t.Skip(err)
	}
	goRoot, err := mirror.DefaultGoProxy()
	if err != nil {
		t.Skip(err)
	}
	debian, goproxy, reg := plant(t, "the Debian mirror's"), plant(t, "the module proxy's"), plant(t, "the registry's")
	env, builder, wrong := plant(t, "VAULT_TOKEN"), plant(t, "the builder's"), plant(t, "a wrong one")
	all := []*planted{debian, goproxy, reg, env, builder, wrong}

	proxy := func(prefix, root string) http.Handler {
		to, err := url.Parse(root)
		if err != nil {
			t.Fatal(err)
		}
		return &httputil.ReverseProxy{Rewrite: func(r *httputil.ProxyRequest) {
			r.Out.URL.Path, r.Out.URL.RawPath = strings.TrimPrefix(r.In.URL.Path, prefix), ""
			r.SetURL(to)
		}, ErrorLog: log.New(io.Discard, "", 0)}
	}
	mux := http.NewServeMux()
	mux.Handle("/debian/", debian.asks(proxy("/debian", debianRoot)))
	mux.Handle("/debian-security/", debian.asks(proxy("/debian-security", debianRoot+"-security")))
	mux.Handle("/go/", goproxy.asks(proxy("/go", goRoot)))
	mirrors := httptest.NewServer(mux)
	defer mirrors.Close()
	at := func(p *planted, path string) string {
		return strings.Replace(mirrors.URL, "http://", "http://"+robot+":"+p.password+"@", 1) + path
	}
	registry := httptest.NewServer(reg.asks(registry.New(registry.WithReferrersSupport(true), registry.Logger(log.New(io.Discard, "", 0)))))
	defer registry.Close()
	host := strings.TrimPrefix(registry.URL, "http://")

	dir, outside := t.TempDir(), t.TempDir() // what is outside holds the secrets
	write := func(file, text string) string {
		if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return file
	}
	write(filepath.Join(outside, "assay", "mirrors"), "debian:="+at(debian, "/debian")+"\ndebian-security:="+at(debian, "/debian-security")+"\ngoproxy:="+at(goproxy, "/go")+"\n")
	auths, err := json.Marshal(map[string]any{"auths": map[string]any{host: map[string]string{"auth": base64.StdEncoding.EncodeToString([]byte(robot + ":" + reg.password))}}})
	if err != nil {
		t.Fatal(err)
	}
	write(filepath.Join(outside, "docker", "config.json"), string(auths))
	_, key, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	keyFile := write(filepath.Join(outside, "key.pem"), string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der})))
	text, err := os.ReadFile("testdata/small.yaml")
	if err != nil {
		t.Fatal(err)
	}
	matrix := write(filepath.Join(dir, "small.yaml"), strings.ReplaceAll(string(text), "ARCH", runtime.GOARCH))

	calls := 0
	run := func(ok bool, args ...string) {
		t.Helper()
		cmd := assay(t, args...)
		cmd.Env = append(os.Environ(), "XDG_CONFIG_HOME="+outside, "DOCKER_CONFIG="+filepath.Join(outside, "docker"), "ASSAY_STATE_DIR="+filepath.Join(dir, "state"), "VAULT_TOKEN="+env.password)
		if !strings.Contains(strings.Join(args, " "), "--builder") {
			cmd.Env = append(cmd.Env, "BUILDKIT_HOST="+addr)
		}
		text, err := cmd.CombinedOutput()
		calls++
		write(filepath.Join(dir, fmt.Sprint("output-", calls)), string(text))
		if (err == nil) != ok {
			t.Errorf("assay %s: %v; want success: %v\n%s", args[0], err, ok, lastLines(string(text), 20))
		}
	}
	run(true, "lock", "small", "--matrix", matrix, "--progress", "plain")
	if t.Failed() {
		t.FailNow()
	}
	run(true, "dockerfile", "small", "--matrix", matrix)
	run(true, "dockerfile", "small", "--matrix", matrix, "--out", filepath.Join(dir, "dockerfile"))
	run(true, "build", "small", "--matrix", matrix, "--out", "oci:"+filepath.Join(dir, "out"), "--push", host+"/assay", "--sign-key", keyFile, "--progress", "plain", "-o", "json")
	run(true, "plan", "--matrix", matrix)
	// What fails says why, and that is all.
	run(false, "build", "small", "--force", "--matrix", matrix, "--out", "oci:"+filepath.Join(dir, "out"), "--builder", "tcp://"+robot+":"+builder.password+"@127.0.0.1:1")
	run(false, "lock", "small", "--update", "--matrix", matrix, "--mirror", "goproxy:="+at(wrong, "/go"), "--mirror", "debian:="+at(wrong, "/debian"), "--progress", "plain")
	run(false, "build", "small", "--matrix", matrix, "--mirror", "docker.io="+robot+":"+wrong.password+"@"+host)
	run(false, "build", "small", "--matrix", matrix, "--mirror", "https://"+robot+":"+wrong.password+"@"+host)
	run(false, "build", "small", "--matrix", matrix, "--sign-key", "hashivault://"+env.what)

	for _, p := range []*planted{debian, goproxy, reg} {
		if p.used.Load() == 0 {
			t.Errorf("nobody came with %s credential: the test shows nothing", p.what)
		}
	}
	files, hits := search(t, all, string(key.Seed()), dir, filepath.Join(stateDir(t), "buildkit"))
	for _, hit := range hits {
		t.Error(hit)
	}
	if files < 20 {
		t.Errorf("%d files were searched; want all that assay wrote", files)
	}
	// The search finds what is there.
	sample := t.TempDir()
	var zipped bytes.Buffer
	zw := gzip.NewWriter(&zipped)
	for i, p := range all {
		write(filepath.Join(sample, fmt.Sprint("plain-", i)), "http://"+robot+":"+p.password+"@host/")
		write(filepath.Join(sample, fmt.Sprint("header-", i)), "Basic "+base64.StdEncoding.EncodeToString([]byte(robot+":"+p.password)))
		io.WriteString(zw, p.password+"\n")
	}
	zw.Close()
	write(filepath.Join(sample, "zipped"), zipped.String())
	write(filepath.Join(sample, "key"), string(der))
	if _, hits := search(t, all, string(key.Seed()), sample); len(hits) != 3*len(all)+1 {
		t.Errorf("the search finds %d of the %d in a sample:\n%s", len(hits), 3*len(all)+1, strings.Join(hits, "\n"))
	}
}

// search looks for credentials in files, and in what is compressed in them.
func search(t *testing.T, all []*planted, seed string, dirs ...string) (files int, hits []string) {
	t.Helper()
	for _, dir := range dirs {
		err := filepath.WalkDir(dir, func(file string, d fs.DirEntry, err error) error {
			if err != nil || !d.Type().IsRegular() {
				return nil // the builder's own come and go
			}
			if strings.Contains(file, "/snapshots/") && !strings.Contains(file, "/etc/") {
				return nil // the trees of all steps: what is configured there is enough
			}
			data, err := os.ReadFile(file)
			if err != nil {
				return nil
			}
			files++
			hits = append(hits, found(all, seed, file, data)...)
			if zr, err := gzip.NewReader(bytes.NewReader(data)); err == nil {
				if plain, err := io.ReadAll(zr); err == nil {
					hits = append(hits, found(all, seed, file+", decompressed", plain)...)
				}
			}
			return nil
		})
		if err != nil {
			t.Error(err)
		}
	}
	return files, hits
}

func lastLines(text string, n int) string {
	lines := strings.Split(strings.TrimSpace(text), "\n")
	return strings.Join(lines[max(0, len(lines)-n):], "\n")
}

// found says which credentials the data of a file holds.
func found(all []*planted, seed, where string, data []byte) (hits []string) {
	if bytes.Contains(data, []byte(seed)) {
		hits = append(hits, "the signing key is in "+where)
	}
	for _, p := range all {
		for _, form := range p.forms() {
			if i := bytes.Index(data, []byte(form)); i >= 0 {
				hits = append(hits, fmt.Sprintf("%s credential is in %s: %q", p.what, where, data[max(0, i-60):min(len(data), i+len(form))]))
				break
			}
		}
	}
	return hits
}
