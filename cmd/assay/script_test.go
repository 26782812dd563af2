package main

import (
	"cmp"
	"crypto/ed25519"
	"crypto/sha256"
	"crypto/x509"
	"encoding/hex"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log"
	"math/rand"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/random"
	"github.com/google/go-containerregistry/pkg/v1/types"
	"github.com/rogpeppe/go-internal/testscript"
	"github.com/santhosh-tekuri/jsonschema/v6"
	"go.yaml.in/yaml/v3"

	assay "github.com/assay-hpc/assay"
	"github.com/assay-hpc/assay/build/component"
	"github.com/assay-hpc/assay/build/driver"
	"github.com/assay-hpc/assay/build/lock"
	"github.com/assay-hpc/assay/build/recipe"
	"github.com/assay-hpc/assay/internal/attest"
	"github.com/assay-hpc/assay/internal/certificate"
	"github.com/assay-hpc/assay/internal/golden"
	"github.com/assay-hpc/assay/internal/oci"
	"github.com/assay-hpc/assay/internal/result"
)

func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){"assay": main})
}

// TestScript runs testdata/script: the real program, without network, root or
// a builder. What those would bring, three commands stand in for:
//
//	stand-in-lock MATRIX                 pins all that the matrix needs, with invented digests
//	stand-in-build MATRIX DIR TARGET PLATFORM
//	                                     puts an image that passed its gate into a layout, as build does
//	exits STATUS COMMAND...              runs a command that must end with that status
//
// Where a script brings no matrix.yaml it has testdata/matrix.yaml. $REGISTRY is a registry in the test's process, $KEYS a directory with two
// key pairs: ours.key, ours.pub, other.key, other.pub. $ACTION is the repository's directory action.
func TestScript(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir:                 filepath.Join("testdata", "script"),
		UpdateScripts:       golden.Update(),
		RequireExplicitExec: true,
		RequireUniqueNames:  true,
		Setup:               setUp,
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"exits": exits, "stand-in-lock": standInLock, "stand-in-build": standInBuild,
			"valid-schema": validSchema,
		},
	})
}

func setUp(env *testscript.Env) error {
	srv := httptest.NewServer(registry.New(registry.Logger(log.New(io.Discard, "", 0)), registry.WithReferrersSupport(true)))
	env.Defer(srv.Close)
	keys := filepath.Join(env.WorkDir, ".keys")
	if err := errors.Join(os.Mkdir(keys, 0o700), keyPair(keys, "ours", 1), keyPair(keys, "other", 2), keyPair(keys, "builder", 3)); err != nil {
		return err
	}
	if err := defaultMatrix(env.WorkDir); err != nil {
		return err
	}
	action, err := filepath.Abs(filepath.Join("..", "..", "action"))
	if err != nil {
		return err
	}
	for k, v := range map[string]string{
		"ACTION": action, "ASSAY_STATE_DIR": filepath.Join(env.WorkDir, ".state"), "XDG_CONFIG_HOME": filepath.Join(env.WorkDir, ".config"),
		"DOCKER_CONFIG": filepath.Join(env.WorkDir, ".docker"), "GOPROXY": "https://goproxy.example.test",
		"REGISTRY": strings.TrimPrefix(srv.URL, "http://"), "KEYS": keys,
		"BUILDKIT_HOST": "", "ASSAY_BUILDKITD": "", "GITHUB_WORKFLOW_REF": "", "GITHUB_RUN_ID": "",
	} {
		env.Setenv(k, v)
	}
	return nil
}

// defaultMatrix is testdata/matrix.yaml, unless the script brings its own.
func defaultMatrix(dir string) error {
	text, err := os.ReadFile(filepath.Join("testdata", "matrix.yaml"))
	if err != nil {
		return err
	}
	f, err := os.OpenFile(filepath.Join(dir, "matrix.yaml"), os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o644)
	if errors.Is(err, fs.ErrExist) {
		return nil
	}
	if err != nil {
		return err
	}
	_, err = f.Write(text)
	return errors.Join(err, f.Close())
}

func keyPair(dir, name string, seed byte) error {
	key := ed25519.NewKeyFromSeed([]byte(strings.Repeat(string(rune(seed)), ed25519.SeedSize)))
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return err
	}
	public, err := x509.MarshalPKIXPublicKey(key.Public())
	if err != nil {
		return err
	}
	return errors.Join(
		os.WriteFile(filepath.Join(dir, name+".key"), pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: private}), 0o600),
		os.WriteFile(filepath.Join(dir, name+".pub"), pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: public}), 0o600))
}

// exits runs a command and holds its status against the wanted one.
func exits(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: exits STATUS COMMAND...")
	}
	got := "0"
	if err := ts.Exec(args[1], args[2:]...); err != nil {
		got = strings.TrimPrefix(err.Error(), "exit status ")
	}
	if got != args[0] {
		ts.Fatalf("%s: exit status %s; want %s", strings.Join(args[1:], " "), got, args[0])
	}
}

func open(ts *testscript.TestScript, file string) *driver.Workspace {
	w, err := driver.Open(driver.Options{Matrix: ts.MkAbs(file), StateDir: ts.Getenv("ASSAY_STATE_DIR"), Version: assay.Version})
	ts.Check(err)
	return w
}

// standInLock fills the lock.
func standInLock(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: stand-in-lock MATRIX")
	}
	w := open(ts, args[0])
	w.Lock.Epoch = time.Date(2026, 3, 1, 0, 0, 0, 0, time.UTC).Unix()
	ts.Check(fillLock(w))
	ts.Check(w.WriteLock())
}

func pin(l *lock.Lock, m component.Missing, r *recipe.Recipe) {
	switch m.Kind {
	case component.MissingImage:
		l.Images[m.Key] = lock.Entry{Digest: "sha256:" + invented(m.Key), From: "stand-in"}
	case component.MissingDownload:
		l.Downloads[m.Key] = lock.Entry{Digest: "sha256:" + invented(m.Key), From: "stand-in"}
	case component.MissingBase:
		l.Debs[m.Key] = lock.PackageSet{Request: m.Request, Packages: debs(m.Platform, "base-files", "libc6")}
	default:
		apt := r.Stage(m.Stage).Steps[m.Step].(recipe.Apt)
		l.Debs[m.Key] = lock.PackageSet{Request: m.Request, Packages: debs(m.Platform, apt.Packages...)}
	}
}

func debs(p recipe.Platform, names ...string) []recipe.Deb {
	var out []recipe.Deb
	for _, n := range names {
		out = append(out, recipe.Deb{Name: n, Version: "1.2-3", Arch: p.Arch, URL: "debian:pool/main/" + n + "_1.2-3_" + p.Arch + ".deb", SHA256: invented(n + p.Arch), Size: 1000})
	}
	return out
}

func invented(what string) string {
	sum := sha256.Sum256([]byte("stand-in for " + what))
	return hex.EncodeToString(sum[:])
}

// standInBuild leaves in a layout what a build on one machine leaves there: the
// image's blobs and, under .assay, the record that this recipe was built and
// certified. Its image has two layers of noise.
func standInBuild(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 4 {
		ts.Fatalf("usage: stand-in-build MATRIX DIR TARGET PLATFORM")
	}
	w, dir := open(ts, args[0]), ts.MkAbs(args[1])
	targets, err := w.Select(args[2:3])
	ts.Check(err)
	p, err := recipe.ParsePlatform(args[3])
	ts.Check(err)
	res, err := w.Recipe(targets[0], p, p)
	ts.Check(err)
	hash := sha256.Sum256(fmt.Appendln(nil, res.Recipe.Hash(), res.Recipe.Declared(), w.Lock.Epoch, false))
	digest, certifier := writeImage(ts, dir, p, nil), writeImage(ts, dir, p, []string{"harness", "certify"})
	st := certificate.New(certificate.Predicate{
		Suite: "image", Started: w.Epoch(), Finished: w.Epoch().Add(time.Second), Harness: certificate.Harness{Version: assay.Version, Origin: certificate.OriginAssay},
		Environment: certificate.Environment{Platform: p.String(), Target: args[2], Recipe: res.Recipe.Declared()},
		Results:     []result.Result{{ID: "image/stand-in", Title: "nothing was run", Verdict: result.Pass}},
	})
	ts.Check(st.SetSubject(args[2], digest))
	ts.Check(st.AddSubject(args[2]+"-certify", certifier))
	statement, err := st.Marshal()
	ts.Check(err)
	inventory, err := (&certificate.Inventory{Version: certificate.InventoryVersion, Packages: []certificate.InstalledPackage{
		{Name: "base-files", Version: "1.2-3", Arch: p.Arch, Licenses: []string{"GPL-2.0-or-later"}},
	}}).Marshal()
	ts.Check(err)
	record, err := json.Marshal(map[string]any{
		"Hash": hex.EncodeToString(hash[:]), "Digest": digest, "Certifier": certifier, "Certificate": statement, "Inventory": inventory,
		"Builder": "stand-in", "Started": w.Epoch(), "Finished": w.Epoch().Add(time.Second),
	})
	ts.Check(err)
	state := ts.Getenv("ASSAY_STATE_DIR")
	ts.Check(errors.Join(os.MkdirAll(state, 0o755), keyPair(state, "builder", 3))) // it was built here
	key, err := attest.LoadPrivateKey(filepath.Join(ts.Getenv("KEYS"), "builder.key"))
	ts.Check(err)
	record, err = attest.Sign("application/vnd.assay.build-record+json", record, key)
	ts.Check(err)
	ts.Check(os.MkdirAll(filepath.Join(dir, ".assay"), 0o755))
	ts.Check(os.WriteFile(filepath.Join(dir, ".assay", hex.EncodeToString(hash[:])+".json"), record, 0o644))
}

func writeImage(ts *testscript.TestScript, dir string, p recipe.Platform, entrypoint []string) string {
	_, err := oci.Create(dir)
	ts.Check(err)
	img, err := random.Image(3000, 2, random.WithSource(rand.NewSource(int64(len(p.Machine())))))
	ts.Check(err)
	cfg, err := img.ConfigFile()
	ts.Check(err)
	cfg = cfg.DeepCopy()
	cfg.OS, cfg.Architecture, cfg.Created, cfg.History = p.OS, p.Arch, v1.Time{}, nil
	cfg.Config.Entrypoint = entrypoint
	img, err = mutate.ConfigFile(img, cfg)
	ts.Check(err)
	img = mutate.ConfigMediaType(mutate.MediaType(img, types.OCIManifestSchema1), types.OCIConfigJSON)
	ts.Check(layout.Path(dir).WriteImage(img))
	h, err := img.Digest()
	ts.Check(err)
	return h.String()
}

// validSchema holds a YAML file against the JSON Schema in another.
func validSchema(ts *testscript.TestScript, neg bool, args []string) {
	if len(args) != 2 {
		ts.Fatalf("usage: valid-schema SCHEMA FILE")
	}
	doc, err := jsonschema.UnmarshalJSON(strings.NewReader(ts.ReadFile(args[0])))
	ts.Check(err)
	c := jsonschema.NewCompiler()
	ts.Check(c.AddResource("schema.json", doc))
	schema, err := c.Compile("schema.json")
	ts.Check(err)
	var v any
	ts.Check(yaml.Unmarshal([]byte(ts.ReadFile(args[1])), &v))
	err = schema.Validate(v)
	if (err != nil) != neg {
		ts.Fatalf("%s against %s: %v", args[1], args[0], cmp.Or(err, errors.New("it is valid")))
	}
}
