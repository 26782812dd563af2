// Command release completes the files of a release: an install script, an SPDX document for each archive, from the
// modules that its programs were compiled from; provenance of all files; their checksums; and
// signatures, with a key. .ci/release calls it. The same files give the same output.
package main

import (
	"cmp"
	"crypto"
	"crypto/sha256"
	_ "embed"
	"encoding/hex"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/assay-hpc/assay/internal/attest"
)

// A release is a directory of files, and what they were built from.
type release struct {
	dir, version, commit, date string
	builder                    string // URI of the party that built it
	key                        crypto.Signer
}

// Names of the files that describe the others.
const (
	sums           = "SHA256SUMS"
	signature      = "SHA256SUMS.sig"
	provenanceFile = "provenance.json"
	envelope       = "provenance.dsse.json"
	sbomSuffix     = ".spdx.json"
)

func main() {
	r := release{builder: cmp.Or(os.Getenv("ASSAY_BUILDER_ID"), "https://github.com/assay-hpc/assay/release/local")}
	flag.StringVar(&r.dir, "dir", "", "the release's files are in this `directory`")
	flag.StringVar(&r.version, "version", "", "`version` of the release")
	flag.StringVar(&r.commit, "commit", "", "`hash` of the commit that it was built from")
	flag.StringVar(&r.date, "date", "", "`time` of that commit, RFC 3339")
	key := flag.String("key", "", "sign with the Ed25519 key in this PEM `file`")
	flag.Parse()
	if err := makeRelease(&r, *key); err != nil {
		fmt.Fprintln(os.Stderr, "release:", err)
		os.Exit(1)
	}
}

func makeRelease(r *release, key string) (err error) {
	if key != "" {
		if r.key, err = attest.LoadPrivateKey(key); err != nil {
			return err
		}
	}
	return r.describe()
}

// downloads is where a release's files are published, below its version.
const downloads = "https://github.com/assay-hpc/assay/releases/download/v"

//go:embed install.sh
var installer string

// describe writes the install script and all documents.
func (r *release) describe() error {
	script := strings.NewReplacer("@VERSION@", r.version, "@URL@", downloads+r.version).Replace(installer)
	if err := r.write("install.sh", []byte(script)); err != nil {
		return err
	}
	names, err := r.files()
	if err != nil {
		return err
	}
	archives := 0
	for _, name := range names {
		if strings.HasSuffix(name, ".tar.gz") {
			archives++
			if err := r.sbom(name); err != nil {
				return fmt.Errorf("%s: %w", name, err)
			}
		}
	}
	if archives == 0 {
		return fmt.Errorf("%s has no archive", r.dir)
	}
	if err := r.provenance(); err != nil {
		return err
	}
	return r.sums()
}

// files are the release's, without signatures and checksums.
func (r *release) files() ([]string, error) {
	entries, err := os.ReadDir(r.dir)
	if err != nil {
		return nil, err
	}
	var names []string
	for _, e := range entries {
		if e.Type().IsRegular() && !slices.Contains([]string{sums, signature}, e.Name()) {
			names = append(names, e.Name())
		}
	}
	return names, nil
}

// digest is a file's SHA-256 in hex.
func (r *release) digest(name string) (string, error) {
	b, err := os.ReadFile(filepath.Join(r.dir, name))
	if err != nil {
		return "", err
	}
	return digestOf(b), nil
}

func digestOf(b []byte) string {
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:])
}

func (r *release) write(name string, b []byte) error {
	return os.WriteFile(filepath.Join(r.dir, name), b, 0o644)
}

// sums writes the checksums of all files in sha256sum's format and, with a key, a signature of
// that list which openssl pkeyutl -verify -rawin verifies.
func (r *release) sums() error {
	names, err := r.files()
	if err != nil {
		return err
	}
	var b strings.Builder
	for _, name := range names {
		sum, err := r.digest(name)
		if err != nil {
			return err
		}
		fmt.Fprintf(&b, "%s  %s\n", sum, name)
	}
	if err := r.write(sums, []byte(b.String())); err != nil || r.key == nil {
		return err
	}
	signed, err := r.key.Sign(nil, []byte(b.String()), crypto.Hash(0)) // Ed25519 takes the message itself
	if err != nil {
		return fmt.Errorf("signing %s: %w; the key must be an Ed25519 key", sums, err)
	}
	return r.write(signature, signed)
}
