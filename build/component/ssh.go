package component

import (
	_ "embed"
	"strings"

	"github.com/assay-hpc/assay/build/matrix"
	"github.com/assay-hpc/assay/build/recipe"
)

// sshdWrapper replaces /usr/sbin/sshd, which users' MPIJobs start. An image with host keys would
// give every user the same private key, so the keys are made when the container starts, in a
// directory that the container can write to: users other than root and read-only root file
// systems are common in Kubernetes.
const sshdWrapper = `#!/bin/sh
# Makes this container's own host keys, then becomes OpenSSH's sshd. Root makes
# them in /etc/ssh. Where ASSAY_SSHD_KEYS names a directory, they are made there,
# unless it has some; any user can do that.
set -e
user=$(id -u)
has_keys() { ls "$1"/ssh_host_*_key >/dev/null 2>&1; }
if [ -n "${ASSAY_SSHD_KEYS-}" ]; then
  if ! has_keys "$ASSAY_SSHD_KEYS"; then
    mkdir -p "$ASSAY_SSHD_KEYS"
    ssh-keygen -q -t ed25519 -N '' -f "$ASSAY_SSHD_KEYS/ssh_host_ed25519_key"
  fi
  for key in "$ASSAY_SSHD_KEYS"/ssh_host_*_key; do set -- "$@" -h "$key"; done
elif [ "$user" = 0 ] && ! has_keys /etc/ssh; then
  ssh-keygen -A >/dev/null || true
  # Not the end: sshd may have been given keys of its own.
  has_keys /etc/ssh || echo "sshd: no host keys could be made in /etc/ssh; ASSAY_SSHD_KEYS names another directory for them" >&2
fi
# The node's name, for sessions: sshd passes nothing on, and overwrites what /proc
# shows of its own environment.
if [ -n "${NODE_NAME-}" ]; then set -- "$@" -o "SetEnv=NODE_NAME=$NODE_NAME"; fi
if [ "$user" != 0 ]; then
  set -- "$@" -o UsePAM=no # its helper programs need root
elif [ ! -d /run/sshd ]; then
  mkdir -m 0755 /run/sshd # /run may be a fresh file system
fi
exec /usr/sbin/sshd.openssh "$@"
`

// nss is the source of libnss_assay.so.2, by which OpenSSH runs as a user whose ID is not in
// /etc/passwd.
//
//go:embed nss/nss.c
var nss string

func init() { makers["ssh"] = ssh }

// ssh is OpenSSH set up for MPI: ranks connect to each other without a known_hosts file, and keys
// mounted from a Kubernetes Secret are accepted although a group can write to their directory.
func ssh(b *builder, _ string) {
	b.after = append(b.after, recipe.Run{
		Title: "put the sshd wrapper in place",
		Script: `dpkg-divert --quiet --local --rename --divert /usr/sbin/sshd.openssh --add /usr/sbin/sshd
rm -f /var/lib/dpkg/*-old /var/log/dpkg.log
install -d -m 0755 /run/sshd
touch /etc/nsswitch.conf
grep -q '^passwd:' /etc/nsswitch.conf || echo 'passwd: files' >>/etc/nsswitch.conf
sed -i 's/^passwd:.*/& assay/' /etc/nsswitch.conf
install -d -m 0775 /home/assay
`,
	})
	b.file("/usr/sbin/sshd", 0o755, sshdWrapper)
	b.file("/etc/ssh/sshd_config.d/assay.conf", 0o644, "# MPI: keys come from a Secret whose directory is writable by a group.\nStrictModes no\n")
	b.file("/etc/ssh/ssh_config.d/assay.conf", 0o644, "# MPI: pods come and go, their host keys with them.\nHost *\n    StrictHostKeyChecking no\n    UserKnownHostsFile /dev/null\n    LogLevel ERROR\n")
	b.copy(b.nssModule(), "/out/libnss_assay.so.2", "/usr/lib/"+b.Platform.Multiarch()+"/libnss_assay.so.2")
	version := b.locked("openssh-server")
	release, _, _ := strings.Cut(matrix.UpstreamVersion(version), "p")
	b.made(nil,
		// Without the patch level: Debian's 10.0p1 reports 10.0p2.
		command("version", behind("OpenSSH_", release), "ssh", "-V"),
		// In a container that already runs sshd, the existing keys are the proof, and are
		// kept. Users other than root make theirs elsewhere.
		command("makes its own host keys", "ssh_host_ed25519_key", "/bin/sh", "-c",
			"ls /etc/ssh/ssh_host_*_key 2>/dev/null && exit; k=/etc/ssh; [ $(id -u) = 0 ] || { k=$(mktemp -d); export ASSAY_SSHD_KEYS=$k; }; /usr/sbin/sshd -t && ls $k/ssh_host_*_key; s=$?; rm -f $k/ssh_host_*_key*; [ $k = /etc/ssh ] || rmdir $k; exit $s"),
		// Root needs a capability to become such a user.
		command("runs as a user without a name", `(?m)^user \w`, "/bin/sh", "-c",
			`other="setpriv --reuid 54321 --regid 0 --clear-groups"; [ $(id -u) = 0 ] && $other true 2>/dev/null || other=; $other ssh -G localhost`),
	)
}

// nssModule compiles libnss_assay.so.2 on the oldest system, so that it runs with every later C
// library.
func (b *builder) nssModule() recipe.Source {
	cc := b.compiler()
	from := b.cStage
	if b.Target.Version("harness") != released { // then its stage is there, which has a C compiler
		from = b.goStage
	}
	return b.stage(recipe.Stage{
		Name: "nss-" + baseName(oldest(b.Target, b.All)) + "-" + b.Platform.Arch, Native: true, From: from(),
		Steps: []recipe.Step{
			recipe.File{Path: "/src/nss.c", Mode: 0o644, Content: nss},
			recipe.Run{
				Title: "compile libnss_assay.so.2 for " + b.Platform.Arch, Env: []recipe.Var{cc},
				Script: "mkdir /out\n$CC -O2 -Wall -Wextra -Werror -fPIC -shared -s -Wl,-soname,libnss_assay.so.2 -o /out/libnss_assay.so.2 /src/nss.c\n",
			},
		},
	})
}
