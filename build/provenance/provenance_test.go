package provenance

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	slsa "github.com/in-toto/attestation/go/predicates/provenance/v1"
	intoto "github.com/in-toto/attestation/go/v1"
	"google.golang.org/protobuf/encoding/protojson"

	"github.com/assay-hpc/assay/build/recipe"
	"github.com/assay-hpc/assay/internal/attest"
	"github.com/assay-hpc/assay/internal/golden"
)

func digestOf(pair string) string { return "sha256:" + strings.Repeat(pair, 32) }

func sample() Build {
	file := recipe.Source{Kind: recipe.FromURL, Ref: "https://example.com/nccl.tar.gz", Digest: digestOf("22")}
	return Build{
		Recipe: &recipe.Recipe{Target: "cuda12.9.1-ubuntu24.04", Platform: recipe.Platform{OS: "linux", Arch: "arm64"}, Stages: []recipe.Stage{
			{Name: "nccl", From: recipe.Source{Kind: recipe.FromImage, Ref: "nvcr.io/nvidia/cuda:12.9.1-devel-ubuntu24.04", Digest: digestOf("11")}, Steps: []recipe.Step{
				recipe.Run{Script: "make", Mounts: []recipe.Mount{
					{Target: "/src.tar.gz", From: file},
					{Target: "/cache", From: recipe.Source{Kind: recipe.CacheVolume, Ref: "ccache"}},
				}},
			}},
			{Name: "image", From: recipe.Source{Kind: recipe.Scratch}, Steps: []recipe.Step{
				recipe.Apt{Debs: []recipe.Deb{{Name: "libstdc++6", Version: "1:2+3", Arch: "arm64", URL: "https://example.com/l.deb", SHA256: strings.Repeat("33", 32)}}},
				recipe.Copy{From: recipe.Source{Kind: recipe.FromStage, Ref: "nccl"}, Src: "/usr/lib/", Dst: "/usr/lib"},
				recipe.Copy{From: recipe.Source{Kind: recipe.FromLayout, Ref: "harness", Digest: digestOf("44")}, Src: "/harness", Dst: "/opt"},
				recipe.Copy{From: file, Src: "/", Dst: "/src"}, // the second use of one download
			}},
		}},
		Digest: digestOf("55"), MatrixFile: "matrix.yaml", MatrixDigest: digestOf("66"), LockDigest: digestOf("77"), Epoch: 1767225600,
		More:         []recipe.Deb{{Name: "bash", Version: "5.2", Arch: "arm64", URL: "debian:pool/b.deb", SHA256: strings.Repeat("88", 32)}},
		Builder:      Builder{ID: "https://github.com/owner/assay/.github/workflows/build.yml", Version: map[string]string{"assay": "0.1.0", "buildkit": "0.33.1"}},
		InvocationID: "https://github.com/owner/assay/actions/runs/1", Started: time.Unix(1767225700, 0), Finished: time.Unix(1767226000, 0),
	}
}

func marshal(t *testing.T) []byte {
	t.Helper()
	b, err := Statement(sample())
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func TestGolden(t *testing.T) {
	var got bytes.Buffer
	// The hash of a recipe is package recipe's to promise.
	doc := bytes.ReplaceAll(marshal(t), []byte(sample().Recipe.Hash()), []byte("RECIPE"))
	if err := json.Indent(&got, doc, "", "  "); err != nil {
		t.Fatal(err)
	}
	golden.Check(t, "cuda.json", got.String())
}

// TestOthersReadIt holds our types against those that in-toto publishes.
func TestOthersReadIt(t *testing.T) {
	var st intoto.Statement
	if err := protojson.Unmarshal(marshal(t), &st); err != nil {
		t.Fatal(err)
	}
	if err := st.Validate(); err != nil {
		t.Errorf("statement: %v", err)
	}
	b, err := protojson.Marshal(st.Predicate)
	if err != nil {
		t.Fatal(err)
	}
	var p slsa.Provenance
	if err := protojson.Unmarshal(b, &p); err != nil { // refuses fields it does not know
		t.Fatal(err)
	}
	if err := p.Validate(); err != nil {
		t.Errorf("predicate: %v", err)
	}
	if n := len(p.BuildDefinition.ResolvedDependencies); n != 5 {
		t.Errorf("%d dependencies; want image, download, content and two packages", n)
	}
}

func TestSummarize(t *testing.T) {
	st, err := attest.Parse(marshal(t))
	if err != nil {
		t.Fatal(err)
	}
	got, err := Summarize(st.Predicate)
	if err != nil {
		t.Fatal(err)
	}
	in := sample()
	want := Summary{
		Builder: in.Builder.ID, BuildType: BuildType, Target: in.Recipe.Target, Platform: in.Recipe.Platform.String(), Recipe: in.Recipe.Hash(), Invocation: in.InvocationID,
		StartedOn: "2026-01-01T00:01:40Z", FinishedOn: "2026-01-01T00:06:40Z", Dependencies: 5,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("Summarize (-want +got):\n%s", diff)
	}
}

func TestSummarizeForeign(t *testing.T) {
	got, err := Summarize([]byte(`{"buildDefinition":{"buildType":"https://mobyproject.org/buildkit@v1","externalParameters":{"target":{"a":1}},
		"resolvedDependencies":[{}]},"runDetails":{"builder":{"id":"x"}}}`))
	if want := (Summary{Builder: "x", BuildType: "https://mobyproject.org/buildkit@v1", Dependencies: 1}); err != nil || got != want {
		t.Errorf("Summarize = %+v, %v; want %+v", got, err, want)
	}
	if _, err := Summarize([]byte("[]")); err == nil {
		t.Error("a list was accepted")
	}
}

func TestNewRefuses(t *testing.T) {
	for what, spoil := range map[string]func(*Build){
		"builder id":       func(b *Build) { b.Builder.ID = "" },
		"image":            func(b *Build) { b.Digest = "latest" },
		"matrix.yaml":      func(b *Build) { b.MatrixDigest = "" },
		"docker://nvcr.io": func(b *Build) { b.Recipe.Stages[0].From.Digest = "" },
		"pkg:deb/bash@5.2": func(b *Build) { b.More[0].SHA256 = "" },
		"example.com/nccl.tar": func(b *Build) {
			b.Recipe.Stages[1].Steps[3] = recipe.Copy{From: recipe.Source{Kind: recipe.FromURL, Ref: "https://example.com/nccl.tar.gz"}}
		},
	} {
		b := sample()
		spoil(&b)
		if _, err := Statement(b); err == nil || !strings.Contains(err.Error(), what) {
			t.Errorf("New without %s = %v; want an error that names it", what, err)
		}
	}
}
