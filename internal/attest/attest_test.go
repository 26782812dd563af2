package attest

import (
	"bytes"
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	mathrand "math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	intoto "github.com/in-toto/attestation/go/v1"
	"google.golang.org/protobuf/encoding/protojson"
)

var digest = "sha256:" + strings.Repeat("0a", 32)

func statement(t testing.TB) []byte {
	t.Helper()
	b, err := New("https://example.com/thing/v1", "ghcr.io/x/assay", digest, map[string]any{"n": 1, "html": "<&>"})
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// TestInToto: in-toto's own type reads what New writes.
func TestInToto(t *testing.T) {
	var s intoto.Statement
	if err := protojson.Unmarshal(statement(t), &s); err != nil {
		t.Fatal(err)
	}
	if err := s.Validate(); err != nil {
		t.Error(err)
	}
	got, err := Parse(statement(t))
	if err != nil {
		t.Fatal(err)
	}
	if err := got.About(digest); err != nil || got.PredicateType != s.GetPredicateType() {
		t.Errorf("Parse = %v, %v; want what in-toto reads, %v", got.Header, err, &s)
	}
}

func TestParse(t *testing.T) {
	good := string(statement(t))
	for name, c := range map[string]struct {
		old, new string
		ok       bool
	}{
		"as it is":                  {"", "", true},
		"unknown field":             {`{"_type"`, `{"new":[{"a":1}],"_type"`, true},
		"subject with more":         {`"name":"ghcr.io/x/assay"`, `"name":"ghcr.io/x/assay","uri":"x:y","annotations":{"a":1}`, true},
		"subject without a name":    {`"name":"ghcr.io/x/assay",`, ``, true},
		"another type":              {"Statement/v1", "Statement/v0.1", false},
		"no type":                   {`"_type":"https://in-toto.io/Statement/v1",`, ``, false},
		"no predicate type":         {`"predicateType":"https://example.com/thing/v1",`, ``, false},
		"no subject":                {`"subject":[{"name":"ghcr.io/x/assay","digest":{"sha256":"` + digest[7:] + `"}}],`, ``, false},
		"name twice":                {`"predicateType"`, `"predicateType":"x","predicateType"`, false},
		"name twice, other case":    {`"predicateType"`, `"PredicateType":"x","predicateType"`, false},
		"name in another case":      {`"predicateType"`, `"PredicateType"`, false},
		"digest twice":              {`"digest":{`, `"digest":{"sha256":"00",`, false},
		"name twice in a predicate": {`"n":1`, `"n":1,"n":2`, false},
		"more after it":             {`"html":"\u003c\u0026\u003e"`, `"html":""`, true},
	} {
		text := good
		if c.old != "" {
			text = strings.Replace(good, c.old, c.new, 1)
		}
		if _, err := Parse([]byte(text)); (err == nil) != c.ok {
			t.Errorf("%s: Parse(%s) = %v; want ok = %v", name, text, err, c.ok)
		}
	}
	for _, bad := range []string{"", "{", "[]", "null", good + "{}", good[:len(good)-1], strings.Repeat("[", 10_000)} {
		if _, err := Parse([]byte(bad)); err == nil {
			t.Errorf("Parse(%.40s) succeeded", bad)
		}
	}
}

func keys(t testing.TB) map[string]crypto.Signer {
	t.Helper()
	_, ed, err1 := ed25519.GenerateKey(rand.Reader)
	ec, err2 := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	r, err3 := rsa.GenerateKey(rand.Reader, 2048)
	if err := errors.Join(err1, err2, err3); err != nil {
		t.Fatal(err)
	}
	return map[string]crypto.Signer{"ed25519": ed, "ecdsa": ec, "rsa": r}
}

func TestSign(t *testing.T) {
	all := keys(t)
	for name, key := range all {
		env, err := Sign(TypeStatement, statement(t), key)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		id, _ := keyID(key.Public())
		got, err := OpenVerified(env, all["rsa"].Public(), all["ecdsa"].Public(), all["ed25519"].Public())
		if err != nil || !bytes.Equal(got.Payload, statement(t)) || got.Type != TypeStatement || !slices.Equal(got.KeyIDs, []string{id}) {
			t.Fatalf("%s: OpenVerified = %+v, %v", name, got, err)
		}
		if o, err := Open(env); err != nil || o.Signature != Unchecked || !slices.Equal(o.KeyIDs, []string{id}) || !bytes.Equal(o.Payload, got.Payload) {
			t.Errorf("%s: Open without a key = %+v, %v", name, o, err)
		}
		for other, k := range all {
			if _, err := OpenVerified(env, k.Public()); (other == name) != (err == nil) || (err != nil && !errors.Is(err, ErrSignature)) {
				t.Errorf("signed by %s, verified by %s: %v", name, other, err)
			}
		}
	}
}

// TestSingleBytes changes each byte of a signed statement: it is refused, or says
// what was signed (key ids are hints, and JSON has several spellings).
func TestSingleBytes(t *testing.T) {
	rng := mathrand.New(mathrand.NewPCG(1, 2))
	for name, key := range keys(t) {
		env, err := Sign(TypeStatement, statement(t), key)
		if err != nil {
			t.Fatal(err)
		}
		begin, end := bytes.Index(env, []byte(`"payload":"`))+11, bytes.Index(env, []byte(`","signatures"`))
		for i := range env {
			bad := bytes.Clone(env)
			bad[i] ^= byte(1 + rng.IntN(255))
			o, err := OpenVerified(bad, key.Public())
			if err == nil && (!bytes.Equal(o.Payload, statement(t)) || o.Type != TypeStatement) {
				t.Errorf("%s: byte %d changed from %q to %q: accepted as %s", name, i, env[i], bad[i], o.Payload)
			}
			if err == nil && i >= begin && i < end-2 { // the last ones may hold bits that base64 does not use
				t.Errorf("%s: byte %d of the payload changed from %q to %q: accepted", name, i, env[i], bad[i])
			}
		}
	}
}

// TestForeignEnvelopes: envelopes as other programs write them.
func TestForeignEnvelopes(t *testing.T) {
	key, other := keys(t)["ed25519"], keys(t)["ecdsa"]
	env, err := Sign(TypeStatement, statement(t), key)
	if err != nil {
		t.Fatal(err)
	}
	var e map[string]any
	if err := json.Unmarshal(env, &e); err != nil {
		t.Fatal(err)
	}
	sig := e["signatures"].([]any)[0].(map[string]any)
	edit := func(f func(sig, e map[string]any)) []byte {
		s2, e2 := map[string]any{}, map[string]any{}
		for k, v := range sig {
			s2[k] = v
		}
		for k, v := range e {
			e2[k] = v
		}
		e2["signatures"] = []any{s2}
		f(s2, e2)
		b, err := json.MarshalIndent(e2, "", "\t")
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	url := func(s any) string { return strings.NewReplacer("+", "-", "/", "_").Replace(s.(string)) }
	for name, doc := range map[string][]byte{
		"no key id":         edit(func(s, _ map[string]any) { delete(s, "keyid") }),
		"another's key id":  edit(func(s, _ map[string]any) { s["keyid"] = "sha256-of-something" }),
		"unknown fields":    edit(func(s, e map[string]any) { s["cert"], e["extension"] = "PEM", map[string]any{"a": 1} }),
		"URL-safe base64":   edit(func(s, e map[string]any) { s["sig"], e["payload"] = url(s["sig"]), url(e["payload"]) }),
		"another signature": edit(func(s, e map[string]any) { e["signatures"] = []any{map[string]any{"sig": "AAAA", "keyid": "x"}, s} }),
	} {
		o, err := OpenVerified(doc, other.Public(), key.Public())
		if err != nil || !bytes.Equal(o.Payload, statement(t)) {
			t.Errorf("%s: OpenVerified = %s, %v", name, o.Payload, err)
		}
	}
	for name, doc := range map[string][]byte{
		"two payloads": bytes.Replace(env, []byte(`"payload":`), []byte(`"Payload":"e30=","payload":`), 1),
		"other type":   bytes.Replace(env, []byte(TypeStatement), []byte("text/plain"), 1),
	} {
		if o, err := OpenVerified(doc, key.Public()); err == nil {
			t.Errorf("%s: accepted as %s", name, o.Payload)
		}
	}
}

func TestSignRefuses(t *testing.T) {
	key := keys(t)["ed25519"]
	env, err := Sign("text/plain", []byte("hello"), key)
	if err != nil {
		t.Fatal(err)
	}
	if o, err := OpenVerified(env, key.Public()); string(o.Payload) != "hello" || o.Type != "text/plain" || err != nil {
		t.Errorf("OpenVerified = %+v, %v", o, err)
	}
	if _, err := OpenVerified(env); err == nil {
		t.Error("verified without a key")
	}
	p := Policy{Keys: []crypto.PublicKey{key.Public()}}
	if _, err := p.Verify(env, digest, ""); !errors.Is(err, ErrForeign) {
		t.Errorf("a text was taken for a statement: %v", err)
	}
	weak, _ := rsa.GenerateKey(rand.Reader, 1024)
	if weak != nil {
		if _, err := Sign("x", nil, weak); err == nil {
			t.Error("a weak key signed")
		}
	}
	none := []byte(`{"payloadType":"x","payload":"","signatures":[]}`)
	for _, k := range []crypto.PublicKey{key.Public(), nil, "a string", ed25519.PublicKey{}, (*ecdsa.PublicKey)(nil), &rsa.PublicKey{}} {
		if _, err := OpenVerified(none, k); err == nil {
			t.Error("an envelope without signatures verified")
		}
		if fmt.Sprint(k) == fmt.Sprint(key.Public()) {
			continue
		}
		if _, err := OpenVerified(env, k); err == nil {
			t.Errorf("verified with the key %#v", k)
		}
	}
}

func TestLoadKeys(t *testing.T) {
	dir := t.TempDir()
	write := func(name, typ string, der []byte) string {
		p := filepath.Join(dir, name)
		if err := os.WriteFile(p, pem.EncodeToMemory(&pem.Block{Type: typ, Bytes: der}), 0o600); err != nil {
			t.Fatal(err)
		}
		return p
	}
	for name, key := range keys(t) {
		der, _ := x509.MarshalPKCS8PrivateKey(key)
		pub, _ := x509.MarshalPKIXPublicKey(key.Public())
		priv, err := LoadPrivateKey(write(name, "PRIVATE KEY", der))
		if err != nil {
			t.Fatal(err)
		}
		for _, p := range []string{write(name+".pub", "PUBLIC KEY", pub), filepath.Join(dir, name)} {
			got, err := LoadPublicKey(p)
			if err != nil || !got.(interface{ Equal(crypto.PublicKey) bool }).Equal(priv.Public()) {
				t.Errorf("LoadPublicKey(%s) = %v, %v; want the public half", p, got, err)
			}
		}
	}
	for want, p := range map[string]string{
		"no such file":   filepath.Join(dir, "none"),
		"not a PEM file": write("empty", "X", nil) + "x",
		"unencrypted":    write("enc", "ENCRYPTED PRIVATE KEY", []byte("x")),
		"signing key":    write("bad", "PRIVATE KEY", []byte("x")),
		"unencrypted P":  write("pubonly", "PUBLIC KEY", []byte("x")),
	} {
		if want == "not a PEM file" {
			os.WriteFile(p, []byte("text"), 0o600)
		}
		if _, err := LoadPrivateKey(p); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("LoadPrivateKey = %v; want …%s…", err, want)
		}
	}
}

// TestOpenSSLKeys reads what people make with openssl.
func TestOpenSSLKeys(t *testing.T) {
	if _, err := exec.LookPath("openssl"); err != nil {
		t.Skip("no openssl on this machine")
	}
	for name, args := range map[string][]string{
		"ed25519": {"genpkey", "-algorithm", "ed25519"}, "ecparam": {"ecparam", "-genkey", "-name", "prime256v1"},
		"rsa": {"genrsa", "2048"},
	} {
		p := filepath.Join(t.TempDir(), name)
		if out, err := exec.Command("openssl", slices.Insert(args, 1, "-out", p)...).CombinedOutput(); err != nil {
			t.Skipf("openssl: %v\n%s", err, out)
		}
		if _, err := LoadPrivateKey(p); err != nil {
			t.Error(err)
		}
	}
}

func FuzzOpen(f *testing.F) {
	key := ed25519.NewKeyFromSeed(make([]byte, ed25519.SeedSize))
	env, err := Sign(TypeStatement, statement(f), key)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(env)
	f.Add(statement(f))
	f.Fuzz(func(t *testing.T, b []byte) {
		if o, err := OpenVerified(b, key.Public()); err == nil && !bytes.Equal(o.Payload, statement(t)) {
			t.Errorf("accepted %s (payload %q), which nobody signed", b, o.Payload)
		}
		if o, err := Open(b); err == nil {
			_, _ = Parse(o.Payload)
		}
	})
}
