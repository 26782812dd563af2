package component

import (
	"fmt"
	"io"
	"regexp"
	"slices"
	"strings"

	"github.com/assay-hpc/assay/build/archive"
	"github.com/assay-hpc/assay/build/matrix"
)

// Read reads a matrix with assay's components, and those that it takes from directories, and expands
// it into targets of which all can be built. The error is a [matrix.Errors] unless reading itself
// failed.
func Read(name string, r io.Reader, open matrix.Directory) (*matrix.File, []matrix.Target, error) {
	f, err := matrix.Parse(name, r, Library(), open)
	if err != nil {
		return nil, nil, err
	}
	targets, err := f.Targets()
	if err == nil {
		err = f.Refuse(Check(targets))
	}
	return f, targets, err
}

// Check returns what cannot be built of the targets of a matrix. (What their components need,
// [matrix.File.Targets] has checked.) Make takes any target of which neither finds anything.
func Check(targets []matrix.Target) []matrix.Problem {
	var out []matrix.Problem
	for _, t := range targets {
		c := &checker{target: t}
		c.base()
		c.capabilities()
		c.toolkit()
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

// toolkit checks that the distribution has the image's CUDA.
func (c *checker) toolkit() {
	t := c.target
	flavour := t.Version("cuda-toolkit")
	if flavour == "" {
		return
	}
	if t.Base.Debootstrap == nil {
		c.impossible("cuda-toolkit", flavour, "cuda-toolkit is for bases made with debootstrap: "+t.Base.Image+" is to bring its own", `write "debootstrap:" in place of "image:", or leave it out`)
		return
	}
	if _, known := kitOf(t); known {
		return
	}
	var versions []string
	for _, k := range cudaKits {
		if k.release == t.Release {
			versions = append(versions, k.version)
		}
	}
	remedy := "take Debian 13, Ubuntu 24.04 or 26.04"
	if versions != nil {
		remedy = fmt.Sprintf("write the CUDA that %s %s has: %s", t.Distro, t.Release, strings.Join(versions, " or "))
	}
	c.impossible("cuda", t.CUDA, fmt.Sprintf("it is not known that %s %s has CUDA %s", t.Distro, t.Release, t.CUDA), remedy)
}

// harness is in every image: the gate runs it.
func (c *checker) harness() {
	if c.target.Version("harness") == "" && !c.target.Base.OfAssay() {
		c.impossible("components", "", "the image has no harness, by which every image is certified before it is published", `add "harness: source"`)
	}
	if releaseOf(c.target) != fullRelease {
		return
	}
	const remedy = `write "source", and it is compiled`
	for _, p := range c.target.Platforms {
		if p.Arch != "amd64" {
			c.impossible("harness", released, "a release has the harness that loads CUDA and RDMA for linux/amd64 alone, and the image is for "+p.String(), remedy)
		}
	}
	if c.target.Distro == "ubuntu" && matrix.CompareVersions(c.target.Release, "22.04") < 0 {
		c.impossible("harness", released, "a release's harness wants the C library of Ubuntu 22.04 or a newer one", remedy)
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
	switch distro, release := distributionOf(t.Base.Image); {
	case distro == "": // it says nothing
	case distro != t.Distro:
		c.impossible("base", t.Base.Image, fmt.Sprintf("the base %s is by its name one of %s, and the image is called %s", t.Base.Image, distro, t.Distro), "take a base of "+t.Distro+": components come as packages of Debian or Ubuntu")
	case release != "" && release != t.Release:
		c.impossible("base", t.Base.Image, fmt.Sprintf("the base %s is by its name %s %s, and the image is called %s %s", t.Base.Image, distro, release, t.Distro, t.Release), "make base and release the same")
	}
	c.compilers()
}

// distributionOf returns the distribution and release that an image has by its name, "" if that says nothing.
func distributionOf(image string) (distro, release string) {
	_, name, _ := strings.Cut(image, "/")
	found := distributions.FindAllStringSubmatch(name, -1)
	if found == nil {
		return "", ""
	}
	is := found[len(found)-1]
	return is[1], is[2]
}

// withoutNvcc finds NVIDIA's images that have CUDA's libraries alone.
var withoutNvcc = regexp.MustCompile(`/cuda:.*\b(runtime|base)\b`)

// libc maps a distribution with its release to the version of its C library.
var libc = map[string]string{
	"debian 11": "2.31", "debian 12": "2.36", "debian 13": "2.41",
	"ubuntu 20.04": "2.31", "ubuntu 22.04": "2.35", "ubuntu 24.04": "2.39", "ubuntu 26.04": "2.43",
}

// compilers checks the image on which components are compiled, by its name. A step of the build
// compares the C libraries themselves.
func (c *checker) compilers() {
	t := c.target
	image := t.Base.Compilers()
	key := "build"
	if t.Base.Build == "" {
		key = "base"
	}
	distro, release := distributionOf(image)
	there, here := libc[distro+" "+release], libc[t.Distro+" "+t.Release]
	switch {
	case t.CUDA != "" && withoutNvcc.MatchString(image) && c.wantsNvcc() != "":
		devel := withoutNvcc.ReplaceAllStringFunc(image, func(s string) string { return strings.NewReplacer("-runtime", "-devel", "-base", "-devel").Replace(s) })
		c.impossible(key, image, fmt.Sprintf("%s is by its name without CUDA's compiler, and %s compiled with that", image, c.wantsNvcc()), fmt.Sprintf("write the image with it under base, as in \"build: %s\"", devel))
	case key == "base" || distro == "": // it says nothing
	case distro != "debian" && distro != "ubuntu":
		c.impossible(key, image, fmt.Sprintf("%s is by its name one of %s, and components are compiled with packages of Debian or Ubuntu", image, distro), "take one of "+t.Distro)
	case there != "" && here != "" && matrix.CompareVersions(there, here) > 0:
		c.impossible(key, image, fmt.Sprintf("%s is by its name %s %s with the C library %s, and %s %s has %s: what is compiled there does not run here", image, distro, release, there, t.Distro, t.Release, here), fmt.Sprintf("take one of %s %s, or of an older release", t.Distro, t.Release))
	}
}

// wantsNvcc says what of the target is compiled with CUDA's compiler, "" if nothing is.
func (c *checker) wantsNvcc() string {
	if c.target.Version("harness") != released {
		return "the harness's kernels are"
	}
	for _, has := range c.target.Components {
		if d := Library().Definition(has.Name); d != nil && d.CompiledWith(c.target, "cuda") {
			return has.Name + " is"
		}
	}
	return ""
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
