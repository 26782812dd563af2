// Package base builds Debian base images with debootstrap. Resolve determines the packages once,
// and matrix.lock records them. Make fetches exactly those, serves them to debootstrap as a local
// archive, and turns the result into an image that is the same on every machine and every day.
package base

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	"github.com/assay-hpc/assay/build/matrix"
	"github.com/assay-hpc/assay/build/recipe"
	"github.com/assay-hpc/assay/build/state"
)

// A Maker runs debootstrap.
type Maker struct {
	Dir     string                                            // for temporary trees; must allow device nodes
	Archive string                                            // root to fetch from (mirrors applied): a URL, or a directory
	Canon   string                                            // root URL that the image's own sources name
	Name    func(url string) string                           // a package's URL as written in the lock
	Netrc   string                                            // credentials for Archive, in .netrc format
	Fetch   func(context.Context, recipe.Deb) (string, error) // returns the path of a verified package
	Epoch   time.Time
	Log     func(format string, args ...any)
}

// ErrNotPossible says that this machine cannot run debootstrap; the message contains the remedy.
var ErrNotPossible = errors.New("debootstrap cannot run here")

// Check reports whether bases for the architecture can be built on this machine.
func Check(arch string) error {
	if os.Geteuid() != 0 {
		if err := state.CanBeRoot(); err != nil {
			return fmt.Errorf("%w: it needs root (chroot, mount), or a user namespace: %w", ErrNotPossible, err)
		}
		return fmt.Errorf("%w: it needs root (chroot, mount); run as root (sudo), or by assay without a builder whose address starts with ssh://", ErrNotPossible)
	}
	if _, err := exec.LookPath("debootstrap"); err != nil {
		return fmt.Errorf("%w: it is not installed; run: apt-get install debootstrap (or make deps)", ErrNotPossible)
	}
	if arch == hostArch() {
		return nil
	}
	qemu := map[string]string{"amd64": "x86_64", "arm64": "aarch64"}[arch]
	if _, err := os.Stat("/proc/sys/fs/binfmt_misc/qemu-" + qemu); err != nil {
		return fmt.Errorf("%w for %s: no emulation is registered; run: make deps (qemu-user-static, binfmt-support, binfmt_misc mounted)", ErrNotPossible, arch)
	}
	return nil
}

// Resolve lets debootstrap determine the packages of the base, with the archive's signature
// checked.
func (m *Maker) Resolve(ctx context.Context, d matrix.Debootstrap, arch string) ([]recipe.Deb, error) {
	if err := os.MkdirAll(m.Dir, 0o755); err != nil {
		return nil, err
	}
	root, err := os.MkdirTemp(m.Dir, "resolve-")
	if err != nil {
		return nil, err
	}
	defer state.Remove(root)
	keyring := "/usr/share/keyrings/debian-archive-keyring.gpg"
	if _, err := os.Stat(keyring); err != nil {
		return nil, fmt.Errorf("%w: %s is missing; run: apt-get install debian-archive-keyring (or make deps)", ErrNotPossible, keyring)
	}
	archive := m.Archive
	if filepath.IsAbs(archive) { // a mirror that is a directory
		archive = "file://" + archive
	}
	if err := m.run(ctx, root, "--download-only", "--force-check-gpg", "--keyring="+keyring, "--arch="+arch, "--variant="+d.Variant, d.Suite, root, archive); err != nil {
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
		d.URL = m.Name(m.Archive + "/" + d.URL)
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

// Make builds the base's tree from pinned packages and returns the path of a
// tar of it, which the caller removes.
func (m *Maker) Make(ctx context.Context, d matrix.Debootstrap, arch string, debs []recipe.Deb) (string, error) {
	if err := Check(arch); err != nil {
		return "", err
	}
	if err := os.MkdirAll(m.Dir, 0o755); err != nil {
		return "", err
	}
	work, err := os.MkdirTemp(m.Dir, "base-")
	if err != nil {
		return "", err
	}
	defer state.Remove(work)
	repo, root := filepath.Join(work, "repo"), filepath.Join(work, "root")
	m.Log("fetching %d packages of %s %s", len(debs), d.Suite, arch)
	if err := m.archive(ctx, repo, d.Suite, arch, debs); err != nil {
		return "", err
	}
	m.Log("debootstrap %s %s", d.Suite, arch)
	if err := m.run(ctx, root, "--no-check-gpg", "--arch="+arch, "--variant="+d.Variant, d.Suite, root, "file://"+repo); err != nil {
		return "", err
	}
	if err := m.normalise(root, d.Suite); err != nil {
		return "", err
	}
	return m.tar(root)
}

// normalise removes traces of this machine and of the time of the run.
func (m *Maker) normalise(root, suite string) error {
	for _, pattern := range []string{
		"etc/hostname", "etc/resolv.conf", "etc/*-", "etc/.pwd.lock", "var/log/*.log", "var/log/apt",
		"var/cache/ldconfig/aux-cache", "var/cache/apt/archives/*.deb", "var/cache/apt/*.bin",
		"var/lib/apt/lists/*", "var/lib/dpkg/*-old", "var/cache/debconf/*-old", "debootstrap", "dev/*", "proc/*", "sys/*", "run/*", "tmp/*",
	} {
		paths, _ := filepath.Glob(filepath.Join(root, pattern))
		for _, p := range paths {
			if err := os.RemoveAll(p); err != nil {
				return err
			}
		}
	}
	// debootstrap leaves its own time here when it is root of the machine, and the package's
	// otherwise.
	if err := os.Chtimes(filepath.Join(root, "proc"), m.Epoch, m.Epoch); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err := m.shadow(filepath.Join(root, "etc/shadow")); err != nil {
		return err
	}
	files := map[string]string{
		"etc/machine-id":       "",
		"etc/apt/sources.list": fmt.Sprintf("deb %[1]s %[2]s main\ndeb %[1]s %[2]s-updates main\ndeb %[1]s-security %[2]s-security main\n", m.Canon, suite),
		// An image needs no caches of package lists, and its packages must not start services.
		"etc/apt/apt.conf.d/90assay": "Dir::Cache::pkgcache \"\";\nDir::Cache::srcpkgcache \"\";\nAPT::Install-Recommends \"false\";\n",
		"usr/sbin/policy-rc.d":       "#!/bin/sh\nexit 101\n",
	}
	for name, content := range files {
		mode := os.FileMode(0o644)
		if strings.HasPrefix(name, "usr/sbin/") {
			mode = 0o755
		}
		file := filepath.Join(root, name)
		if err := os.WriteFile(file, []byte(content), mode); err != nil {
			return err
		}
		if err := os.Chmod(file, mode); err != nil { // independent of an existing file and of the umask
			return err
		}
	}
	return nil
}

var lastChange = regexp.MustCompile(`(?m)^([^:]*:[^:]*:)\d+:`)

// shadow sets the last-change day of each account to the epoch.
func (m *Maker) shadow(path string) error {
	text, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	day := fmt.Sprintf("${1}%d:", m.Epoch.Unix()/86400)
	return os.WriteFile(path, lastChange.ReplaceAll(text, []byte(day)), 0o640)
}
