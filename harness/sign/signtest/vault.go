// Package signtest provides key services for tests: the signing part of HashiCorp Vault's transit
// engine, and a plugin program of sigstore's. Both contain real keys, produce real signatures and
// use the real protocols.
package signtest

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"net/http"
	"strings"
	"sync/atomic"
)

// A Vault serves the part of Vault's HTTP API that signing with its transit engine needs:
// keys/NAME and sign/NAME[/sha2-256] under /v1/transit/.
type Vault struct {
	Token string                   // required token
	Keys  map[string]crypto.Signer // Ed25519, ECDSA or RSA
	Calls atomic.Int64
	// Before may answer a request instead of the Vault, and then returns true.
	Before func(http.ResponseWriter, *http.Request) bool
}

// ServeHTTP implements http.Handler.
func (v *Vault) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	v.Calls.Add(1)
	if v.Before != nil && v.Before(w, r) {
		return
	}
	if r.Header.Get("X-Vault-Token") != v.Token {
		v.refuse(w, http.StatusForbidden, "permission denied")
		return
	}
	path := strings.Split(strings.TrimPrefix(r.URL.Path, "/v1/transit/"), "/")
	if len(path) < 2 || v.Keys[path[1]] == nil {
		v.refuse(w, http.StatusNotFound)
		return
	}
	key := v.Keys[path[1]]
	switch {
	case path[0] == "keys" && r.Method == http.MethodGet:
		v.describe(w, key)
	case path[0] == "sign" && (r.Method == http.MethodPut || r.Method == http.MethodPost):
		v.sign(w, r, key)
	default:
		v.refuse(w, http.StatusMethodNotAllowed, "unsupported operation")
	}
}

func (v *Vault) refuse(w http.ResponseWriter, status int, errs ...string) {
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(map[string]any{"errors": append([]string{}, errs...)})
}

func (v *Vault) answer(w http.ResponseWriter, data map[string]any) {
	_ = json.NewEncoder(w).Encode(map[string]any{"data": data})
}

func (v *Vault) describe(w http.ResponseWriter, key crypto.Signer) {
	version := map[string]any{}
	switch pub := key.Public().(type) {
	case ed25519.PublicKey:
		version["name"], version["public_key"] = "ed25519", base64.StdEncoding.EncodeToString(pub)
	default:
		version["name"] = "ecdsa-p256"
		if _, ok := pub.(*rsa.PublicKey); ok {
			version["name"] = "rsa-2048"
		}
		der, err := x509.MarshalPKIXPublicKey(pub)
		if err != nil {
			v.refuse(w, http.StatusInternalServerError, err.Error())
			return
		}
		version["public_key"] = string(pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der}))
	}
	v.answer(w, map[string]any{"type": version["name"], "latest_version": 1, "keys": map[string]any{"1": version}})
}

func (v *Vault) sign(w http.ResponseWriter, r *http.Request, key crypto.Signer) {
	var req struct {
		Input     []byte `json:"input"` // base64, as encoding/json decodes it
		Prehashed bool   `json:"prehashed"`
		Algorithm string `json:"signature_algorithm"`
	}
	if err := json.NewDecoder(r.Body).Decode(&req); err != nil {
		v.refuse(w, http.StatusBadRequest, err.Error())
		return
	}
	var sig []byte
	var err error
	switch k := key.(type) {
	case ed25519.PrivateKey: // not prehashed: the message itself
		if req.Prehashed {
			v.refuse(w, http.StatusBadRequest, "prehashed with ed25519")
			return
		}
		sig = ed25519.Sign(k, req.Input)
	default:
		digest := req.Input
		if !req.Prehashed {
			sum := sha256.Sum256(req.Input)
			digest = sum[:]
		}
		if _, ok := k.(*ecdsa.PrivateKey); !ok && req.Algorithm != "pkcs1v15" { // Vault's default is PSS
			v.refuse(w, http.StatusBadRequest, "this server signs with pkcs1v15")
			return
		}
		sig, err = k.Sign(rand.Reader, digest, crypto.SHA256)
	}
	if err != nil {
		v.refuse(w, http.StatusBadRequest, err.Error())
		return
	}
	v.answer(w, map[string]any{"signature": "vault:v1:" + base64.StdEncoding.EncodeToString(sig), "key_version": 1})
}
