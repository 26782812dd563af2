#!/bin/sh
# Configures the packages of a base, in the file system that seed.go makes of them, and removes
# what differs from run to run. It runs as a build step: all that it executes comes from packages
# that only a lock has named. The order is debootstrap's, so that the result is too.
# Variables: DEBS (the packages' files, in the lock's order), SOURCES (the base's own sources.list),
# SOURCE_DATE_EPOCH.
set -eu
export PATH=/sbin:/usr/sbin:/bin:/usr/bin LC_ALL=C.UTF-8
export DEBIAN_FRONTEND=noninteractive DEBCONF_NONINTERACTIVE_SEEN=true
umask 022
cd /var/cache/apt/archives

install() {
  dpkg --force-depends --install "$1"_*.deb
}

mkdir -p /var/lib/dpkg/info
: >/var/lib/dpkg/status
: >/var/lib/dpkg/available
[ -e /etc/fstab ] || echo '# UNCONFIGURED FSTAB FOR BASE SYSTEM' >/etc/fstab

# dpkg needs itself installed, and the first packages' scripts need an awk.
printf 'Package: dpkg\nVersion: %s\nMaintainer: unknown\nStatus: install ok installed\n' \
  "$(dpkg-deb -f dpkg_*.deb Version)" >>/var/lib/dpkg/status
: >/var/lib/dpkg/info/dpkg.list
ldconfig
ln -sf mawk /usr/bin/awk
for package in base-passwd base-files dpkg; do install "$package"; done
[ -e /etc/localtime ] || ln -sf /usr/share/zoneinfo/UTC /etc/localtime
for package in libc6 perl-base; do install "$package"; done
rm /usr/bin/awk
install mawk

# shellcheck disable=SC2086 # a list
dpkg --force-depends --unpack $DEBS

# Scripts must not start services.
printf '#!/bin/sh\nexit 101\n' >/usr/sbin/policy-rc.d
chmod 755 /usr/sbin/policy-rc.d
mv /sbin/start-stop-daemon /sbin/start-stop-daemon.REAL
printf '#!/bin/sh\nexit 0\n' >/sbin/start-stop-daemon
chmod 755 /sbin/start-stop-daemon
echo 'apt apt' >/var/lib/dpkg/cmethopt
dpkg --configure --pending --force-configure-any --force-depends
mv /sbin/start-stop-daemon.REAL /sbin/start-stop-daemon

# What is part of the base is required, whatever the package itself says.
for deb in $DEBS; do
  dpkg-deb -f "$deb" | sed 's/^Priority: .*/Priority: required/'
  sum=$(sha256sum <"$deb")
  printf 'Filename: pool/%s\nSize: %s\nSHA256: %s\n\n' "$deb" "$(stat -c %s "$deb")" "${sum%% *}"
done >/var/lib/dpkg/available
for deb in $DEBS; do echo "${deb%%_*} install"; done | dpkg --set-selections

rm -rf /etc/hostname /etc/*- /etc/.pwd.lock /run/* /tmp/* \
  /var/cache/apt/archives/*.deb /var/cache/apt/*.bin /var/cache/debconf/*-old /var/cache/ldconfig/aux-cache \
  /var/lib/apt/lists/* /var/lib/dpkg/*-old /var/log/*.log /var/log/apt
day=$((SOURCE_DATE_EPOCH / 86400))
sed -i "s/^\([^:]*:[^:]*:\)[0-9][0-9]*:/\1$day:/" /etc/shadow
: >/etc/machine-id
printf %s "$SOURCES" >/etc/apt/sources.list
# An image needs no caches of package lists.
cat >/etc/apt/apt.conf.d/90assay <<'END'
Dir::Cache::pkgcache "";
Dir::Cache::srcpkgcache "";
APT::Install-Recommends "false";
END
chmod 644 /etc/machine-id /etc/apt/sources.list /etc/apt/apt.conf.d/90assay
