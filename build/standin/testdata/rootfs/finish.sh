#!/bin/sh
# Makes a fresh debootstrap root into what a Docker base image is: no lists, no
# caches, no docs, nothing of this machine or this minute.
# Usage: finish.sh ROOT
set -eu
root=$1
rm -rf "$root"/var/cache/apt/* "$root"/var/lib/apt/lists/* "$root"/var/log/* "$root"/debootstrap "$root"/var/cache/ldconfig/aux-cache \
	"$root"/var/cache/debconf/*-old "$root"/var/lib/dpkg/*-old "$root"/etc/*- "$root"/usr/share/man/* "$root"/usr/share/info/* "$root"/usr/share/locale/* \
	"$root"/etc/resolv.conf "$root"/etc/hostname "$root"/etc/machine-id "$root"/tmp/* "$root"/run/* "$root"/dev/*
find "$root"/usr/share/doc -type f ! -name copyright -delete
: > "$root"/etc/machine-id
mkdir -p "$root"/var/cache/apt/archives/partial "$root"/var/lib/apt/lists/partial
# As Docker's Ubuntu and Debian images have it: fast unpacking, no services.
echo force-unsafe-io > "$root"/etc/dpkg/dpkg.cfg.d/docker-apt-speedup
echo 'Acquire::Languages "none";' > "$root"/etc/apt/apt.conf.d/docker-no-languages
printf '#!/bin/sh\nexit 101\n' > "$root"/usr/sbin/policy-rc.d
chmod 0755 "$root"/usr/sbin/policy-rc.d
