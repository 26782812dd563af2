package component

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/assay-hpc/assay/build/recipe"
)

// sshdRoot makes a root file system in namespaces of its own, over this machine's:
// OpenSSH as the image's recipe sets it up, a user mpi, and keys as a Secret has
// them. It then runs a script with $root; "as UID ARGS" runs a program there.
const sshdRoot = `
bed=$(mktemp -d)
mount -t tmpfs bed "$bed"
mkdir "$bed/upper" "$bed/work" "$bed/root"
root=$bed/root
if [ -n "$SEED" ]; then cp -a "$SEED/." "$bed/upper/"; fi
mount -t overlay -o "lowerdir=/,upperdir=$bed/upper,workdir=$bed/work" overlay "$root"
mount -t proc proc "$root/proc"
mount --rbind /dev "$root/dev"
mount -t tmpfs tmpfs "$root/tmp"
rm -rf "$root/run/sshd" "$root"/etc/ssh/ssh_host_* "$root"/etc/ssh/sshd_config.d/* "$root"/etc/ssh/ssh_config.d/* "$root/root/.ssh"
cp "$root/usr/share/openssh/sshd_config" "$root/etc/ssh/sshd_config"
chroot "$root" /bin/sh -eu -c "$IMAGE"
cp -a "$FILES/." "$root/"
grep -q '^sshd:' "$root/etc/passwd" || echo 'sshd:x:4711:65534::/run/sshd:/usr/sbin/nologin' >> "$root/etc/passwd"
echo 'mpi:x:4712:4712::/home/mpi:/bin/sh' >> "$root/etc/passwd"
echo 'mpi:x:4712:' >> "$root/etc/group"
mkdir -p "$root/home/mpi/.ssh" "$root/root/.ssh"
ssh-keygen -q -t ecdsa -N '' -f "$root/home/mpi/.ssh/id_ecdsa"
cp "$root/home/mpi/.ssh/id_ecdsa.pub" "$root/home/mpi/.ssh/authorized_keys"
cp "$root/home/mpi/.ssh/id_ecdsa.pub" "$root/root/.ssh/authorized_keys"
chgrp -R 4712 "$root/home/mpi/.ssh"
chmod 0640 "$root/home/mpi/.ssh"/*
chmod 1777 "$root/home/mpi/.ssh"
ip link set lo up 2>/dev/null || true
as() { # without a way back to root, as in a restricted pod
	uid=$1
	shift
	chroot "$root" setpriv --reuid "$uid" --regid "$uid" --clear-groups --no-new-privs "$@"
}
login() { # USER PORT [UID]: what whoami says there
	for _ in $(seq 600); do
		if grep -q 'Server listening' "$bed/log"; then break; fi
		if ! kill -0 "$server" 2>/dev/null; then break; fi
		sleep 0.1
	done
	uid=${3-$(chroot "$root" id -u "$1")}
	key=/home/mpi/.ssh/id_ecdsa
	if [ -n "${3-}" ]; then key=/home/assay/.ssh/id_ecdsa; fi
	if [ "$uid" = 0 ]; then key=/tmp/key; install -m 0600 "$root/home/mpi/.ssh/id_ecdsa" "$root$key"; fi
	as "$uid" ssh -o BatchMode=yes -i "$key" -p "$2" "$1@127.0.0.1" 'echo "logged in as $(id -un)"' || { cat "$bed/log" >&2; return 1; }
}
`

// sshdSetup returns the environment and the files of sshdRoot, or skips the test.
func sshdSetup(t *testing.T) []string {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("sshd as root and as another user: this needs root")
	}
	seed := os.Getenv("ASSAY_FABRIC_SSHD")
	if _, err := os.Stat("/usr/sbin/sshd"); seed == "" && err != nil {
		t.Skip("there is no sshd, and ASSAY_FABRIC_SSHD names no unpacked openssh-server: .ci/fabric/sshd gets one")
	}
	for _, tool := range []string{"ssh", "ssh-keygen", "setpriv", "unshare", "dpkg-divert", "gcc"} {
		if _, err := exec.LookPath(tool); err != nil {
			t.Skip(err)
		}
	}
	if out, err := exec.Command("unshare", "--mount", "--net", "true").CombinedOutput(); err != nil {
		t.Skipf("no namespaces here: %v: %s", err, out)
	}
	nss, err := filepath.Abs("nss/nss.c")
	if err != nil {
		t.Fatal(err)
	}
	files, script := t.TempDir(), ""
	for _, st := range resolved(t, input(t, fabric, amd64, amd64)).Image().Steps {
		switch s := st.(type) {
		case recipe.Run:
			if strings.Contains(s.Script, "/usr/sbin/sshd") {
				script += s.Script
			}
		case recipe.File:
			if strings.HasPrefix(s.Path, "/etc/ssh/") || s.Path == "/usr/sbin/sshd" {
				name := filepath.Join(files, s.Path)
				if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(name, []byte(s.Content), os.FileMode(s.Mode)); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
	return append(os.Environ(), "SEED="+seed, "FILES="+files, "IMAGE="+script, "NSS="+nss)
}

// TestSSHD starts the image's sshd as pods do: as root and as another user, on a
// root file system that can be written and on one that cannot.
func TestSSHD(t *testing.T) {
	environ := sshdSetup(t)
	for _, tt := range []struct{ name, script, want string }{
		{"root", `as 0 /usr/sbin/sshd -De -p 2200 2> "$bed/log" & server=$!
login root 2200
ls "$root/etc/ssh"`, "logged in as root\n.*ssh_host_ed25519_key\n"},
		{"root, keys of its own, read-only", `mount -o remount,ro "$root"
ASSAY_SSHD_KEYS=/tmp/keys as 0 /usr/sbin/sshd -De -p 2200 2> "$bed/log" & server=$!
login root 2200`, "logged in as root\n"},
		{"root, read-only, without keys", `mount -o remount,ro "$root"
as 0 /usr/sbin/sshd -De -p 2200 2>&1 || echo "status $?"`, "ASSAY_SSHD_KEYS names another directory"},
		{"root, read-only, a key that is mounted", `cp "$root/home/mpi/.ssh/id_ecdsa" "$root/tmp/k"; chmod 0600 "$root/tmp/k"; mount -o remount,ro "$root"
as 0 /usr/sbin/sshd -De -p 2200 -h /tmp/k 2> "$bed/log" & server=$!
login root 2200`, "logged in as root\n"},
		{"root, /run of its own", `mount -t tmpfs tmpfs "$root/run"
as 0 /usr/sbin/sshd -De -p 2200 2> "$bed/log" & server=$!
login root 2200`, "logged in as root\n"},
		{"a user, keys from a Secret, read-only", `mount -o remount,ro "$root"
as 4712 /usr/sbin/sshd -De -p 2222 -h /home/mpi/.ssh/id_ecdsa 2> "$bed/log" & server=$!
login mpi 2222`, "logged in as mpi\n"},
		{"a user, host keys of its own, read-only", `mount -o remount,ro "$root"
ASSAY_SSHD_KEYS=/tmp/keys as 4712 /usr/sbin/sshd -De -p 2222 2> "$bed/log" & server=$!
login mpi 2222
stat -c 'mode %a' "$root/tmp/keys/ssh_host_ed25519_key"`, "logged in as mpi\nmode 600\n"},
		{"a user without a name, read-only", `gcc -O2 -fPIC -shared -o "$root/usr/lib/$(gcc -print-multiarch)/libnss_assay.so.2" "$NSS"
cp -r "$root/home/mpi/.ssh" "$root/home/assay/"
chmod 0644 "$root"/home/assay/.ssh/*
mount -o remount,ro "$root"
ASSAY_SSHD_KEYS=/tmp/keys as 12345 /usr/sbin/sshd -De -p 2222 2> "$bed/log" & server=$!
login assay 2222 12345
as 12345 getent passwd assay 12345 4713 0 || true
chroot "$root" getent passwd assay || echo "root learns nothing"
as 4712 getent passwd assay || echo "nor does a user with a name"`,
			"^logged in as assay\nassay:\\*:12345:12345::/home/assay:/bin/bash\nassay:\\*:12345:12345::/home/assay:/bin/bash\nroot:x:0:0:[^\n]*\nroot learns nothing\nnor does a user with a name\n$"},
		{"a node's name", `NODE_NAME=node-a as 0 /usr/sbin/sshd -De -p 2200 2> "$bed/log" & server=$!
login root 2200 >/dev/null
as 0 ssh -i /tmp/key -p 2200 root@127.0.0.1 'echo "on $NODE_NAME"'
pid=$(grep -l '^sshd.openssh$' "$root"/proc/[0-9]*/comm | head -n 1)
test -n "$pid"
grep -aq NODE_NAME "${pid%comm}environ" || echo "/proc has not kept it"`, "^on node-a\n/proc has not kept it\n$"},
		{"nobody tests a configuration", `ASSAY_SSHD_KEYS=/tmp/keys as 65534 /usr/sbin/sshd -t 2>&1 || echo "status $?"
stat -c 'directory %a %U' "$root/run/sshd"`, "^directory 755 root\n$"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			cmd := exec.Command("unshare", "--mount", "--net", "--pid", "--fork", "--kill-child", "--propagation", "private", "bash", "-eu", "-c", sshdRoot+tt.script)
			cmd.Env = environ
			out, err := cmd.CombinedOutput()
			if err != nil || !regexp.MustCompile("(?s)"+tt.want).Match(out) {
				t.Errorf("%v\n%s; want …%s…", err, out, tt.want)
			}
		})
	}
}
