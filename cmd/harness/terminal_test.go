package main

import (
	"bytes"
	"crypto/ed25519"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"unicode"

	"github.com/assay-hpc/assay/internal/certificate"
	"github.com/assay-hpc/assay/internal/certificate/certificatetest"
	"github.com/assay-hpc/assay/internal/exit"
	"github.com/assay-hpc/assay/internal/words"
)

// steering is text that clears a screen, changes colours, a window's title and the
// direction of writing, forges a line, and is not UTF-8 at its end.
const steering = "\x1b[2J\x1b[31mred\x1b]0;title\a\u009b1m\u202eelbmis\r\nPASS\t\x00\u200b"

// steers fails for output that has anything of it.
func steers(t *testing.T, what, output string) {
	t.Helper()
	for _, r := range output {
		if r != '\n' && r != '\t' && !unicode.IsGraphic(r) {
			t.Errorf("%s: %U got through: %.300q", what, r, output)
			return
		}
	}
}

// evilCertificate has steering text in every field that a certificate may have it
// in; refused are documents that have it in one of the others.
func evilCertificate(t *testing.T) (all *certificate.Statement, refused [][]byte) {
	t.Helper()
	b, err := certificatetest.Node(2).Marshal()
	if err != nil {
		t.Fatal(err)
	}
	var doc any
	if err := json.Unmarshal(b, &doc); err != nil {
		t.Fatal(err)
	}
	changed := 0
	var walk func(v any, set func(any))
	walk = func(v any, set func(any)) {
		switch v := v.(type) {
		case map[string]any:
			for k := range v {
				walk(v[k], func(to any) { v[k] = to })
			}
		case []any:
			for i := range v {
				walk(v[i], func(to any) { v[i] = to })
			}
		case string:
			set(v + steering)
			st := new(certificate.Statement)
			b, err := json.Marshal(doc)
			if err == nil {
				err = json.Unmarshal(b, st)
			}
			if err == nil {
				_, err = st.Marshal()
			}
			if err == nil {
				all, changed = st, changed+1
				return
			}
			refused = append(refused, b)
			set(v)
		}
	}
	walk(doc, func(any) {})
	if changed < 50 || len(refused) < 20 {
		t.Fatalf("%d texts were changed and %d refused: that is not every field", changed, len(refused))
	}
	return all, refused
}

// TestNothingSteers: no command prints what steers a terminal, wherever it is from.
func TestNothingSteers(t *testing.T) {
	dir := t.TempDir()
	write := func(name string, b []byte) string {
		file := filepath.Join(dir, name)
		if err := os.WriteFile(file, b, 0o600); err != nil {
			t.Fatal(err)
		}
		return file
	}
	t.Setenv("PATH", "/nonexistent")
	key := ed25519.NewKeyFromSeed(make([]byte, ed25519.SeedSize))
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	private, public := write("k.pem", pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der})), write("k.pub", publicPEM(t, key.Public()))
	all, refused := evilCertificate(t)
	b, err := all.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	st := write("evil.json", b)
	later := *all
	later.Predicate.Finished = later.Predicate.Finished.AddDate(0, 0, 1)
	later.Predicate.Environment.Kernel += steering
	if b, err = later.Marshal(); err != nil {
		t.Fatal(err)
	}
	next := write("later.json", b)
	signed := filepath.Join(dir, "signed.json")
	commands := [][]string{
		{"sign", "--key", private, "--out", signed, st},
		{"report", st}, {"report", st, next, signed}, {"report", "--machine", steering, st}, {"report", "--format", steering, st},
		{"verify", "--key", public, signed}, {"verify", "--key", public, st},
		{"history", st, next}, {"history", "--verbose", st, next}, {"history", "-o", "json", st, next},
		{"apply", "--slurm=by-hand", st}, {"apply", "--slurm=" + steering, st},
		{"report", write("a"+strings.ReplaceAll(steering, "\x00", "")+".json", b)}, {"report", "/nonexistent/" + steering},
		{"certify", "--list", "--suite", write("a.yaml", []byte("version: 1\ntitle: \"a\\eb\"\nchecks:\n- run: \"\\e[2Jx\\u202e\"\n"))},
		{"certify", "--list", "--suite", steering}, {steering}, {"coll", steering}, {"health", "--only", steering},
		{"show", "topology", "--load", write("evil.xml", []byte(`<system version="1"><cpu numaid="0" affinity="`+"\u009b\u202e"+`"><nic><net name="`+"mlx\u009b1m\u202e"+`" dev="0" speed="1" port="1" guid="0x1" gdr="1"/></nic></cpu></system>`))},
	}
	for i, b := range refused {
		file := write("refused.json", b)
		if i == 0 {
			commands = append(commands, []string{"sign", "--key", private, file})
		}
		var out, errOut bytes.Buffer
		if code := run([]string{"harness", "report", file}, &out, &errOut); code != exit.Usage {
			t.Errorf("report of a damaged certificate = %d; want %d\n%s", code, exit.Usage, b)
		}
		steers(t, "report of a damaged certificate", out.String()+errOut.String())
	}
	for _, args := range commands {
		var out, errOut bytes.Buffer
		run(append([]string{"harness"}, args...), &out, &errOut)
		if out.Len()+errOut.Len() == 0 && args[0] != "sign" {
			t.Errorf("%.80q printed nothing", args)
		}
		steers(t, strings.Join(args, " "), out.String()+errOut.String())
	}
	for _, form := range []string{"json", "html", "junit", "prometheus"} { // documents stay what they are
		var out, errOut bytes.Buffer
		if code := run([]string{"harness", "report", "--format", form, st}, &out, &errOut); code != 0 {
			t.Errorf("report --format %s = %d: %s", form, code, &errOut)
		}
		if form == "json" && !bytes.Equal(out.Bytes(), mustRead(t, st)) {
			t.Error("report --format json is not the certificate's own bytes")
		}
		if strings.ContainsAny(out.String(), "\x1b\a") {
			t.Errorf("report --format %s has an escape", form)
		}
	}
}

func mustRead(t *testing.T, file string) []byte {
	t.Helper()
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// TestConsole: on a terminal a line of progress overwrites itself, and nothing else
// steers.
func TestConsole(t *testing.T) {
	for _, tt := range []struct {
		name, in string
		terminal bool
		want     string
	}{
		{"a line", "a\tb\n", true, "a\tb\n"},
		{"progress", overwrite + "1/2 \x1b[2J", true, overwrite + `1/2 \u001b[2J`},
		{"progress in a log", overwrite + "1/2", false, `\r\u001b[K1/2`},
		{"within a line", "a" + overwrite + "b\n", true, `a\r\u001b[Kb` + "\n"},
		{"colour", "\x1b[32mPASS\x1b[0m\n", true, `\u001b[32mPASS\u001b[0m` + "\n"},
	} {
		var b bytes.Buffer
		c := console{words.NewWriter(&b), tt.terminal}
		if n, err := c.Write([]byte(tt.in)); n != len(tt.in) || err != nil {
			t.Errorf("%s: Write = %d, %v; want %d", tt.name, n, err, len(tt.in))
		}
		if got := b.String(); got != tt.want {
			t.Errorf("%s: %q became %q; want %q", tt.name, tt.in, got, tt.want)
		}
	}
}

// TestNameThatSteers: a certificate that could not be written is refused before any
// check runs.
func TestNameThatSteers(t *testing.T) {
	t.Setenv("NODE_NAME", "a\x1b[2Jb")
	code, stdout, stderr := tell("certify", "--suite", "quick", "--only", "platform")
	if code != exit.Usage || stdout != "" || !strings.Contains(stderr, `node: "a\x1b[2Jb" is not a name`) {
		t.Errorf("certify = %d, %q, %q; want %d and the name", code, stdout, stderr, exit.Usage)
	}
}
