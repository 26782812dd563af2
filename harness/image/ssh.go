package image

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"strings"

	"github.com/assay-hpc/assay/harness/suite"
	"github.com/assay-hpc/assay/internal/confine"
	"github.com/assay-hpc/assay/internal/result"
)

// sshd finds the server, even with a user's PATH, which often lacks its directory. assay's own
// images have a wrapper named sshd that first creates host keys, and the server itself in the same
// directory as sshd.openssh, which leaves the image unchanged.
func sshd(env *suite.Env) (program string, err error) {
	for _, name := range []string{"sshd.openssh", "sshd"} {
		program, err = env.Root.LookPath(name, env.Getenv("PATH")+":/usr/sbin:/usr/local/sbin")
		if err == nil {
			return program, nil
		}
	}
	return "", err
}

const noSSHD = "there is no sshd in PATH or /usr/sbin"

// privilegeDir is the directory of sshd's unprivileged process. Debian's service creates it at
// start, so an image may lack it, but sshd -t needs it.
const privilegeDir = "/run/sshd"

// sshConfig checks that sshd would start, given a host key.
func (s *state) sshConfig(ctx context.Context, env *suite.Env) result.Result {
	program, err := sshd(env)
	if err != nil {
		return result.Skipped(noSSHD)
	}
	if s.Runner == nil {
		return result.Skipped(notInside)
	}
	key, err := hostKey()
	if err != nil {
		return result.Errored("make a host key for the test: %v", err)
	}
	out, err := s.run(ctx, env, confine.Program{Args: []string{program, "-t", "-h", key.Path}, Files: []confine.File{key}, Dirs: []string{privilegeDir}})
	if err != nil {
		return result.Failed("%s", firstLine(out, err)).WithOutput(out)
	}
	return result.Passed("sshd -t").WithOutput(out)
}

// hostKey makes a key for this test only. sshd reads EC keys in PEM, so the image needs no
// ssh-keygen.
func hostKey() (confine.File, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return confine.File{}, err
	}
	der, err := x509.MarshalECPrivateKey(key)
	return confine.File{
		Path: "/tmp/assay-host-key-" + rand.Text(),
		Data: pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: der}),
	}, err
}

// sshHostKeys checks that the image contains no host key, so that containers create their own: with
// a key in the image, anyone who has the image can impersonate every container. It looks for keys
// before any check runs: starting sshd may legitimately create some.
func sshHostKeys(env *suite.Env) func(context.Context, *suite.Env) result.Result {
	keys, err := env.Root.Glob("/etc/ssh/ssh_host_*_key")
	return func(context.Context, *suite.Env) result.Result {
		if _, err := sshd(env); err != nil {
			return result.Skipped(noSSHD)
		}
		if err != nil {
			return result.Errored("%v", err)
		}
		if len(keys) > 0 {
			return result.Failed("the image holds %s", strings.Join(keys, ", "))
		}
		return result.Passed("none in /etc/ssh")
	}
}
