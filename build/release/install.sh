#!/bin/sh
# Installs assay @VERSION@'s programs from the release's archives:
#
#   curl -fsSLO @URL@/install.sh
#   sh install.sh harness-cuda       # a GPU node's; or harness, without code for GPUs; or assay
#
# It verifies each archive against SHA256SUMS and, with ASSAY_KEY (the publisher's public key, a
# PEM file), SHA256SUMS against SHA256SUMS.sig, before it unpacks anything.
#
# PREFIX (default /usr/local) is where the programs go, ASSAY_URL where the release's files are.
set -eu
version=@VERSION@
url=${ASSAY_URL:-@URL@}
prefix=${PREFIX:-/usr/local}

fail() {
  echo "install.sh: $*" >&2
  exit 1
}
[ $# -gt 0 ] || set -- harness
for program; do
  case $program in assay | harness | harness-cuda) ;; *) fail "there is no program $program; there are assay, harness and harness-cuda" ;; esac
done
case $(uname -s)/$(uname -m) in
Linux/x86_64) arch=amd64 ;;
Linux/aarch64) arch=arm64 ;;
*) fail "there is no release for $(uname -s) on $(uname -m)" ;;
esac
case $url in
file://*) tools="tar gzip sha256sum" ;;
*) tools="curl tar gzip sha256sum" ;;
esac
for tool in $tools; do
  command -v "$tool" >/dev/null || fail "$tool is missing: install it first, such as by apt-get install $tool"
done

dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
fetch() {
  case $url in
  file://*) cp "${url#file://}/$1" "$dir/$1" ;; # which needs no curl
  *) curl -fsSL --retry 3 -o "$dir/$1" "$url/$1" ;;
  esac || fail "$url/$1 cannot be fetched"
}
fetch SHA256SUMS
if [ -n "${ASSAY_KEY:-}" ]; then
  command -v openssl >/dev/null || fail "openssl is missing, which verifies the signature"
  fetch SHA256SUMS.sig
  openssl pkeyutl -verify -pubin -inkey "$ASSAY_KEY" -rawin -in "$dir/SHA256SUMS" -sigfile "$dir/SHA256SUMS.sig" >/dev/null 2>&1 ||
    fail "the key $ASSAY_KEY did not sign SHA256SUMS: nothing was installed"
fi
for program; do
  name=${program}_${version}_linux_$arch
  fetch "$name.tar.gz"
  (cd "$dir" && grep "  $name.tar.gz\$" SHA256SUMS | sha256sum -c --quiet - >/dev/null 2>&1) ||
    fail "$name.tar.gz is not the file that SHA256SUMS names: nothing was installed"
done
for program; do
  name=${program}_${version}_linux_$arch
  tar -xzf "$dir/$name.tar.gz" -C "$dir" --no-same-owner
  binary=${program%-cuda}
  mkdir -p "$prefix/bin" "$prefix/lib/assay" "$prefix/share/man/man1"
  place() { cp "$dir/$name/$1" "$2/.$1.new" && mv "$2/.$1.new" "$2/$1"; } # a program that runs stays whole
  place "$binary" "$prefix/bin"
  [ ! -f "$dir/$name/buildkitd" ] || place buildkitd "$prefix/bin"
  for file in libnccl.so.2 libassay-coll.so; do [ ! -f "$dir/$name/$file" ] || place $file "$prefix/lib/assay"; done
  cp "$dir/$name/$binary.1.gz" "$prefix/share/man/man1/"
  echo "install.sh: $prefix/bin/$binary, $("$prefix/bin/$binary" version | head -n 1)"
done
[ -n "${ASSAY_KEY:-}" ] || echo "install.sh: checksums were verified, signatures were not: set ASSAY_KEY to the publisher's public key"
