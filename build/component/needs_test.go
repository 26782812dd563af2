package component

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/assay-hpc/assay/build/lock"
	"github.com/assay-hpc/assay/build/matrix"
)

// checked parses a matrix, expands it, checks it and, if nothing is wrong, makes all recipes.
func checked(text string) error {
	_, all, err := Read("m.yaml", strings.NewReader(text), nil)
	if err != nil {
		return err
	}
	for _, t := range all {
		for _, p := range t.Platforms {
			if _, err := Make(Input{Target: t, All: all, Platform: p, Native: p, Lock: lock.New(), Source: Source{Digest: "sha256:0123456789", Version: "1", Go: "1.26.8"}}); err != nil {
				return fmt.Errorf("nothing was wrong, and %s cannot be made: %w", t.Name, err)
			}
		}
	}
	return nil
}

const head = "version: 1\nrepository: ghcr.io/x/y\n"

// image is a matrix with one image written out.
func image(distro, release, base, more string, components ...string) string {
	return head + fmt.Sprintf("images:\n  - name: one\n    distro: %s\n    release: %q\n    base: %s\n    platforms: [linux/amd64]\n    tag: \"{name}-{recipe}\"\n%s    components:\n      %s\n",
		distro, release, base, more, strings.Join(components, "\n      "))
}

// rows is a matrix of CUDA images.
func rows(cuda, base, capabilities string, components ...string) string {
	return head + fmt.Sprintf("axes:\n  ubuntu: [\"24.04\"]\n  cuda: [%s]\n  platforms: [linux/amd64]\nbase: %s\ntag: \"{cuda}-{ubuntu}-{recipe}\"\ncapabilities:\n  - {cuda: \">=1\", compile: [%s]}\ncomponents:\n  %s\n",
		cuda, base, capabilities, strings.Join(components, "\n  "))
}

// brought is a matrix of one image with CUDA 13 on a base that a user brings.
func brought(base string, components ...string) string {
	return image("ubuntu", "24.04", base, cuda130, append(components, "harness: source")...)
}

const (
	bookworm = "{debootstrap: {suite: bookworm, variant: minbase}}"
	trixie   = "{debootstrap: {suite: trixie, variant: minbase}}"
	nvidia   = "docker.io/nvidia/cuda:{cuda}-devel-ubuntu{ubuntu}"
	cuda130  = "    cuda: 13.0.2\n    compile: [\"9.0\"]\n"
	noble    = "{debootstrap: {suite: noble, variant: minbase}}"
	cuda120  = "    cuda: 12.0.1\n    compile: [\"9.0\"]\n"
	cuda124  = "    cuda: 12.4.1\n    compile: [\"9.0\"]\n"
)

// citation is where an error says that a component's file wants something: file, line, field and value.
var citation = regexp.MustCompile(`(build/component/\S+/component\.yaml):(\d+) wants (\S+) "([^"]+)"`)

// TestImpossible: what cannot be built is refused before anything is, with line, field and remedy.
func TestImpossible(t *testing.T) {
	for name, c := range map[string]struct{ text, want string }{
		"NCCL without CUDA":              {image("debian", "12", bookworm, "", "harness: source", "nccl: 2.30.4-1"), "m.yaml:12:13: images[0].components.nccl: impossible in one: nccl needs CUDA"},
		"an old capability":              {rows("12.9.1, 13.0.2", nvidia, `"7.0", "9.0"`, "harness: source"), "m.yaml:10:29: capabilities: impossible in cuda13.0.2-ubuntu24.04: nvcc compiles for 7.0 before CUDA 13 only"},
		"a new capability":               {rows("12.4.1", nvidia, `"9.0", "10.0"`, "harness: source"), "nvcc compiles for 10.0 from CUDA 12.8 on"},
		"no such capability":             {rows("12.4.1", nvidia, `"6.7", "9.0"`, "harness: source"), "there is no GPU with the compute capability 6.7"},
		"capability of an image":         {image("debian", "13", trixie, "    cuda: 12.4.1\n    compile: [\"9.0\", \"12.0\"]\n", "cuda-toolkit: devel", "harness: source"), "images[0].compile: impossible in one"},
		"NCCL newer than CUDA":           {image("ubuntu", "24.04", noble, cuda120, "cuda-toolkit: devel", "harness: source", "nccl: 2.30.4-1"), "its sources use what they declare for CUDA 12.1 and later alone"},
		"nvbandwidth newer than CUDA":    {image("ubuntu", "24.04", noble, cuda120, "cuda-toolkit: devel", "harness: source", `nvbandwidth: "0.8"`), "multimem instructions, which nvcc knows from CUDA 12.1 on"},
		"SHARP without HPC-X":            {rows("12.9.1", nvidia, `"9.0"`, "harness: source", "sharp: bundled"), "components.sharp: impossible in cuda12.9.1-ubuntu24.04: sharp needs hpcx"},
		"cuDNN on Debian":                {image("debian", "13", trixie, cuda124, "cuda-toolkit: devel", "harness: source", "cudnn: 9.20.0.48-1"), "images[0].components.cudnn: impossible in one: cudnn: it is in NVIDIA's archives"},
		"cuDNN without CUDA":             {image("debian", "12", bookworm, "", "harness: source", "cudnn: 9.20.0.48-1"), "cudnn needs CUDA"},
		"Rocky that is called Ubuntu":    {rows("12.9.1", "docker.io/nvidia/cuda:{cuda}-devel-rockylinux9", `"9.0"`, "harness: source"), "m.yaml:7:7: base: impossible in cuda12.9.1-ubuntu24.04: the base docker.io/nvidia/cuda:12.9.1-devel-rockylinux9 is by its name one of rockylinux"},
		"Rocky's image":                  {image("ubuntu", "24.04", `{image: "docker.io/rockylinux/rockylinux:9"}`, "", "harness: source"), "images[0].base: impossible in one: the base docker.io/rockylinux/rockylinux:9 is by its name one of rockylinux"},
		"another release":                {image("ubuntu", "24.04", `{image: "docker.io/library/ubuntu:22.04"}`, "", "harness: source"), "is by its name ubuntu 22.04, and the image is called ubuntu 24.04"},
		"another suite":                  {image("debian", "13", bookworm, "", "harness: source"), "the suite bookworm is debian 12, and the image is called debian 13"},
		"a suite of another":             {image("ubuntu", "24.04", bookworm, "", "harness: source"), "the suite bookworm is debian 12, and the image is called ubuntu 24.04"},
		"no such Ubuntu":                 {image("ubuntu", "28.04", "{debootstrap: {suite: sonorous, variant: minbase}}", "", "harness: source"), "no suite sonorous of ubuntu is known; write one of jammy, noble, resolute"},
		"UCX without InfiniBand":         {image("ubuntu", "26.04", "{debootstrap: {suite: resolute, variant: minbase}}", "", "harness: source", "ucx: distro"), "ucx: Ubuntu compiles it without InfiniBand and RoCE there; take a release in place of distro (build/component/ucx/component.yaml wants ubuntu \"<26.04\"); leave it out there"},
		"no such NCCL":                   {rows("12.9.1", nvidia, `"9.0"`, "harness: source", "nccl: 9.99.9"), `nccl has no release "9.99.9"; write the version of a release as in "2.30.4-1"`},
		"no such major version":          {rows("12.9.1", nvidia, `"9.0"`, "harness: source", "nccl: 9.99.9-1"), `nccl has no release "9.99.9-1"`},
		"NCCL of the distribution":       {rows("12.9.1", nvidia, `"9.0"`, "harness: source", "nccl: distro"), `nccl has no release "distro"`},
		"a version that nothing reads":   {image("debian", "12", bookworm, "", "harness: source", "hwloc: 9.9.9"), `images[0].components.hwloc: impossible in one: hwloc has no version "9.9.9" here: nothing reads it; write "distro"`},
		"perftest without CUDA":          {image("debian", "12", bookworm, "", "harness: source", "perftest: 26.04.17"), `perftest: only images with CUDA compile perftest (build/component/perftest/component.yaml wants version "distro"); write "distro", or leave it out`},
		"perftest of the distribution":   {rows("12.9.1", nvidia, `"9.0"`, "harness: source", "perftest: distro"), `perftest: the distribution's perftest has no CUDA`},
		"a version of ssh":               {image("debian", "12", bookworm, "", "harness: source", "ssh: 9.9p1"), `write "distro"`},
		"a version of the harness":       {image("debian", "12", bookworm, "", "harness: 1.2.3"), `harness has no version "1.2.3" here: nothing reads it; write "source" or "release"`},
		"a release for arm64":            {strings.Replace(image("debian", "12", bookworm, "", "harness: release", "rdma-core: distro"), "linux/amd64", "linux/arm64", 1), "images[0].components.harness: impossible in one: a release has the harness that loads CUDA and RDMA for linux/amd64 alone, and the image is for linux/arm64"},
		"a release on an old Ubuntu":     {strings.ReplaceAll(rows("12.9.1", nvidia, `"9.0"`, "harness: release"), "24.04", "20.04"), "components.harness: impossible in cuda12.9.1-ubuntu20.04: a release's harness wants the C library of Ubuntu 22.04 or a newer one"},
		"a release without nvcc":         {rows("12.9.1", "docker.io/nvidia/cuda:{cuda}-runtime-ubuntu{ubuntu}", `"9.0"`, "harness: release", "nccl: 2.30.4-1"), "docker.io/nvidia/cuda:12.9.1-runtime-ubuntu24.04 is by its name without CUDA's compiler, and nccl is compiled with that"},
		"a version of SHARP":             {rows("12.9.1", nvidia, `"9.0"`, "harness: source", `hpcx: "2.26"`, `sharp: "3.1"`), `write "bundled"`},
		"a flavour of CUDA":              {image("debian", "13", trixie, cuda124, "cuda-toolkit: full", "harness: source"), `write "devel" or "runtime" or "minimal"`},
		"no harness":                     {image("debian", "12", bookworm, "", "hwloc: distro"), "images[0].components: impossible in one: the image has no harness"},
		"no harness in rows":             {rows("12.9.1, 12.8.2", nvidia, `"9.0"`, "ssh: distro"), "components: impossible in cuda12.9.1-ubuntu24.04 and 1 more: the image has no harness"},
		"tests without NCCL":             {rows("12.9.1", nvidia, `"9.0"`, "harness: source", `hpcx: "2.26"`, "nccl-tests: 2.17.6"), "nccl-tests needs nccl"},
		"tests without MPI":              {rows("12.9.1", nvidia, `"9.0"`, "harness: source", "nccl: 2.30.4-1", "nccl-tests: 2.17.6"), "nccl-tests: they are built with the image's MPI (build/component/nccl-tests/component.yaml wants hpcx \"present\"); add it, or leave this out"},
		"OFED on Debian":                 {image("debian", "12", bookworm, "", "harness: source", "ofed: 3.2.2"), "ofed needs a base of Ubuntu, which this image has not"},
		"a CUDA that Debian has not":     {image("debian", "13", trixie, "    cuda: 12.9.1\n    compile: [\"9.0\"]\n", "cuda-toolkit: devel", "harness: source"), "images[0].cuda: impossible in one: it is not known that debian 13 has CUDA 12.9.1; write the CUDA that debian 13 has: 12.4"},
		"a newer C library":              {brought("{image: \"registry.example/site/torch:1\", build: \"docker.io/nvidia/cuda:13.0.2-devel-ubuntu26.04\", has: {cuda: /usr/local/cuda}}"), `m.yaml:7:59: images[0].base.build: impossible in one: docker.io/nvidia/cuda:13.0.2-devel-ubuntu26.04 is by its name ubuntu 26.04 with the C library 2.43, and ubuntu 24.04 has 2.39: what is compiled there does not run here; take one of ubuntu 24.04, or of an older release`},
		"a newer C library of another":   {brought("{image: \"registry.example/site/torch:1\", build: \"registry.example/site/debian:13\", has: {cuda: /usr/local/cuda}}"), `is by its name debian 13 with the C library 2.41, and ubuntu 24.04 has 2.39`},
		"a build of Rocky":               {brought("{image: \"registry.example/site/torch:1\", build: \"docker.io/nvidia/cuda:13.0.2-devel-rockylinux9\", has: {cuda: /usr/local/cuda}}"), `components are compiled with packages of Debian or Ubuntu; take one of ubuntu`},
		"a runtime without a build":      {brought("{image: \"docker.io/nvidia/cuda:13.0.2-runtime-ubuntu24.04\", has: {cuda: /usr/local/cuda}}"), `m.yaml:7:11: images[0].base: impossible in one: docker.io/nvidia/cuda:13.0.2-runtime-ubuntu24.04 is by its name without CUDA's compiler, and the harness's kernels are compiled with that; write the image with it under base, as in "build: docker.io/nvidia/cuda:13.0.2-devel-ubuntu24.04"`},
		"runtimes without a build":       {rows("12.9.1, 13.0.2", "docker.io/nvidia/cuda:{cuda}-cudnn-runtime-ubuntu{ubuntu}", `"9.0"`, "harness: source"), `m.yaml:7:7: base: impossible in cuda12.9.1-ubuntu24.04 and 1 more: docker.io/nvidia/cuda:12.9.1-cudnn-runtime-ubuntu24.04 is by its name without CUDA's compiler`},
		"tests with the NCCL of a base":  {brought(`{image: "registry.example/site/torch:1", has: {cuda: /usr/local/cuda, nccl: 2.28.3-1}}`, "nccl-tests: 2.17.6"), `nccl-tests: they are built with the image's MPI (build/component/nccl-tests/component.yaml wants hpcx "present"); add it, or leave this out; if the base has it, say so under "has"`},
		"HPC-X on Debian":                {image("debian", "12", `{image: "registry.example/site/torch:1", has: {cuda: /usr/local/cuda}}`, cuda130, "harness: source", `hpcx: "2.26"`), `hpcx: NVIDIA builds it for Ubuntu`},
		"a toolkit on a base of another": {image("ubuntu", "24.04", `{image: "docker.io/library/ubuntu:24.04"}`, cuda124, "cuda-toolkit: devel", "harness: source"), "cuda-toolkit is for bases made with debootstrap"},
	} {
		err := checked(c.text)
		all, ok := errors.AsType[matrix.Errors](err)
		if !ok || !strings.Contains(citation.ReplaceAllString(err.Error(), `$1 wants $3 "$4"`), c.want) || len(all) != 1 {
			t.Errorf("%s: %v\nwant %s, alone", name, err, c.want)
			continue
		}
		for _, m := range citation.FindAllStringSubmatch(err.Error(), -1) {
			file, _ := strings.CutPrefix(m[1], "build/component/")
			text, err := os.ReadFile(file)
			n, _ := strconv.Atoi(m[2])
			if lines := strings.Split(string(text), "\n"); err != nil || n > len(lines) || !strings.Contains(lines[n-1], m[3]+": "+m[4]) && !strings.Contains(lines[n-1], fmt.Sprintf("%s: %q", m[3], m[4])) {
				t.Errorf("%s: %s:%s does not say %s: %s (%v)", name, m[1], m[2], m[3], m[4], err)
			}
		}
	}
}

// TestPossible: what can be built is not refused, and needs has each component.
func TestPossible(t *testing.T) {
	for _, text := range []string{
		image("debian", "12", bookworm, "", "harness: source"),
		image("debian", "15", "{debootstrap: {suite: duke, variant: minbase}}", "", "harness: source"),
		image("ubuntu", "26.04", "{debootstrap: {suite: resolute, variant: minbase}}", "", "harness: source"),
		image("ubuntu", "24.04", `{image: "docker.io/library/ubuntu:noble"}`, "", "harness: source", "ssh: distro"),
		image("ubuntu", "24.04", `{image: "registry.corp/rocky-mirror/ubuntu:24.04"}`, "", "harness: source", "ofed: 3.2.2"),
		rows("13.0.2", nvidia, `"9.0"`, "harness: source"),
		rows("12.9.1, 13.0.2", nvidia, `"8.0", "9.0"`, "harness: source", "nccl: 2.30.4-1"),
		rows("12.9.1", nvidia, `"8.0", "99.0"`, "harness: source"),
		rows("12.9.1", "docker.io/nvidia/cuda:{cuda}-runtime-ubuntu{ubuntu}", `"9.0"`, "harness: release"),
		// A row that has variants alone.
		strings.Replace(rows("12.9.1", nvidia, `"9.0"`, "harness: source", "nccl: 2.30.4-1", "perftest: 26.04.17"), "components:", "variants:\n  - name: other\nexclude:\n  - {when: {variant: none}, because: no reason}\ncomponents:", 1),
	} {
		if err := checked(text); err != nil {
			t.Errorf("%v\n%s", err, text)
		}
	}
	if problems := Check(targets(t)); problems != nil {
		t.Errorf("the real matrix: %+v", problems)
	}
	for _, name := range Library().Names() {
		if len(Library().Definition(name).Versions()) == 0 {
			t.Errorf("%s has no versions", name)
		}
	}
}

// randomMatrix is a matrix of known keys with right and odd values.
func randomMatrix(r *rand.Rand) string {
	odds := []int{2, 3, 30}[r.IntN(3)]    // one value of so many is odd
	pick := func(from ...string) string { // the first is right
		if r.IntN(odds) > 0 {
			return from[0]
		}
		return from[r.IntN(len(from))]
	}
	version := func(name string) string {
		odd := []string{"distro", "source", "bundled", "devel", "runtime", "9.99.9", "1", "0", "2.", "x", "1:2", "1-", "2.1.1-1", `"2.30"`, "26.04.17", "~", ""}
		good := Library().Definition(name).Versions()
		return pick(append([]string{fmt.Sprintf("%q", good[0])}, odd...)...)
	}
	parts := func(indent string) string {
		var b strings.Builder
		names := Library().Names()
		r.Shuffle(len(names), func(i, j int) { names[i], names[j] = names[j], names[i] })
		if r.IntN(odds) > 0 {
			fmt.Fprintf(&b, "%sharness: source\n", indent)
		}
		names = slices.DeleteFunc(names, func(n string) bool { return n == "harness" || n == "cuda-toolkit" && r.IntN(9) > 0 })
		for _, n := range names[:1+r.IntN(6)] {
			fmt.Fprintf(&b, "%s%s: %s\n", indent, n, version(n))
		}
		return b.String()
	}
	capabilities := func() string {
		return pick(`"9.0"`, `"8.0", "9.0"`, `"7.0"`, `"5.0", "10.0"`, `"1.0"`, `"99.9"`, `"9"`)
	}
	cuda := func() string { return pick("12.4.1", "12.9.1", "13.0.2", "11.8.0", "99.0.0", "1.0.0", "12.4") }
	// A mapping with what the base has, of which more is first.
	has := func(more string) string {
		for _, n := range Library().Names() {
			if r.IntN(12) == 0 {
				more += fmt.Sprintf(", %s: %s", n, pick("2.28.3-1", "/opt/"+n, "1.0", "x", "{}"))
			}
		}
		if more = strings.TrimPrefix(more, ", "); more == "" {
			return ""
		}
		return ", has: {" + more + "}"
	}
	build := func(image string) string {
		if r.IntN(2) == 0 {
			return ""
		}
		return pick(", build: "+image, ", build: x")
	}
	var b strings.Builder
	b.WriteString(head)
	if r.IntN(2) == 0 {
		b.WriteString("images:\n")
		for i := range 1 + r.IntN(2) {
			release, base, more := "12", bookworm, ""
			toolkit := false
			withCUDA := fmt.Sprintf("    cuda: %s\n    compile: [%s]\n", cuda(), capabilities())
			switch r.IntN(4) {
			case 0:
				release, base, more, toolkit = "13", trixie, withCUDA, true
			case 1:
				base = fmt.Sprintf(`{image: "registry.example/site/base:{release}"%s%s}`, build(`"docker.io/library/debian:12"`), has(""))
			case 2:
				base = fmt.Sprintf(`{image: "registry.example/site/torch:1"%s%s}`, build(`"registry.example/site/cuda:1"`), has("cuda: /usr/local/cuda, mpi: "+pick("/usr/local/mpi", "4.1")))
				more = withCUDA
			}
			fmt.Fprintf(&b, "  - name: %s%d\n    distro: %s\n    release: %q\n    base: %s\n    platforms: [%s]\n    tag: \"{name}-{recipe}\"\n%s    components:\n",
				pick("a", "b", "cuda12.4-x"), i, pick("debian", "ubuntu", "rocky"), pick(release, "12", "13", "24.04", "x"),
				pick(base, bookworm, trixie, `{image: "docker.io/library/debian:12"}`, `{image: "docker.io/nvidia/cuda:12.9.1-devel-ubuntu24.04"}`, `{image: "docker.io/library/rockylinux:9"}`, "{debootstrap: {suite: odd, variant: minbase}}"),
				pick("linux/amd64", "linux/arm64", "linux/amd64, linux/arm64", "linux/riscv64"), pick(more, "", "    cuda: 12.9.1\n"))
			if toolkit {
				fmt.Fprintf(&b, "      cuda-toolkit: %s\n", version("cuda-toolkit"))
			}
			b.WriteString(parts("      "))
		}
	}
	if r.IntN(3) > 0 {
		fmt.Fprintf(&b, "axes:\n  ubuntu: [%s]\n  cuda: [%s]\n  platforms: [linux/amd64]\n", pick(`"24.04"`, `"22.04", "24.04"`, `"99.04"`), pick(cuda(), cuda()+", "+cuda()))
		fmt.Fprintf(&b, "base: %s\ntag: \"{cuda}-{ubuntu}-{recipe}\"\ncapabilities:\n  - {cuda: \">=1\", compile: [%s]}\n", pick(pick(nvidia, `{image: "docker.io/nvidia/cuda:{cuda}-runtime-ubuntu{ubuntu}"`+build(`"`+nvidia+`"`)+has("")+"}"), nvidia, "docker.io/library/rockylinux:9", "docker.io/x/y:z"), capabilities())
		if r.IntN(3) == 0 {
			b.WriteString("variants:\n  - name: other\n")
			if r.IntN(2) == 0 {
				b.WriteString("exclude:\n  - {when: {variant: none}, because: no reason}\n")
			}
		}
		b.WriteString("components:\n" + parts("  "))
	}
	return b.String()
}

// FuzzPlan: a matrix of any rows is planned, or refused with places; it never panics.
func FuzzPlan(f *testing.F) {
	made := 0
	for seed := range uint64(2000) {
		f.Add(seed)
		if checked(randomMatrix(rand.New(rand.NewPCG(seed, 7)))) == nil {
			made++
		}
	}
	if made < 100 {
		f.Errorf("of 2000 random matrices %d are possible: they do not try the makers", made)
	}
	f.Fuzz(func(t *testing.T, seed uint64) {
		text := randomMatrix(rand.New(rand.NewPCG(seed, 7)))
		err := checked(text)
		if err == nil {
			return
		}
		all, ok := errors.AsType[matrix.Errors](err)
		if !ok {
			t.Fatalf("%v\n%s", err, text)
		}
		for _, e := range all {
			if e.Pos.Line < 1 || e.Pos.Column < 1 || e.Remedy == "" || e.Msg == "" || e.Field == "" && !strings.Contains(e.Msg, "the file has no targets") && !strings.Contains(e.Msg, "no target is left") {
				t.Fatalf("without a place, a field or a remedy: %+v\n%s", e, text)
			}
		}
	})
}
