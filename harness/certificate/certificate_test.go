package certificate

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
	"math"
	mathrand "math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	intoto "github.com/in-toto/attestation/go/v1"
	"google.golang.org/protobuf/encoding/protojson"
)

var digest = "sha256:" + strings.Repeat("0a", 32)

func sample(t testing.TB) *Statement {
	t.Helper()
	begin := time.Date(2026, 1, 2, 3, 4, 5, 678_000_111, time.FixedZone("", 3600))
	s := New(Predicate{
		Suite: "image", Started: begin, Finished: begin.Add(3 * time.Second), Harness: Harness{Version: "v1"},
		Environment: Environment{Platform: "linux/amd64", OS: "Debian <12> & co"},
		Results: []Result{
			{ID: "a", Title: "A", Verdict: Pass, Seconds: 0.25, Measured: &Measurement{Value: 3.5, Unit: "GB/s", Expected: 4, Source: "sheet", Ratio: 0.875}},
			{ID: "b", Title: "B", Verdict: Skip, Reason: "no GPU", Output: "line\n\u2028"},
		},
	})
	if err := s.SetSubject("ghcr.io/x/assay", digest); err != nil {
		t.Fatal(err)
	}
	return s
}

func marshal(t testing.TB, s *Statement) []byte {
	t.Helper()
	b, err := s.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func TestRoundTrip(t *testing.T) {
	s := sample(t)
	b := marshal(t, s)
	for name, in := range map[string][]byte{"compact": b, "indented": indent(t, b)} {
		got, err := Parse(in)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if d := cmp.Diff(s, got); d != "" {
			t.Errorf("%s (-want +got):\n%s", name, d)
		}
		if again := marshal(t, got); !bytes.Equal(b, again) {
			t.Errorf("%s: encoded again: %s; want %s", name, again, b)
		}
	}
}

func indent(t testing.TB, b []byte) []byte {
	var out bytes.Buffer
	if err := json.Indent(&out, b, "", "  "); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

// TestInToto holds the plain types against in-toto's own library.
func TestInToto(t *testing.T) {
	var s intoto.Statement
	if err := protojson.Unmarshal(marshal(t, sample(t)), &s); err != nil {
		t.Fatal(err)
	}
	if err := s.Validate(); err != nil {
		t.Error(err)
	}
	if got := s.GetPredicate().GetFields()["verdict"].GetStringValue(); got != "pass" {
		t.Errorf("verdict = %q; want pass", got)
	}
}

func TestSummary(t *testing.T) {
	for in, want := range map[string]Verdict{"": Skip, "s": Skip, "sp": Pass, "pse": Error, "psef": Fail, "pp": Pass, "sw": Pass, "wse": Error} {
		var rs []Result
		for _, c := range in {
			rs = append(rs, Result{Verdict: map[rune]Verdict{'s': Skip, 'p': Pass, 'e': Error, 'f': Fail, 'w': Warn}[c]})
		}
		if got := Summary(rs); got != want {
			t.Errorf("Summary(%s) = %s; want %s", in, got, want)
		}
	}
}

func TestParseRefuses(t *testing.T) {
	good := string(marshal(t, sample(t)))
	for name, edit := range map[string][2]string{
		"unknown field":       {`"suite":`, `"extra":1,"suite":`},
		"repeated field":      {`"suite":"image"`, `"suite":"x","suite":"image"`},
		"other case":          {`"suite":`, `"Suite":`},
		"other number":        {`"seconds":0.25`, `"seconds":0.250`},
		"other escape":        {`Debian`, `\u0044ebian`},
		"other type":          {"Statement/v1", "Statement/v2"},
		"other predicate":     {"certificate/v1", "certificate/v2"},
		"other schema":        {`"schema":1`, `"schema":2`},
		"verdict not borne":   {`"verdict":"pass","started"`, `"verdict":"fail","started"`},
		"result hidden":       {`"id":"a"`, `"id":"b"`},
		"skip without reason": {`"reason":"no GPU",`, ``},
		"unknown verdict":     {`"verdict":"skip"`, `"verdict":"good"`},
		"finer time":          {`05.678Z`, `05.6781Z`},
		"time backwards":      {`"finished":"2026`, `"finished":"2025`},
		"no subject name":     {`"name":"ghcr.io/x/assay"`, `"name":""`},
		"unit missing":        {`"unit":"GB/s"`, `"unit":""`},
		"more after it":       {"}\n", "} {}\n"},
	} {
		bad := strings.Replace(good, edit[0], edit[1], 1)
		if bad == good {
			t.Errorf("%s: the edit changes nothing", name)
		}
		if _, err := Parse([]byte(bad)); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
	if _, err := Parse(make([]byte, MaxSize+1)); err == nil || !strings.Contains(err.Error(), "too many") {
		t.Errorf("Parse of too much = %v", err)
	}
}

func TestMarshalRefuses(t *testing.T) {
	s := sample(t)
	s.Predicate.Results[0].Measured.Value = math.Inf(1)
	if _, err := s.Marshal(); err == nil {
		t.Error("an infinite value was written")
	}
}

func TestVerify(t *testing.T) {
	s := sample(t)
	if err := s.Verify(digest); err != nil {
		t.Error(err)
	}
	other := "sha256:" + strings.Repeat("0b", 32)
	if err := s.Verify(other); !errors.Is(err, ErrSubject) {
		t.Errorf("Verify(other) = %v; want ErrSubject", err)
	}
	for _, bad := range []string{"", "sha256:0", strings.ToUpper(digest), digest[7:]} {
		if err := s.Verify(bad); err == nil || errors.Is(err, ErrSubject) {
			t.Errorf("Verify(%q) = %v; want another error", bad, err)
		}
	}
	s.Subject = []Subject{}
	if err := s.Verify(digest); !errors.Is(err, ErrSubject) {
		t.Errorf("Verify without subject = %v; want ErrSubject", err)
	}
	if err := s.SetSubject("", digest); err == nil {
		t.Error("a subject without a name was accepted")
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
		env, err := sample(t).Sign(key)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		got, err := VerifySignature(env, all["rsa"].Public(), all["ecdsa"].Public(), all["ed25519"].Public())
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if d := cmp.Diff(sample(t), got); d != "" {
			t.Errorf("%s:\n%s", name, d)
		}
		id, _ := KeyID(key.Public())
		if s, ids, err := OpenUnverified(env); err != nil || !slices.Equal(ids, []string{id}) || !cmp.Equal(s, got) {
			t.Errorf("%s: OpenUnverified = %v, %v, %v", name, s, ids, err)
		}
		for other, k := range all {
			if _, err := VerifySignature(env, k.Public()); (other == name) != (err == nil) || (err != nil && !errors.Is(err, ErrSignature)) {
				t.Errorf("signed by %s, verified by %s: %v", name, other, err)
			}
		}
	}
}

// TestSingleBytes changes each byte of a signed certificate.
func TestSingleBytes(t *testing.T) {
	rng := mathrand.New(mathrand.NewPCG(1, 2))
	for name, key := range keys(t) {
		env, err := sample(t).Sign(key)
		if err != nil {
			t.Fatal(err)
		}
		for i := range env {
			bad := bytes.Clone(env)
			bad[i] ^= byte(1 + rng.IntN(255))
			if _, err := VerifySignature(bad, key.Public()); err == nil {
				t.Errorf("%s: byte %d changed from %q to %q: accepted", name, i, env[i], bad[i])
			}
		}
		if _, err := VerifySignature(append(env, ' '), key.Public()); err == nil {
			t.Errorf("%s: a longer envelope is accepted", name)
		}
	}
}

func TestVerifyDSSERefuses(t *testing.T) {
	key := keys(t)["ed25519"]
	env, err := SignDSSE("text/plain", []byte("hello"), key)
	if err != nil {
		t.Fatal(err)
	}
	payload, typ, err := VerifyDSSE(env, key.Public())
	if string(payload) != "hello" || typ != "text/plain" || err != nil {
		t.Errorf("VerifyDSSE = %q, %q, %v", payload, typ, err)
	}
	if _, _, err := VerifyDSSE(env); err == nil {
		t.Error("verified without a key")
	}
	if _, err := VerifySignature(env, key.Public()); err == nil {
		t.Error("another payload type was taken for a statement")
	}
	for _, bad := range [][]byte{env, nil, []byte("{}")} {
		if _, _, err := OpenUnverified(bad); err == nil {
			t.Errorf("OpenUnverified(%s) succeeded", bad)
		}
	}
	weak, _ := rsa.GenerateKey(rand.Reader, 1024)
	if weak != nil {
		if _, err := SignDSSE("x", nil, weak); err == nil {
			t.Error("a weak key signed")
		}
	}
	if _, _, err := VerifyDSSE([]byte(`{"payloadType":"x","payload":"","signatures":[]}`+"\n"), key.Public()); err == nil {
		t.Error("an envelope without signatures verified")
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
		"no such file":  filepath.Join(dir, "none"),
		"no PEM file":   write("empty", "X", nil) + "x",
		"unencrypted":   write("enc", "ENCRYPTED PRIVATE KEY", []byte("x")),
		"signing key":   write("bad", "PRIVATE KEY", []byte("x")),
		"unencrypted P": write("pubonly", "PUBLIC KEY", []byte("x")),
	} {
		if want == "no PEM file" {
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

func TestInventory(t *testing.T) {
	inv := &Inventory{Version: 1, Packages: []InstalledPackage{{Name: "a", Version: "1", Arch: "all", Licenses: []string{NoAssertion}}}}
	b, err := inv.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	got, err := ParseInventory(b)
	if d := cmp.Diff(inv, got); d != "" || err != nil {
		t.Errorf("ParseInventory: %v\n%s", err, d)
	}
	for _, bad := range []string{`{"version":2,"packages":[]}`, `{"version":1,"packages":[{"name":"a","version":"1","arch":"","licenses":[]}]}`, `[]`} {
		if _, err := ParseInventory([]byte(bad)); err == nil {
			t.Errorf("ParseInventory(%s) succeeded", bad)
		}
	}
}

func TestParseSpec(t *testing.T) {
	good := `{"version":1,"target":"t","platform":"linux/amd64","recipe":"ab","components":[]}`
	if s, err := ParseSpec([]byte(good)); err != nil || s.Target != "t" {
		t.Errorf("ParseSpec = %+v, %v", s, err)
	}
	for _, bad := range []string{"", "{}", good + "x", strings.Replace(good, "target", "tarket", 1), strings.Replace(good, ":1", ":2", 1)} {
		if _, err := ParseSpec([]byte(bad)); err == nil {
			t.Errorf("ParseSpec(%s) succeeded", bad)
		}
	}
}

// TestLight keeps command line and network out of what every program imports.
func TestLight(t *testing.T) {
	out, err := exec.Command("go", "list", "-deps", ".").Output()
	if err != nil {
		t.Skip("no go command: ", err)
	}
	for p := range strings.FieldsSeq(string(out)) {
		if strings.Contains(p, "urfave/cli") || p == "net/http" || strings.Contains(p, "protobuf") {
			t.Errorf("package certificate imports %s", p)
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add(marshal(f, sample(f)))
	f.Add(indent(f, marshal(f, sample(f))))
	f.Fuzz(func(t *testing.T, b []byte) {
		s, err := Parse(b)
		if err != nil {
			return
		}
		var compact bytes.Buffer
		if err := json.Compact(&compact, b); err != nil {
			t.Fatal(err)
		}
		if again := marshal(t, s); !bytes.Equal(bytes.TrimSpace(again), compact.Bytes()) {
			t.Errorf("accepted %s, which encodes as %s", b, again)
		}
	})
}

func FuzzVerifyDSSE(f *testing.F) {
	key := ed25519.NewKeyFromSeed(make([]byte, ed25519.SeedSize))
	env, err := SignDSSE("t", []byte("payload"), key)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(env)
	f.Fuzz(func(t *testing.T, b []byte) {
		if p, _, err := VerifyDSSE(b, key.Public()); err == nil && !bytes.Equal(b, env) {
			t.Errorf("accepted %s (payload %q), which nobody signed", b, p)
		}
	})
}
