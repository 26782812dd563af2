package attest

import (
	"bytes"
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"errors"
	"fmt"
	"slices"

	"github.com/secure-systems-lab/go-securesystemslib/dsse"
)

// ErrSignature means that no signature of the envelope is by one of the given keys.
var ErrSignature = errors.New("the signature does not verify")

// Signature says what is known about the signer of a document.
type Signature string

const (
	Unsigned   Signature = "unsigned"
	Unchecked  Signature = "signed, not checked" // no keys were given
	Verified   Signature = "verified"
	Unverified Signature = "signed by another key"
)

// Sign signs a payload of any type and returns the DSSE envelope as JSON. Keys are Ed25519, ECDSA
// (over SHA-256) or RSA (PKCS #1 v1.5 over SHA-256), the same as in cosign.
func Sign(payloadType string, payload []byte, key crypto.Signer) ([]byte, error) {
	if err := usable(key.Public()); err != nil {
		return nil, err
	}
	es, err := dsse.NewEnvelopeSigner(signer{key})
	if err != nil {
		return nil, err
	}
	env, err := es.SignPayload(context.Background(), payloadType, payload)
	if err != nil {
		return nil, fmt.Errorf("sign: %w", err)
	}
	return Encode(env)
}

// MaxSignatures limits the signatures of one envelope: each is checked with each key.
const MaxSignatures = 100

// An Opened is a stored document that was taken out of its envelope.
type Opened struct {
	Payload   []byte
	Type      string // of the payload
	Signature Signature
	// KeyIDs are the given keys that verified a signature. If none did, they are the IDs that the
	// envelope claims.
	KeyIDs []string
}

// Open takes a document out of its envelope, if it is in one, and checks the signatures with the
// keys. A signature that does not verify is not an error here: the payload is still worth showing.
// Check [Opened.Signature], or use a [Policy].
func Open(doc []byte, keys ...crypto.PublicKey) (Opened, error) {
	if !IsEnvelope(doc) {
		return Opened{Payload: doc, Type: TypeStatement, Signature: Unsigned}, nil
	}
	var env dsse.Envelope
	if err := DecodeUnsigned(doc, 2*MaxSize, &env); err != nil { // base64 makes it longer
		return Opened{}, fmt.Errorf("envelope: %w", err)
	}
	if n := len(env.Signatures); n > MaxSignatures {
		return Opened{}, fmt.Errorf("envelope: it has %d signatures; at most %d are checked", n, MaxSignatures)
	}
	o := Opened{Type: env.PayloadType, Signature: Unsigned}
	var err error
	if o.Payload, err = env.DecodeB64Payload(); err != nil {
		return Opened{}, fmt.Errorf("envelope: %w", err)
	}
	if len(env.Signatures) == 0 {
		return o, nil
	}
	if len(keys) > 0 {
		if o.KeyIDs, err = signers(&env, keys); err != nil {
			return Opened{}, err
		}
		if len(o.KeyIDs) > 0 {
			o.Signature = Verified
			return o, nil
		}
	}
	o.Signature = Unchecked
	if len(keys) > 0 {
		o.Signature = Unverified
	}
	for _, s := range env.Signatures {
		o.KeyIDs = append(o.KeyIDs, s.KeyID)
	}
	return o, nil
}

// signers returns the IDs of the keys that verify a signature of the envelope.
//
// The key IDs in the envelope are only hints: they are not signed, and programs compute them
// differently. They are removed, so that every key is tried.
func signers(env *dsse.Envelope, keys []crypto.PublicKey) (ids []string, err error) {
	plain := *env
	plain.Signatures = nil
	for _, s := range env.Signatures {
		plain.Signatures = append(plain.Signatures, dsse.Signature{Sig: s.Sig})
	}
	for _, k := range keys {
		if err := usable(k); err != nil {
			return nil, err
		}
		ev, err := dsse.NewEnvelopeVerifier(verifier{k})
		if err != nil {
			return nil, err
		}
		if _, err := ev.Verify(context.Background(), &plain); err != nil {
			continue
		}
		id, err := keyID(k)
		if err != nil {
			return nil, err
		}
		if !slices.Contains(ids, id) {
			ids = append(ids, id)
		}
	}
	return ids, nil
}

// OpenVerified is [Open] for documents that must be signed by one of the keys.
func OpenVerified(envelope []byte, keys ...crypto.PublicKey) (Opened, error) {
	if len(keys) == 0 {
		return Opened{}, errors.New("no key was given to verify with")
	}
	o, err := Open(envelope, keys...)
	if err != nil {
		return Opened{}, err
	}
	switch o.Signature {
	case Verified:
		return o, nil
	case Unsigned:
		return Opened{}, fmt.Errorf("%w: it is not signed", ErrSignature)
	}
	return Opened{}, fmt.Errorf("%w with any of the %d given keys", ErrSignature, len(keys))
}

// IsEnvelope reports whether a document is an envelope, not a bare statement. It does not check
// that the document is well-formed.
func IsEnvelope(doc []byte) bool {
	const name = "payloadType"
	if !bytes.Contains(doc, []byte(name)) && !bytes.Contains(doc, []byte(`\u`)) {
		return false // spared reading all of it
	}
	var probe struct {
		PayloadType *string `json:"payloadType"`
	}
	return DecodeUnsigned(doc, len(doc), &probe) == nil && probe.PayloadType != nil
}

// MediaType returns the media type of a stored document.
func MediaType(doc []byte) string {
	if IsEnvelope(doc) {
		return TypeEnvelope
	}
	return TypeStatement
}

func usable(pub crypto.PublicKey) error {
	switch k := pub.(type) {
	case ed25519.PublicKey:
		if len(k) != ed25519.PublicKeySize {
			return fmt.Errorf("an Ed25519 key has %d bytes, not %d", ed25519.PublicKeySize, len(k))
		}
		return nil
	case *ecdsa.PublicKey:
		if k == nil || k.Curve == nil {
			return errors.New("the ECDSA key is empty")
		}
		return nil
	case *rsa.PublicKey:
		if k == nil || k.N == nil {
			return errors.New("the RSA key is empty")
		}
		if k.N.BitLen() < 2048 {
			return fmt.Errorf("an RSA key of %d bits is too weak; 2048 are the least", k.N.BitLen())
		}
		return nil
	}
	return fmt.Errorf("keys of type %T are not supported: use Ed25519, ECDSA or RSA", pub)
}

// signer adapts a crypto.Signer to package dsse.
type signer struct{ key crypto.Signer }

func (s signer) Sign(_ context.Context, data []byte) ([]byte, error) {
	if _, ok := s.key.Public().(ed25519.PublicKey); ok {
		return s.key.Sign(rand.Reader, data, crypto.Hash(0))
	}
	sum := sha256.Sum256(data)
	return s.key.Sign(rand.Reader, sum[:], crypto.SHA256)
}

func (s signer) KeyID() (string, error) { return keyID(s.key.Public()) }

type verifier struct{ key crypto.PublicKey }

func (v verifier) Verify(_ context.Context, data, sig []byte) error {
	sum := sha256.Sum256(data)
	ok := false
	switch k := v.key.(type) {
	case ed25519.PublicKey:
		ok = ed25519.Verify(k, data, sig)
	case *ecdsa.PublicKey:
		ok = ecdsa.VerifyASN1(k, sum[:], sig)
	case *rsa.PublicKey:
		ok = rsa.VerifyPKCS1v15(k, crypto.SHA256, sum[:], sig) == nil
	}
	if !ok {
		return ErrSignature
	}
	return nil
}

func (v verifier) KeyID() (string, error)   { return "", nil }
func (v verifier) Public() crypto.PublicKey { return v.key }

// keyID names a public key as ssh-keygen -l does: "SHA256:…".
func keyID(pub crypto.PublicKey) (string, error) { return dsse.SHA256KeyID(pub) }
