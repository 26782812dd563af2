package component

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/assay-hpc/assay/build/archive"
	"github.com/assay-hpc/assay/build/matrix"
)

// A need is what a component needs of a target. What is not in it is for the component's maker.
type need struct {
	words   []string       // the versions that there are; nil: those of the form
	form    *regexp.Regexp // of its publisher's versions
	example string         // a version of that form

	cuda   bool     // CUDA in the image
	nvidia bool     // one of NVIDIA's bases, for what is only in NVIDIA's archives
	ubuntu bool     // a base of Ubuntu
	with   []string // one of these components
	lacks  string   // a release of which it is not fit, and why
	not    []string // none of these, and why
	why    string
}

// released is a component with the versions of its publisher.
func released(form, example string) need {
	return need{form: regexp.MustCompile(`^(?:` + form + `)$`), example: example}
}

func (n need) onCUDA() need             { n.cuda = true; return n }
func (n need) onNVIDIA() need           { n.cuda, n.nvidia = true, true; return n }
func (n need) onUbuntu() need           { n.ubuntu = true; return n }
func (n need) beside(c ...string) need  { n.with = c; return n }
func (n need) unfit(r, y string) need   { n.lacks, n.why = r, y; return n }
func (n need) without(c, y string) need { n.not, n.why = []string{c}, y; return n }

// fromDistro is a component whose version the distribution decides.
var fromDistro = need{words: []string{"distro"}}

// needs has an entry for each component. The forms are those of the releases that the makers know: a
// new major version has new files, and is for a person to look at.
var needs = map[string]need{
	"ssh": fromDistro, "openmpi": fromDistro, "pmix": fromDistro, "rdma-core": fromDistro,
	"infiniband-diags": fromDistro, "libfabric": fromDistro, "hwloc": fromDistro, "numactl": fromDistro,
	"ucx":          fromDistro.unfit("26.04", "Ubuntu compiles it without InfiniBand and RoCE there"),
	"harness":      {words: []string{"source"}},
	"cuda-toolkit": need{words: []string{"devel", "runtime", "minimal"}}.onCUDA(),
	"sharp":        need{words: []string{"bundled"}}.beside("hpcx").without("efa", "there is no SHARP on EFA"),
	"perftest":     released(`[0-9]+(\.[0-9]+)+(-[0-9.]+)?`, "26.04.17"), // on an image without CUDA, fromDistro
	"ofed":         released(`[23]\.[0-9]+\.[0-9]+`, "3.2.2").onUbuntu().without("efa", "the EFA installer brings its own rdma-core, and an image has room for one"),
	"efa":          released(`1\.[0-9]+\.[0-9]+`, "1.47.0").onUbuntu(),
	"cudnn":        released(`9\.[0-9]+\.[0-9]+\.[0-9]+-[0-9]+`, "9.20.0.48-1").onNVIDIA(),
	"dcgm":         released(`3\.[0-9]+\.[0-9]+|1:[34]\.[0-9]+\.[0-9]+(-[0-9]+)?`, "1:4.6.0-1").onNVIDIA(),
	"hpcx":         released(`2\.[0-9]+(\.[0-9]+)?`, "2.26").onNVIDIA(),
	"gdrcopy":      released(`2\.[0-9]+(\.[0-9]+)?`, "2.5.2").onCUDA(),
	"nccl":         released(`2\.[0-9]+\.[0-9]+-[0-9]+`, "2.30.4-1").onCUDA(),
	"nccl-tests":   released(`2\.[0-9]+\.[0-9]+`, "2.17.6").onCUDA().beside("nccl"),
	"nvbandwidth":  released(`0\.[0-9]+(\.[0-9]+)?`, "0.9").onCUDA(),
}

// Check returns what is impossible in the targets of a matrix: what a component needs and the row has
// not, and what cannot be built. Make takes any target of which it finds nothing.
func Check(targets []matrix.Target) []matrix.Problem {
	var out []matrix.Problem
	for _, t := range targets {
		c := &checker{target: t}
		c.base()
		c.capabilities()
		for _, part := range t.Components {
			c.component(part)
		}
		c.harness()
		out = append(out, c.problems...)
	}
	return out
}

type checker struct {
	target   matrix.Target
	problems []matrix.Problem
}

// impossible adds a problem with the value of a key: see matrix.Problem.
func (c *checker) impossible(key, value, msg, remedy string) {
	c.problems = append(c.problems, matrix.Problem{Target: c.target.Name, Key: key, Value: value, Msg: msg, Remedy: remedy})
}

func (c *checker) component(part matrix.Component) {
	t, n := c.target, needs[part.Name]
	if part.Name == "perftest" && t.CUDA == "" {
		n = fromDistro
	}
	no := func(msg, remedy string) { c.impossible(part.Name, part.Version, part.Name+" "+msg, remedy) }
	switch {
	case n.words != nil && !slices.Contains(n.words, part.Version):
		no(fmt.Sprintf("has no version %q here: nothing reads it", part.Version), `write "`+strings.Join(n.words, `" or "`)+`"`)
	case n.form != nil && !n.form.MatchString(part.Version):
		no(fmt.Sprintf("has no release %q", part.Version), fmt.Sprintf("write the version of a release as in %q", n.example))
	}
	switch {
	case n.cuda && t.CUDA == "":
		no("needs CUDA, which this image has not", `add "cuda:" and the component cuda-toolkit, or leave it out`)
	case n.nvidia && t.Base.Debootstrap != nil:
		no("is in NVIDIA's archives, which only NVIDIA's bases are set up for", "leave it out, or make the image a row of axes or include, on nvidia/cuda")
	case n.ubuntu && t.Distro != "ubuntu":
		no("has packages for Ubuntu only", "leave it out, or take a base of Ubuntu")
	}
	if n.with != nil && !slices.ContainsFunc(n.with, func(w string) bool { return t.Version(w) != "" }) {
		no("needs "+strings.Join(n.with, " or ")+", which this image has not", "add it, or leave this out")
	}
	if n.lacks != "" && n.lacks == t.Release {
		no(fmt.Sprintf("of %s %s is not fit for a cluster: %s", t.Distro, t.Release, n.why), "leave it out: Open MPI reaches RDMA through libfabric, too")
	}
	for _, other := range n.not {
		if t.Version(other) != "" {
			no("cannot be beside "+other+": "+n.why, "leave one of them out")
		}
	}
	switch part.Name {
	case "nccl-tests": // they are built with the image's MPI
		mpi := "hpcx"
		if t.Base.Debootstrap != nil {
			mpi = "openmpi"
		}
		if t.CUDA != "" && t.Version(mpi) == "" {
			no("needs the MPI of "+mpi+", which this image has not", "add it, or leave this out")
		}
	case "cuda-toolkit":
		if known := cudaKits[t.Release].version; t.Base.Debootstrap != nil && t.CUDA != "" && known != majorMinor(t.CUDA) {
			remedy := "take Debian 13 or Ubuntu 26.04"
			if known != "" {
				remedy = fmt.Sprintf("write the CUDA that %s %s has: %s", t.Distro, t.Release, known)
			}
			c.impossible("cuda", t.CUDA, fmt.Sprintf("it is not known that %s %s has CUDA %s", t.Distro, t.Release, t.CUDA), remedy)
		}
		if t.Base.Debootstrap == nil {
			no("is for bases made with debootstrap: "+t.Base.Image+" is to bring its own", `write "debootstrap:" in place of "image:", or leave it out`)
		}
	}
}

// harness is in every image: the gate runs it.
func (c *checker) harness() {
	if c.target.Version("harness") == "" {
		c.impossible("components", "", "the image has no harness, by which every image is certified before it is published", `add "harness: source"`)
	}
}

// distributions finds a distribution in the name of an image, with its release.
var distributions = regexp.MustCompile(`(?:^|[^a-z])(ubuntu|debian|rockylinux|rocky|almalinux|alma|centos|fedora|rhel|ubi|redhat|opensuse|suse|leap|sles|alpine|archlinux|amazonlinux|oraclelinux|photon|azurelinux|mariner)[:-]?([0-9]+(?:\.[0-9]+)?)?`)

// base compares a target's base with the distribution and release that the row has.
func (c *checker) base() {
	t := c.target
	if d := t.Base.Debootstrap; d != nil {
		c.suite(d.Suite)
		return
	}
	_, name, _ := strings.Cut(t.Base.Image, "/")
	found := distributions.FindAllStringSubmatch(name, -1)
	if found == nil {
		return // it says nothing
	}
	is := found[len(found)-1]
	switch {
	case is[1] != t.Distro:
		c.impossible("base", t.Base.Image, fmt.Sprintf("the base %s is by its name one of %s, and the image is called %s", t.Base.Image, is[1], t.Distro), "take a base of "+t.Distro+": components come as packages of Debian or Ubuntu")
	case is[2] != "" && is[2] != t.Release:
		c.impossible("base", t.Base.Image, fmt.Sprintf("the base %s is by its name %s %s, and the image is called %s %s", t.Base.Image, is[1], is[2], t.Distro, t.Release), "make base and release the same")
	}
}

// suite compares the suite of a base made with debootstrap with the row's distribution and release.
func (c *checker) suite(name string) {
	t := c.target
	is, known := archive.Find(name)
	switch suites := archive.Names(t.Distro); {
	case suites == nil:
		c.impossible("base", name, "debootstrap makes a Debian or an Ubuntu, and the image is called "+t.Distro, `write "distro: debian" or "distro: ubuntu", or "image:" in place of "debootstrap:"`)
	case !known && t.Distro != "debian": // Debian's may be a new one
		c.impossible("base", name, fmt.Sprintf("no suite %s of %s is known", name, t.Distro), "write one of "+strings.Join(suites, ", "))
	case known && (is.Distro != t.Distro || is.Release != t.Release):
		c.impossible("base", name, fmt.Sprintf("the suite %s is %s %s, and the image is called %s %s", name, is.Distro, is.Release, t.Distro, t.Release), fmt.Sprintf("write the suite of %s %s, or distribution and release of the suite", t.Distro, t.Release))
	}
}

// compute lists from which CUDA to before which one nvcc compiles for a compute capability.
var compute = []struct{ capability, from, before string }{
	{"3.5", "5", "12"}, {"3.7", "6.5", "12"}, {"5.0", "6", "13"}, {"5.2", "6.5", "13"}, {"5.3", "7", "13"}, {"6.0", "8", "13"}, {"6.1", "8", "13"}, {"6.2", "8", "13"},
	{"7.0", "9", "13"}, {"7.2", "9.2", "13"}, {"7.5", "10", ""}, {"8.0", "11", ""}, {"8.6", "11.1", ""}, {"8.7", "11.4", ""}, {"8.8", "13", ""}, {"8.9", "11.8", ""}, {"9.0", "11.8", ""},
	{"10.0", "12.8", ""}, {"10.1", "12.8", "13"}, {"10.3", "12.9", ""}, {"11.0", "13", ""}, {"12.0", "12.8", ""}, {"12.1", "12.9", ""},
}

// capabilities checks what the row's CUDA compiles for. A capability above all that are known is
// taken: there may be a CUDA for it.
func (c *checker) capabilities() {
	t := c.target
	for _, capability := range t.Capabilities {
		i := slices.IndexFunc(compute, func(k struct{ capability, from, before string }) bool { return k.capability == capability })
		switch {
		case t.CUDA == "":
		case i < 0 && matrix.CompareVersions(capability, compute[len(compute)-1].capability) > 0:
		case i < 0:
			c.impossible("capability", capability, fmt.Sprintf("there is no GPU with the compute capability %s", capability), "take it out of the list")
		case matrix.CompareVersions(t.CUDA, compute[i].from) < 0:
			c.impossible("capability", capability, fmt.Sprintf("nvcc compiles for %s from CUDA %s on", capability, compute[i].from), "take it out of the list, or change for which CUDA the list is")
		case compute[i].before != "" && matrix.CompareVersions(t.CUDA, compute[i].before) >= 0:
			c.impossible("capability", capability, fmt.Sprintf("nvcc compiles for %s before CUDA %s only", capability, compute[i].before), "take it out of the list, or change for which CUDA the list is")
		}
	}
}
