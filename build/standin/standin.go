// Package standin makes and serves stand-ins for the upstreams of the CUDA images: a registry
// with CUDA base images, NVIDIA's signed apt repositories, and the archives of NCCL, HPC-X,
// GDRCopy, perftest, nccl-tests, nvbandwidth and the EFA installer. They have the upstreams'
// URLs, names, versions, file layouts and build steps, but contain nothing of the upstreams:
// every source was written for this package (see testdata), compiles with gcc, and yields
// programs and libraries that run on a machine without a GPU and say that they are stand-ins.
// With them, assay's tests run the whole CUDA recipe where the upstreams cannot be reached. The
// exception is what the harness is compiled with: Header and Compiler.
//
// New prepares everything under a cache directory. The first time that needs root, debootstrap,
// gpg and Debian's archive; after that it takes almost no time. Start serves it; Mirrors returns
// the rules that redirect assay to it.
package standin

import (
	"context"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"sync"
	"syscall"

	"golang.org/x/sync/errgroup"
)

// A Base is one stand-in CUDA base image: nvidia/cuda:<CUDA>-devel-ubuntu<Ubuntu>.
type Base struct{ CUDA, Ubuntu string }

// Ref returns the reference of the real image.
func (b Base) Ref() string { return "docker.io/nvidia/cuda:" + b.tag() }

func (b Base) tag() string { return b.CUDA + "-devel-ubuntu" + b.Ubuntu }

// A Fault is a defect of a component, for tests of the build's checks.
type Fault string

const (
	Unresolved   Fault = "unresolved"    // a library needs one that does not exist
	WrongVersion Fault = "wrong-version" // the content has another version than its name says
)

// Options says what New prepares. The zero value is the whole matrix for amd64.
type Options struct {
	Bases    []Base           // default DefaultBases
	Arches   []string         // amd64, arm64; default amd64. The one that is not this machine's needs qemu's binfmt
	Include  []string         // Debian packages that the base images contain in addition to build-essential and gnupg
	Faults   map[string]Fault // by component: see Components
	Compiler bool             // the stand-in nvcc really compiles to PTX, with this machine's
	Log      io.Writer        // progress and the output of failed steps; default none
}

// Upstreams is a prepared set of stand-ins. Its methods may be called from
// several goroutines.
type Upstreams struct {
	files     map[string]string // maps "github.com/NVIDIA/…" to the file that is served
	checksums map[string]string
	images    []image
	pool      string // blobs of the images
	keyFile   string
	roots     map[string][]string // by "arch CUDA ubuntu": the image's layers as directories, topmost first

	mu      sync.Mutex
	stats   map[string]Count
	damaged map[string]bool
	server  *server
}

// maker is the state of one New.
type maker struct {
	Options
	store   *store
	sources string            // testdata as a directory
	key     *signingKey       // of the apt repositories
	roots   map[string]string // by arch
	mu      sync.Mutex        // guards up
	up      *Upstreams
}

// New prepares stand-ins under dir and reuses whatever an earlier New has left there. Two calls
// of New may share a directory: one waits for the other.
func New(ctx context.Context, dir string, opts Options) (*Upstreams, error) {
	if err := opts.complete(); err != nil {
		return nil, err
	}
	dir, err := filepath.Abs(dir)
	if err != nil {
		return nil, err
	}
	unlock, err := lock(dir)
	if err != nil {
		return nil, fmt.Errorf("standin: %w", err)
	}
	defer unlock()
	m := &maker{Options: opts, store: &store{dir: dir, log: opts.Log}, roots: map[string]string{}}
	m.up = &Upstreams{
		files: map[string]string{}, checksums: map[string]string{}, roots: map[string][]string{},
		pool: filepath.Join(dir, "blobs", "sha256"), stats: map[string]Count{}, damaged: map[string]bool{},
	}
	if err := m.all(ctx); err != nil {
		return nil, fmt.Errorf("standin: %w", err)
	}
	return m.up, nil
}

// complete fills in defaults and rejects what cannot be made.
func (o *Options) complete() error {
	if o.Bases == nil {
		o.Bases = defaultBases()
	}
	if o.Arches == nil {
		o.Arches = []string{"amd64"}
	}
	if o.Log == nil {
		o.Log = io.Discard
	}
	for _, a := range o.Arches {
		if gnuMachine(a) == "" {
			return fmt.Errorf("standin: no architecture %q", a)
		}
	}
	for c, f := range o.Faults {
		if !slices.Contains(Components, c) || (f != Unresolved && f != WrongVersion) {
			return fmt.Errorf("standin: no fault %q of component %q", f, c)
		}
	}
	return nil
}

// all makes everything: first what the rest depends on, then the rest in parallel, limited by the
// number of processors.
func (m *maker) all(ctx context.Context) error {
	var err error
	if m.sources, err = m.store.make("sources", []any{contentHash(".")}, extract); err != nil {
		return err
	}
	if m.key, err = m.makeKey(ctx); err != nil {
		return err
	}
	for _, arch := range m.Arches {
		if m.roots[arch], err = m.makeRoot(ctx, arch); err != nil {
			return err
		}
	}
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(runtime.NumCPU())
	for _, step := range []func(context.Context) error{m.makeImages, m.makeArchives, m.makeHPCX, m.makeCUDARepos, m.makeDOCARepos, m.makeEFA} {
		g.Go(func() error { return step(ctx) })
	}
	return g.Wait()
}

// publish makes the server serve file at url.
func (m *maker) publish(url, file string) error {
	sum, err := m.store.sum(file)
	if err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.up.files[upstreamPath(url)] = file
	m.up.checksums[url] = "sha256:" + sum
	return nil
}

// env returns the variables of every build script.
func (m *maker) env(arch, component string, more ...string) []string {
	return append([]string{
		"ARCH=" + arch, "MACHINE=" + gnuMachine(arch), "MULTIARCH=" + gnuMachine(arch) + "-linux-gnu", "FAULT=" + string(m.Faults[component]),
	}, more...)
}

// Checksums returns "sha256:…" of everything that is served, by upstream URL. Archives, and so
// their checksums, are the same after every New with the same options on one machine; apt indexes
// also depend on the signing key, which is generated once per directory.
func (u *Upstreams) Checksums() map[string]string { return maps.Clone(u.checksums) }

// Images returns the digest of every base image's index, by upstream reference.
func (u *Upstreams) Images() map[string]string {
	digests := map[string]string{}
	for _, img := range u.images {
		digests[img.base.Ref()] = img.digest
	}
	return digests
}

// KeyFile returns the path of the apt repositories' public key, in the binary form that apt's
// signed-by and gpgv accept.
func (u *Upstreams) KeyFile() string { return u.keyFile }

// lock locks dir for this process until unlock is called.
func lock(dir string) (unlock func(), err error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	f, err := os.OpenFile(filepath.Join(dir, "lock"), os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return nil, err
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX); err != nil {
		f.Close()
		return nil, err
	}
	return func() { f.Close() }, nil
}

// CacheDir returns the directory under the user's cache that tests and
// benchmarks share.
func CacheDir() (string, error) {
	dir, err := os.UserCacheDir()
	return filepath.Join(dir, "assay", "standin"), err
}

// Available returns why New cannot work on this machine, or nil.
func Available() error { return canRun(runtime.GOARCH) }
