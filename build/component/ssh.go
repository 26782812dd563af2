package component

import (
	"strings"

	"github.com/assay-hpc/assay/build/recipe"
	"github.com/assay-hpc/assay/harness/certificate"
)

// sshdWrapper stands where people's MPIJobs start /usr/sbin/sshd. An image
// that carries host keys gives everybody the same private key, so they are
// made at the container's first start instead.
const sshdWrapper = `#!/bin/sh
# Makes this container's own host keys, then becomes OpenSSH's sshd.
set -e
if ! ls /etc/ssh/ssh_host_*_key >/dev/null 2>&1; then
  ssh-keygen -A >/dev/null
fi
mkdir -p /run/sshd
exec /usr/sbin/sshd.openssh "$@"
`

// ssh is OpenSSH set up for MPI: ranks reach each other without a known_hosts
// file, keys mounted from a Kubernetes Secret are accepted although their
// directory belongs to a group.
func ssh(b *builder, _ string) {
	b.install("openssh-server", "openssh-client")
	b.after = append(b.after, recipe.Run{
		Title:  "put the sshd wrapper in place",
		Script: "dpkg-divert --quiet --local --rename --divert /usr/sbin/sshd.openssh --add /usr/sbin/sshd\nrm -f /var/lib/dpkg/*-old /var/log/dpkg.log\n",
	})
	b.file("/usr/sbin/sshd", 0o755, sshdWrapper)
	b.file("/etc/ssh/sshd_config.d/assay.conf", 0o644, "# MPI: keys come from a Secret whose directory is writable by a group.\nStrictModes no\n")
	b.file("/etc/ssh/ssh_config.d/assay.conf", 0o644, "# MPI: pods come and go, their host keys with them.\nHost *\n    StrictHostKeyChecking no\n    UserKnownHostsFile /dev/null\n    LogLevel ERROR\n")
	version := b.locked("openssh-server")
	release, _, _ := strings.Cut(upstream(version), "p")
	b.declare(certificate.Component{
		Name: "ssh", Version: version, License: "SSH-OpenSSH", Homepage: "https://www.openssh.com",
		Checks: []certificate.Check{
			// Not the patch level: Debian's 10.0p1 says that it is 10.0p2.
			command("version", behind("OpenSSH_", release), "ssh", "-V"),
			// In a container that runs sshd already, its keys are the proof, and stay.
			command("makes its own host keys", "ssh_host_ed25519_key", "/bin/sh", "-c",
				"ls /etc/ssh/ssh_host_*_key 2>/dev/null || { /usr/sbin/sshd -t && ls /etc/ssh/ssh_host_*_key; s=$?; rm -f /etc/ssh/ssh_host_*_key*; exit $s; }"),
		},
	})
}
