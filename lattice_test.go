package assay_test

import (
	"bytes"
	"encoding/json"
	"io"
	"os/exec"
	"slices"
	"strings"
	"testing"
)

const modulePath = "github.com/assay-hpc/assay"

// ground is what any package may stand on, whatever else it may not import: leaves that need the
// standard library alone.
var ground = []string{"./internal/infile", "./internal/outfile"}

// A rule forbids some packages of this module to import others.
type rule struct {
	name   string
	who    []string // packages of the module, as patterns: "build/..." is build and all below it
	unless []string // exceptions among them
	not    []string // what they must not import: of the module ("./coll/...") or of others
	except []string // what of that they may
	deep   bool     // not even through another package
	why    string
}

// lattice is the direction in which imports go; docs/architecture.md has the
// picture.
var lattice = []rule{
	{
		name: "ground", who: []string{"internal/infile", "internal/outfile"}, not: []string{"*", "net/..."}, deep: true,
		why: "every package may import it, so it imports none",
	},
	{
		name: "mains", who: []string{"..."}, not: []string{"./cmd/..."},
		why: "a main is nobody's library: what two of them need is a package",
	},
	{
		name: "build knows no measuring", who: []string{"build/..."}, not: []string{"./coll/...", "./perftest/...", "./dcgm/..."}, deep: true,
		why: "assay runs on laptops and in CI, without GPU and cgo; what measures is compiled inside the images",
	},
	{
		name: "build and the harness", who: []string{"build/..."}, unless: []string{"build/e2e/..."}, not: []string{"./harness/..."}, except: []string{"./harness/certificate", "./harness/result", "./harness/version", "./harness/dpkg", "./harness/rootfs", "./harness/hardware"},
		why: "the certificate and the hardware data base are all that both sides know: a new check must not touch the build (dpkg, a leaf, reads a format)",
	},
	{
		name: "the harness and build", who: []string{"harness/...", "cmd/harness"}, not: []string{"./build/..."}, deep: true,
		why: "the harness is compiled in every image, from its own few modules",
	},
	{
		name: "pure packages", who: []string{"build/matrix", "build/recipe", "build/component", "build/lock"},
		not:  []string{"./build/llb", "./build/daemon", "./build/solve", "./build/driver", "github.com/moby/buildkit/...", "github.com/google/go-containerregistry/...", "net/http", "os/exec"},
		deep: true,
		why:  "what goes into an image is data, made without I/O: plan takes milliseconds and tests need no daemon",
	},
	{
		name: "jobs", who: []string{"build/jobs"}, not: []string{"./..."}, except: []string{"./internal/nearest", "./harness/hardware"}, deep: true,
		why: "a job follows from a profile and options alone: no matrix, no image, no cluster is needed to write one",
	},
	{
		name: "Kubernetes", who: []string{"..."}, unless: []string{"build/jobs", "harness/site/kubernetes"}, not: []string{"k8s.io/...", "sigs.k8s.io/...", "github.com/kubeflow/..."},
		why: "its types and its client are large and change; one package writes manifests, and one marks nodes",
	},
	{
		name: "BuildKit", who: []string{"..."}, unless: []string{"build/llb", "build/daemon", "build/solve", "build/e2e/..."}, not: []string{"github.com/moby/buildkit/..."},
		why: "BuildKit's API changes with each release; three packages follow it",
	},
	{
		name: "registries and layouts", who: []string{"..."}, unless: []string{"internal/oci", "internal/attest/...", "build/e2e/..."},
		not: []string{"github.com/google/go-containerregistry/pkg/v1/remote/...", "github.com/google/go-containerregistry/pkg/v1/layout/..."},
		why: "what talks to a registry needs credentials, retries and limits, and what reads a layout verifies digests: one layer does",
	},
	{
		name: "backends", who: []string{"build/llb", "build/dockerfile"}, not: []string{"./build/..."}, except: []string{"./build/recipe", "./build/llb", "./build/dockerfile"},
		why: "both make the same image from the same recipe, and know nothing else",
	},
	{
		name: "state", who: []string{"build/state"}, not: []string{"./..."}, deep: true,
		why: "whatever writes files or starts programs stands on it",
	},
	{
		name: "arithmetic", who: []string{"harness/estimate", "harness/scale"}, not: []string{"./..."}, deep: true,
		why: "what training should take, and what a run costs, follows from numbers alone; where they are from is the caller's matter",
	},
	{
		name: "the data base", who: []string{"harness/platform"}, not: []string{"./..."}, except: []string{"./harness/platform", "./harness/hardware", "./harness/sysfs"},
		why: "all three engines judge by it: a node is described to it, and it knows nothing of how that was found",
	},
	{
		name: "the environment", who: []string{"harness/netenv"}, not: []string{"*"}, except: []string{"./internal/noun"}, deep: true,
		why: "which variables a node needs follows from its description alone, so that captures of real platforms are its tests",
	},
	{
		name: "command line", who: []string{"..."}, unless: []string{"cmd/...", "internal/grammar"}, not: []string{"github.com/urfave/cli/..."},
		why: "a library that knows flags cannot be called without them",
	},
	{
		name: "leaves", who: []string{"harness/rootfs", "harness/elf", "harness/ldso", "harness/dpkg", "harness/version", "harness/stat", "harness/sysfs", "harness/nvml", "harness/dl", "harness/probe"},
		not:    []string{"*"},
		except: []string{"./harness/rootfs", "./harness/elf", "./harness/ldso", "./harness/dpkg", "./harness/version", "./harness/stat", "./harness/sysfs", "./harness/dl", "./harness/probe", "golang.org/x/sys/..."},
		deep:   true,
		why:    "everything in the image stands on them",
	},
	{
		name: "the runner knows no check", who: []string{"harness/suite"}, not: []string{"./..."}, except: []string{"./harness/certificate", "./harness/result", "./harness/rootfs", "./harness/probe", "./harness/stat", "./harness/suite", "./internal/nearest"},
		why: "cmd/harness registers checks, so that one more of them changes nothing here",
	},
	{
		name: "clouds", who: []string{"..."}, unless: []string{"cmd/sigstore-kms"}, deep: true,
		not: []string{"github.com/sigstore/sigstore/pkg/signature/kms/aws", "github.com/sigstore/sigstore/pkg/signature/kms/azure", "github.com/sigstore/sigstore/pkg/signature/kms/gcp"},
		why: "their libraries would double the harness; keys of theirs are a plugin program's",
	},
	{
		name: "quantities", who: []string{"harness/result"}, not: []string{"*"}, deep: true,
		why: "which way is better is one table, for those that measure and those that read",
	},
	{
		name: "history", who: []string{"harness/history"}, not: []string{"./...", "net/http", "os/exec"}, except: []string{"./harness/certificate", "./harness/result", "./harness/history", "./harness/stat", "./internal/attest", "./internal/noun"}, deep: true,
		why: "what drifted follows from the certificates alone; where they are from is the caller's matter",
	},
	{
		name: "the certificate", who: []string{"harness/certificate"}, not: []string{"./..."}, except: []string{"./harness/certificate", "./harness/result", "./internal/attest"}, deep: true,
		why: "others read it with this package alone",
	},
	{
		name: "telling the site", who: []string{"harness/site/..."}, not: []string{"./..."}, except: []string{"./harness/certificate", "./harness/result", "./harness/site/...", "./internal/attest"}, deep: true,
		why: "it acts on a certificate, whoever made that, and looks at no machine itself",
	},
	{
		name: "keeping", who: []string{"harness/keep"}, not: []string{"./...", "net/http", "os/exec"}, except: []string{"./harness/certificate", "./harness/result", "./internal/attest"}, deep: true,
		why: "when a node is certified again follows from records and readings; who reads, certifies and marks is the caller's matter",
	},
	{
		// In tests they are welcome.
		name: "Kubernetes' types", who: []string{"harness/...", "cmd/harness"}, not: []string{"k8s.io/api/...", "k8s.io/client-go/kubernetes/..."}, deep: true,
		why: "they more than double the harness",
	},
	{
		name: "the hunt", who: []string{"harness/hunt"}, not: []string{"*", "net/..."}, except: []string{"./harness/hunt", "./harness/stat"}, deep: true,
		why: "it says what to measure and what follows; who measures, and how, is the caller's matter",
	},
	{
		name: "the machines of a job", who: []string{"harness/fabric"}, not: []string{"./..."},
		except: []string{"./harness/certificate", "./harness/result", "./harness/fabric", "./harness/gather", "./harness/hunt", "./harness/sysfs", "./coll/bootstrap", "./coll/knob", "./coll/perf", "./perftest/tcp", "./perftest/probe", "./internal/exit"},
		why:    "it brings machines together and measures between two of them; what is measured on one is the harness's commands",
	},
	{
		name: "gathering", who: []string{"harness/gather"}, not: []string{"./..."}, except: []string{"./harness/gather", "./harness/certificate", "./harness/result", "./harness/stat", "./internal/attest", "./internal/meet"}, deep: true,
		why: "a communicator ends when a rank dies; gathering has to go on, so it has connections of its own",
	},
	{
		name: "statements", who: []string{"internal/attest"}, not: []string{"./...", "net/http", "os/exec"}, deep: true,
		why: "what verifies is small, pure, and the same for images, machines and every command",
	},
	{
		name: "images", who: []string{"internal/oci"}, not: []string{"./..."}, except: []string{"./internal/attest"}, deep: true,
		why: "it keeps bytes by digest and judges nothing: internal/attest does, with whose one reader of unsigned JSON it reads lists",
	},
	{
		name: "meeting", who: []string{"internal/meet"}, not: []string{"*"}, deep: true,
		why: "who comes in is decided here: little code, and the standard library's",
	},
	{
		name: "programs that are not trusted", who: []string{"internal/confine"}, not: []string{"*"}, except: []string{"golang.org/x/sys/..."}, deep: true,
		why: "the supervisor is all that stands between an image's program and its verdict: short enough to be read whole",
	},
	{
		name: "nouns", who: []string{"internal/noun"}, not: []string{"*"}, deep: true,
		why: "whatever prints a number needs it",
	},
	{
		name: "plain text", who: []string{"internal/plain"}, not: []string{"*", "net/..."}, deep: true,
		why: "whatever prints needs it",
	},
	{
		name: "collectives", who: []string{"coll/..."}, unless: []string{"coll/transport/verbs"}, not: []string{"./perftest/...", "./dcgm/...", "./harness/suite", "./build/..."},
		why: "coll is a library that programs import; the verbs transport is the one place that needs perftest's binding",
	},
	{
		name: "perftest", who: []string{"perftest/..."}, unless: []string{"perftest/membw", "perftest/gpumem"}, not: []string{"./coll/...", "./dcgm/...", "./harness/suite", "./build/..."},
		why: "the three engines do not know one another; membw and gpumem use the CUDA binding",
	},
	{
		name: "what perftest stands on", who: []string{"perftest/..."}, unless: []string{"perftest/membw", "perftest/gpumem"}, not: []string{"./..."},
		except: []string{"./perftest/...", "./harness/result", "./harness/rootfs", "./harness/stat", "./harness/sysfs", "./harness/dl", "./harness/probe", "./harness/version", "./internal/meet", "./internal/nearest", "./internal/noun"},
		deep:   true,
		why:    "it measures with the harness's leaves alone, so that a test needs two hosts and nothing else of assay",
	},
	{
		name: "the control channel", who: []string{"perftest/probe/wire"}, not: []string{"*"}, except: []string{"golang.org/x/sys/..."}, deep: true,
		why: "others can speak perftest's protocol with this package alone",
	},
	{
		name: "the judge", who: []string{"perftest/judge"}, not: []string{"*", "./..."}, except: []string{"./harness/result"}, deep: true,
		why: "it judges numbers, and knows nothing of what they are of",
	},
	{
		name: "dcgm", who: []string{"dcgm/..."}, unless: []string{"dcgm/diag"}, not: []string{"./coll/...", "./perftest/...", "./harness/suite", "./build/..."},
		why: "the three engines do not know one another; diag uses the CUDA binding",
	},
	{
		name: "diag", who: []string{"dcgm/diag"}, not: []string{"./perftest/...", "./harness/suite", "./build/..."},
		why: "the three engines do not know one another; cmd/harness brings them together",
	},
	{
		name: "what health stands on", who: []string{"dcgm/health"}, not: []string{"*"},
		except: []string{"./dcgm/health", "./harness/certificate", "./harness/result", "./harness/nvml", "./harness/platform", "./harness/hardware", "./harness/rootfs", "./harness/sysfs", "./internal/attest", "./internal/plain", "github.com/secure-systems-lab/go-securesystemslib/...", "go.yaml.in/yaml/...", "golang.org/x/crypto/...", "golang.org/x/sys/..."},
		deep:   true,
		why:    "it judges what it is given, in the certificate's words: harness/nvml asks the driver",
	},
	{
		name: "the exceptions' exception", who: []string{"perftest/membw", "perftest/gpumem", "dcgm/diag"}, not: []string{"./coll/..."}, except: []string{"./coll/cuda/driver"},
		why: "only the CUDA binding is shared",
	},
	{
		name: "the rig", who: []string{"internal/rig"}, not: []string{"./..."}, except: []string{"./coll/cuda/driver", "./harness/sysfs"},
		why: "it prepares GPUs, and knows nothing of what is measured on them",
	},
	{
		name: "the CUDA binding", who: []string{"..."}, unless: []string{"coll/cuda/driver"}, not: []string{"gorgonia.org/cu/..."},
		why: "one package touches the driver's API",
	},
	{
		name: "test support", who: []string{"..."}, unless: []string{"build/e2e/...", "build/standin", "internal/golden"}, not: []string{"./build/standin", "./build/e2e/...", "./harness/elf/elftest", "./coll/colltest", "./coll/model", "./internal/clustertest", "./internal/golden", "./internal/gputest", "testing"},
		why: "stand-ins and fixtures belong to tests and benchmarks, not into what we ship",
	},
}

// isTestSupport reports whether a package is named as one for tests.
func isTestSupport(pkg string) bool { return strings.HasSuffix(pkg, "test") }

type pkg struct {
	ImportPath string
	Imports    []string
	Deps       []string
}

// packages lists the module's packages with what their non-test files import
// on an architecture.
func packages(t *testing.T, arch string) []pkg {
	t.Helper()
	cmd := exec.Command("go", "list", "-json=ImportPath,Imports,Deps", "./...")
	cmd.Env = append(cmd.Environ(), "GOOS=linux", "GOARCH="+arch, "CGO_ENABLED=0", "GOFLAGS=-mod=readonly")
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go list: %v\n%s", err, stderr.String())
	}
	var list []pkg
	for dec := json.NewDecoder(bytes.NewReader(out)); ; {
		var p pkg
		if err := dec.Decode(&p); err == io.EOF {
			return list
		} else if err != nil {
			t.Fatal(err)
		}
		list = append(list, p)
	}
}

// short names a package of the module by its directory: "./build/llb", "." for
// the root.
func short(path string) string {
	if path == modulePath {
		return "."
	}
	if rest, ok := strings.CutPrefix(path, modulePath+"/"); ok {
		return "./" + rest
	}
	return path
}

// standard reports whether a package is the standard library's.
func standard(path string) bool {
	first, _, _ := strings.Cut(path, "/")
	return !strings.Contains(first, ".")
}

// match reports whether a pattern covers a package. "*" is all that is not the
// standard library.
func match(pattern, path string) bool {
	if pattern == "*" {
		return path == "." || strings.HasPrefix(path, "./") || !standard(path)
	}
	root, ok := strings.CutSuffix(pattern, "...")
	if !ok {
		return path == pattern
	}
	return root == "" || path == strings.TrimSuffix(root, "/") || strings.HasPrefix(path, root)
}

func matchAny(patterns []string, path string) bool {
	return slices.ContainsFunc(patterns, func(p string) bool { return match(p, path) })
}

// broken returns what a package imports against a rule.
func (r rule) broken(p pkg) []string {
	name := strings.TrimPrefix(short(p.ImportPath), "./")
	if !matchAny(r.who, name) || matchAny(r.unless, name) || isTestSupport(name) {
		return nil
	}
	imports := p.Imports
	if r.deep {
		imports = p.Deps
	}
	var out []string
	for _, imp := range imports {
		if s := short(imp); s != short(p.ImportPath) && matchAny(r.not, s) && !matchAny(r.except, s) && !slices.Contains(ground, s) {
			out = append(out, s)
		}
	}
	return out
}

func TestLattice(t *testing.T) {
	for _, arch := range []string{"amd64", "arm64"} {
		list := packages(t, arch)
		if len(list) < 20 {
			t.Fatalf("go list knows %d packages", len(list))
		}
		for _, r := range lattice {
			for _, p := range list {
				for _, imp := range r.broken(p) {
					t.Errorf("%s imports %s: %s (%s)", short(p.ImportPath), imp, r.why, r.name)
				}
			}
		}
	}
}

// TestLatticeBites: each rule forbids what it is for.
func TestLatticeBites(t *testing.T) {
	in := func(name string) string { return modulePath + "/" + name }
	for _, tt := range []struct {
		rule, pkg, imports string
		want               bool
	}{
		{"ground", "internal/infile", in("internal/noun"), true},
		{"statements", "internal/attest", in("internal/infile"), false},
		{"mains", "build/llb", in("cmd/assay"), true},
		{"build knows no measuring", "build/solve", in("coll/schedule"), true},
		{"build knows no measuring", "build/solve", in("coll"), true},
		{"build knows no measuring", "build/solve", in("collation"), false},
		{"build and the harness", "build/sbom", in("harness/image"), true},
		{"build and the harness", "build/sbom", in("harness/certificate"), false},
		{"the harness and build", "harness/image", in("build/recipe"), true},
		{"pure packages", "build/recipe", "github.com/moby/buildkit/client/llb", true},
		{"pure packages", "build/recipe", "crypto/sha256", false},
		{"jobs", "build/jobs", in("build/matrix"), true},
		{"jobs", "build/jobs", in("internal/nearest"), false},
		{"jobs", "build/jobs", in("harness/hardware"), false},
		{"Kubernetes", "cmd/assay", "k8s.io/api/core/v1", true},
		{"BuildKit", "build/driver", "github.com/moby/buildkit/client", true},
		{"BuildKit", "build/solve", "github.com/moby/buildkit/client", false},
		{"registries and layouts", "build/source", "github.com/google/go-containerregistry/pkg/v1/remote", true},
		{"registries and layouts", "build/source", "github.com/google/go-containerregistry/pkg/v1", false},
		{"backends", "build/llb", in("build/component"), true},
		{"command line", "build/driver", "github.com/urfave/cli/v2", true},
		{"command line", "cmd/assay", "github.com/urfave/cli/v2", false},
		{"leaves", "harness/elf", "go.yaml.in/yaml/v3", true},
		{"leaves", "harness/elf", in("harness/certificate"), true},
		{"leaves", "harness/elf", "strings", false},
		{"leaves", "harness/ldso", in("harness/elf"), false},
		{"leaves", "harness/elf", "golang.org/x/sys/unix", false},
		{"the runner knows no check", "harness/suite", in("harness/image"), true},
		{"clouds", "harness/sign", "github.com/sigstore/sigstore/pkg/signature/kms/aws", true},
		{"clouds", "harness/sign", "github.com/sigstore/sigstore/pkg/signature/kms/hashivault", false},
		{"quantities", "harness/result", in("harness/certificate"), true},
		{"history", "harness/history", in("harness/registry"), true},
		{"history", "harness/history", in("harness/certificate"), false},
		{"the certificate", "harness/certificate", in("harness/suite"), true},
		{"telling the site", "harness/site/slurm", in("harness/suite"), true},
		{"telling the site", "harness/site/slurm", in("harness/site"), false},
		{"Kubernetes", "cmd/harness", "k8s.io/client-go/dynamic", true},
		{"Kubernetes", "harness/site/kubernetes", "k8s.io/client-go/dynamic", false},
		{"Kubernetes' types", "harness/site/kubernetes", "k8s.io/api/core/v1", true},
		{"Kubernetes' types", "harness/site/kubernetes", "k8s.io/client-go/rest", false},
		{"the hunt", "harness/hunt", in("perftest/mesh"), true},
		{"the hunt", "harness/hunt", "net/http", true},
		{"the hunt", "harness/hunt", in("harness/stat"), false},
		{"gathering", "harness/gather", in("coll/bootstrap"), true},
		{"gathering", "harness/gather", in("harness/certificate"), false},
		{"gathering", "harness/gather", in("internal/meet"), false},
		{"meeting", "internal/meet", in("harness/stat"), true},
		{"meeting", "internal/meet", "crypto/hmac", false},
		{"programs that are not trusted", "internal/confine", in("harness/suite"), true},
		{"programs that are not trusted", "internal/confine", "golang.org/x/sys/unix", false},
		{"plain text", "internal/plain", in("harness/certificate"), true},
		{"collectives", "coll/host", in("perftest/verbs"), true},
		{"collectives", "coll/transport/verbs", in("perftest/verbs"), false},
		{"the judge", "perftest/judge", in("perftest/mesh"), true},
		{"dcgm", "dcgm/health", in("coll/topology"), true},
		{"what health stands on", "dcgm/health", in("harness/nvml"), false},
		{"what health stands on", "dcgm/health", "github.com/NVIDIA/go-nvml/pkg/nvml", true},
		{"what health stands on", "dcgm/health", in("harness/sysfs"), false},
		{"the exceptions' exception", "perftest/membw", in("coll/cuda/driver"), false},
		{"the exceptions' exception", "perftest/membw", in("coll/schedule"), true},
		{"diag", "dcgm/diag", in("perftest/membw"), true},
		{"diag", "dcgm/diag", in("coll/cuda/driver"), false},
		{"the rig", "internal/rig", in("perftest/membw"), true},
		{"the rig", "internal/rig", in("coll/cuda/driver"), false},
		{"what perftest stands on", "perftest/probe", in("coll/elem"), true},
		{"what perftest stands on", "perftest/probe", in("dcgm"), true},
		{"what perftest stands on", "perftest/probe", in("harness/image"), true},
		{"what perftest stands on", "perftest/probe", in("harness/sysfs"), false},
		{"what perftest stands on", "perftest/probe", in("perftest/verbs"), false},
		{"what perftest stands on", "perftest/tcp", in("harness/hunt"), true},
		{"what perftest stands on", "perftest/tcp", in("internal/meet"), false},
		{"the control channel", "perftest/probe/wire", in("perftest/verbs"), true},
		{"the control channel", "perftest/probe/wire", "golang.org/x/sys/unix", false},
		{"test support", "build/driver", in("build/standin"), true},
		{"test support", "build/driver", "testing", true},
		{"test support", "harness/elf/elftest", "testing", false},
	} {
		i := slices.IndexFunc(lattice, func(r rule) bool { return r.name == tt.rule })
		if i < 0 {
			t.Errorf("there is no rule %q", tt.rule)
			continue
		}
		p := pkg{ImportPath: in(tt.pkg), Imports: []string{tt.imports}, Deps: []string{tt.imports}}
		if got := len(lattice[i].broken(p)) > 0; got != tt.want {
			t.Errorf("rule %q, %s imports %s: broken = %v; want %v", tt.rule, tt.pkg, tt.imports, got, tt.want)
		}
	}
	for _, r := range lattice {
		if r.why == "" || len(r.who) == 0 || len(r.not) == 0 {
			t.Errorf("rule %q is not complete", r.name)
		}
	}
}
