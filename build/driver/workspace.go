// Package driver implements assay's commands: it connects the matrix, the lock, the recipes, the
// builders, the gate and the registry. The command line in cmd/assay only fills in its options
// and prints its results.
package driver

import (
	"bytes"
	"crypto"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/mod/module"

	assay "github.com/assay-hpc/assay"
	"github.com/assay-hpc/assay/build/component"
	"github.com/assay-hpc/assay/build/lock"
	"github.com/assay-hpc/assay/build/matrix"
	"github.com/assay-hpc/assay/build/mirror"
	"github.com/assay-hpc/assay/build/source"
	"github.com/assay-hpc/assay/internal/exit"
	"github.com/assay-hpc/assay/internal/infile"
)

// Options are common to all commands.
type Options struct {
	Matrix   string   // path; "" means ./matrix.yaml, else the embedded one
	Mirrors  []string // FROM=TO
	StateDir string   // "" means the user's cache directory
	Version  string
	// Self is a program that runs gates on builders of this machine's platform, if it is static:
	// assay's own file; "" compiles a harness instead.
	Self string
	Log  func(format string, args ...any)
}

// A Workspace is an opened matrix with its lock.
type Workspace struct {
	Options
	File     *matrix.File
	Targets  []matrix.Target
	Lock     *lock.Lock
	LockPath string // "" for the embedded lock, which cannot be written
	Mirror   *mirror.Resolver
	// Publishers are the publishers with pinned keys; nil means [component.Publishers].
	Publishers []component.Publisher
	// BaseKeys signed the certificates of bases that are images of assay's; nil: signatures are ignored.
	BaseKeys []crypto.PublicKey

	forgotten *lock.Lock // the lock before Forget dropped entries; nil if it did not
	text      []byte     // of the matrix
	source    component.Source
	sourceTar []byte
}

// defaultStateDir returns the directory for builders, downloads and bases.
func defaultStateDir() (string, error) {
	if dir := os.Getenv("ASSAY_STATE_DIR"); dir != "" {
		return filepath.Abs(dir)
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", fmt.Errorf("no cache directory (%w); set ASSAY_STATE_DIR", err)
	}
	return filepath.Join(cache, "assay"), nil
}

// Open reads the matrix and its lock.
func Open(o Options) (*Workspace, error) {
	w := &Workspace{Options: o}
	if w.Log == nil {
		w.Log = func(string, ...any) {}
	}
	var err error
	if w.StateDir == "" {
		if w.StateDir, err = defaultStateDir(); err != nil {
			return nil, err
		}
	}
	if err := w.mirrors(); err != nil {
		return nil, err
	}
	if err := w.matrix(); err != nil {
		return nil, err
	}
	tar, digest, err := source.Tar(assay.HarnessSource)
	if err != nil {
		return nil, err
	}
	w.sourceTar, w.source = tar, component.Source{Digest: digest, Version: assay.Version, Go: assay.GoVersion}
	w.source.Modules, w.source.CUDAModules = modules(assay.HarnessModules), modules(assay.CUDAModules)
	return w, nil
}

// modules reads a list of modules, one "path version" a line.
func modules(list string) []module.Version {
	var out []module.Version
	for line := range strings.Lines(list) {
		path, version, _ := strings.Cut(strings.TrimSpace(line), " ")
		out = append(out, module.Version{Path: path, Version: version})
	}
	return out
}

// configFile returns the path of a file that lists mirrors, one FROM=TO per line, for sites where
// every call needs them.
func configFile() string {
	dir, err := os.UserConfigDir()
	if err != nil {
		return ""
	}
	return filepath.Join(dir, "assay", "mirrors")
}

// maxConfig is the largest list of mirrors that is read, in bytes.
const maxConfig = 1 << 20

func (w *Workspace) mirrors() error {
	lines := slices.Clone(w.Mirrors)
	text, err := infile.Read(configFile(), maxConfig)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return exit.With(exit.Usage, err)
	}
	if err == nil {
		for line := range strings.Lines(string(text)) {
			if line = strings.TrimSpace(line); line != "" && line[0] != '#' {
				lines = append(lines, line)
			}
		}
	}
	var rules []mirror.Rule
	for _, l := range lines {
		r, err := mirror.ParseRule(l)
		if err != nil {
			return exit.With(exit.Usage, err)
		}
		rules = append(rules, r)
	}
	w.Mirror = mirror.New(rules...)
	return nil
}

func (w *Workspace) matrix() error {
	name, text, err := readMatrix(w.Matrix)
	if err != nil {
		return err
	}
	w.text = text
	lockName, lockText := "matrix.lock (embedded)", assay.Lock
	if name != embeddedMatrix {
		w.LockPath = strings.TrimSuffix(name, filepath.Ext(name)) + ".lock"
		lockName = w.LockPath
		lockText, err = infile.Read(w.LockPath, lock.MaxSize)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return exit.With(exit.Usage, err)
		}
	}
	if w.File, w.Targets, err = parseMatrix(name, text); err != nil {
		return err
	}
	if w.Lock, err = lock.Read(lockName, bytes.NewReader(lockText)); err != nil {
		return exit.With(exit.Usage, err)
	}
	return nil
}

const embeddedMatrix = "matrix.yaml (embedded)"

// readMatrix reads the named file, else ./matrix.yaml, else the embedded one.
func readMatrix(name string) (string, []byte, error) {
	if name == "" {
		if _, err := os.Stat("matrix.yaml"); err != nil {
			return embeddedMatrix, assay.Matrix, nil
		}
		name = "matrix.yaml"
	}
	text, err := infile.ReadArgument(name, matrix.MaxSize)
	if err != nil {
		return "", nil, exit.With(exit.Usage, err)
	}
	return name, text, nil
}

func parseMatrix(name string, text []byte) (*matrix.File, []matrix.Target, error) {
	f, targets, err := component.Read(name, bytes.NewReader(text), directories(filepath.Dir(name)))
	if err != nil {
		return nil, nil, exit.With(exit.Usage, err)
	}
	return f, targets, nil
}

// directories opens directories relative to a matrix. Links do not lead out of one.
func directories(beside string) matrix.Directory {
	return func(dir string) (fs.FS, error) {
		root, err := os.OpenRoot(filepath.Join(beside, dir))
		if err != nil {
			return nil, err
		}
		return root.FS(), nil
	}
}

// ReadMatrix reads only the matrix, as Open does, without the lock and the source.
func ReadMatrix(name string) (*matrix.File, []matrix.Target, error) {
	name, text, err := readMatrix(name)
	if err != nil {
		return nil, nil, err
	}
	return parseMatrix(name, text)
}

// Epoch is the timestamp of images built from this lock.
func (w *Workspace) Epoch() time.Time { return time.Unix(w.Lock.Epoch, 0).UTC() }
