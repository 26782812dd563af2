# shellcheck shell=bash
# The first process of a machine of a cluster, in namespaces of its own. It makes
# what is this machine's alone (a root over that of the real one, whose changes are
# in memory, a name, an identity), says "up", and becomes the init that it was
# given.
#
# It has from its environment: BED, an empty directory; SEED, what the root gets
# besides; IMAGE, scripts of the image to run in the root; FILES, what is written
# after them; SHARED, what all machines see as /shared; NAME, ID.
set -e
mount --make-rprivate /
mount -t tmpfs -o mode=755 machine "$BED"
mkdir "$BED/upper" "$BED/work" "$BED/root"
if [ -n "$SEED" ]; then cp -a "$SEED/." "$BED/upper/"; fi
mount -t overlay -o "lowerdir=/,upperdir=$BED/upper,workdir=$BED/work" machine "$BED/root"
cd "$BED/root"

mount -t proc proc proc
mount -t sysfs sysfs sys
mount --rbind /dev dev
mount -t devpts -o newinstance,ptmxmode=666 devpts dev/pts
mount -t tmpfs -o mode=1777 shm dev/shm
mount -t tmpfs -o mode=755 run run
mount -t tmpfs -o mode=1777 tmp tmp
mkdir -p shared
mount --bind "$SHARED" shared

hostname "$NAME"
echo "$NAME" >etc/hostname
# What a program would tell the machine from others by.
echo "$ID" | tr -d - >run/machine-id
echo "$ID" >run/boot_id
touch etc/machine-id
mount --bind run/machine-id etc/machine-id
mount --bind run/boot_id proc/sys/kernel/random/boot_id
if [ -d sys/devices/virtual/dmi/id ]; then mount -t tmpfs dmi sys/devices/virtual/dmi/id; fi
cp shared/hosts etc/hosts

# OpenSSH as its package installs it, whatever this machine made of it.
if [ -n "$IMAGE" ]; then
  rm -rf etc/ssh/ssh_host_* etc/ssh/sshd_config.d/* etc/ssh/ssh_config.d/* root/.ssh
  cp usr/share/openssh/sshd_config etc/ssh/sshd_config
  grep -q ^sshd: etc/passwd || echo 'sshd:x:100:65534::/run/sshd:/usr/sbin/nologin' >>etc/passwd
  chroot . sh -ec "$IMAGE" >/dev/null
fi
cp -a "$FILES/." .
mkdir -p old
pivot_root . old
cd /
umount -l /old
rmdir /old
echo up
exec "$@" </dev/null >/run/init.log 2>&1
