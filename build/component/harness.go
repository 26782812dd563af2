package component

import (
	"crypto/sha256"
	"fmt"
	"slices"
	"strings"

	"golang.org/x/mod/module"

	"github.com/assay-hpc/assay/build/matrix"
	"github.com/assay-hpc/assay/build/recipe"
	"github.com/assay-hpc/assay/internal/certificate"
)

// HarnessSource is the name of the layout that holds the harness's source.
const HarnessSource = "harness-source"

// toolchain returns the download of the Go toolchain. It is the module from which the go command
// itself fetches toolchains, so it comes from the proxy that this machine's go command uses.
func toolchain(version string, p recipe.Platform) string {
	return fmt.Sprintf("goproxy:golang.org/toolchain/@v/v0.0.1-go%s.linux-%s.zip", version, p.Arch)
}

// rivals lists other projects' programs. The harness can be run under their names.
var rivals = []struct {
	dir      string // in /opt/assay
	programs []string
}{
	{"nccl-tests", []string{"all_reduce_perf", "all_gather_perf", "broadcast_perf", "reduce_scatter_perf", "reduce_perf", "alltoall_perf", "scatter_perf", "gather_perf", "sendrecv_perf"}},
	{"perftest", []string{"ib_write_bw", "ib_read_bw", "ib_send_bw", "ib_atomic_bw", "ib_write_lat", "ib_read_lat", "ib_send_lat", "ib_atomic_lat"}},
	{"bandwidth", []string{"bandwidthTest", "p2pBandwidthLatencyTest"}},
}

// libncclDir contains assay's libnccl.so.2 and its engine. The loader does not search it:
// programs load NVIDIA's, unless harness exec or LD_PRELOAD says otherwise.
const libncclDir = "/opt/assay/lib"

// libibverbs lists the components that provide libibverbs.
var libibverbs = []string{"rdma-core", "ofed", "efa"}

func init() { makers["harness"] = harness }

// harness compiles the harness from assay's own source, with cgo: it loads RDMA libraries and
// plugins at run time. It is compiled once per architecture, on the oldest system: any later C
// library can replace that system's. For CUDA images see cudaHarness, for how "release"
// releasedHarness.
func harness(b *builder, how string) {
	// With the code for GPUs, ranks use the machine's GPUs, which may be too few.
	var device []string
	if b.Target.CUDA != "" || releaseOf(b.Target) == fullRelease {
		device = []string{"--device", "cpu"}
	}
	with := func(argv ...string) []string { return append(argv, device...) }
	version := matrix.ExactVersion(b.Source.Version)
	if how != released {
		version += `(?s:.*)` + sourceID(b.Source.Digest)
	}
	checks := []certificate.Check{
		command("version", version, "harness", "version"),
		command("four ranks reduce", `(?m)^# Out of bounds values : 0 OK$`, with("harness", "coll", "all_reduce", "-t", "4", "-b", "8", "-e", "256K", "-f", "8", "-n", "2")...),
		command("all_gather_perf", `(?m)^# Out of bounds values : 0 OK$`, with("/opt/assay/nccl-tests/all_gather_perf", "-t", "2", "-b", "64K", "-e", "64K", "-n", "2")...),
	}
	if loadsRDMA(b.Target) {
		checks = append(checks, command("finds libibverbs", `(?m)^RDMA: libibverbs; `, "harness", "version"))
	}
	checks = append(checks,
		command("ib_write_bw", `(?m)^Version: \d+\.\d+ \(harness `, "/opt/assay/perftest/ib_write_bw", "--version"),
		command("bandwidthTest", `(?m)^Usage of harness bandwidth test:`, "/bin/sh", "-c", "/opt/assay/bandwidth/bandwidthTest --help 2>&1"),
	)
	sources := []certificate.Download{{URL: "https://github.com/assay-hpc/assay", Digest: b.Source.Digest}}
	var from recipe.Source
	switch {
	case how == released:
		archive := b.download(fmt.Sprintf("https://github.com/assay-hpc/assay/releases/download/v%[2]s/%[1]s_%[2]s_linux_%[3]s.tar.gz", releaseOf(b.Target), b.Source.Version, b.Platform.Arch))
		sources, from = sourcesOf(archive), b.releasedHarness(archive)
	case b.Target.CUDA == "":
		from = b.plainHarness()
	default:
		from = b.cudaHarness()
	}
	if b.Target.CUDA != "" {
		checks = append(checks, b.cudaHarnessChecks()...)
		b.copy(from, "/out/lib/", libncclDir+"/")
	}
	b.copy(from, "/out/harness", "/opt/assay/bin/harness")
	// The harness answers to the names of other projects' programs only in its own directories:
	// the original programs are in /opt/nccl-tests and PATH.
	for _, p := range rivals {
		for _, name := range p.programs {
			b.files = append(b.files, recipe.Symlink{Path: "/opt/assay/" + p.dir + "/" + name, Target: "/opt/assay/bin/harness"})
		}
	}
	b.prepend("PATH", "/opt/assay/bin")
	b.component().Version = b.Source.Version
	b.made(sources, checks...)
}

// loadsRDMA reports whether the target has a libibverbs for the harness to load.
func loadsRDMA(t matrix.Target) bool {
	return slices.ContainsFunc(libibverbs, func(c string) bool { return t.Version(c) != "" })
}

// released is the harness of a release of assay's, in place of one that is compiled from source.
const released = "release"

// fullRelease is the archive whose harness loads libraries, for GPUs and for RDMA. That of the other
// one is a static program.
const fullRelease = "harness-cuda"

// releaseOf returns which archive of a release has the target's harness, "" if that is compiled.
func releaseOf(t matrix.Target) string {
	switch {
	case t.Version("harness") != released:
		return ""
	case t.CUDA != "" || loadsRDMA(t):
		return fullRelease
	}
	return "harness"
}

// releasedHarness unpacks a release's archive.
func (b *builder) releasedHarness(archive recipe.Source) recipe.Source {
	return b.stage(recipe.Stage{
		Name: "harness-release-" + b.Platform.Arch, Native: true, From: b.compilersOf(b.Target, b.Native),
		Steps: []recipe.Step{recipe.Run{
			Title:  "unpack the harness of the release " + b.Source.Version + " for " + b.Platform.Arch,
			Mounts: []recipe.Mount{{Target: "/run/assay/harness.tar.gz", From: archive}},
			Script: `mkdir -p /out/lib
tar -xzf /run/assay/harness.tar.gz -C /out --strip-components=1 --no-same-owner
find /out -maxdepth 1 -name 'lib*.so*' -exec mv -t /out/lib {} +
`,
		}},
	})
}

// goStage is the Go toolchain on the base of the oldest system in the matrix, on the builder's
// own architecture: compilers can cross-compile for the other architecture, and emulating them
// would take ten times as long.
func (b *builder) goStage() recipe.Source {
	on := oldest(b.Target, b.All)
	packages := []string{"unzip", "ca-certificates"}
	if !shares(on) { // NVIDIA's bases have a compiler
		packages = append(packages, "gcc", "libc6-dev")
	}
	packages = append(packages, b.crossCompilers()...)
	zip := b.download(toolchain(b.Source.Go, b.Native))
	s := recipe.Stage{Name: "go-" + baseName(on), Native: true, From: b.compilersOf(on, b.Native)}
	s.Steps = []recipe.Step{
		b.apt(s, "go-"+baseName(on), false, packages...),
		recipe.Run{
			Title: "unpack the Go toolchain",
			// A module archive carries no permissions: the go command sets these
			// itself when it fetches a toolchain.
			Script: "mkdir /usr/local/go /tmp/go\nunzip -q /run/assay/go.zip -d /tmp/go\nmv /tmp/go/golang.org/toolchain@*/* /usr/local/go/\nrm -rf /tmp/go\nchmod -R a+rx /usr/local/go/bin /usr/local/go/pkg/tool\n",
			Mounts: []recipe.Mount{{Target: "/run/assay/go.zip", From: zip}},
		},
	}
	return b.stage(s)
}

// cStage has C compilers on the base of the oldest system in the matrix, as goStage.
func (b *builder) cStage() recipe.Source {
	on := oldest(b.Target, b.All)
	s := recipe.Stage{Name: "cc-" + baseName(on), Native: true, From: b.compilersOf(on, b.Native)}
	s.Steps = []recipe.Step{b.apt(s, s.Name, false, append(b.crossCompilers(), "gcc", "libc6-dev")...)}
	return b.stage(s)
}

// A goBuild is one run of the go command on assay's own source.
type goBuild struct {
	title    string
	platform recipe.Platform
	cgo      bool
	tags     string
	env      []recipe.Var
	source   string // where the source is mounted
	modules  []module.Version
	mounts   []recipe.Mount
	script   string
}

// run turns g into a step for a stage that has the toolchain.
func (b *builder) run(g goBuild) recipe.Run {
	cgo := "0"
	if g.cgo {
		cgo = "1"
	}
	return recipe.Run{
		Title: g.title,
		Env: append([]recipe.Var{
			{Name: "GOOS", Value: "linux"}, {Name: "GOARCH", Value: g.platform.Arch}, {Name: "CGO_ENABLED", Value: cgo},
			{Name: "GOTOOLCHAIN", Value: "local"}, {Name: "GOFLAGS", Value: "-mod=readonly -trimpath -buildvcs=false -tags=" + g.tags},
			// go.sum verifies the modules; the checksum database would need network access.
			{Name: "GOPROXY", Value: "file://" + moduleDir}, {Name: "GOSUMDB", Value: "off"},
			{Name: "GOMODCACHE", Value: "/run/assay/mod"}, {Name: "GOCACHE", Value: "/run/assay/cache"},
		}, g.env...),
		Mounts: slices.Concat([]recipe.Mount{
			{Target: g.source, From: b.ownSource()},
			{Target: "/run/assay/mod", From: recipe.Source{Kind: recipe.CacheVolume, Ref: "assay-gomod"}},
			{Target: "/run/assay/cache", From: recipe.Source{Kind: recipe.CacheVolume, Ref: "assay-gocache"}},
		}, b.modules(g.modules), g.mounts),
		Script: g.script,
	}
}

// ownSource is the source that assay embeds.
func (b *builder) ownSource() recipe.Source {
	return recipe.Source{Kind: recipe.FromLayout, Ref: HarnessSource, Digest: b.Source.Digest}
}

// buildHarness is the script that compiles the harness from /src.
func (b *builder) buildHarness() string {
	return fmt.Sprintf(`cd /src
pkg=github.com/assay-hpc/assay/internal/version
date=$(date -u -d "@$SOURCE_DATE_EPOCH" +%%Y-%%m-%%dT%%H:%%M:%%SZ)
mkdir -p /out
/usr/local/go/bin/go build -o /out/harness -ldflags "-s -w -X $pkg.Version=%s -X $pkg.Commit=%s -X $pkg.Date=$date" ./cmd/harness
`, b.Source.Version, sourceID(b.Source.Digest))
}

// plainHarness is the harness of images without CUDA.
func (b *builder) plainHarness() recipe.Source {
	return b.stage(recipe.Stage{
		Name: "harness-" + b.Platform.Arch, Native: true, From: b.goStage(),
		Steps: []recipe.Step{b.run(goBuild{
			title: "compile the harness for " + b.Platform.Arch, platform: b.Platform, cgo: true, tags: "urfave_cli_no_docs",
			env:    []recipe.Var{b.compiler()},
			source: "/src", modules: b.Source.Modules, script: b.buildHarness(),
		})},
	})
}

// compiler sets the C compiler for cgo: the platform's, which is present on a builder of either
// architecture.
func (b *builder) compiler() recipe.Var {
	return recipe.Var{Name: "CC", Value: b.Platform.Multiarch() + "-gcc"}
}

// moduleDir is where the harness's modules are mounted, in the layout of a module proxy.
const moduleDir = "/run/assay/modules"

// modules mounts every module that a build needs, pinned: compiling needs no network.
func (b *builder) modules(list []module.Version) []recipe.Mount {
	var mounts []recipe.Mount
	for _, m := range list {
		dir, err := module.EscapePath(m.Path)
		if err != nil {
			b.fail("module %q: %w", m.Path, err)
			continue
		}
		for _, ext := range []string{".mod", ".zip"} {
			file := dir + "/@v/" + m.Version + ext
			mounts = append(mounts, recipe.Mount{Target: moduleDir + "/" + file, From: b.download("goproxy:" + file)})
		}
	}
	return mounts
}

// sourceID names a source tree in the harness's version. With the commit of the whole repository
// instead, every commit to a document would make a new image.
func sourceID(digest string) string {
	if len(digest) < 14 {
		return "unknown"
	}
	return "tree-" + digest[7:14]
}

// oldest returns the member of the matrix that shared programs are built on:
// a target with a base of its own uses that; CUDA targets the oldest Ubuntu with
// the lowest CUDA.
func oldest(t matrix.Target, all []matrix.Target) matrix.Target {
	best := t
	for _, o := range all {
		if o.Distro != t.Distro || !shares(o) || !shares(t) {
			continue
		}
		if c := matrix.CompareVersions(o.Release, best.Release); c < 0 || c == 0 && matrix.CompareVersions(o.CUDA, best.CUDA) < 0 {
			best = o
		}
	}
	return best
}

// baseName names a target's base in stage names.
func baseName(t matrix.Target) string {
	if d := t.Base.Debootstrap; d != nil {
		return d.Suite
	}
	if t.Base.Own { // of several with the same CUDA and release
		image := t.Base.Compilers()
		sum := sha256.Sum256([]byte(image))
		name := strings.ToLower(strings.NewReplacer(":", "-", "_", "-").Replace(image[strings.LastIndex(image, "/")+1:]))
		return fmt.Sprintf("%s-%x", name, sum[:3])
	}
	return fmt.Sprintf("cuda%s-%s%s", t.CUDA, t.Distro, t.Release)
}

// cudaName names a target's base together with its CUDA in stage names. Of the toolkits that an archive
// has, the newest is not in the name.
func cudaName(t matrix.Target) string {
	name := baseName(t)
	if kit, is := kitOf(t); is && t.Base.Debootstrap != nil {
		newer := func(k cudaKit) bool {
			return k.release == kit.release && matrix.CompareVersions(k.version, kit.version) > 0
		}
		if slices.ContainsFunc(cudaKits, newer) {
			name += "-cuda" + kit.version
		}
	}
	return name
}
