// Package image contains the checks of the suite "image": does a finished image match its
// declaration, and do its programs and libraries load and run? The suite needs no GPU and no
// network. Most of it works for any image; checks that need the declaration
// ([certificate.ImageSpec]) are skipped in an image without one.
package image

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"regexp"
	"strings"
	"sync"

	"github.com/assay-hpc/assay/harness/audit"
	"github.com/assay-hpc/assay/harness/suite"
	"github.com/assay-hpc/assay/harness/variables"
	"github.com/assay-hpc/assay/internal/certificate"
	"github.com/assay-hpc/assay/internal/confine"
	"github.com/assay-hpc/assay/internal/infile"
	"github.com/assay-hpc/assay/internal/result"
	"github.com/assay-hpc/assay/internal/rootfs"
)

// Config is what the suite compares an image with.
type Config struct {
	Spec *certificate.ImageSpec // nil: the image declares nothing
	// Unbelieved says that Spec is nil because the image's declaration is not trusted.
	Unbelieved bool
	// SpecErr is the error if the declaration exists but cannot be read.
	SpecErr error
	Version string // of the running harness, if it is the image's
	// Runner runs the image's programs; nil: they are not run.
	Runner confine.Runner
	// Records is a directory of this machine with the base's own records, as in
	// [certificate.BaseDir]; "": the image's copies of them.
	Records string
}

const specLimit = certificate.MaxSize

// ReadSpec reads an image's declaration: from file, on this machine, if it is not empty, else from
// the image, which may have none (nil, nil). With [certificate.NoSpec] it reads nothing.
func ReadSpec(root rootfs.FS, file string) (*certificate.ImageSpec, error) {
	if file == certificate.NoSpec {
		return nil, nil
	}
	var b []byte
	var err error
	if file != "" {
		b, err = infile.ReadArgument(file, specLimit)
	} else if b, err = root.ReadFile(certificate.SpecPath, specLimit); errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	spec, err := certificate.ParseSpec(b)
	if err != nil {
		return nil, err
	}
	return withBase(spec, root, certificate.BaseSpecPath)
}

// withBase adds to a declaration that of the base, which is in a file, if the base is an image of assay's.
func withBase(spec *certificate.ImageSpec, root rootfs.FS, file string) (*certificate.ImageSpec, error) {
	from := spec.AssayBase()
	if from == "" {
		return spec, nil
	}
	b, err := root.ReadFile(file, specLimit)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("the base %s is no image of assay's: it has no %s; take harness out of its \"has\"", from, certificate.SpecPath)
	}
	if err != nil {
		return nil, err
	}
	base, err := certificate.ParseSpec(b)
	if err != nil {
		return nil, fmt.Errorf("of the base %s: %w", from, err)
	}
	return spec.Over(base), nil
}

// Suite returns the suite "image".
func Suite(cfg Config) suite.Suite {
	return suite.Suite{
		Name: Name, Title: "the image is what it declares, and all in it loads and runs",
		Checks: func(_ context.Context, env *suite.Env) ([]suite.Check, error) { return checks(cfg, env), nil },
	}
}

// A state is shared by the checks of one run.
type state struct {
	Config
	scan func() (*scan, error) // reads all ELF files once
}

// none is the empty declaration, so that checks need no test for nil.
var none = new(certificate.ImageSpec)

func checks(cfg Config, env *suite.Env) []suite.Check {
	s := &state{Config: cfg}
	if s.Spec == nil {
		s.Spec = none
	}
	s.scan = sync.OnceValues(func() (*scan, error) { return scanImage(env, s.Config) })
	list := []suite.Check{
		{ID: "declaration", Title: "the image's declaration can be read and is for this platform", Run: s.declaration},
		{ID: "dpkg/consistent", Title: "no Debian package is half installed", Run: s.consistent},
		{ID: "dpkg/declared", Title: "the declared Debian packages are installed in the locked versions", Run: s.declared},
		{ID: "audit", Title: "no version in it is known to be faulty", Run: audit.Root},
		{ID: "libraries", Title: "every program and library finds all the libraries it needs", Run: s.libraries},
	}
	list = append(list, s.absentChecks()...)
	list = append(list,
		suite.Check{ID: "environment/library-path", Title: "the directories of LD_LIBRARY_PATH exist", Run: s.libraryPath},
		suite.Check{ID: "environment/ld.so.conf", Title: "the directories of ld.so.conf exist", Run: s.ldConf},
		suite.Check{ID: "environment/profile", Title: "login shells get the image's environment", Run: s.profile},
		suite.Check{ID: "environment/variables", Title: "no variable that the image sets ends NCCL, or slows it down on any node", Run: variables.InImage},
	)
	if s.Version != "" {
		list = append(list, suite.Check{ID: "harness/version", Title: "the harness is the declared one", Component: "harness", Run: s.version})
	}
	list = append(list, s.componentChecks()...)
	list = append(list,
		suite.Check{ID: "libnccl/assay", Title: "assay's libnccl.so.2 is whole and loads", Component: "harness", Run: s.ourNCCL},
		suite.Check{ID: "libnccl/found", Title: "the libnccl.so.2 that programs find says which project built it", Run: s.foundNCCL},
	)
	return append(list,
		suite.Check{ID: "mpi/ranks", Title: "mpirun -np 2 starts two ranks", Run: s.mpiRanks},
		suite.Check{ID: "ssh/config", Title: "sshd accepts its configuration", Run: s.sshConfig},
		suite.Check{ID: "ssh/host-keys", Title: "no SSH host key is part of the image", Run: sshHostKeys(env)},
	)
}

// noSpec returns the skip of a check that needs a declaration.
func (s *state) noSpec() result.Result {
	if s.Unbelieved {
		return result.Skipped("what the image claims about itself is not believed")
	}
	return result.Skipped("the image carries no " + certificate.SpecPath)
}

func (s *state) declaration(_ context.Context, env *suite.Env) result.Result {
	switch {
	case s.SpecErr != nil:
		return result.Failed("%v", s.SpecErr)
	case s.Spec == none:
		return s.noSpec()
	case s.Spec.Platform != env.Platform:
		return result.Failed("it is for %s, and this is %s", s.Spec.Platform, env.Platform)
	}
	return result.Passed("target %s, %d components, %d packages", s.Spec.Target, len(s.Spec.Components), len(s.Spec.Packages))
}

func (s *state) version(_ context.Context, _ *suite.Env) result.Result {
	for _, c := range s.Spec.Components {
		switch {
		case c.Name != "harness":
		case c.Version == "":
			return result.Skipped("the declaration gives no version of the harness")
		case c.Version != s.Version:
			return result.Failed("this harness is %s; %s is declared", s.Version, c.Version)
		default:
			return result.Passed("%s", c.Version)
		}
	}
	if s.Spec == none {
		return s.noSpec()
	}
	return result.Skipped("the harness is not among the declared components")
}

// absent returns the reason why the image may lack a library, and whether it may.
func (s *state) absent(library string) (string, bool) {
	for _, a := range s.Spec.Absent {
		if a.Library == library {
			return a.Because, true
		}
	}
	return "", false
}

var notID = regexp.MustCompile(`[^a-z0-9._+-]+`)

// slug turns a name into part of an ID.
func slug(name string) string {
	return strings.Trim(notID.ReplaceAllString(strings.ToLower(name), "-"), "-")
}

// someOf joins the first few lines into a reason of one line; the output has all of them.
func someOf(lines []string) string {
	const few = 3
	if len(lines) <= few {
		return strings.Join(lines, "; ")
	}
	return fmt.Sprintf("%s; and %d more", strings.Join(lines[:few], "; "), len(lines)-few)
}
