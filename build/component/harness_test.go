package component

import (
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/mod/module"

	"github.com/assay-hpc/assay/build/lock"
	"github.com/assay-hpc/assay/build/matrix"
	"github.com/assay-hpc/assay/build/recipe"
	"github.com/assay-hpc/assay/internal/certificate"
	"github.com/assay-hpc/assay/internal/golden"
)

func TestUpstream(t *testing.T) {
	for in, want := range map[string]string{
		"4.1.4-3+b1":                "4.1.4",
		"1:9.2p1-2+deb12u3":         "9.2p1",
		"1.13.1-1":                  "1.13.1",
		"4.2.2-1":                   "4.2.2",
		"2.0.16-1":                  "2.0.16",
		"4.5+0.17-2":                "4.5",
		"2:1.0":                     "1.0",
		"1.0-rc1-2":                 "1.0-rc1",
		"6.0.0+really5.0.9-3build1": "5.0.9",
		"":                          "",
	} {
		if got := matrix.UpstreamVersion(in); got != want {
			t.Errorf("matrix.UpstreamVersion(%q) = %q; want %q", in, got, want)
		}
	}
}

func TestExact(t *testing.T) {
	for _, tt := range []struct {
		version, output string
		want            bool
	}{
		{"4.1.4", "Open MPI v4.1.4", true},
		{"4.1.4", "4.1.4rc2", true},
		{"4.1.4", "mpirun (Open MPI) 4.1.4\n", true},
		{"4.1.4", "4.1.40", false},
		{"4.1.4", "14.1.4", false},
		{"4.1.4", "1.4.1.4", false},
		{"4.1.4", "4x1.4", false},
		{"2.0", "version 2.0.16", true}, // a prefix by whole numbers
	} {
		if got := regexp.MustCompile(matrix.ExactVersion(tt.version)).MatchString(tt.output); got != tt.want {
			t.Errorf("matrix.ExactVersion(%q) matches %q: %v; want %v", tt.version, tt.output, got, tt.want)
		}
	}
}

func TestSourceID(t *testing.T) {
	for in, want := range map[string]string{
		"sha256:0123456789abcdef": "tree-0123456",
		"sha256:0123456":          "tree-0123456",
		"sha256:":                 "unknown",
		"":                        "unknown",
	} {
		if got := sourceID(in); got != want {
			t.Errorf("sourceID(%q) = %q; want %q", in, got, want)
		}
	}
}

// TestHarnessStage: the harness is compiled by the builder's own architecture,
// for the image's, without network, from pinned modules.
func TestHarnessStage(t *testing.T) {
	in := input(t, fabric, arm64, amd64)
	r := resolved(t, in)
	s := r.Stage("harness-arm64")
	if s == nil || !s.Native || s.From.Kind != recipe.FromStage || !r.Stage(s.From.Ref).Native {
		t.Fatalf("the stage is %+v", s)
	}
	run := s.Steps[0].(recipe.Run)
	env := map[string]string{}
	for _, v := range run.Env {
		env[v.Name] = v.Value
	}
	if env["GOARCH"] != "arm64" || env["CGO_ENABLED"] != "1" || env["CC"] != "aarch64-linux-gnu-gcc" || run.Network || !strings.HasPrefix(env["GOPROXY"], "file://") {
		t.Errorf("it runs with %v, network %v", env, run.Network)
	}
	mounted := map[string]recipe.Source{}
	for _, m := range run.Mounts {
		mounted[m.Target] = m.From
	}
	for _, file := range []string{"github.com/!example/mod/@v/v1.2.3.mod", "github.com/!example/mod/@v/v1.2.3.zip", "golang.org/x/sys/@v/v0.48.0.zip"} {
		src := mounted[moduleDir+"/"+file]
		if src.Ref != "goproxy:"+file || src.Digest != "sha256:"+sum(src.Ref) {
			t.Errorf("module %s is %+v; want it pinned", file, src)
		}
	}
	if mounted["/src"].Digest != in.Source.Digest {
		t.Errorf("the source is %+v", mounted["/src"])
	}
	var downloads []string
	for _, st := range r.Stage(s.From.Ref).Steps {
		if run, ok := st.(recipe.Run); ok {
			for _, m := range run.Mounts {
				downloads = append(downloads, m.From.Ref)
			}
		}
	}
	if want := []string{"goproxy:golang.org/toolchain/@v/v0.0.1-go1.26.8.linux-amd64.zip"}; !slices.Equal(downloads, want) {
		t.Errorf("the toolchain is %q; want the builder's own, %q", downloads, want)
	}
}

// TestCUDAHarness: the stages that make the harness of a CUDA image, on a
// builder of the other architecture, are the golden.
func TestCUDAHarness(t *testing.T) {
	r := resolved(t, input(t, "cuda13.0.2-ubuntu24.04", arm64, amd64))
	part := *r
	part.Stages, part.Components, part.Absent, part.Config = nil, nil, nil, recipe.Config{}
	for _, s := range r.Stages {
		for _, prefix := range []string{"go-", "kernel-compiler", "ptx-", "harness-"} {
			if strings.HasPrefix(s.Name, prefix) {
				part.Stages = append(part.Stages, s)
			}
		}
	}
	for _, c := range r.Components {
		if c.Name == "harness" {
			part.Components = append(part.Components, c)
		}
	}
	golden.Check(t, "harness-cuda13.0.2-arm64.golden", describe(&part))
}

// TestCUDAHarnessShared: CUDA images of one CUDA and architecture have the same
// harness, and those of another CUDA have their own, with the headers and the
// compiler of that CUDA.
func TestCUDAHarnessShared(t *testing.T) {
	l := lock.New()
	stages := map[string]recipe.Stage{}
	for _, target := range targets(t) {
		in := input(t, target.Name, amd64, amd64)
		in.Lock = l
		r := resolved(t, in)
		name, kernels := "harness-cuda"+target.CUDA+"-amd64", cudaName((&builder{Input: in}).row("oldest", "own"))
		switch {
		case target.CUDA == "":
			name = "harness-amd64" // of each base
		case target.Base.Debootstrap != nil:
			kernels = cudaName(target)
			name = "harness-cuda" + target.CUDA + "-" + kernels + "-amd64"
		}
		if target.Version("cuda-toolkit") == "minimal" { // with the source's own kernels
			name = strings.TrimSuffix(name, "-amd64") + "-minimal-amd64"
		}
		s := r.Stage(name)
		if s == nil {
			t.Fatalf("%s has no stage %s", target.Name, name)
		}
		key := s.From.Ref + " " + name
		if have, ok := stages[key]; ok && !cmp.Equal(have, *s) {
			t.Errorf("%s: stage %s is another one:\n%s", target.Name, name, cmp.Diff(have, *s))
		}
		stages[key] = *s
		run := s.Steps[0].(recipe.Run)
		i := slices.IndexFunc(run.Mounts, func(m recipe.Mount) bool { return m.Target == cudaHome })
		if (i >= 0) != (target.CUDA != "") {
			t.Fatalf("%s: the harness is compiled with the mounts %v", target.Name, run.Mounts)
		}
		if i < 0 {
			continue
		}
		ptx := r.Stage("ptx-" + kernels)
		if target.Version("cuda-toolkit") == "minimal" {
			if ptx != nil {
				t.Errorf("%s compiles kernels: %+v", target.Name, ptx)
			}
			continue
		}
		if ptx == nil || !strings.Contains(ptx.From.Ref, ":"+target.CUDA+"-") && ptx.From.Ref != "cuda-"+kernels {
			t.Fatalf("%s: its kernels are compiled by %+v", target.Name, ptx)
		}
		headers, want := run.Mounts[i], "/usr/local/cuda-"+matrix.MajorMinor(target.CUDA)
		if kit, _ := kitOf(target); kit.scattered && target.Base.Debootstrap != nil {
			want = "/usr"
		}
		if headers.From != ptx.From || headers.Path != want {
			t.Errorf("%s: the headers are %+v; want %s of %+v", target.Name, headers, want, ptx.From)
		}
	}
}

// TestCrossCompilers: there are compilers for the architectures of the matrix,
// whichever the builder's is.
func TestCrossCompilers(t *testing.T) {
	for native, want := range map[recipe.Platform][]string{
		amd64: {"gcc-aarch64-linux-gnu", "libc6-dev-arm64-cross"},
		arm64: {"gcc-x86-64-linux-gnu", "libc6-dev-amd64-cross"},
	} {
		in := input(t, "cuda12.9.1-ubuntu24.04", arm64, native)
		b := &builder{Input: in}
		if got := b.crossCompilers(); !slices.Equal(got, want) {
			t.Errorf("on %v: %v; want %v", native, got, want)
		}
	}
}

func TestBadModule(t *testing.T) {
	in := input(t, fabric, amd64, amd64)
	in.Source.Modules = []module.Version{{Path: "not a path", Version: "v1"}}
	if _, err := Make(in); err == nil || !strings.Contains(err.Error(), `target fabric-debian12: module "not a path"`) {
		t.Errorf("Make = %v; want the module named", err)
	}
}

// TestSourceChangesRecipe: another source of the harness is another image.
func TestSourceChangesRecipe(t *testing.T) {
	in := input(t, fabric, amd64, amd64)
	want := resolved(t, in).Hash()
	in.Source.Digest = "sha256:" + sum("other")
	if make1(t, in).Recipe.Hash() == want {
		t.Error("the recipe's hash does not cover the harness's source")
	}
}

func TestOldest(t *testing.T) {
	cuda := func(release, version string) matrix.Target {
		return matrix.Target{Name: version + release, Distro: "ubuntu", Release: release, CUDA: version, Base: matrix.Base{Image: "docker.io/cuda:" + version}}
	}
	debian := matrix.Target{Name: "debian", Distro: "debian", Release: "12", Base: matrix.Base{Debootstrap: &matrix.Debootstrap{Suite: "bookworm", Variant: "minbase"}}}
	all := []matrix.Target{cuda("24.04", "12.9.1"), cuda("22.04", "12.10.0"), cuda("22.04", "12.9.1"), debian}
	for _, tt := range []struct {
		of   matrix.Target
		want string
	}{{all[0], "12.9.122.04"}, {all[1], "12.9.122.04"}, {all[2], "12.9.122.04"}, {debian, "debian"}} {
		if got := oldest(tt.of, all); got.Name != tt.want {
			t.Errorf("oldest(%s) = %s; want %s", tt.of.Name, got.Name, tt.want)
		}
	}
	if got, want := baseName(all[0])+" "+baseName(debian), "cuda12.9.1-ubuntu24.04 bookworm"; got != want {
		t.Errorf("baseName = %q; want %q", got, want)
	}
}

// TestScripts holds every script of every recipe against the shell's own
// parser.
func TestScripts(t *testing.T) {
	seen := map[string]bool{}
	l := lock.New()
	for _, target := range targets(t) {
		in := input(t, target.Name, amd64, amd64)
		in.Lock = l
		for _, s := range resolved(t, in).Stages {
			for _, st := range s.Steps {
				var script string
				switch st := st.(type) {
				case recipe.Run:
					script = st.Script
				case recipe.Apt:
					script = st.Script()
				case recipe.File:
					if strings.HasPrefix(st.Content, "#!/bin/sh") || strings.HasSuffix(st.Path, ".sh") {
						script = st.Content
					}
				}
				if seen[script] {
					continue
				}
				seen[script] = true
				cmd := exec.Command("/bin/sh", "-n")
				cmd.Stdin = strings.NewReader(script)
				if out, err := cmd.CombinedOutput(); err != nil {
					t.Errorf("%s, stage %s: sh -n: %v\n%s\n%s", target.Name, s.Name, err, out, script)
				}
			}
		}
	}
}

// TestRow: what is compiled once for several rows is compiled on the oldest release, and on the plain
// image of it.
func TestRow(t *testing.T) {
	all := targets(t)
	for _, tt := range []struct{ of, distro, cuda, want string }{
		{"cuda12.2.2-ubuntu22.04", "oldest", "own", "cuda12.2.2-ubuntu20.04"},
		{"cuda12.9.1-ubuntu24.04-efa", "oldest", "own", "cuda12.9.1-ubuntu20.04"},
		{"cuda13.2.1-ubuntu24.04", "oldest", "", "cuda13.2.1-ubuntu22.04"},
		{"cuda13.4.2-ubuntu22.04", "oldest", "own", "cuda13.4.2-ubuntu22.04"},
		{"cuda12.9.1-ubuntu24.04-efa", "", "", "cuda12.9.1-ubuntu24.04"},
		{"cuda13.4.2-ubuntu24.04", "oldest", "highest-of-major", "cuda13.4.2-ubuntu22.04"},
		{"cuda12.9.1-ubuntu24.04", "oldest", "lowest-of-major", "cuda12.2.2-ubuntu20.04"},
		{"cuda12.4-debian13", "oldest", "lowest-of-major", "cuda12.4-debian13"},
		{"fabric-debian12", "oldest", "own", "fabric-debian12"},
	} {
		b := &builder{Input: Input{Target: named(t, all, tt.of), All: all}}
		if got := b.row(tt.distro, tt.cuda).Name; got != tt.want {
			t.Errorf("row(%q, %q) of %s = %s; want %s", tt.distro, tt.cuda, tt.of, got, tt.want)
		}
	}
}

// TestReleasedHarness: with a release's harness an image downloads one archive and compiles nothing
// of assay's.
func TestReleasedHarness(t *testing.T) {
	for _, c := range []struct{ target, keep, archive string }{
		{fabric, "hwloc", "harness"},
		{fabric, "hwloc ssh rdma-core", "harness-cuda"},
		{"cuda13.0.2-ubuntu24.04", "hwloc", "harness-cuda"},
		{"cuda13.1-ubuntu26.04-runtime", "cuda-toolkit hwloc", "harness-cuda"},
	} {
		in := input(t, c.target, amd64, amd64)
		in.Target.Platforms = []recipe.Platform{amd64}
		in.Target.Components = slices.DeleteFunc(slices.Clone(in.Target.Components), func(has matrix.Component) bool {
			return !slices.Contains(strings.Fields(c.keep), has.Name)
		})
		in.Target.Components = append(in.Target.Components, matrix.Component{Name: "harness", Version: released})
		if problems := Check([]matrix.Target{in.Target}); problems != nil {
			t.Errorf("%s: %+v", c.target, problems)
		}
		r := resolved(t, in)
		var downloads []string
		for _, s := range r.Stages {
			for _, step := range s.Steps {
				run, _ := step.(recipe.Run)
				for _, m := range run.Mounts {
					if m.From.Kind == recipe.FromURL {
						downloads = append(downloads, m.From.Ref)
					} else if m.From.Kind == recipe.FromLayout && m.From.Ref == HarnessSource {
						t.Errorf("%s: stage %s mounts the harness's source", c.target, s.Name)
					}
				}
			}
		}
		want := []string{"https://github.com/assay-hpc/assay/releases/download/v0.1.0/" + c.archive + "_0.1.0_linux_amd64.tar.gz"}
		if !slices.Equal(downloads, want) {
			t.Errorf("%s downloads %q; want %q", c.target, downloads, want)
		}
		i := slices.IndexFunc(r.Components, func(has certificate.Component) bool { return has.Name == "harness" })
		if h := r.Components[i]; h.Version != "0.1.0" || len(h.Sources) != 1 || h.Sources[0].URL != want[0] || h.Sources[0].Digest == "" {
			t.Errorf("%s: the harness is declared as %+v", c.target, h)
		}
		library := slices.ContainsFunc(r.Image().Steps, func(step recipe.Step) bool {
			c, is := step.(recipe.Copy)
			return is && c.Dst == libncclDir+"/"
		})
		if library != (in.Target.CUDA != "") {
			t.Errorf("%s: libnccl.so.2 is copied: %v", c.target, library)
		}
	}
}
