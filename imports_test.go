package assay_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
)

const modulePath = "github.com/assay-hpc/assay"

// floors are the packages of the module, from below: a package imports those of lower floors alone.
// docs/architecture.md has the picture. Packages for tests, and mains that are not in cmd, are on
// none.
var floors = []string{
	// The ground: what a node is, what a certificate says, and bindings.
	"internal/{confine,elf,exit,gpu/driver,hardware,hostlist,infile,meet,pickle,result,stat,version,words}",
	"internal/{attest,getopt,grammar,host/netenv,outfile,rootfs}",
	"internal/{certificate,dpkg,host/sysfs,ldso,oci}",
	"internal/{attest/walk,gpu/rig,host/libnccl,host/nvml,platform,verbs} .",
	"internal/host/topology",
	"internal/host/machine",
	// The four trades, side by side.
	"build/archive",
	"build/{jobs,mirror,recipe,source,state} coll/{debug,elem,flight,model,predict/scale,transport/rendezvous} perftest/{judge,probe/wire,tcp} dcgm/{diag,health}",
	"build/{daemon,dockerfile,fetch,llb,lock,matrix,provenance,sbom} coll/{cuda/kernels,op} perftest/{membw,probe} dcgm/hostengine",
	"coll/flip",
	"build/{base,component,inspect,release} coll/{knob,nccl,perf,schedule,transport} perftest/{gpumem,mesh}",
	"build/solve coll/{bootstrap,cuda/bench,host,predict,transport/shm,transport/slots,transport/socket}",
	"build/driver coll/{choose,transport/netplugin,transport/verbs}",
	"coll/executor",
	"coll/{hang,session}",
	"coll coll/{cuda,watch}", // none knows another
	"coll/perf/world",
	// What judges and tells.
	"harness/{estimate,explain,gather,history,hunt,keep,sign,site,suite,train}",
	"harness/fleet",
	"harness/{audit,fabric,judge,registry,report,site/kubernetes,site/nvsentinel,site/slurm,variables}",
	"harness/{image,node,site/as,site/inform}",
	"harness/certify",
	"cmd/{assay,harness,libnccl}",
}

// trades do not import one another.
var trades = []string{"build", "coll", "perftest", "dcgm"}

// A fence keeps packages out of all but a few of the module's.
type fence struct {
	out  string // packages of other modules, or of the standard library
	but  string // of this module: who may import them
	deep string // of this module: who may not even reach them through others
	why  string
}

var fences = []fence{
	{"github.com/moby/buildkit/...", "build/{llb,daemon,solve}", "", "BuildKit's API changes with each release"},
	{"k8s.io/... sigs.k8s.io/... github.com/kubeflow/...", "build/jobs harness/site/kubernetes", "", "Kubernetes' types and its client are large and change"},
	{"k8s.io/api/... k8s.io/client-go/kubernetes/...", "build/jobs", "harness/... cmd/harness", "they more than double the harness"},
	{"github.com/google/go-containerregistry/pkg/v1/{remote,layout}/...", "internal/oci internal/attest/walk", "", "what talks to a registry needs credentials, retries and limits, and what reads a layout verifies digests"},
	{"github.com/urfave/cli/...", "cmd/... internal/grammar", "", "a library that knows flags cannot be called without them"},
	{"gorgonia.org/cu/...", "internal/gpu/driver", "", "one package touches the driver's API"},
	{"github.com/NVIDIA/go-nvml/...", "internal/host/nvml", "", "one package asks NVML"},
	{"github.com/sigstore/sigstore/pkg/signature/kms/{aws,azure,gcp}", "", "", "clouds' libraries would double the harness: cmd/sigstore-kms is a plugin program, and a module of its own"},
	{"net/http os/exec", "...", "build/{matrix,recipe,component,lock} coll/... perftest/... harness/{estimate,fabric,fleet,gather,history,hunt,keep,suite} internal/{attest,certificate,meet,platform,result}", "what follows from its arguments alone is tested without a network or a program"},
	{"...", "...", "coll/model harness/{estimate,hunt} internal/{exit,getopt,hostlist,infile,meet,outfile,pickle,result,rootfs,stat,version,words,host/netenv} perftest/judge", "the standard library is enough"},
	{"testing", "internal/golden", "", "fixtures belong to tests"},
}

// A closet is packages that know few others of the module, even through one another.
type closet struct{ who, knows, why string }

var closets = []closet{
	{"build/{llb,dockerfile}", "build/{archive,recipe} internal/{attest,certificate,infile,result}", "both make the same image from the same recipe"},
	{"build/jobs", "internal/{hardware,words}", "a job follows from a profile and options alone"},
	{"build/...", "build/... . internal/...", "assay runs without GPU and cgo; what measures is compiled inside the images"},
	{"perftest/probe/wire", "", "others can speak perftest's protocol with this package alone"},
	{"harness/site/{slurm,kubernetes,nvsentinel}", "harness/site internal/{attest,certificate,infile,result}", "it acts on a certificate, whoever made that"},
	{"harness/{fleet,history,keep}", "internal/{attest,certificate,hostlist,infile,outfile,result,stat,words}", "what follows from certificates needs nothing else"},
	{"harness/suite", "internal/{infile,result,rootfs,stat,words}", "the runner knows no check"},
	{"internal/{confine,meet,result}", "", "short enough to be read whole"},
	{"internal/{certificate,oci}", "internal/{attest,infile,result}", "others read certificates and images with these alone"},
}

// isForTests reports whether a package is for tests, or a program of a developer's.
func isForTests(name string) bool {
	return strings.HasSuffix(name, "test") && name != "internal/attest" || covers("build/{e2e,standin}/... coll/{cuda/kernels,elem}/gen coll/model/modeltest coll/perf/peers/... internal/golden internal/gpu/driver/internal/...", name)
}

// A listed is a package of this module, by its directory, with what it imports: of this module as "./"
// and its directory.
type listed struct {
	Name    string `json:"ImportPath"`
	Imports []string
	Deps    []string
}

// list returns the module's packages with what their files, but for tests, import.
func list(t *testing.T, tags, arch, cgo string) (all []listed) {
	t.Helper()
	cmd := exec.Command("go", "list", "-tags="+tags, "-json=ImportPath,Imports,Deps", "./...")
	cmd.Env = append(cmd.Environ(), "GOOS=linux", "GOARCH="+arch, "CGO_ENABLED="+cgo, "GOFLAGS=-mod=readonly")
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go list: %v", err)
	}
	for dec := json.NewDecoder(bytes.NewReader(out)); ; {
		var p listed
		if err := dec.Decode(&p); err == io.EOF {
			return all
		} else if err != nil {
			t.Fatal(err)
		}
		p.Name = strings.TrimPrefix(short(p.Name), "./")
		for _, paths := range [][]string{p.Imports, p.Deps} {
			for i := range paths {
				paths[i] = short(paths[i])
			}
		}
		all = append(all, p)
	}
}

func short(path string) string {
	if path == modulePath {
		return "./."
	}
	return strings.Replace(path, modulePath+"/", "./", 1)
}

// patterns are the words of a text, each without braces: "a/{b,c/d}" is a/b and a/c/d.
func patterns(text string) (all []string) {
	for _, word := range strings.Fields(text) {
		before, rest, has := strings.Cut(word, "{")
		in, after, _ := strings.Cut(rest, "}")
		if !has {
			in = ""
		}
		for name := range strings.SplitSeq(in, ",") {
			all = append(all, before+name+after)
		}
	}
	return all
}

// covers reports whether one of patterns covers a package; "a/..." is a and all below it.
func covers(text, name string) bool {
	return slices.ContainsFunc(patterns(text), func(p string) bool {
		root, below := strings.CutSuffix(p, "...")
		return name == p || below && (root == "" || name == strings.TrimSuffix(root, "/") || strings.HasPrefix(name, root))
	})
}

func floorOf(name string) int {
	return slices.IndexFunc(floors, func(f string) bool { return slices.Contains(patterns(f), name) })
}

// wrong returns what is wrong with a package's imports.
func wrong(p listed) (out []string) {
	say := func(format string, args ...any) {
		out = append(out, p.Name+fmt.Sprintf(format, args...))
	}
	if isForTests(p.Name) {
		for _, imp := range p.Imports { // they may know all of their house
			if name, own := strings.CutPrefix(imp, "./"); own && covers("internal/...", p.Name) && !covers("internal/... .", name) {
				say(" imports %s, which is not below it", name)
			}
		}
		return out
	}
	floor := floorOf(p.Name)
	if floor < 0 {
		say(" is on no floor")
	}
	trade := func(name string) int {
		return slices.IndexFunc(trades, func(t string) bool { return covers(t+"/...", name) })
	}
	for _, imp := range p.Imports {
		name, own := strings.CutPrefix(imp, "./")
		switch {
		case own && isForTests(name):
			say(" imports %s, which is for tests", name)
		case own && (floorOf(name) < 0 || floorOf(name) >= floor):
			say(" imports %s, which is not below it", name)
		case own && trade(p.Name) >= 0 && trade(name) >= 0 && trade(name) != trade(p.Name):
			say(" imports %s, of another trade", name)
		}
		for _, f := range fences {
			if covers(f.out, imp) && !covers(f.but, p.Name) {
				say(" imports %s: %s", imp, f.why)
			}
		}
	}
	for _, dep := range p.Deps {
		name, own := strings.CutPrefix(dep, "./")
		first, _, _ := strings.Cut(dep, "/")
		for _, f := range fences {
			// "..." are all modules but this one.
			if covers(f.deep, p.Name) && covers(f.out, dep) && (f.out != "..." || !own && strings.Contains(first, ".")) {
				say(" reaches %s: %s", dep, f.why)
			}
		}
		for _, c := range closets {
			if own && name != p.Name && covers(c.who, p.Name) && !covers(c.who, name) && !covers(c.knows, name) {
				say(" knows %s: %s", name, c.why)
			}
		}
	}
	return out
}

// configurations are the ways in which packages import differently.
var configurations = [][3]string{{"", "amd64", "0"}, {"", "arm64", "0"}, {"cuda,nvml,urfave_cli_no_docs", "amd64", "1"}}

func TestImports(t *testing.T) {
	seen := map[string]bool{}
	for _, c := range configurations {
		all := list(t, c[0], c[1], c[2])
		for _, p := range all {
			seen[p.Name] = true
			for _, why := range wrong(p) {
				t.Error(why)
			}
		}
	}
	for _, f := range floors {
		for _, name := range patterns(f) {
			if !seen[name] {
				t.Errorf("there is no package %s", name)
			}
		}
	}
}

// TestImportsBites: each rule forbids what it is for, and nothing else.
func TestImportsBites(t *testing.T) {
	for _, tt := range []struct {
		name, imports, want string // want: a part of what is wrong, "" for nothing
	}{
		{"coll/host", "./coll/op", ""},
		{"coll/op", "./coll/host", "not below it"},
		{"coll/host", "./coll/schedulex", "not below it"},
		{"internal/attest", "./internal/infile", ""},
		{"internal/infile", "./internal/attest", "not below it"},
		{"build/llb", "./cmd/assay", "not below it"},
		{"build/solve", "./coll/op", "another trade"},
		{"perftest/mesh", "./dcgm/diag", "another trade"},
		{"dcgm/health", "./harness/suite", "not below it"},
		{"internal/host/machine", "./coll/knob", "not below it"},
		{"coll/new", "fmt", "on no floor"},
		{"coll/host", "./coll/colltest", "for tests"},
		{"coll/colltest", "./cmd/harness", ""},
		{"internal/gputest", "./coll/elem", "not below it"},
		{"internal/gputest", "./internal/stat", ""},
		{"build/driver", "testing", "fixtures"},
		{"build/driver", "github.com/moby/buildkit/client", "BuildKit"},
		{"build/solve", "github.com/moby/buildkit/client", ""},
		{"cmd/assay", "k8s.io/api/core/v1", "Kubernetes"},
		{"harness/site/kubernetes", "k8s.io/client-go/rest", ""},
		{"harness/site/kubernetes", "k8s.io/api/core/v1", "double"},
		{"build/source", "github.com/google/go-containerregistry/pkg/v1/remote", "credentials"},
		{"build/source", "github.com/google/go-containerregistry/pkg/v1", ""},
		{"build/driver", "github.com/urfave/cli/v2", "flags"},
		{"cmd/assay", "github.com/urfave/cli/v2", ""},
		{"harness/sign", "github.com/sigstore/sigstore/pkg/signature/kms/aws", "clouds"},
		{"harness/sign", "github.com/sigstore/sigstore/pkg/signature/kms/hashivault", ""},
		{"build/recipe", "net/http", "network"},
		{"coll/perf", "os/exec", "network"},
		{"build/driver", "net/http", ""},
		{"harness/hunt", "golang.org/x/sys/unix", "standard library"},
		{"harness/hunt", "strings", ""},
		{"build/llb", "./build/state", "same recipe"},
		{"build/jobs", "./internal/stat", "a profile"},
		{"build/jobs", "./internal/hardware", ""},
		{"perftest/probe/wire", "./internal/words", "with this package alone"},
		{"harness/site/slurm", "./harness/suite", "whoever made"},
		{"harness/site/slurm", "./harness/site", ""},
		{"harness/suite", "./internal/certificate", "no check"},
		{"internal/result", "./internal/words", "read whole"},
	} {
		got := wrong(listed{tt.name, []string{tt.imports}, []string{tt.imports}})
		if tt.want == "" && len(got) > 0 || tt.want != "" && !slices.ContainsFunc(got, func(s string) bool { return strings.Contains(s, tt.want) }) {
			t.Errorf("%s imports %s: %q; want %q", tt.name, tt.imports, got, tt.want)
		}
	}
}
