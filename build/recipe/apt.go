package recipe

import (
	"cmp"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strconv"
	"strings"
)

// DebsDir is the directory that contains the packages of an Apt step.
const DebsDir = "/run/assay/debs"

// AptAuthFile is where apt finds credentials while a step that needs them runs.
const AptAuthFile = "/etc/apt/auth.conf.d/90assay.conf"

// File returns a file name for the package that apt accepts and that is
// unique in its set.
func (d Deb) File() string {
	return fmt.Sprintf("%s_%s_%s.deb", d.Name, strings.NewReplacer(":", "_", "~", "-").Replace(d.Version), d.Arch)
}

// aptBegin prepares a stage for unattended installation: no service is started, dpkg does not
// sync each file (the snapshot is discarded on a crash anyway), and nothing prompts.
const aptBegin = `export DEBIAN_FRONTEND=noninteractive DEBCONF_NOWARNINGS=yes LC_ALL=C.UTF-8
if [ ! -e /usr/sbin/policy-rc.d ]; then
  printf '#!/bin/sh\nexit 101\n' > /usr/sbin/policy-rc.d; chmod 755 /usr/sbin/policy-rc.d
  trap 'rm -f /usr/sbin/policy-rc.d' EXIT
fi
apt="apt-get -y -qq --no-install-recommends --allow-downgrades --allow-change-held-packages -o Dpkg::Use-Pty=0 -o Dpkg::Options::=--force-unsafe-io -o Dpkg::Options::=--force-confold -o APT::Sandbox::User=root"
`

// Tidy is the end of every step that installs packages. It removes what differs from run to run
// (logs, caches keyed by inode, backups, the day on which an account was made), what belongs to
// one machine (host keys, the machine id) and what is useless in an image (package lists).
const Tidy = `rm -rf /var/lib/apt/lists/* /var/cache/apt/*.bin /var/cache/apt/archives/*.deb /var/cache/ldconfig/aux-cache /var/cache/debconf/*-old /var/lib/dpkg/*-old /var/log/apt /var/log/alternatives.log /var/log/dpkg.log /var/log/bootstrap.log /etc/passwd- /etc/group- /etc/shadow- /etc/gshadow- /etc/subuid- /etc/subgid- /etc/.pwd.lock
rm -f /etc/ssh/ssh_host_*
find / -xdev -name __pycache__ -type d -prune -exec rm -rf {} +
if [ -e /etc/machine-id ]; then : > /etc/machine-id; fi
day=$((SOURCE_DATE_EPOCH / 86400))
sed -i "s/^\([^:]*:[^:]*:\)[0-9][0-9]*:/\1$day:/" /etc/shadow
`

// TidyPiece is Tidy as a piece of a script.
var TidyPiece = Piece{CommonDir + "tidy.sh", Tidy}

// Script installs the set from DebsDir.
func (a Apt) Script() string {
	return aptBegin +
		"$apt install " + DebsDir + "/*.deb\n" +
		a.marks() + Tidy
}

// marks marks the packages that were not requested as automatically installed, so that autoremove
// is correct in images built on top.
func (a Apt) marks() string {
	asked := a.names()
	var auto []string
	for _, d := range a.Debs {
		if !slices.Contains(asked, d.Name) {
			auto = append(auto, d.Name)
		}
	}
	if len(auto) == 0 {
		return ""
	}
	return "apt-mark auto " + strings.Join(auto, " ") + " >/dev/null\n"
}

// names returns the requested packages without their versions.
func (a Apt) names() (out []string) {
	for _, p := range a.Packages {
		name, _, _ := strings.Cut(p, "=")
		out = append(out, name)
	}
	return out
}

// redirect makes apt read its sources through a sed script, for mirrors, without changing the
// stage's own sources.
func redirect(sed string) string {
	if sed == "" {
		return ""
	}
	return `mkdir -p /tmp/assay-apt/parts
cat /etc/apt/sources.list 2>/dev/null | sed -e '` + sed + `' > /tmp/assay-apt/sources.list
for f in /etc/apt/sources.list.d/*; do
  if [ -e "$f" ]; then sed -e '` + sed + `' "$f" > /tmp/assay-apt/parts/"${f##*/}"; fi
done
apt="$apt -o Dir::Etc::SourceList=/tmp/assay-apt/sources.list -o Dir::Etc::SourceParts=/tmp/assay-apt/parts"
`
}

// Online installs the same set at the same versions from the archives that the stage is
// configured for: the form for a Dockerfile. The sed script is applied to the stage's sources
// first. The file is what the list of packages is called.
func (a Apt) Online(sed, file string) Run {
	var pins []string
	for _, d := range a.Debs {
		pins = append(pins, "  "+d.Name+"="+d.Version)
	}
	r := Run{Title: a.Title, Network: true}
	r.Add(Piece{CommonDir + "apt.sh", aptBegin + redirect(sed)},
		Piece{file, "$apt update\n$apt install \\\n" + strings.Join(pins, " \\\n") + "\nrm -rf /tmp/assay-apt\n" + a.marks()}, TidyPiece)
	return r
}

// trust writes to /out/trust the package sources and the keys that may sign them, one file per
// line: its path and its content in base64.
const trust = `for f in /etc/apt/sources.list /etc/apt/sources.list.d/* /etc/apt/trusted.gpg /etc/apt/trusted.gpg.d/* /etc/apt/keyrings/* /usr/share/keyrings/*; do
  if [ -f "$f" ]; then printf '%s %s\n' "$f" "$(base64 -w 0 "$f")"; fi
done > /out/trust
`

// update fetches the package lists. While an archive is being synchronised, its indices do not fit
// its signed file of checksums: apt is asked again for some minutes.
const update = `for wait in 20 60 180 0; do
  status=0
  $apt update -o APT::Update::Error-Mode=any >/tmp/assay-update 2>&1 || status=$?
  cat /tmp/assay-update >&2
  if [ $status = 0 ]; then break; fi
  if [ $wait = 0 ] || ! grep -qiE 'mirror sync in progress|hash sum mismatch' /tmp/assay-update; then exit $status; fi
  echo "assay: an archive is being synchronised, its package lists do not fit its checksums; asking again in $wait seconds" >&2
  sleep $wait
done
rm /tmp/assay-update
`

// ResolveScript writes to /out/uris, without installing anything, one line of apt's --print-uris
// for every package that installing the set would fetch: 'URI' name_version_arch.deb size
// SHA256:hex. The sed script is applied to the stage's own sources first; the original sources
// are written to /out/trust, and to /out/installed the requested packages that the stage has, each with
// its status and version. An update that Ubuntu gives to a part of all machines for now is taken,
// whatever this machine is.
func (a Apt) ResolveScript(sed string) string {
	upgrade := ""
	if a.Upgrade {
		upgrade = "$apt upgrade >> /out/uris\n"
	}
	return aptBegin + trust + redirect(sed) + `apt="$apt -o Acquire::ForceHash=SHA256 -o Acquire::Retries=3 -o APT::Get::Always-Include-Phased-Updates=true"
` + update + `apt="$apt --print-uris"
: > /out/uris
` + upgrade + "$apt install " + strings.Join(a.Packages, " ") + " >> /out/uris\n" +
		"dpkg-query -W -f '${Package} ${db:Status-Status} ${Version}\\n' " + strings.Join(a.names(), " ") + " > /out/installed 2>/dev/null || :\n"
}

// ParseInstalled reads what ResolveScript wrote to /out/installed: versions by package. What is among
// the packages to install is left out: its version changes.
func ParseInstalled(text string, debs []Deb) map[string]string {
	out := map[string]string{}
	for line := range strings.Lines(text) {
		f := strings.Fields(line)
		if len(f) == 3 && f[1] == "installed" && !slices.ContainsFunc(debs, func(d Deb) bool { return d.Name == f[0] }) {
			out[f[0]] = f[2]
		}
	}
	return out
}

// ParseURIs reads what ResolveScript wrote.
func ParseURIs(text string) ([]Deb, error) {
	seen := map[string]Deb{}
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		if !strings.HasPrefix(line, "'") {
			continue // apt's own messages
		}
		d, err := parseURI(line)
		if err != nil {
			return nil, err
		}
		seen[d.Name+":"+d.Arch] = d
	}
	debs := slices.Collect(maps.Values(seen))
	slices.SortFunc(debs, func(a, b Deb) int { return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.Arch, b.Arch)) })
	return debs, nil
}

func parseURI(line string) (Deb, error) {
	bad := func(what string) (Deb, error) {
		return Deb{}, fmt.Errorf("apt --print-uris: %s in %q", what, line)
	}
	f := strings.Fields(line)
	if len(f) != 4 {
		return bad("not four fields")
	}
	sum, ok := strings.CutPrefix(f[3], "SHA256:")
	if !ok {
		return bad("no SHA-256 (is the repository signed with a newer hash?)")
	}
	name, err := url.PathUnescape(strings.TrimSuffix(f[1], ".deb"))
	if err != nil {
		return bad("bad file name")
	}
	part := strings.Split(name, "_")
	if len(part) != 3 {
		return bad("file name is not name_version_arch.deb")
	}
	size, err := strconv.ParseInt(f[2], 10, 64)
	if err != nil {
		return bad("bad size")
	}
	at, ok := strings.CutSuffix(f[0][1:], "'")
	if !ok {
		return bad("bad URL")
	}
	d := Deb{Name: part[0], Version: part[1], Arch: part[2], URL: at, SHA256: sum, Size: size}
	if err := d.Validate(); err != nil {
		return bad(err.Error())
	}
	return d, nil
}
