package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/ed25519"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"os"
	"path/filepath"
	"strings"
	"testing"

	spdxjson "github.com/spdx/tools-golang/json"

	"github.com/assay-hpc/assay/internal/attest"
)

// files makes a release's directory: an archive with this test's own program, and a script.
func files(t *testing.T) *release {
	t.Helper()
	dir := t.TempDir()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	program, err := os.ReadFile(self)
	if err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	w := tar.NewWriter(z)
	for name, content := range map[string][]byte{"x/harness": program, "x/LICENSE": []byte("free")} {
		if err := w.WriteHeader(&tar.Header{Name: name, Mode: 0o755, Size: int64(len(content))}); err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write(content); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "harness_1.0_linux_amd64.tar.gz"), b.Bytes(), 0o644); err != nil {
		t.Fatal(err)
	}
	return &release{dir: dir, version: "1.0", commit: strings.Repeat("ab", 20), date: "2026-11-25T10:00:00+01:00", builder: "https://example.org/builder"}
}

func read(t *testing.T, r *release, name string) []byte {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(r.dir, name))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// TestDescribe: the documents name all files, and the key's signatures verify.
func TestDescribe(t *testing.T) {
	r := files(t)
	public, private, err := ed25519.GenerateKey(nil)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	key := filepath.Join(t.TempDir(), "key.pem")
	if err := os.WriteFile(key, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := makeRelease(r, key); err != nil {
		t.Fatal(err)
	}

	list := read(t, r, sums)
	if !ed25519.Verify(public, list, read(t, r, signature)) {
		t.Error("the signature of the checksums does not verify")
	}
	for _, name := range []string{"harness_1.0_linux_amd64.tar.gz", "harness_1.0_linux_amd64.spdx.json", "install.sh", provenanceFile, envelope} {
		if !strings.Contains(string(list), digestOf(read(t, r, name))+"  "+name+"\n") {
			t.Errorf("%s does not have the checksum of %s:\n%s", sums, name, list)
		}
	}

	if script := string(read(t, r, "install.sh")); !strings.Contains(script, "version=1.0\n") || strings.Contains(script, "@URL@") {
		t.Errorf("the install script is not of the version:\n%s", script)
	}
	opened, err := attest.OpenVerified(read(t, r, envelope), public)
	if err != nil {
		t.Fatal(err)
	}
	st, err := attest.Parse(opened.Payload)
	if err != nil {
		t.Fatal(err)
	}
	if len(st.Subject) != 3 || !strings.Contains(string(st.Predicate), r.commit) || !strings.Contains(string(st.Predicate), r.builder) {
		t.Errorf("provenance: %+v, %s", st.Subject, st.Predicate)
	}

	doc, err := spdxjson.Read(bytes.NewReader(read(t, r, "harness_1.0_linux_amd64.spdx.json")))
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]bool{}
	for _, p := range doc.Packages {
		found[p.PackageName] = true
	}
	for _, name := range []string{"harness_1.0_linux_amd64", "harness", "stdlib"} {
		if !found[name] {
			t.Errorf("the SBOM has no %s: %v", name, found)
		}
	}
}

// TestSame: the same files give the same documents, and they are not described again.
func TestSame(t *testing.T) {
	r := files(t)
	if err := makeRelease(r, ""); err != nil {
		t.Fatal(err)
	}
	was := read(t, r, sums)
	for _, name := range []string{sums, provenanceFile, "harness_1.0_linux_amd64.spdx.json"} {
		if err := os.Remove(filepath.Join(r.dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	if err := makeRelease(r, ""); err != nil || !bytes.Equal(was, read(t, r, sums)) {
		t.Errorf("%v\n%s\nwant\n%s", err, read(t, r, sums), was)
	}
	var st map[string]any
	if err := json.Unmarshal(read(t, r, provenanceFile), &st); err != nil {
		t.Error(err)
	}
}

// TestErrors: an archive without a program, and an empty directory.
func TestErrors(t *testing.T) {
	r := files(t)
	if err := os.WriteFile(filepath.Join(r.dir, "bad.tar.gz"), []byte("no archive"), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := makeRelease(r, ""); err == nil || !strings.Contains(err.Error(), "bad.tar.gz: ") {
		t.Errorf("an archive that is none: %v", err)
	}
	r.dir = t.TempDir()
	if err := makeRelease(r, ""); err == nil || !strings.Contains(err.Error(), "has no archive") {
		t.Errorf("an empty directory: %v", err)
	}
	if err := makeRelease(r, "missing.pem"); err == nil {
		t.Error("a key that does not exist")
	}
}
