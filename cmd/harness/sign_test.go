package main

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/urfave/cli/v2"

	"github.com/assay-hpc/assay/harness/sign/signtest"
	"github.com/assay-hpc/assay/internal/attest"
	"github.com/assay-hpc/assay/internal/certificate"
	"github.com/assay-hpc/assay/internal/certificate/certificatetest"
	"github.com/assay-hpc/assay/internal/exit"
)

// nodeFile writes a node's certificate.
func nodeFile(t *testing.T) string {
	t.Helper()
	b, err := certificatetest.Node(2).Marshal()
	if err != nil {
		t.Fatal(err)
	}
	return save(t, t.TempDir(), "node.json", b)
}

// TestSign signs by file, by a key server and by a plugin program, and has verify
// and report read it with each.
func TestSign(t *testing.T) {
	ours, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	_, other, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	srv := httptest.NewServer(&signtest.Vault{Token: "hvs.t0ken", Keys: map[string]crypto.Signer{"ours": ours, "other": other}})
	defer srv.Close()
	dir := t.TempDir()
	if err := signtest.Install(dir); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", dir)
	t.Setenv("VAULT_ADDR", srv.URL)
	t.Setenv("VAULT_TOKEN", "hvs.t0ken")
	der, err := x509.MarshalPKCS8PrivateKey(ours)
	if err != nil {
		t.Fatal(err)
	}
	file := save(t, dir, "ours.key", pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}))
	node, out := nodeFile(t), filepath.Join(dir, "signed.json")
	refs := []string{file, "hashivault://ours", signtest.Scheme + "://" + file}
	for _, ref := range refs {
		if code, _, errOut := tell("sign", node, "--key", ref, "--out", out); code != exit.Pass {
			t.Fatalf("sign --key %s: %d, %s", ref, code, errOut)
		}
		for _, key := range refs {
			// The sample fails, which verify says after the signature has held.
			code, said, errOut := tell("verify", out, "--key", key)
			if code != exit.Fail || !strings.Contains(said, "signed   by SHA256:") || !strings.Contains(errOut, "its verdict is fail") {
				t.Errorf("signed with %s, verify --key %s: %d, %s%s", ref, key, code, said, errOut)
			}
			if code, _, errOut := tell("report", out, "--key", key); code != exit.Pass {
				t.Errorf("signed with %s, report --key %s: %d, %s", ref, key, code, errOut)
			}
		}
		if code, _, errOut := tell("verify", out, "--key", "hashivault://other"); code != exit.Fail || !strings.Contains(errOut, "does not verify") {
			t.Errorf("signed with %s, verified with another: %d, %s", ref, code, errOut)
		}
	}
	for _, tt := range []struct {
		args string
		code int
		said string
	}{
		{"sign", 2, "wants one CERTIFICATE"},
		{"sign " + node, 2, "--key KEY"},
		{"sign " + node + " --key " + node, 2, "not a PEM file"},
		{"sign " + out + " --key " + file, 2, "signed already"},
		{"sign " + node + " --key hashivault://none", 3, "key hashivault://none"},
		{"sign " + node + " --key gcpkms://x", 3, "sigstore-kms-gcpkms"},
		{"verify " + out + " --key azurekms://x", 3, "sigstore-kms-azurekms"},
		{"verify " + out + " --key " + dir + "/none", 2, "no such file"},
	} {
		code, stdout, errOut := tell(strings.Fields(tt.args)...)
		if code != tt.code || !strings.Contains(stdout+errOut, tt.said) {
			t.Errorf("%s: %d, %s%s; want %d, …%s…", tt.args, code, stdout, errOut, tt.code, tt.said)
		}
	}
	if code, stdout, _ := tell("sign", node, "--key", file); code != exit.Pass || !attest.IsEnvelope([]byte(stdout)) {
		t.Errorf("sign to stdout: %d, %s", code, stdout)
	}
}

// TestSignOptions: a command that signs learns that its key does not before it
// begins.
func TestSignOptions(t *testing.T) {
	o := signOptions{}
	if err := o.check(); err != nil {
		t.Errorf("check without a key: %v", err)
	}
	if _, err := o.sign(t.Context(), nil); err == nil {
		t.Error("sign without a key succeeded")
	}
	missing := filepath.Join(t.TempDir(), "none")
	app := &cli.App{Name: "x", Flags: o.flags()}
	if err := app.Run([]string{"x", "--sign-key", missing}); err != nil || o.key != missing {
		t.Fatalf("--sign-key gave %q, %v", o.key, err)
	}
	if err := o.check(); exit.Of(err) != exit.Usage {
		t.Errorf("check of a file that is not there: %v", err)
	}
	_, key, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(o.key, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}), 0o600); err != nil {
		t.Fatal(err)
	}
	doc, err := certificatetest.Node(1).Marshal()
	if err == nil {
		err = o.check()
	}
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(o.key); err != nil { // hours of checks later
		t.Fatal(err)
	}
	envelope, err := o.sign(t.Context(), doc)
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := certificate.Open(envelope, key.Public()); err != nil {
		t.Error(err)
	}
}
