package attest

import (
	"crypto"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"

	"github.com/assay-hpc/assay/internal/infile"
)

// LoadPrivateKey reads a signing key from a PEM file: PKCS #8, or the older
// forms that openssl writes for EC and RSA keys.
func LoadPrivateKey(path string) (crypto.Signer, error) {
	block, err := readPEM(path)
	if err != nil {
		return nil, err
	}
	var key any
	switch block.Type {
	case "PRIVATE KEY":
		key, err = x509.ParsePKCS8PrivateKey(block.Bytes)
	case "EC PRIVATE KEY":
		key, err = x509.ParseECPrivateKey(block.Bytes)
	case "RSA PRIVATE KEY":
		key, err = x509.ParsePKCS1PrivateKey(block.Bytes)
	default:
		err = fmt.Errorf("it holds a %q; want an unencrypted PRIVATE KEY (openssl genpkey -algorithm ed25519)", block.Type)
	}
	if err != nil {
		return nil, fmt.Errorf("signing key %s: %w", path, err)
	}
	s, ok := key.(crypto.Signer)
	if !ok {
		return nil, fmt.Errorf("signing key %s: keys of type %T cannot sign", path, key)
	}
	if err := usable(s.Public()); err != nil {
		return nil, fmt.Errorf("signing key %s: %w", path, err)
	}
	return s, nil
}

// LoadPublicKey reads a key from a PEM file: a public key, a certificate, or a
// private key, of which it returns the public half.
func LoadPublicKey(path string) (crypto.PublicKey, error) {
	block, err := readPEM(path)
	if err != nil {
		return nil, err
	}
	var pub crypto.PublicKey
	switch block.Type {
	case "PUBLIC KEY":
		pub, err = x509.ParsePKIXPublicKey(block.Bytes)
	case "RSA PUBLIC KEY":
		pub, err = x509.ParsePKCS1PublicKey(block.Bytes)
	case "CERTIFICATE":
		var c *x509.Certificate
		if c, err = x509.ParseCertificate(block.Bytes); err == nil {
			pub = c.PublicKey
		}
	default:
		s, err := LoadPrivateKey(path)
		if err != nil {
			return nil, err
		}
		return s.Public(), nil
	}
	if err == nil {
		err = usable(pub)
	}
	if err != nil {
		return nil, fmt.Errorf("public key %s: %w", path, err)
	}
	return pub, nil
}

// maxKeySize is far larger than the largest RSA key in PEM.
const maxKeySize = 1 << 16

func readPEM(path string) (*pem.Block, error) {
	b, err := infile.ReadArgument(path, maxKeySize)
	if err != nil {
		return nil, err
	}
	block, rest := pem.Decode(b)
	if block != nil && block.Type == "EC PARAMETERS" { // openssl ecparam -genkey
		block, _ = pem.Decode(rest)
	}
	if block == nil {
		return nil, errors.New(path + ": it is not a PEM file")
	}
	return block, nil
}
