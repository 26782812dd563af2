package standin

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
)

// suite is the Debian release that the stand-in bases are built on.
const suite = "bookworm"

// rootPackages are the packages that the real devel images add to a minimal system.
var rootPackages = []string{"build-essential", "ca-certificates", "gnupg"}

// makeRoot makes the root file system that all base images of an architecture
// share, and returns its directory.
func (m *maker) makeRoot(ctx context.Context, arch string) (string, error) {
	if err := canRun(arch); err != nil {
		return "", err
	}
	include := strings.Join(append(rootPackages, m.Include...), ",")
	dir, err := m.store.make("root-"+arch, []any{suite, include, contentHash("rootfs")}, func(dir string) error {
		root := filepath.Join(dir, "root")
		cmd := exec.CommandContext(ctx, "debootstrap", "--arch="+arch, "--variant=minbase", "--include="+include, suite, root)
		cmd.Env = append(os.Environ(), fmt.Sprintf("SOURCE_DATE_EPOCH=%d", epoch.Unix()))
		if err := runLogged(cmd, "debootstrap"); err != nil {
			return err
		}
		return runLogged(exec.CommandContext(ctx, filepath.Join(m.sources, "rootfs/finish.sh"), root), "finish.sh")
	})
	return filepath.Join(dir, "root"), err
}

// canRun reports what is missing for running an architecture's programs here.
func canRun(arch string) error {
	if os.Geteuid() != 0 {
		return fmt.Errorf("making stand-ins needs root, for debootstrap and overlay mounts")
	}
	for _, tool := range []string{"debootstrap", "gpg", "dpkg-deb", "bzip2", "unshare"} {
		if _, err := exec.LookPath(tool); err != nil {
			return fmt.Errorf("%s is not installed; apt-get install debootstrap gnupg bzip2", tool)
		}
	}
	if arch == runtime.GOARCH {
		return nil
	}
	if _, err := os.Stat("/proc/sys/fs/binfmt_misc/qemu-" + gnuMachine(arch)); err != nil {
		return fmt.Errorf("this machine cannot run %s: install qemu-user-static and binfmt-support, and mount binfmt_misc", arch)
	}
	return nil
}
