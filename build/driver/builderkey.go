package driver

import (
	"crypto"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"github.com/assay-hpc/assay/build/state"
	"github.com/assay-hpc/assay/internal/attest"
)

// A record in an output layout is believed only if a builder signed it that this one trusts: a
// layout can come from anywhere, and what it says of itself would otherwise get tags, and the
// signature of the key that publishes. The builder's key is not the key that signs images. It says
// "this was built and certified here", and lies beside the builder's own state.

// builderKeyFile is the name of the builder's own key in the state directory.
const builderKeyFile = "builder.key"

// recordType is the DSSE payload type of records.
const recordType = "application/vnd.assay.build-record+json"

// builderKey returns the key with which this builder signs its records: the given one, or else its
// own, which it makes when it is first needed.
func (w *Workspace) builderKey(given crypto.Signer) (crypto.Signer, error) {
	if given != nil {
		return given, nil
	}
	file := filepath.Join(w.StateDir, builderKeyFile)
	key, err := attest.LoadPrivateKey(file)
	if !errors.Is(err, fs.ErrNotExist) {
		return key, err
	}
	if err := makeKey(file); err != nil {
		return nil, fmt.Errorf("make the builder's key: %w", err)
	}
	return attest.LoadPrivateKey(file)
}

// makeKey creates a key file, unless another process was first.
func makeKey(file string) error {
	_, key, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		return err
	}
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		return err
	}
	tmp, err := state.CreatePart(filepath.Dir(file))
	if err != nil {
		return err
	}
	defer os.Remove(tmp.Name())
	defer tmp.Close()
	if err := errors.Join(tmp.Chmod(0o600), pem.Encode(tmp, &pem.Block{Type: "PRIVATE KEY", Bytes: der}), tmp.Sync()); err != nil {
		return err
	}
	if err := os.Link(tmp.Name(), file); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	return nil
}

// trustedBuilders returns the keys whose records count.
func (b *build) trustedBuilders() ([]crypto.PublicKey, error) {
	own, keys := b.o.BuilderKey, b.o.TrustBuilders
	if own == nil {
		var err error
		own, err = attest.LoadPrivateKey(filepath.Join(b.StateDir, builderKeyFile))
		if errors.Is(err, fs.ErrNotExist) {
			return keys, nil // nothing was built here yet
		}
		if err != nil {
			return nil, err
		}
	}
	return append(slices.Clone(keys), own.Public()), nil
}
