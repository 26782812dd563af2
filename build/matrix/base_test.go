package matrix

import (
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"

	"github.com/assay-hpc/assay/internal/golden"
)

// onBase is a matrix of one image on a base, with more lines for the image and its components.
func onBase(base, more string, components ...string) string {
	return "version: 1\nrepository: ghcr.io/x/y\nimages:\n  - name: one\n    distro: ubuntu\n    release: \"24.04\"\n    base: " + base +
		"\n    platforms: [linux/amd64]\n    tag: \"{name}-{recipe}\"\n" + more + "    components:\n      harness: source\n" + strings.Join(components, "")
}

const (
	cuda13 = "    cuda: 13.0.2\n    compile: [\"9.0\"]\n"
	ngc    = "{image: \"nvcr.io/nvidia/pytorch:25.10-py3\", build: \"docker.io/nvidia/cuda:13.0.2-devel-ubuntu24.04\", has: {cuda: /usr/local/cuda, mpi: /usr/local/mpi, nccl: 2.28.3-1}}"
)

// wrongBases are mistakes in bases.
var wrongBases = []struct{ name, text string }{
	{"a misspelled key", onBase("{imgae: \"docker.io/x/y:1\"}", "")},
	{"a misspelled build", onBase("{image: \"docker.io/x/y:1\", biuld: \"docker.io/x/z:1\"}", "")},
	{"a number", onBase("12", "")},
	{"a list", onBase("[\"docker.io/x/y:1\"]", "")},
	{"a digest", onBase("{image: \"docker.io/x/y:1\", build: \"docker.io/x/z@sha256:00\"}", "")},
	{"no image", onBase("{build: \"docker.io/x/z:1\"}", "")},
	{"a build that is the base", onBase("{image: \"docker.io/x/y:1\", build: \"docker.io/x/y:1\"}", "")},
	{"a placeholder that there is not", onBase("{image: \"docker.io/x/y:{release}\", build: \"docker.io/x/z:{relaese}\"}", "")},
	{"a build beside a debootstrap", onBase("{debootstrap: {suite: noble, variant: minbase}, build: \"docker.io/x/z:1\"}", "")},
	{"a debootstrap that has something", onBase("{debootstrap: {suite: noble, variant: minbase}, has: {mpi: /usr/local/mpi}}", "")},
	{"a misspelled component", onBase("{image: \"docker.io/x/y:1\", has: {ncll: 2.28.3}}", "")},
	{"the harness", onBase("{image: \"docker.io/x/y:1\", has: {harness: 1.0.0}}", "")},
	{"nothing that it has", onBase("{image: \"docker.io/x/y:1\", has: {}}", "")},
	{"a list of what it has", onBase("{image: \"docker.io/x/y:1\", has: [nccl]}", "")},
	{"a version that is a number", onBase("{image: \"docker.io/x/y:1\", has: {hwloc: 2.9}}", "")},
	{"a version that is a word", onBase("{image: \"docker.io/x/y:1\", has: {nccl: base}}", "")},
	{"a relative path", onBase("{image: \"docker.io/x/y:1\", has: {mpi: usr/local/mpi}}", "")},
	{"a path upwards", onBase("{image: \"docker.io/x/y:1\", has: {mpi: /usr/../mpi}}", "")},
	{"the version of CUDA", onBase("{image: \"docker.io/x/y:1\", has: {cuda: 13.0.2}}", cuda13)},
	{"the version of an MPI", onBase("{image: \"docker.io/x/y:1\", has: {mpi: 4.1.7}}", "")},
	{"something twice", onBase("{image: \"docker.io/x/y:1\", has: {hwloc: 2.9.0, hwloc: 2.9.1}}", "")},
	{"CUDA without its version", onBase("{image: \"docker.io/x/y:1\", has: {cuda: /usr/local/cuda}}", "")},
	{"a version without CUDA", onBase("{image: \"docker.io/x/y:1\"}", cuda13)},
	{"CUDA twice", onBase("{image: \"docker.io/x/y:1\", has: {cuda: /usr/local/cuda}}", cuda13, "      cuda-toolkit: devel\n")},
	{"a component that it has", onBase(ngc, cuda13, "      nccl: 2.30.4-1\n")},
	{"an own component that it has", onBase("{image: \"docker.io/x/y:1\", has: {tool: /opt/tool}}", "", "      tool: {packages: [tool]}\n")},
	{"a component called MPI", onBase("docker.io/x/y:1", "", "      mpi: {packages: [mpich]}\n")},
	{"a need in another version", onBase("{image: \"docker.io/x/y:1\", has: {hwloc: 1.11.0}}", "", "      tool: {packages: [tool], needs: {hwloc: \">=2\"}}\n")},
	{"a need that it has not", onBase("{image: \"docker.io/x/y:1\", has: {numactl: 2.0.14}}", "", "      tool: {packages: [tool], needs: {hwloc: present}}\n")},
	{"a constraint that what it has violates", strings.Replace(onBase(ngc, cuda13), "images:", "constraints: [{when: {cuda: \">=13\"}, require: {nccl: \">=2.30\"}, because: it is asked for}]\nimages:", 1)},
	{"a tag with a path", strings.Replace(onBase(ngc, cuda13), "{name}-{recipe}", "{name}-{mpi}-{recipe}", 1)},
	{"rows on a debootstrap", "version: 1\nrepository: ghcr.io/x/y\naxes: {ubuntu: [\"24.04\"], cuda: [13.0.2], platforms: [linux/amd64]}\nbase: {debootstrap: {suite: noble, variant: minbase}}\ntag: \"{cuda}-{recipe}\"\ncapabilities: [{cuda: \">=1\", compile: [\"9.0\"]}]\ncomponents: {harness: source}\n"},
}

// TestWrongBases: each mistake has file, line, column, what and remedy.
func TestWrongBases(t *testing.T) {
	var b strings.Builder
	for _, w := range wrongBases {
		_, err := expand("matrix.yaml", []byte(w.text))
		all, ok := errors.AsType[Errors](err)
		if !ok {
			t.Errorf("%s: %v; want Errors", w.name, err)
			continue
		}
		checkErrors(t, all)
		fmt.Fprintf(&b, "%s\n\t%s\n", w.name, strings.ReplaceAll(err.Error(), "\n", "\n\t"))
	}
	golden.Check(t, "wrong_bases.golden", b.String())
}

// TestBases: text alone is an image, and what a base has satisfies what components need, conditions and
// tags.
func TestBases(t *testing.T) {
	for name, c := range map[string]struct {
		text string
		want Base
		tag  string
	}{
		"text": {onBase("docker.io/library/ubuntu:{release}", ""), Base{Image: "docker.io/library/ubuntu:24.04", Own: true}, "one-{recipe}"},
		"NGC": {strings.Replace(onBase(ngc, cuda13, "      nccl-tests: 2.17.6\n"), "{name}", "{name}-nccl{nccl}", 1), Base{
			Image: "nvcr.io/nvidia/pytorch:25.10-py3", Build: "docker.io/nvidia/cuda:13.0.2-devel-ubuntu24.04", Own: true,
			Has: []Has{{"cuda", "/usr/local/cuda"}, {"mpi", "/usr/local/mpi"}, {"nccl", "2.28.3-1"}},
		}, "one-nccl2.28.3-1-{recipe}"},
		"rows": {"version: 1\nrepository: ghcr.io/x/y\naxes: {ubuntu: [\"24.04\"], cuda: [13.0.2], platforms: [linux/amd64]}\nbase:\n  image: docker.io/nvidia/cuda:{cuda}-runtime-ubuntu{ubuntu}\n  build: docker.io/nvidia/cuda:{cuda}-devel-ubuntu{ubuntu}\ntag: \"{cuda}-{recipe}\"\ncapabilities: [{cuda: \">=1\", compile: [\"9.0\"]}]\ncomponents: {harness: source}\n",
			Base{Image: "docker.io/nvidia/cuda:13.0.2-runtime-ubuntu24.04", Build: "docker.io/nvidia/cuda:13.0.2-devel-ubuntu24.04"}, "13.0.2-{recipe}"},
	} {
		targets, err := expand("matrix.yaml", []byte(c.text))
		if err != nil {
			t.Errorf("%s: %v", name, err)
		} else if !reflect.DeepEqual(targets[0].Base, c.want) || targets[0].Tag != c.tag {
			t.Errorf("%s: base %+v, tag %s; want %+v, %s", name, targets[0].Base, targets[0].Tag, c.want, c.tag)
		}
	}
}
