package kubernetes

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

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
)

// startReal starts etcd and kube-apiserver, and gives the users their rights
// by the rules of examples/kubernetes.
func startReal(t *testing.T, bin string) *rest.Config {
	t.Helper()
	dir := t.TempDir()
	client, peer, port := freePort(t), freePort(t), freePort(t)
	file := func(name, text string) string {
		name = filepath.Join(dir, name)
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return name
	}
	key := filepath.Join(dir, "sa.key")
	if out, err := exec.Command("openssl", "genpkey", "-algorithm", "RSA", "-pkeyopt", "rsa_keygen_bits:2048", "-out", key).CombinedOutput(); err != nil {
		t.Fatalf("openssl: %v\n%s", err, out)
	}
	var users strings.Builder
	for _, u := range []string{harness, nobody, reader} {
		fmt.Fprintf(&users, "%s,%s,%s\n", u, u, u)
	}
	fmt.Fprintf(&users, "%s,%s,%s,system:masters\n", admin, admin, admin)
	start(t, dir, filepath.Join(bin, "etcd"), "--data-dir="+filepath.Join(dir, "etcd"), "--unsafe-no-fsync",
		"--listen-client-urls=http://"+client, "--advertise-client-urls=http://"+client,
		"--listen-peer-urls=http://"+peer, "--initial-advertise-peer-urls=http://"+peer, "--initial-cluster=default=http://"+peer)
	_, portNumber, _ := net.SplitHostPort(port)
	start(t, dir, filepath.Join(bin, "kube-apiserver"), "--etcd-servers=http://"+client, "--bind-address=127.0.0.1", "--secure-port="+portNumber,
		"--cert-dir="+filepath.Join(dir, "cert"), "--authorization-mode=RBAC", "--token-auth-file="+file("users", users.String()),
		"--service-account-issuer=https://test", "--service-account-key-file="+key, "--service-account-signing-key-file="+key,
		"--service-cluster-ip-range=10.0.0.0/24")
	config := &rest.Config{Host: "https://" + port, TLSClientConfig: rest.TLSClientConfig{CAFile: filepath.Join(dir, "cert", "apiserver.crt")}}
	waitReady(t, config)
	grant(t, config)
	return config
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

// start starts a daemon that ends with the test, and shows its log if that
// failed.
func start(t *testing.T, dir, program string, args ...string) {
	t.Helper()
	log, err := os.Create(filepath.Join(dir, filepath.Base(program)+".log"))
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(program, args...)
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
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	for ; ; time.Sleep(300 * time.Millisecond) {
		c := rest.CopyConfig(config)
		c.BearerToken = admin
		client, err := rest.HTTPClientFor(c)
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

// grant gives the users their roles: the harness the one that the examples
// have.
func grant(t *testing.T, config *rest.Config) {
	t.Helper()
	c := rest.CopyConfig(config)
	c.BearerToken = admin
	client, err := dynamic.NewForConfig(c)
	if err != nil {
		t.Fatal(err)
	}
	var role *rbacv1.ClusterRole
	for _, object := range manifest(t, "rbac.yaml") {
		if r, ok := object.(*rbacv1.ClusterRole); ok {
			role = r
		}
	}
	role.Name = harness
	get := &rbacv1.ClusterRole{
		TypeMeta: role.TypeMeta, ObjectMeta: metav1.ObjectMeta{Name: reader},
		Rules: []rbacv1.PolicyRule{{APIGroups: []string{""}, Resources: []string{"nodes"}, Verbs: []string{"get"}}},
	}
	for _, r := range []*rbacv1.ClusterRole{role, get} {
		binding := &rbacv1.ClusterRoleBinding{
			TypeMeta: metav1.TypeMeta{APIVersion: role.APIVersion, Kind: "ClusterRoleBinding"}, ObjectMeta: metav1.ObjectMeta{Name: r.Name},
			Subjects: []rbacv1.Subject{{Kind: "User", APIGroup: rbacv1.GroupName, Name: r.Name}}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: r.Name},
		}
		create(t, client, "clusterroles", r)
		create(t, client, "clusterrolebindings", binding)
	}
}

func create(t *testing.T, client dynamic.Interface, resource string, v any) {
	t.Helper()
	object, err := runtime.DefaultUnstructuredConverter.ToUnstructured(v)
	if err == nil {
		gvr := schema.GroupVersionResource{Group: rbacv1.GroupName, Version: "v1", Resource: resource}
		_, err = client.Resource(gvr).Create(t.Context(), &unstructured.Unstructured{Object: object}, metav1.CreateOptions{})
	}
	if err != nil {
		t.Fatal(err)
	}
}
