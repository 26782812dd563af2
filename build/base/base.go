// Package base makes base images of Debian and Ubuntu. Resolve lets debootstrap determine the
// packages once, and matrix.lock records them. Make fetches exactly those, merges their files into a
// file system without executing or unpacking anything, lets the builder run the packages' scripts in
// it, and turns the result into a tar that is the same on every machine and every day.
package base

import (
	"bufio"
	"bytes"
	"context"
	_ "embed"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/assay-hpc/assay/build/archive"
	"github.com/assay-hpc/assay/build/matrix"
	"github.com/assay-hpc/assay/build/recipe"
	"github.com/assay-hpc/assay/build/state"
)

// A Maker makes bases.
type Maker struct {
	Dir     string                                            // for temporary files; for Resolve it must allow device nodes
	Archive archive.Archive                                   // of the base's packages
	Root    string                                            // where to fetch from (mirrors applied): a URL, or a directory
	Canon   string                                            // root URL that the image's own sources name
	Name    func(url string) string                           // a package's URL as written in the lock
	Netrc   string                                            // credentials for Root, in .netrc format
	Fetch   func(context.Context, recipe.Deb) (string, error) // returns the path of a verified package
	// Run runs a step in a file system, a tar: in a container of its own, without network, on the
	// architecture. It writes the file system after the step, a tar in the order of paths, to the
	// file out.
	Run   func(ctx context.Context, arch, fileSystem string, step Step, out string) error
	Epoch time.Time
	Log   func(format string, args ...any)
}

// A Step is a shell script (sh -eu) with its environment, NAME=VALUE.
type Step struct {
	Script string
	Env    []string
}

// ErrNotPossible says that this machine cannot run debootstrap; the message contains the remedy.
var ErrNotPossible = errors.New("debootstrap cannot run here")

// Check reports whether Resolve can work on this machine. Make needs a builder alone.
func Check() error {
	if os.Geteuid() != 0 {
		if err := state.CanBeRoot(); err != nil {
			return fmt.Errorf("%w: it needs root (mount), or a user namespace: %w", ErrNotPossible, err)
		}
		return fmt.Errorf("%w: it needs root (mount); run as root (sudo), or by assay without a builder whose address starts with ssh://", ErrNotPossible)
	}
	if _, err := exec.LookPath("debootstrap"); err != nil {
		return fmt.Errorf("%w: it is not installed; run: apt-get install debootstrap (or make deps)", ErrNotPossible)
	}
	return nil
}

// Resolve lets debootstrap determine the packages of the base, with the archive's signature
// checked. debootstrap only downloads: it executes nothing of what it gets.
func (m *Maker) Resolve(ctx context.Context, d matrix.Debootstrap, arch string) ([]recipe.Deb, error) {
	if err := Check(); err != nil {
		return nil, err
	}
	if err := os.MkdirAll(m.Dir, 0o755); err != nil {
		return nil, err
	}
	root, err := os.MkdirTemp(m.Dir, "resolve-")
	if err != nil {
		return nil, err
	}
	defer state.Remove(root)
	keyring, err := m.keyring(root)
	if err != nil {
		return nil, err
	}
	from := m.Root
	if filepath.IsAbs(from) { // a mirror that is a directory
		from = "file://" + from
	}
	args := []string{"--download-only", "--force-check-gpg", "--keyring=" + keyring, "--arch=" + arch, "--variant=" + d.Variant, d.Suite, root, from}
	if _, err := os.Stat(filepath.Join(scripts, d.Suite)); err != nil {
		args = append(args, filepath.Join(scripts, m.Archive.Script))
	}
	if err := m.run(ctx, root, args...); err != nil {
		return nil, err
	}
	lists, _ := filepath.Glob(filepath.Join(root, "var/lib/apt/lists/*_Packages"))
	index := map[string]recipe.Deb{}
	for _, l := range lists {
		if err := readPackages(l, index); err != nil {
			return nil, err
		}
	}
	return m.downloaded(filepath.Join(root, "debootstrap/debpaths"), index)
}

// scripts is the directory of debootstrap's scripts, one for each suite that it knows.
const scripts = "/usr/share/debootstrap/scripts"

// keyring returns the file with the keys of the archive. Unless it comes with this machine's
// distribution, keyring writes it below the directory.
func (m *Maker) keyring(dir string) (string, error) {
	if m.Archive.Key != nil {
		file := filepath.Join(dir, "archive.gpg")
		return file, os.WriteFile(file, m.Archive.Key, 0o644)
	}
	if _, err := os.Stat(m.Archive.Keyring); err != nil {
		return "", fmt.Errorf("%w: %s is missing; run: apt-get install %s (or make deps)", ErrNotPossible, m.Archive.Keyring, m.Archive.KeyringOf)
	}
	return m.Archive.Keyring, nil
}

// downloaded looks up in the archive's index the packages that debootstrap fetched.
func (m *Maker) downloaded(debpaths string, index map[string]recipe.Deb) ([]recipe.Deb, error) {
	text, err := os.ReadFile(debpaths)
	if err != nil {
		return nil, err
	}
	var debs []recipe.Deb
	for line := range strings.Lines(string(text)) {
		name, _, _ := strings.Cut(line, " ")
		d, ok := index[name]
		if !ok {
			return nil, fmt.Errorf("debootstrap fetched %q, which the archive's index does not list", name)
		}
		d.URL = m.Name(m.Root + "/" + d.URL)
		if err := d.Validate(); err != nil {
			return nil, fmt.Errorf("the archive's index: package %q: %w", name, err)
		}
		debs = append(debs, d)
	}
	sortDebs(debs)
	return debs, nil
}

// bindDevices gives the target, in $TARGET, the devices that debootstrap would make: the kernel
// lets nobody make devices in a user namespace. debootstrap makes only those that are missing.
const bindDevices = `mkdir -p "$TARGET/dev"
for d in null zero full random urandom tty; do
  : >"$TARGET/dev/$d"
  mount --bind "/dev/$d" "$TARGET/dev/$d"
done
: >"$TARGET/dev/console"
ln -s pts/ptmx "$TARGET/dev/ptmx"
unset TARGET
exec debootstrap "$@"`

// run runs debootstrap on a target directory; rest are the operands after it.
func (m *Maker) run(ctx context.Context, target string, args ...string) error {
	cmd := exec.CommandContext(ctx, "debootstrap", args...)
	cmd.Env = append(cleanEnv(), fmt.Sprintf("SOURCE_DATE_EPOCH=%d", m.Epoch.Unix()))
	if state.InUserNamespace() {
		cmd = exec.CommandContext(ctx, "/bin/sh", append([]string{"-euc", bindDevices, "sh"}, args...)...)
		// In what it takes for an unprivileged container, debootstrap does not try whether it can
		// make devices.
		cmd.Env = append(cleanEnv(), fmt.Sprintf("SOURCE_DATE_EPOCH=%d", m.Epoch.Unix()), "container=lxc", "TARGET="+target)
	}
	if m.Netrc != "" {
		// Not in the URL, which appears in the process list, in debootstrap's log and in the
		// base. debootstrap's wget reads this file.
		home, err := os.MkdirTemp(m.Dir, "home-")
		if err != nil {
			return err
		}
		defer os.RemoveAll(home)
		if err := os.WriteFile(filepath.Join(home, ".netrc"), []byte(m.Netrc), 0o600); err != nil {
			return err
		}
		cmd.Env = append(cmd.Env, "HOME="+home)
	}
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	wait, err := state.Start(cmd)
	if err == nil {
		err = wait()
	}
	if err != nil {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		return fmt.Errorf("debootstrap %s: %w\n%s", strings.Join(args, " "), err, tail(out.String(), 20))
	}
	return nil
}

// cleanEnv is the environment of debootstrap: maintainer scripts see nothing of the caller's
// locale or temporary directories.
func cleanEnv() []string {
	env := []string{"LC_ALL=C.UTF-8", "DEBIAN_FRONTEND=noninteractive"}
	for _, k := range []string{"PATH", "HOME", "http_proxy", "https_proxy", "no_proxy"} {
		if v, ok := os.LookupEnv(k); ok {
			env = append(env, k+"="+v)
		}
	}
	return env
}

func tail(s string, n int) string {
	lines := strings.Split(strings.TrimSpace(s), "\n")
	if len(lines) > n {
		lines = lines[len(lines)-n:]
	}
	return strings.Join(lines, "\n")
}

//go:embed bootstrap.sh
var bootstrap string

// Make makes a base of pinned packages and returns the path of a tar of it, which the caller
// removes.
func (m *Maker) Make(ctx context.Context, d matrix.Debootstrap, arch string, debs []recipe.Deb) (string, error) {
	if err := os.MkdirAll(m.Dir, 0o755); err != nil {
		return "", err
	}
	m.Log("fetching %d packages of %s %s", len(debs), d.Suite, arch)
	files, err := m.fetch(ctx, debs)
	if err != nil {
		return "", err
	}
	m.Log("merging the packages of %s %s", d.Suite, arch)
	seed, err := m.seed(ctx, debs, files)
	if err != nil {
		return "", err
	}
	defer os.Remove(seed)
	names := make([]string, len(debs))
	for i, d := range debs {
		names[i] = d.File()
	}
	step := Step{Script: bootstrap, Env: []string{
		"DEBS=" + strings.Join(names, " "), "SOURCES=" + m.Archive.Sources(m.Canon, d.Suite), fmt.Sprintf("SOURCE_DATE_EPOCH=%d", m.Epoch.Unix()),
	}}
	exported := seed + ".exported"
	defer os.Remove(exported)
	m.Log("configuring the packages of %s %s", d.Suite, arch)
	if err := m.Run(ctx, arch, seed, step, exported); err != nil {
		return "", err
	}
	f, err := os.Open(exported)
	if err != nil {
		return "", err
	}
	defer f.Close()
	return m.normalise(bufio.NewReaderSize(f, 1<<20))
}

// fetch returns the packages' files, in the order of debs.
func (m *Maker) fetch(ctx context.Context, debs []recipe.Deb) ([]string, error) {
	files := make([]string, len(debs))
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(8)
	for i, d := range debs {
		g.Go(func() (err error) {
			files[i], err = m.Fetch(ctx, d)
			return err
		})
	}
	return files, g.Wait()
}
