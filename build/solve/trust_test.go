package solve

import (
	"archive/zip"
	"bytes"
	"encoding/base64"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ProtonMail/go-crypto/openpgp"
	"github.com/ProtonMail/go-crypto/openpgp/armor"
	"golang.org/x/mod/sumdb"
	"golang.org/x/mod/sumdb/dirhash"
	"golang.org/x/mod/sumdb/note"

	"github.com/assay-hpc/assay/build/component"
	"github.com/assay-hpc/assay/build/fetch"
	"github.com/assay-hpc/assay/build/lock"
	"github.com/assay-hpc/assay/build/mirror"
)

// newKey returns a keyring with one key, and its fingerprint.
func newKey(t *testing.T) (keyring []byte, fingerprint string) {
	t.Helper()
	e, err := openpgp.NewEntity("publisher", "", "publisher@example.org", nil)
	if err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	if err := e.Serialize(&b); err != nil {
		t.Fatal(err)
	}
	return b.Bytes(), fmt.Sprintf("%X", e.PrimaryKey.Fingerprint)
}

func armored(t *testing.T, keyring []byte) []byte {
	t.Helper()
	var b bytes.Buffer
	w, err := armor.Encode(&b, openpgp.PublicKeyType, nil)
	if err != nil {
		t.Fatal(err)
	}
	w.Write(keyring)
	w.Close()
	return b.Bytes()
}

func TestFingerprints(t *testing.T) {
	a, fa := newKey(t)
	b, fb := newKey(t)
	for name, in := range map[string][]byte{"binary": append(bytes.Clone(a), b...), "armored": armored(t, append(bytes.Clone(a), b...))} {
		if got, err := fingerprints(in); err != nil || strings.Join(got, " ") != fa+" "+fb {
			t.Errorf("%s: Fingerprints = %v, %v; want %s and %s", name, got, err, fa, fb)
		}
	}
	// A key of a version that the reader does not know, which it leaves out.
	unknown := bytes.Clone(b)
	i := bytes.IndexByte(unknown, 4) // the version, behind tag and length
	unknown[i] = 5
	if got, err := fingerprints(append(bytes.Clone(a), unknown...)); err == nil {
		t.Errorf("Fingerprints of a key that can be read and one that cannot = %v; want an error", got)
	}
	if got, err := fingerprints(slices.Concat(armored(t, a), []byte("\n"), armored(t, b))); err == nil {
		t.Errorf("Fingerprints of two armored blocks = %v; want an error", got)
	}
	for _, in := range []string{"", "<html>", "-----BEGIN PGP PUBLIC KEY BLOCK-----\n"} {
		if got, err := fingerprints([]byte(in)); err == nil {
			t.Errorf("Fingerprints(%q) = %v; want an error", in, got)
		}
	}
}

// TestCheckTrust: a pinned publisher's repository is believed with its keys
// alone, however its source is written.
func TestCheckTrust(t *testing.T) {
	good, fingerprint := newKey(t)
	other, otherFingerprint := newKey(t)
	p := &Provider{Publishers: []component.Publisher{{URL: "https://packages.example.org/repos/", Keys: []string{fingerprint}}}}
	const list, key = "/etc/apt/sources.list.d/x.list", "/usr/share/keyrings/x.gpg"
	for _, tt := range []struct {
		name    string
		file    string
		source  string
		keyring []byte
		want    string // error, "" for none
	}{
		{"its key", list, "deb [signed-by=/usr/share/keyrings/x.gpg] https://packages.example.org/repos/a/ /\n", good, ""},
		{"its key, armored", list, "deb [arch=amd64 signed-by=/usr/share/keyrings/x.gpg] https://packages.example.org/repos/a/ ./\n", armored(t, good), ""},
		{"another's repository", list, "deb https://other.example.org/repos/a/ ./\n", other, ""},
		{"a remark", list, "# deb https://packages.example.org/repos/a/ ./\n", other, ""},
		{"another key", list, "deb [signed-by=/usr/share/keyrings/x.gpg] https://packages.example.org/repos/a/ ./\n", other, "it holds the key " + otherFingerprint},
		{"one key more", list, "deb [signed-by=/usr/share/keyrings/x.gpg] https://packages.example.org/repos/a/ ./\n", append(bytes.Clone(good), other...), "it holds the key " + otherFingerprint},
		{"a file that is no keyring", list, "deb [signed-by=/usr/share/keyrings/x.gpg] https://packages.example.org/repos/a/ ./\n", []byte("<html>"), "not a keyring of OpenPGP"},
		{"any key", list, "deb https://packages.example.org/repos/a/ ./\n", good, "no keyring is set for it"},
		{"a keyring that is not there", list, "deb [signed-by=/tmp/x.gpg] https://packages.example.org/repos/a/ ./\n", good, "no keyring is set for it"},
		{"a second source", list, "deb [signed-by=/usr/share/keyrings/x.gpg] https://packages.example.org/repos/a/ ./\ndeb\thttps://packages.example.org/repos/b/ ./\n", good, "/repos/b/: no keyring"},
		{"two keyrings", list, "deb [signed-by=/usr/share/keyrings/x.gpg signed-by=/tmp/y] https://packages.example.org/repos/a/ ./\n", good, "no keyring is set for it"},
		{"no signature", list, "deb [ signed-by=/usr/share/keyrings/x.gpg trusted=yes ] https://packages.example.org/repos/a/ ./\n", good, "no keyring is set for it"},
		{"stanza", "/etc/apt/sources.list.d/x.sources", "# NVIDIA\nTypes: deb\nURIs: https://other.example.org/ https://packages.example.org/repos/a/\nSuites: /\nSigned-By: /usr/share/keyrings/x.gpg\n", good, ""},
		{"stanza, continued", "/etc/apt/sources.list.d/x.sources", "Types: deb\nURIs:\n https://packages.example.org/repos/a/\nSuites: /\nSigned-By:\n /usr/share/keyrings/x.gpg\n", other, "it holds the key " + otherFingerprint},
		{"stanza, any key", "/etc/apt/sources.list.d/x.sources", "Types: deb\nURIs: https://other.example.org/\nSigned-By: /usr/share/keyrings/x.gpg\n\nTypes: deb\nuris: https://packages.example.org/repos/a/\nSuites: /\n", good, "no keyring is set for it"},
		{"stanza, no signature", "/etc/apt/sources.list.d/x.sources", "Types: deb\nTrusted: yes\nURIs: https://packages.example.org/repos/a/\nSigned-By: /usr/share/keyrings/x.gpg\n", good, "no keyring is set for it"},
	} {
		encode := base64.StdEncoding.EncodeToString
		text := "/etc/apt/sources.list \n" + tt.file + " " + encode([]byte(tt.source)) + "\n" + key + " " + encode(tt.keyring) + "\n"
		err := p.checkTrust(text)
		if tt.want == "" && err != nil || tt.want != "" && (err == nil || !strings.Contains(err.Error(), tt.want)) {
			t.Errorf("%s: checkTrust = %v; want %q", tt.name, err, tt.want)
		}
	}
}

// TestPublishers: the keys that are pinned have the form that keyrings are
// compared in.
func TestPublishers(t *testing.T) {
	for _, p := range component.Publishers {
		for _, k := range p.Keys {
			if len(k) != 40 || strings.Trim(k, "0123456789ABCDEF") != "" {
				t.Errorf("%s: %q is not 40 hex digits in upper case", p.URL, k)
			}
		}
	}
}

// toolchainZip writes an archive as the go command fetches toolchains.
func toolchainZip(t *testing.T, content string) []byte {
	t.Helper()
	var b bytes.Buffer
	w := zip.NewWriter(&b)
	f, err := w.Create("golang.org/toolchain@v0.0.1-go1.2.linux-amd64/bin/go")
	if err == nil {
		_, err = f.Write([]byte(content))
	}
	if err := errors.Join(err, w.Close()); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// TestToolchain: what a proxy serves as the Go toolchain is held against Go's
// checksum database, which that proxy, or the database itself, serves.
func TestToolchain(t *testing.T) {
	const version = "v0.0.1-go1.2.linux-amd64"
	good, bad := toolchainZip(t, "good"), toolchainZip(t, "evil")
	file := filepath.Join(t.TempDir(), "good.zip")
	if err := os.WriteFile(file, good, 0o644); err != nil {
		t.Fatal(err)
	}
	hash, err := dirhash.HashZip(file, dirhash.Hash1)
	if err != nil {
		t.Fatal(err)
	}
	record := func(path, v string) ([]byte, error) {
		if path != toolchainModule || v != version {
			return nil, fs.ErrNotExist
		}
		return fmt.Appendf(nil, "%s %s %s\n", path, v, hash), nil
	}
	signer, key, err := note.GenerateKey(nil, sumName)
	if err != nil {
		t.Fatal(err)
	}
	forger, _, err := note.GenerateKey(nil, sumName)
	if err != nil {
		t.Fatal(err)
	}
	database := func(signer string) http.Handler { return sumdb.NewServer(sumdb.NewTestServer(signer, record)) }
	for _, tt := range []struct {
		name           string
		zip            []byte
		through, there http.Handler // the database at the proxy, and itself
		want           string
	}{
		{"through the proxy", good, database(signer), nil, ""},
		{"the database itself", good, nil, database(signer), ""},
		{"another archive", bad, database(signer), nil, "; Go's checksum database has: golang.org/toolchain " + version + " " + hash},
		{"another archive, without the proxy", bad, nil, database(signer), "; Go's checksum database has: "},
		{"a database that the proxy made up", bad, database(forger), database(signer), "could not be asked"},
		{"no database", good, nil, nil, "has to serve the database too, at /sumdb/sum.golang.org"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			mux := http.NewServeMux()
			mux.HandleFunc("/go/golang.org/toolchain/@v/", func(w http.ResponseWriter, _ *http.Request) { w.Write(tt.zip) })
			if tt.through != nil {
				mux.HandleFunc("/go/sumdb/sum.golang.org/supported", func(http.ResponseWriter, *http.Request) {})
				mux.Handle("/go/sumdb/sum.golang.org/", http.StripPrefix("/go/sumdb/sum.golang.org", tt.through))
			}
			if tt.there != nil {
				mux.Handle("/sum/", http.StripPrefix("/sum", tt.there))
			}
			srv := httptest.NewServer(mux)
			defer srv.Close()
			p := &Provider{
				Mirror: mirror.New(mirror.Rule{From: "goproxy:", To: srv.URL + "/go"}, mirror.Rule{From: "https://sum.golang.org", To: srv.URL + "/sum"}),
				Lock:   lock.New(), StateDir: t.TempDir(), Limits: fetch.Limits{Total: time.Minute}, sumKey: key,
			}
			if err := p.Open(); err != nil {
				t.Fatal(err)
			}
			defer p.Close()
			_, _, err := p.Sum(t.Context(), "goproxy:golang.org/toolchain/@v/"+version+".zip")
			if tt.want == "" && err != nil || tt.want != "" && (err == nil || !strings.Contains(err.Error(), tt.want)) {
				t.Errorf("Sum = %v; want %q", err, tt.want)
			}
			if err != nil {
				if left, _ := filepath.Glob(p.cache.Dir + "/*"); len(left) > 0 {
					t.Errorf("what was refused is in the cache: %v", left)
				}
			}
		})
	}
}

// TestToolchainForReal asks the real database about the toolchain that the
// harness is compiled with, where this machine's module proxy can be reached.
func TestToolchainForReal(t *testing.T) {
	if testing.Short() {
		t.Skip("-short: it asks a server")
	}
	p := &Provider{Mirror: mirror.New(), Lock: lock.New(), StateDir: t.TempDir(), Limits: fetch.Limits{Total: 30 * time.Second}}
	if err := p.Open(); err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	if _, err := p.Mirror.URL("goproxy:"); err != nil {
		t.Skip(err)
	}
	file := filepath.Join(t.TempDir(), "evil.zip")
	if err := os.WriteFile(file, toolchainZip(t, "evil"), 0o644); err != nil {
		t.Fatal(err)
	}
	err := p.checkToolchain(t.Context(), "v0.0.1-go1.24.0.linux-amd64", file)
	if err != nil && strings.Contains(err.Error(), "could not be asked") {
		t.Skip(err)
	}
	if err == nil || !strings.Contains(err.Error(), "checksum database has: golang.org/toolchain v0.0.1-go1.24.0.linux-amd64 h1:") {
		t.Errorf("checkToolchain of another archive = %v; want the database's record", err)
	}
}
