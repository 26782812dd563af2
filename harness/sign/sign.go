// Package sign signs certificates with a key in a file, in a key management service, or behind a
// plugin program of sigstore's. Package certificate defines the envelope; this package finds the
// key.
//
// A key is named by a reference: the path of a PEM file, or SCHEME://REST. hashivault:// and
// openbao:// are the transit engines of HashiCorp Vault and OpenBao, and are built in. Every
// other scheme is served by the program sigstore-kms-SCHEME on PATH, which keeps the clouds'
// large libraries out of the images.
package sign

import (
	"bytes"
	"context"
	"crypto"
	"crypto/ed25519"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/sigstore/sigstore/pkg/signature"
	"github.com/sigstore/sigstore/pkg/signature/kms"
	"github.com/sigstore/sigstore/pkg/signature/kms/cliplugin"
	_ "github.com/sigstore/sigstore/pkg/signature/kms/hashivault" // registers hashivault:// and openbao://
	"github.com/sigstore/sigstore/pkg/signature/options"

	"github.com/assay-hpc/assay/internal/attest"
)

// Timeout is the time limit for one answer of a service or a plugin.
const Timeout = time.Minute

// IsReference reports whether a key is named by a service's reference instead of a file's path.
func IsReference(key string) bool { return strings.Contains(key, "://") }

// Open returns the signing key that a path or reference names. Its requests to the service use
// ctx; [With] replaces that.
func Open(ctx context.Context, key string) (crypto.Signer, error) {
	if !IsReference(key) {
		return attest.LoadPrivateKey(key)
	}
	return open(ctx, key)
}

// With returns a copy of a key from Open with requests that use another context.
func With(ctx context.Context, key crypto.Signer) crypto.Signer {
	k, ok := key.(*remoteKey)
	if !ok {
		return key
	}
	again := *k
	again.ctx = ctx
	return &again
}

// Public returns the public key that a path or reference names.
func Public(ctx context.Context, key string) (crypto.PublicKey, error) {
	if !IsReference(key) {
		return attest.LoadPublicKey(key)
	}
	s, err := open(ctx, key)
	if err != nil {
		return nil, err
	}
	return s.public, nil
}

// probeType is not a type of statement, so that the signature of a probe cannot pass for that of
// a certificate.
const probeType = "text/plain; assay=probe"

// Check reports whether a key can sign, and whether its signatures can be verified: a service's
// key may be for another algorithm than the envelope's.
func Check(key crypto.Signer) error {
	envelope, err := attest.Sign(probeType, []byte("Can this key sign?\n"), key)
	if err != nil {
		return err
	}
	if _, err := attest.OpenVerified(envelope, key.Public()); err != nil {
		return fmt.Errorf("the key does not verify what it signed: it must be Ed25519, ECDSA over SHA-256, or RSA PKCS #1 v1.5 over SHA-256: %w", err)
	}
	return nil
}

// A remoteKey is a crypto.Signer with its private key in a service.
type remoteKey struct {
	ctx    context.Context // crypto.Signer's methods do not have one
	ref    string
	public crypto.PublicKey
	kms    kms.SignerVerifier
}

func open(ctx context.Context, ref string) (*remoteKey, error) {
	k := &remoteKey{ctx: ctx, ref: ref}
	err := k.call(func(ctx context.Context) (err error) {
		if k.kms, err = kms.Get(ctx, ref, crypto.SHA256); err != nil {
			return err
		}
		if k.public, err = k.kms.PublicKey(options.WithContext(ctx)); err != nil {
			return err
		}
		if _, ok := k.public.(ed25519.PublicKey); ok { // signs the message instead of its digest
			k.kms, err = kms.Get(ctx, ref, 0)
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	return k, nil
}

// Public implements crypto.Signer.
func (k *remoteKey) Public() crypto.PublicKey { return k.public }

// Sign implements crypto.Signer.
func (k *remoteKey) Sign(_ io.Reader, digest []byte, opts crypto.SignerOpts) (sig []byte, err error) {
	err = k.call(func(ctx context.Context) (err error) {
		o := []signature.SignOption{options.WithContext(ctx), options.WithCryptoSignerOpts(opts)}
		message := bytes.NewReader(digest)
		if opts.HashFunc() != 0 {
			message = bytes.NewReader(nil)
			o = append(o, options.WithDigest(digest))
		}
		sig, err = k.kms.SignMessage(message, o...)
		return err
	})
	return sig, err
}

// call sends a request to the service. Not every provider respects the context, so late answers
// are dropped.
func (k *remoteKey) call(f func(context.Context) error) error {
	ctx, cancel := context.WithTimeoutCause(k.ctx, Timeout, fmt.Errorf("no answer within %v", Timeout))
	defer cancel()
	done := make(chan error, 1)
	go func() {
		// The library does not notice if a plugin's answer is empty, and panics.
		defer func() {
			if p := recover(); p != nil {
				done <- errors.New("the answer lacks what was asked for")
			}
		}()
		done <- f(ctx)
	}()
	var err error
	select {
	case err = <-done:
		if err != nil && ctx.Err() != nil {
			err = context.Cause(ctx)
		}
	case <-ctx.Done():
		err = context.Cause(ctx)
	}
	if err != nil {
		return k.fault(err)
	}
	return nil
}

// fault describes an error. If no provider serves the scheme, it names the program that does.
func (k *remoteKey) fault(err error) error {
	var none *kms.ProviderNotFoundError
	switch {
	case errors.As(err, &none):
		return noProgram(k.ref)
	case errors.Is(err, context.Canceled):
		return fmt.Errorf("key %s: %w", shown(k.ref), err)
	}
	return fmt.Errorf("key %s: %s", shown(k.ref), scrub(err.Error())) // not wrapped: a cause's text may contain a token
}

// noProgram names the program that a reference needs.
func noProgram(ref string) error {
	scheme, _, _ := strings.Cut(ref, "://")
	program := cliplugin.PluginBinaryPrefix + scheme
	remedy := "put it there"
	if slices.Contains([]string{"awskms", "gcpkms", "azurekms"}, scheme) {
		remedy = "make kms builds it from assay's source"
	}
	return fmt.Errorf("key %s: %s:// is served by the program %s, which is not on PATH: %s (built in are hashivault:// and openbao://)", shown(ref), scheme, program, remedy)
}
