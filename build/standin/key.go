package standin

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
)

// A signingKey is the OpenPGP key of the stand-in repositories. It is generated once per cache
// directory and is worthless outside of it.
type signingKey struct {
	secret  string // armoured
	public  string // binary
	armored string // armoured public
}

const keyUser = "assay stand-in <standin@invalid>"

// makeKey generates the key, or reuses that of an earlier New.
func (m *maker) makeKey(ctx context.Context) (*signingKey, error) {
	dir, err := m.store.make("key", nil, func(dir string) error {
		return withGPG(func(gpg func(...string) error) error {
			for _, args := range [][]string{
				{"--passphrase", "", "--quick-generate-key", keyUser, "rsa3072", "sign", "never"},
				{"--armor", "--output", filepath.Join(dir, "secret.asc"), "--export-secret-keys"},
				{"--output", filepath.Join(dir, "public.gpg"), "--export"},
				{"--armor", "--output", filepath.Join(dir, "public.asc"), "--export"},
			} {
				if err := gpg(args...); err != nil {
					return err
				}
			}
			return os.Chmod(filepath.Join(dir, "secret.asc"), 0o600)
		})
	})
	if err != nil {
		return nil, err
	}
	m.up.keyFile = filepath.Join(dir, "public.gpg")
	return &signingKey{filepath.Join(dir, "secret.asc"), m.up.keyFile, filepath.Join(dir, "public.asc")}, ctx.Err()
}

// sign runs gpg's signing commands, each a list of arguments.
func (k *signingKey) sign(commands ...[]string) error {
	return withGPG(func(gpg func(...string) error) error {
		if err := gpg("--import", k.secret); err != nil {
			return err
		}
		for _, c := range commands {
			if err := gpg(append([]string{"--digest-algo", "SHA256"}, c...)...); err != nil {
				return err
			}
		}
		return nil
	})
}

// withGPG calls fn with a gpg that has a home of its own. The home is directly under the
// temporary directory, because its agent's socket must have a short path.
func withGPG(fn func(gpg func(args ...string) error) error) error {
	home, err := os.MkdirTemp("", "gpg")
	if err != nil {
		return err
	}
	defer os.RemoveAll(home)
	defer exec.Command("gpgconf", "--homedir", home, "--kill", "gpg-agent").Run() // otherwise it would stay forever
	return fn(func(args ...string) error {
		cmd := exec.Command("gpg", append([]string{"--homedir", home, "--batch", "--quiet", "--yes", "--pinentry-mode", "loopback"}, args...)...)
		return runLogged(cmd, "gpg")
	})
}
