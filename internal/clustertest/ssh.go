package clustertest

import (
	"os"
	"os/exec"
	"path/filepath"
)

// sshdVariable is the environment variable with the directory of Debian's openssh-server, unpacked,
// as .ci/fabric leaves it: if it were installed, it would start a server on this machine.
const sshdVariable = "ASSAY_FABRIC_SSHD"

// An SSH is how an image sets up OpenSSH.
type SSH struct {
	Script string          // of the shell, run by root
	Files  map[string]File // by path in the image
}

// A File is a file's content and permissions.
type File struct {
	Content string
	Mode    os.FileMode
}

// ssh gives the hosts OpenSSH as in the image, and a key that all of them accept.
func (c *Cluster) ssh() {
	c.t.Helper()
	c.seed = os.Getenv(sshdVariable)
	if c.seed == "" {
		c.t.Skipf("%s names no unpacked openssh-server: make test ONLY=fabric gets one", sshdVariable)
	}
	if _, err := exec.LookPath("ssh"); err != nil {
		c.t.Skip("there is no ssh: apt-get install openssh-client")
	}
	c.image = c.o.SSH.Script
	for name, f := range c.o.SSH.Files {
		c.write(filepath.Join(c.files, name), f.Content, f.Mode)
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
