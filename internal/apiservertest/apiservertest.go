// Package apiservertest starts a real Kubernetes API server and its store for tests. "make
// test ONLY=kubernetes" builds the two programs and sets their path. No kubelets and no controllers run,
// so that objects are validated and stored, but not acted on.
package apiservertest

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"k8s.io/client-go/rest"
)

// Admin is the user with all rights.
const Admin = "admin"

// Available reports whether the programs are available.
func Available() bool { return programs() != "" }

func programs() string { return os.Getenv("ASSAY_KUBERNETES_BIN") }

// Program returns the path of one of the programs that "make test ONLY=kubernetes" builds.
func Program(name string) string { return filepath.Join(programs(), name) }

// Start starts etcd and kube-apiserver, which stop when the test ends. It returns the configuration
// to connect to the server, without a user. Users have no rights, except Admin, who always exists,
// and kubelets, whose names are system:node:NODE. A user's bearer token is the user's name.
func Start(t *testing.T, users ...string) *rest.Config {
	t.Helper()
	if !Available() {
		t.Fatal("there is no API server: ASSAY_KUBERNETES_BIN is not set; make test ONLY=kubernetes sets it")
	}
	dir := t.TempDir()
	client, peer, port := freePort(t), freePort(t), freePort(t)
	key := filepath.Join(dir, "sa.key")
	if out, err := exec.Command("openssl", "genpkey", "-algorithm", "RSA", "-pkeyopt", "rsa_keygen_bits:2048", "-out", key).CombinedOutput(); err != nil {
		t.Fatalf("openssl: %v\n%s", err, out)
	}
	var tokens strings.Builder
	for _, u := range users {
		groups := ""
		if strings.HasPrefix(u, "system:node:") {
			groups = ",system:nodes"
		}
		fmt.Fprintf(&tokens, "%s,%s,%s%s\n", u, u, u, groups)
	}
	fmt.Fprintf(&tokens, "%s,%s,%s,system:masters\n", Admin, Admin, Admin)
	tokenFile := filepath.Join(dir, "users")
	if err := os.WriteFile(tokenFile, []byte(tokens.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	start(t, dir, "etcd", "--data-dir="+filepath.Join(dir, "etcd"), "--unsafe-no-fsync",
		"--listen-client-urls=http://"+client, "--advertise-client-urls=http://"+client,
		"--listen-peer-urls=http://"+peer, "--initial-advertise-peer-urls=http://"+peer, "--initial-cluster=default=http://"+peer)
	_, portNumber, _ := net.SplitHostPort(port)
	start(t, dir, "kube-apiserver", "--etcd-servers=http://"+client, "--bind-address=127.0.0.1", "--secure-port="+portNumber,
		"--cert-dir="+filepath.Join(dir, "cert"), "--authorization-mode=Node,RBAC", "--enable-admission-plugins=NodeRestriction", "--token-auth-file="+tokenFile,
		"--service-account-issuer=https://test", "--service-account-key-file="+key, "--service-account-signing-key-file="+key,
		"--service-cluster-ip-range=10.0.0.0/24")
	config := &rest.Config{Host: "https://" + port, TLSClientConfig: rest.TLSClientConfig{CAFile: filepath.Join(dir, "cert", "apiserver.crt")}}
	waitReady(t, config)
	return config
}

// Kubeconfig writes a file by which a program connects to the server with a token, and returns its
// path.
func Kubeconfig(t *testing.T, config *rest.Config, token string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "kubeconfig")
	text := fmt.Sprintf("apiVersion: v1\nkind: Config\ncurrent-context: x\ncontexts: [{name: x, context: {cluster: x, user: x}}]\n"+
		"clusters: [{name: x, cluster: {server: %q, certificate-authority: %q}}]\nusers: [{name: x, user: {token: %q}}]\n", config.Host, config.CAFile, token)
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// StartScheduler starts kube-scheduler, which stops when the test ends.
func StartScheduler(t *testing.T, config *rest.Config) {
	t.Helper()
	start(t, t.TempDir(), "kube-scheduler", "--kubeconfig="+Kubeconfig(t, config, Admin), "--leader-elect=false", "--secure-port=0",
		"--authentication-kubeconfig=", "--authorization-kubeconfig=")
}

// StartPrometheus starts Prometheus with the file prometheus.yml of a directory, and returns its
// address. It stops when the test ends.
func StartPrometheus(t *testing.T, dir string) string {
	t.Helper()
	address := freePort(t)
	start(t, dir, "prometheus", "--config.file="+filepath.Join(dir, "prometheus.yml"), "--storage.tsdb.path="+filepath.Join(dir, "data"), "--web.listen-address="+address)
	return address
}

// As returns a client configuration for a user.
func As(config *rest.Config, user string) *rest.Config {
	c := rest.CopyConfig(config)
	c.BearerToken = user
	return c
}

func freePort(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

// start starts a daemon that stops when the test ends, and shows its log if the test failed.
func start(t *testing.T, dir, program string, args ...string) {
	t.Helper()
	log, err := os.Create(filepath.Join(dir, program+".log"))
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(Program(program), args...)
	cmd.Stdout, cmd.Stderr = log, log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := cmd.Process.Kill(); err != nil {
			t.Errorf("%s: %v", program, err)
		}
		_ = cmd.Wait() // it was killed
		log.Close()
		if b, err := os.ReadFile(log.Name()); t.Failed() && err == nil {
			t.Logf("%s:\n%s", program, b[max(0, len(b)-4000):])
		}
	})
}

func waitReady(t *testing.T, config *rest.Config) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
	defer cancel()
	for ; ; time.Sleep(300 * time.Millisecond) {
		client, err := rest.HTTPClientFor(As(config, Admin))
		if err != nil { // no certificate yet
			if ctx.Err() != nil {
				t.Fatal(err)
			}
			continue
		}
		req, err := http.NewRequestWithContext(ctx, "GET", config.Host+"/readyz", nil)
		if err != nil {
			t.Fatal(err)
		}
		resp, err := client.Do(req)
		if err == nil {
			resp.Body.Close()
			if resp.StatusCode == 200 {
				return
			}
		}
		if ctx.Err() != nil {
			t.Fatal("the API server is not ready: ", err)
		}
	}
}
