// Package archive is the table of the distributions' package archives that bases are made from.
package archive

import (
	_ "embed"
	"fmt"
	"slices"
	"strings"
)

// An Archive is a directory of packages on a server, in the layout of Debian's.
type Archive struct {
	Scheme     string // begins its URLs in matrix.lock: "debian:"
	security   string // what follows its root in that of its security updates, which then have a scheme of their own: "-security"
	components string // that the sources of a base name

	// What debootstrap needs.
	Key       []byte // the key that signs it, in binary; nil: Keyring has it
	Keyring   string // a file that the package KeyringOf of this machine's distribution contains
	KeyringOf string
	Script    string // for the suites that debootstrap does not know
	// DefaultIn is the file of debootstrap, below its prefix, that names the archive's root by
	// default, in the first line with the text DefaultLine.
	DefaultIn, DefaultLine string
}

var debian = Archive{
	Scheme: "debian:", security: "-security", components: "main",
	Keyring: "/usr/share/keyrings/debian-archive-keyring.gpg", KeyringOf: "debian-archive-keyring", Script: "sid",
	DefaultIn: "sbin/debootstrap", DefaultLine: `DEF_MIRROR="`,
}

// ubuntuKey is the "Ubuntu Archive Automatic Signing Key (2018)", which signs all that is listed
// here: ubuntu-keyring-2018-archive.gpg of the package ubuntu-keyring. Debian 12 has no such package.
//
//go:embed ubuntu-2018.gpg
var ubuntuKey []byte

var ubuntu = Archive{
	Scheme: "ubuntu:", components: "main universe multiverse", Key: ubuntuKey, Script: "gutsy",
	DefaultIn: "share/debootstrap/scripts/gutsy", DefaultLine: "default_mirror http://archive.",
}

// ubuntuPorts has the architectures that are not in Ubuntu's main archive.
var ubuntuPorts = func() Archive {
	a := ubuntu
	a.Scheme, a.DefaultLine = "ubuntu-ports:", "default_mirror http://ports."
	return a
}()

// All are the archives.
var All = []Archive{debian, ubuntu, ubuntuPorts}

// A Suite is a release by the name that archives have for it.
type Suite struct {
	Name, Distro, Release string // "noble", "ubuntu", "24.04"
	arm64                 *Archive
	archive               *Archive
}

// Suites are the known releases.
var Suites = []Suite{
	{"bullseye", "debian", "11", &debian, &debian},
	{"bookworm", "debian", "12", &debian, &debian},
	{"trixie", "debian", "13", &debian, &debian},
	{"forky", "debian", "14", &debian, &debian},
	{"jammy", "ubuntu", "22.04", &ubuntuPorts, &ubuntu},
	{"noble", "ubuntu", "24.04", &ubuntuPorts, &ubuntu},
	{"resolute", "ubuntu", "26.04", &ubuntu, &ubuntu},
}

// Find returns what is known of a suite.
func Find(suite string) (Suite, bool) {
	i := slices.IndexFunc(Suites, func(s Suite) bool { return s.Name == suite })
	if i < 0 {
		return Suite{}, false
	}
	return Suites[i], true
}

// Names returns the names of a distribution's suites.
func Names(distro string) []string {
	var names []string
	for _, s := range Suites {
		if s.Distro == distro {
			names = append(names, s.Name)
		}
	}
	return names
}

// Of returns the archive with a suite's packages for an architecture. A suite that is not known is
// taken for a new one of Debian's.
func Of(suite, arch string) Archive {
	s, ok := Find(suite)
	switch {
	case !ok:
		return debian
	case arch == "arm64":
		return *s.arm64
	}
	return *s.archive
}

// A Scheme is what URLs in matrix.lock begin with in place of an archive's root.
type Scheme struct {
	Name    string // "debian-security:"
	Archive Archive
	Suffix  string // what follows the archive's root: "-security"
}

// Schemes returns the schemes of all archives.
func Schemes() []Scheme {
	var all []Scheme
	for _, a := range All {
		all = append(all, Scheme{a.Scheme, a, ""})
		if a.security != "" {
			all = append(all, Scheme{strings.TrimSuffix(a.Scheme, ":") + a.security + ":", a, a.security})
		}
	}
	return all
}

// Sources returns apt's sources.list for a suite of the archive at a root URL: the release, its
// updates, and its security updates.
func (a Archive) Sources(root, suite string) string {
	var b strings.Builder
	for _, s := range []struct{ root, suite string }{{root, suite}, {root, suite + "-updates"}, {root + a.security, suite + "-security"}} {
		fmt.Fprintf(&b, "deb %s %s %s\n", s.root, s.suite, a.components)
	}
	return b.String()
}
