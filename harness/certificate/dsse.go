package certificate

import (
	"bytes"
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/secure-systems-lab/go-securesystemslib/dsse"
)

// ErrSignature says that no given key made a signature of the envelope.
var ErrSignature = errors.New("the signature does not verify")

// SignDSSE signs a payload of any type and returns the envelope as JSON. Keys
// are Ed25519, ECDSA (over SHA-256) or RSA (PKCS #1 v1.5 over SHA-256), which
// are cosign's choices too.
func SignDSSE(payloadType string, payload []byte, key crypto.Signer) ([]byte, error) {
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
	return canonical(env)
}

// VerifyDSSE returns an envelope's payload if one of the keys signed it. It
// accepts only the bytes that SignDSSE writes for an envelope of that content,
// so that no byte of it can be changed unnoticed.
func VerifyDSSE(envelope []byte, keys ...crypto.PublicKey) (payload []byte, payloadType string, err error) {
	env, err := parseEnvelope(envelope)
	if err != nil {
		return nil, "", err
	}
	var vs []dsse.Verifier
	for _, k := range keys {
		if err := usable(k); err != nil {
			return nil, "", err
		}
		vs = append(vs, verifier{k})
	}
	ev, err := dsse.NewEnvelopeVerifier(vs...)
	if err != nil {
		return nil, "", errors.New("no key was given to verify with")
	}
	_, payload, err = ev.VerifyAndDecode(context.Background(), env)
	if err != nil {
		return nil, "", fmt.Errorf("%w with any of the %d given keys (%v)", ErrSignature, len(keys), err)
	}
	return payload, env.PayloadType, nil
}

// OpenUnverified returns the statement in an envelope and the ids of the keys
// that it says signed it. Nobody has verified that: it is for showing only.
func OpenUnverified(envelope []byte) (s *Statement, keyIDs []string, err error) {
	env, err := parseEnvelope(envelope)
	if err != nil {
		return nil, nil, err
	}
	if env.PayloadType != PayloadType {
		return nil, nil, fmt.Errorf("the envelope holds %q; want %q", env.PayloadType, PayloadType)
	}
	body, err := env.DecodeB64Payload()
	if err != nil {
		return nil, nil, fmt.Errorf("envelope: %w", err)
	}
	for _, sig := range env.Signatures {
		keyIDs = append(keyIDs, sig.KeyID)
	}
	s, err = Parse(body)
	return s, keyIDs, err
}

func parseEnvelope(b []byte) (*dsse.Envelope, error) {
	if len(b) > 2*MaxSize { // base64 makes it longer
		return nil, fmt.Errorf("envelope: %d bytes are too many", len(b))
	}
	var env dsse.Envelope
	if err := json.Unmarshal(b, &env); err != nil {
		return nil, fmt.Errorf("envelope: %w", err)
	}
	body, err := env.DecodeB64Payload()
	if err != nil {
		return nil, fmt.Errorf("envelope: %w", err)
	}
	again := env
	again.Payload = encode64(body) // base64 has several spellings of one content
	again.Signatures = nil
	for _, s := range env.Signatures {
		sig, err := base64.StdEncoding.DecodeString(s.Sig)
		if err != nil {
			return nil, fmt.Errorf("envelope: %w", err)
		}
		again.Signatures = append(again.Signatures, dsse.Signature{KeyID: s.KeyID, Sig: encode64(sig)})
	}
	want, err := canonical(again)
	if err != nil || !bytes.Equal(b, want) {
		return nil, fmt.Errorf("envelope: %w", errCanonical)
	}
	return &env, nil
}

// Sign returns the statement in a signed envelope.
func (s *Statement) Sign(key crypto.Signer) ([]byte, error) {
	b, err := s.Marshal()
	if err != nil {
		return nil, err
	}
	return SignDSSE(PayloadType, b, key)
}

// VerifySignature returns the statement in an envelope that one of the keys
// signed.
func VerifySignature(envelope []byte, keys ...crypto.PublicKey) (*Statement, error) {
	b, typ, err := VerifyDSSE(envelope, keys...)
	if err != nil {
		return nil, err
	}
	if typ != PayloadType {
		return nil, fmt.Errorf("the envelope holds %q; want %q", typ, PayloadType)
	}
	return Parse(b)
}

func usable(pub crypto.PublicKey) error {
	switch k := pub.(type) {
	case ed25519.PublicKey, *ecdsa.PublicKey:
		return nil
	case *rsa.PublicKey:
		if k.N.BitLen() < 2048 {
			return fmt.Errorf("an RSA key of %d bits is too weak; 2048 are the least", k.N.BitLen())
		}
		return nil
	}
	return fmt.Errorf("keys of type %T are not supported: use Ed25519, ECDSA or RSA", pub)
}

// signer makes a crypto.Signer what package dsse wants.
type signer struct{ key crypto.Signer }

func (s signer) Sign(_ context.Context, data []byte) ([]byte, error) {
	if _, ok := s.key.Public().(ed25519.PublicKey); ok {
		return s.key.Sign(rand.Reader, data, crypto.Hash(0))
	}
	sum := sha256.Sum256(data)
	return s.key.Sign(rand.Reader, sum[:], crypto.SHA256)
}

func (s signer) KeyID() (string, error) { return KeyID(s.key.Public()) }

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

func (v verifier) KeyID() (string, error)   { return KeyID(v.key) }
func (v verifier) Public() crypto.PublicKey { return v.key }

// KeyID names a public key as ssh-keygen -l does: "SHA256:…".
func KeyID(pub crypto.PublicKey) (string, error) { return dsse.SHA256KeyID(pub) }
