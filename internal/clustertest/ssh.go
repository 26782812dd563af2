package clustertest

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"

	"github.com/assay-hpc/assay"
	"github.com/assay-hpc/assay/build/component"
	"github.com/assay-hpc/assay/build/lock"
	"github.com/assay-hpc/assay/build/matrix"
	"github.com/assay-hpc/assay/build/recipe"
)

// sshdVariable is the environment variable with the directory of Debian's openssh-server, unpacked,
// as .ci/fabric leaves it: if it were installed, it would start a server on this machine.
const sshdVariable = "ASSAY_FABRIC_SSHD"

// ssh gives the hosts OpenSSH as in the image, and a key that all of them accept.
func (c *Cluster) ssh() {
	c.t.Helper()
	c.seed = os.Getenv(sshdVariable)
	if c.seed == "" {
		c.t.Skipf("%s names no unpacked openssh-server: make test-fabric gets one", sshdVariable)
	}
	if _, err := exec.LookPath("ssh"); err != nil {
		c.t.Skip("there is no ssh: apt-get install openssh-client")
	}
	steps, err := imageSteps("fabric-debian12")
	if err != nil {
		c.t.Fatal(err)
	}
	found := 0
	for _, step := range steps {
		switch s := step.(type) {
		case recipe.Run:
			if strings.Contains(s.Script, "/usr/sbin/sshd") {
				c.image += s.Script
				found++
			}
		case recipe.File:
			if strings.HasPrefix(s.Path, "/etc/ssh/") || s.Path == "/usr/sbin/sshd" {
				c.write(filepath.Join(c.files, s.Path), s.Content, os.FileMode(s.Mode))
				found++
			}
		}
	}
	if c.image == "" || found < 4 {
		c.t.Fatalf("the image's recipe has %d steps for OpenSSH; want its wrapper, and the settings of server and client: did build/component/ssh.go change?", found)
	}
	home := filepath.Join(c.files, "root/.ssh")
	c.write(filepath.Join(home, "config"), "", 0o600)
	if out, err := exec.Command("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "cluster", "-f", filepath.Join(home, "id_ed25519")).CombinedOutput(); err != nil {
		c.t.Fatalf("ssh-keygen: %v: %s", err, out)
	}
	public, err := os.ReadFile(filepath.Join(home, "id_ed25519.pub"))
	if err != nil {
		c.t.Fatal(err)
	}
	c.write(filepath.Join(home, "authorized_keys"), string(public), 0o640)
	// Mounted Secrets have this mode, which sshd rejects unless it is configured otherwise.
	if err := os.Chmod(home, 0o777|os.ModeSticky); err != nil {
		c.t.Fatal(err)
	}
}

// imageSteps returns the steps that build the image of a target in the matrix.
func imageSteps(target string) ([]recipe.Step, error) {
	f, err := matrix.Parse("matrix.yaml", bytes.NewReader(assay.Matrix))
	if err != nil {
		return nil, err
	}
	all, err := f.Targets()
	if err != nil {
		return nil, err
	}
	l, err := lock.Read("matrix.lock", bytes.NewReader(assay.Lock))
	if err != nil {
		return nil, err
	}
	here := recipe.Platform{OS: "linux", Arch: runtime.GOARCH}
	for _, t := range all {
		if t.Name != target {
			continue
		}
		res, err := component.Make(component.Input{Target: t, All: all, Platform: here, Native: here, Lock: l, Source: component.Source{Version: assay.Version, Go: assay.GoVersion}})
		if err != nil {
			return nil, err
		}
		return res.Recipe.Stages[len(res.Recipe.Stages)-1].Steps, nil
	}
	return nil, fmt.Errorf("matrix.yaml has no target %s", target)
}
