package component

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/assay-hpc/assay/build/lock"
	"github.com/assay-hpc/assay/build/matrix"
	"github.com/assay-hpc/assay/build/recipe"
	"github.com/assay-hpc/assay/internal/certificate"
)

const (
	torch  = "registry.example/nvidia/pytorch:25.10-py3"
	devel  = "docker.io/nvidia/cuda:13.0.2-devel-ubuntu24.04"
	asBase = `{image: "` + torch + `", build: "` + devel + `", has: {cuda: /usr/local/cuda, mpi: /usr/local/mpi, nccl: 2.28.3-1}}`
	oneRow = `axes: {ubuntu: ["24.04"], cuda: [13.0.2], platforms: [linux/amd64, linux/arm64]}
tag: "{cuda}-{ubuntu}-{recipe}"
capabilities: [{cuda: ">=13", compile: ["9.0", "10.0"]}]
base: docker.io/nvidia/cuda:{cuda}-devel-ubuntu{ubuntu}
components: {ssh: distro, hpcx: "2.26", gdrcopy: 2.5.2, nccl: 2.30.4-1, sharp: bundled, nccl-tests: 2.17.6, perftest: 26.04.17, nvbandwidth: "0.9", harness: source}
`
)

// recipes makes all recipes of a matrix, by target and architecture.
func recipes(t *testing.T, text string) map[string]Result {
	t.Helper()
	f, all, err := Read("m.yaml", strings.NewReader(text), nil)
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]Result{}
	for _, target := range all {
		for _, p := range target.Platforms {
			r, err := Make(Input{Target: target, All: all, Platform: p, Native: p, Lock: lock.New(), Source: Source{Digest: "sha256:0123456789", Version: "1", Go: "1.26.8"}, Definition: f.Definition})
			if err != nil {
				t.Fatal(err)
			}
			out[target.Name+" "+p.Arch] = r
		}
	}
	return out
}

// images returns the images that stages of a recipe start from or mount, by stage.
func images(r *recipe.Recipe) map[string][]string {
	out := map[string][]string{}
	for _, s := range r.Stages {
		for _, src := range s.Sources() {
			if src.Kind == recipe.FromImage && !slices.Contains(out[s.Name], src.Ref) {
				out[s.Name] = append(out[s.Name], src.Ref)
			}
		}
	}
	return out
}

// TestMatricesOfPeople: what is compiled takes its systems from the matrix's own images alone, and the
// lock asks for these and no others.
func TestMatricesOfPeople(t *testing.T) {
	const debian = `{image: "docker.io/library/debian:12"}`
	for name, c := range map[string]struct {
		text string
		want []string
	}{
		"CUDA 13 alone":        {head + oneRow, []string{devel}},
		"one row of include":   {head + strings.Replace(strings.Replace(oneRow, "axes: {", "include: [{", 1), `ubuntu: ["24.04"], cuda: [13.0.2], platforms: [linux/amd64, linux/arm64]}`, `ubuntu: "24.04", cuda: 13.0.2, platforms: [linux/amd64]}]`, 1), []string{devel}},
		"a runtime":            {head + strings.Replace(oneRow, "base: docker.io/nvidia/cuda:{cuda}-devel-ubuntu{ubuntu}", "base: {image: \"docker.io/nvidia/cuda:{cuda}-runtime-ubuntu{ubuntu}\", build: \"docker.io/nvidia/cuda:{cuda}-devel-ubuntu{ubuntu}\"}", 1), []string{devel, "docker.io/nvidia/cuda:13.0.2-runtime-ubuntu24.04"}},
		"one image, no CUDA":   {image("debian", "12", debian, "", "ssh: distro", "openmpi: distro", "jq: {packages: [jq]}", "harness: source"), []string{"docker.io/library/debian:12"}},
		"one image":            {brought(`{image: "registry.example/site/cuda13:1", has: {cuda: /opt/cuda}}`, "ssh: distro", `hpcx: "2.26"`, "gdrcopy: 2.5.2", "nccl: 2.30.4-1", "sharp: bundled", "nccl-tests: 2.17.6", "perftest: 26.04.17", `nvbandwidth: "0.9"`), []string{"registry.example/site/cuda13:1"}},
		"NGC":                  {brought(asBase, "ssh: distro", "gdrcopy: 2.5.2", "nccl-tests: 2.17.6", "perftest: 26.04.17", `nvbandwidth: "0.9"`), []string{devel, torch}},
		"NGC beside NVIDIA's":  {strings.Replace(brought(asBase, "nccl-tests: 2.17.6", "perftest: 26.04.17"), "images:", oneRow+"images:", 1), []string{devel, torch}},
		"NGC beside no CUDA's": {strings.Replace(brought(asBase), "images:\n", strings.TrimPrefix(image("ubuntu", "22.04", `{image: "docker.io/library/ubuntu:22.04"}`, "", "harness: source"), head), 1), []string{devel, torch, "docker.io/library/ubuntu:22.04"}},
	} {
		text := c.text
		if name == "NGC beside no CUDA's" {
			text = strings.Replace(text, "name: one", "name: zero", 1)
		}
		var got []string
		for _, r := range recipes(t, text) {
			for _, m := range r.Missing {
				if m.Key == "" || strings.Contains(m.Key, "-/") {
					t.Errorf("%s lacks %+v", name, m)
				}
				if m.Kind == MissingImage && !slices.Contains(got, m.Key) {
					got = append(got, m.Key)
				}
			}
		}
		slices.Sort(got)
		slices.Sort(c.want)
		if !slices.Equal(got, c.want) {
			t.Errorf("%s: the images are %q; want %q", name, got, c.want)
		}
	}
}

// TestBroughtBase: components are compiled on the image for that, with the MPI and NCCL of the base; what
// the base has is declared as its own, and paths are checked.
func TestBroughtBase(t *testing.T) {
	r := recipes(t, brought(asBase, "nccl-tests: 2.17.6", "gdrcopy: 2.5.2"))["one amd64"].Recipe
	for stage, refs := range images(r) {
		want := []string{devel}
		switch {
		case stage == "image":
			want = []string{torch, devel} // one is compared with the other
		case strings.HasPrefix(stage, "nccl-tests-"):
			want = []string{devel, torch}
		}
		slices.Sort(refs)
		slices.Sort(want)
		if !slices.Equal(refs, want) {
			t.Errorf("stage %s takes %q; want %q", stage, refs, want)
		}
	}
	for _, s := range r.Stages {
		for _, st := range s.Steps {
			run, _ := st.(recipe.Run)
			for _, m := range run.Mounts {
				if m.Target == cudaHome && (m.From.Ref != devel || m.Path != "/usr/local/cuda") {
					t.Errorf("stage %s mounts %s of %s as CUDA", s.Name, m.Path, m.From.Ref)
				}
			}
			if s.Name == "image" && strings.Contains(fmt.Sprint(st), "build-essential") {
				t.Errorf("a compiler goes into an image whose components are compiled elsewhere: %v", st)
			}
			if strings.HasPrefix(s.Name, "nccl-tests-") && !strings.Contains(run.Script, "MPI_HOME=/usr/local/mpi ") {
				t.Errorf("nccl-tests are not compiled with the base's MPI:\n%s", run.Script)
			}
		}
	}
	check := func(path string) []certificate.Check {
		return []certificate.Check{{Name: "has " + path, Kind: certificate.CheckFile, Path: path}}
	}
	base := torch + "@unresolved"
	want := []certificate.Component{
		{Name: "cuda", Version: "13.0.2", License: certificate.NoAssertion, Base: base, Checks: check("/usr/local/cuda")},
		{Name: "mpi", License: certificate.NoAssertion, Base: base, Checks: check("/usr/local/mpi")},
		{Name: "nccl", Version: "2.28.3-1", License: "Apache-2.0 AND BSD-3-Clause", Homepage: "https://github.com/NVIDIA/nccl", Base: base},
	}
	if got := r.Components[:3]; fmt.Sprintf("%+v", got) != fmt.Sprintf("%+v", want) {
		t.Errorf("it declares %+v\nwant %+v", got, want)
	}
}

// TestInstalled: a set whose packages the base has all is complete, and so is a component's version.
func TestInstalled(t *testing.T) {
	text := image("debian", "12", `{image: "docker.io/library/debian:12"}`, "", "jq: {packages: [jq]}", "harness: source")
	f, all, err := Read("m.yaml", strings.NewReader(text), nil)
	if err != nil {
		t.Fatal(err)
	}
	p := all[0].Platforms[0]
	in := Input{Target: all[0], All: all, Platform: p, Native: p, Lock: lock.New(), Definition: f.Definition}
	for {
		r, err := Make(in)
		if err != nil {
			t.Fatal(err)
		}
		i := slices.IndexFunc(r.Missing, func(m Missing) bool { return m.Kind == MissingDebs })
		if i < 0 {
			if got := r.Recipe.Components[0]; got.Name != "jq" || got.Version != "1.6-2.1" {
				t.Errorf("the component is %+v; want jq 1.6-2.1", got)
			}
			return
		}
		m := r.Missing[i]
		in.Lock.Debs[m.Key] = lock.PackageSet{Request: m.Request, Installed: map[string]string{"jq": "1.6-2.1"}}
	}
}

// TestAssayBase: an image of assay's, as the base, brings the harness and its declaration.
func TestAssayBase(t *testing.T) {
	r := recipes(t, image("debian", "12", `{image: "registry.example/assay/fabric:1", has: {harness: /opt/assay/bin/harness}}`, "", "jq: {packages: [jq]}"))["one amd64"].Recipe
	var kept []string
	for _, step := range r.Image().Steps {
		if c, is := step.(recipe.Copy); is && c.From.Kind == recipe.FromImage {
			kept = append(kept, c.Src+" "+c.Dst)
		}
	}
	if want := []string{"/var/lib/dpkg/status /opt/assay/base/dpkg-status", "/etc/ld.so.cache /opt/assay/base/ld.so.cache", "/opt/assay/image.json /opt/assay/base/image.json"}; !slices.Equal(kept, want) {
		t.Errorf("of the base are copied %q; want %q", kept, want)
	}
	// A lock from before the matrix said so has the digest, and nobody verified the certificate.
	in := input(t, fabric, amd64, amd64)
	in.Target.Base = matrix.Base{Image: "registry.example/assay/fabric:1", Own: true, Has: []matrix.Has{{Name: "harness", Value: "/opt/assay/bin/harness"}}}
	in.Target.Components = []matrix.Component{{Name: "hwloc", Version: "distro"}}
	for from, want := range map[string]bool{"resolved": true, lock.Certified: false} {
		in.Lock.Images[in.Target.Base.Image] = lock.Entry{Digest: "sha256:" + sum("fabric"), From: from}
		if lacks := slices.ContainsFunc(make1(t, in).Missing, func(m Missing) bool { return m.Kind == MissingImage }); lacks != want {
			t.Errorf("with a base that is %s the lock lacks it: %v; want %v", from, lacks, want)
		}
	}
	spec := r.Spec()
	if len(r.Stages) != 1 || spec.AssayBase() != "registry.example/assay/fabric:1@unresolved" {
		t.Errorf("it has %d stages, and the base %q", len(r.Stages), spec.AssayBase())
	}
}
