package sign

import (
	"bytes"
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/assay-hpc/assay/harness/sign/signtest"
	"github.com/assay-hpc/assay/internal/attest"
	"github.com/assay-hpc/assay/internal/certificate/certificatetest"
)

func TestMain(m *testing.M) {
	signtest.Program()
	os.Exit(m.Run())
}

const token = "hvs.s3cret-t0ken"

func keys(t *testing.T) map[string]crypto.Signer {
	t.Helper()
	_, ed, err1 := ed25519.GenerateKey(rand.Reader)
	ec, err2 := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	rs, err3 := rsa.GenerateKey(rand.Reader, 2048)
	if err := errors.Join(err1, err2, err3); err != nil {
		t.Fatal(err)
	}
	return map[string]crypto.Signer{"ed25519": ed, "ecdsa": ec, "rsa": rs}
}

func vault(t *testing.T, keys map[string]crypto.Signer) *signtest.Vault {
	t.Helper()
	v := &signtest.Vault{Token: token, Keys: keys}
	srv := httptest.NewServer(v)
	t.Cleanup(srv.Close)
	t.Setenv("VAULT_ADDR", srv.URL)
	t.Setenv("VAULT_TOKEN", token)
	t.Setenv("HOME", t.TempDir())
	return v
}

func plugin(t *testing.T) {
	t.Helper()
	dir := t.TempDir()
	if err := signtest.Install(dir); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", dir)
}

func writeKey(t *testing.T, key crypto.Signer) string {
	t.Helper()
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "key.pem")
	if err := os.WriteFile(file, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// TestSign signs a certificate with each kind of key in each kind of place, and
// verifies it with the public key that the same reference names and with the key
// itself.
func TestSign(t *testing.T) {
	all := keys(t)
	vault(t, all)
	plugin(t)
	st := certificatetest.Node(8)
	for name, key := range all {
		file := writeKey(t, key)
		for _, ref := range []string{file, "hashivault://" + name, "openbao://" + name, signtest.Scheme + "://" + file} {
			signer, err := Open(t.Context(), ref)
			if err != nil {
				t.Errorf("Open(%s) of %s: %v", ref, name, err)
				continue
			}
			if err := Check(signer); err != nil {
				t.Errorf("Check(%s) of %s: %v", ref, name, err)
			}
			doc, err := st.Marshal()
			if err != nil {
				t.Fatal(err)
			}
			envelope, err := attest.Sign(attest.TypeStatement, doc, With(t.Context(), signer))
			if err != nil {
				t.Errorf("sign with %s of %s: %v", ref, name, err)
				continue
			}
			pub, err := Public(t.Context(), ref)
			if err != nil {
				t.Errorf("Public(%s): %v", ref, err)
			}
			for _, k := range []crypto.PublicKey{pub, key.Public()} {
				if _, err := attest.OpenVerified(envelope, k); err != nil {
					t.Errorf("%s of %s: %v", ref, name, err)
				}
			}
			other := all["ecdsa"]
			if name == "ecdsa" {
				other = all["rsa"]
			}
			if _, err := attest.OpenVerified(envelope, other.Public()); !errors.Is(err, attest.ErrSignature) {
				t.Errorf("%s of %s verifies with another key: %v", ref, name, err)
			}
		}
	}
}

// TestSignLarge: a certificate longer than a program's arguments may be.
func TestSignLarge(t *testing.T) {
	plugin(t)
	key := keys(t)["ed25519"]
	signer, err := Open(t.Context(), signtest.Scheme+"://"+writeKey(t, key))
	if err != nil {
		t.Fatal(err)
	}
	payload := bytes.Repeat([]byte("0123456789abcdef"), 1<<16)
	envelope, err := attest.Sign("text/plain", payload, signer)
	if err != nil {
		t.Fatal(err)
	}
	if got, err := attest.OpenVerified(envelope, key.Public()); err != nil || !bytes.Equal(got.Payload, payload) {
		t.Errorf("OpenVerified = %d bytes, %v; want %d", len(got.Payload), err, len(payload))
	}
}

func TestFaults(t *testing.T) {
	all := keys(t)
	v := vault(t, all)
	plugin(t)
	refuse := func(status int, text string) func(http.ResponseWriter, *http.Request) bool {
		return func(w http.ResponseWriter, r *http.Request) bool {
			w.WriteHeader(status)
			fmt.Fprintf(w, text, r.Header.Get("X-Vault-Token"))
			return true
		}
	}
	for _, tt := range []struct {
		name, ref string
		before    func(http.ResponseWriter, *http.Request) bool
		want      string
	}{
		{"no such key", "hashivault://none", nil, "key hashivault://none: "},
		{"a server that repeats the token", "hashivault://ecdsa", refuse(400, `{"errors":["bad token %s"]}`), "bad token [hidden]"},
		{"no JSON", "hashivault://ecdsa", refuse(200, "<html>%s"), "key hashivault://ecdsa: "},
		{"a bad name", "hashivault://a/b", nil, "hashivault"},
		{"no program, and we have one", "awskms:///alias/x", nil, "sigstore-kms-awskms, which is not on PATH: make kms"},
		{"no program", "pkcs11://slot?pin-value=123456", nil, "key pkcs11://slot?[hidden]: pkcs11:// is served by the program sigstore-kms-pkcs11"},
		{"a program without the key", signtest.Scheme + ":///nowhere.pem", nil, "no such file"},
		{"a program that answers nothing", signtest.Scheme + "://silent", nil, "the answer lacks what was asked for"},
		{"a program that tells the token", signtest.Scheme + "://telling", nil, "no key for the token [hidden]"},
	} {
		v.Before = tt.before
		_, err := Open(t.Context(), tt.ref)
		if err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: Open(%s) = %v; want …%s…", tt.name, tt.ref, err, tt.want)
			continue
		}
		if text := fmt.Sprintf("%v %+v", err, err); strings.Contains(text, token) || strings.Contains(text, "123456") {
			t.Errorf("%s: the error shows a secret: %s", tt.name, text)
		}
	}
	v.Before = nil
	t.Setenv("VAULT_TOKEN", "hvs.an0ther")
	if _, err := Open(t.Context(), "hashivault://ecdsa"); err == nil || !strings.Contains(err.Error(), "permission denied") {
		t.Errorf("Open with a wrong token = %v; want permission denied", err)
	}
}

// TestCheck: a service whose signatures are not its key's, or in another scheme,
// is found before anything is to be signed.
func TestCheck(t *testing.T) {
	a, b := keys(t), keys(t)
	v := vault(t, a)
	signer, err := Open(t.Context(), "hashivault://ecdsa")
	if err != nil {
		t.Fatal(err)
	}
	v.Keys = b
	if err := Check(signer); !errors.Is(err, attest.ErrSignature) {
		t.Errorf("Check of a key that was exchanged = %v; want ErrSignature", err)
	}
}

// TestCancel: a service that does not answer does not keep a user who leaves.
func TestCancel(t *testing.T) {
	v := vault(t, keys(t))
	ctx, cancel := context.WithCancel(t.Context())
	release := make(chan struct{})
	defer close(release)
	v.Before = func(http.ResponseWriter, *http.Request) bool {
		cancel()
		<-release
		return true
	}
	if _, err := Open(ctx, "hashivault://ecdsa"); !errors.Is(err, context.Canceled) {
		t.Errorf("Open = %v; want context.Canceled", err)
	}
}

func TestShown(t *testing.T) {
	for in, want := range map[string]string{
		"hashivault://ours":              "hashivault://ours",
		"pkcs11:token=x?pin-value=1234":  "pkcs11:token=x?[hidden]",
		"x://ada:pass@host/key":          "x://[hidden]@host/key",
		"awskms:///arn:aws:kms:eu:1:a/b": "awskms:///arn:aws:kms:eu:1:a/b",
	} {
		if got := shown(in); got != want {
			t.Errorf("shown(%q) = %q; want %q", in, got, want)
		}
	}
}
