package main

import (
	"bytes"
	"crypto"
	"crypto/ed25519"
	"crypto/x509"
	"encoding/pem"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/assay-hpc/assay/internal/certificate"
	"github.com/assay-hpc/assay/internal/certificate/certificatetest"
	"github.com/assay-hpc/assay/internal/exit"
	"github.com/assay-hpc/assay/internal/result"
)

var verifyDigest = "sha256:" + strings.Repeat("0a", 32)

// signed writes a certificate's envelope and the public key that verifies it.
func signed(t *testing.T, seed byte, v result.Verdict) (envelope, key string) {
	t.Helper()
	begin := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	st := certificate.New(certificate.Predicate{
		Suite: "image", Started: begin, Finished: begin, Harness: certificate.Harness{Version: "v1"}, Environment: certificate.Environment{Platform: "linux/amd64"},
		Results: []result.Result{{ID: "a", Title: "A", Verdict: v, Reason: "because"}},
	})
	if err := st.SetSubject("ghcr.io/x/assay", verifyDigest); err != nil {
		t.Fatal(err)
	}
	priv := ed25519.NewKeyFromSeed([]byte(strings.Repeat(string(rune('a'+seed)), ed25519.SeedSize)))
	b, err := certificatetest.Sign(st, priv)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	return save(t, dir, "signed.json", b), save(t, dir, "ours.pub", publicPEM(t, priv.Public()))
}

func publicPEM(t *testing.T, key crypto.PublicKey) []byte {
	t.Helper()
	der, err := x509.MarshalPKIXPublicKey(key)
	if err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der})
}

func save(t *testing.T, dir, name string, b []byte) string {
	t.Helper()
	name = filepath.Join(dir, name)
	if err := os.WriteFile(name, b, 0o644); err != nil {
		t.Fatal(err)
	}
	return name
}

// tell runs the harness and returns its status and what it said.
func tell(args ...string) (code int, stdout, stderr string) {
	var out, errOut strings.Builder
	code = run(append([]string{"harness"}, args...), &out, &errOut)
	return code, out.String(), errOut.String()
}

func TestVerify(t *testing.T) {
	good, key := signed(t, 0, result.Pass)
	failed, _ := signed(t, 0, result.Fail)
	_, other := signed(t, 1, result.Pass)
	bare := save(t, t.TempDir(), "bare.json", []byte(`{"_type":"https://in-toto.io/Statement/v1"}`))
	for _, tt := range []struct {
		args string
		code int
		said string // on stdout, then on stderr
	}{
		{good + " --key " + key, 0, "verdict  pass"},
		{"--key " + other + " --key " + key + " " + good, 0, "signed   by SHA256:"},
		{good + " --subject " + verifyDigest + " --key " + key, 0, "about    " + verifyDigest + `, "ghcr.io/x/assay"`},
		{good + " --subject sha256:" + strings.Repeat("0b", 32) + " --key " + key, 1, "not about this digest"},
		{good + " --key " + other, 1, "does not verify"},
		{failed + " --key " + key, 1, "its verdict is fail"},
		{bare + " --key " + key, 1, "bare.json: "},
		{good, 2, "wants --key"},
		{"--key " + key, 2, "wants one CERTIFICATE"},
		{good + " " + good + " --key " + key, 2, "wants one CERTIFICATE"},
		{good + " --subject 0a --key " + key, 2, "--subject: digest"},
		{good + ".none --key " + key, 2, "no such file"},
		{good + " --key " + good, 2, "not a PEM file"},
	} {
		code, out, errOut := tell(append([]string{"verify"}, strings.Fields(tt.args)...)...)
		if code != tt.code || !strings.Contains(out+errOut, tt.said) {
			t.Errorf("verify %s: %d, %q, %q; want %d, …%s…", tt.args, code, out, errOut, tt.code, tt.said)
		}
	}
}

// TestVerifySingleBytes changes a byte of a signed certificate at random, a
// thousand times. It is refused, or what it says is what was signed: key ids are
// hints outside the signature, and others may write them otherwise.
func TestVerifySingleBytes(t *testing.T) {
	good, key := signed(t, 0, result.Pass)
	envelope, err := os.ReadFile(good)
	if err != nil {
		t.Fatal(err)
	}
	rng := rand.New(rand.NewPCG(6, 7))
	refused := 0
	_, want, _ := tell("verify", good, "--key", key)
	hint := bytes.Index(envelope, []byte(`"keyid":"`))
	for range 1000 {
		i, by := rng.IntN(len(envelope)), byte(1+rng.IntN(255))
		envelope[i] ^= by
		code, out, _ := tell("verify", save(t, filepath.Dir(good), "changed.json", envelope), "--key", key)
		switch {
		case code == exit.Fail && out == "":
			refused++
		case code != exit.Pass || out != want || i < hint:
			t.Errorf("byte %d changed to %q: status %d, %s", i, envelope[i], code, out)
		}
		envelope[i] ^= by
	}
	if refused < 900 {
		t.Errorf("%d refusals of 1000", refused)
	}
	if code, _, errOut := tell("verify", save(t, filepath.Dir(good), "changed.json", envelope), "--key", key); code != exit.Pass {
		t.Errorf("the certificate as it was: status %d, %s", code, errOut)
	}
}

func TestReportSigned(t *testing.T) {
	good, key := signed(t, 0, result.Fail)
	_, other := signed(t, 1, result.Pass)
	for _, tt := range []struct {
		args []string
		code int
		said string
	}{
		{nil, 0, "nobody has verified that here"},
		{[]string{"--key", key}, 0, "The signature of SHA256:"},
		{[]string{"--key", other}, 1, "does not verify"},
	} {
		code, out, errOut := tell(append([]string{"report", good, "-o", "html"}, tt.args...)...)
		if code != tt.code || !strings.Contains(out+errOut, tt.said) {
			t.Errorf("report %v: %d, %s; want %d, …%s…", tt.args, code, errOut, tt.code, tt.said)
		}
	}
}
