package component

import (
	"regexp"
	"strings"

	"github.com/assay-hpc/assay/internal/certificate"
)

// libdir is the directory of the distribution's shared libraries.
type libdir string

// load returns a check that the dynamic loader can load a library of the directory.
func (d libdir) load(name string) certificate.Check { return load(string(d) + "/" + name) }

// ownSet ends the name of the set of packages that the matrix's own components ask for.
const ownSet = "+own"

// locked returns a package's version in the target's sets, "" while unresolved.
func (b *builder) locked(pkg string) string {
	for _, set := range []string{b.Target.Name, b.Target.Name + ownSet} {
		locked := b.Lock.Debs[set+"/"+b.Platform.Arch]
		for _, d := range locked.Packages {
			if d.Name == pkg {
				return d.Version
			}
		}
		if v := locked.Installed[pkg]; v != "" {
			return v
		}
	}
	return ""
}

// command returns a check that a program runs and that its output matches.
func command(name, match string, argv ...string) certificate.Check {
	return certificate.Check{Name: name, Kind: certificate.CheckCommand, Command: argv, Match: match}
}

func load(path string) certificate.Check {
	return certificate.Check{Name: "loads " + path[strings.LastIndex(path, "/")+1:], Kind: certificate.CheckLoad, Path: path}
}

func executable(path string) certificate.Check {
	return certificate.Check{Name: "has " + path, Kind: certificate.CheckFile, Path: path, Mode: 0o111}
}

// behind returns a pattern for a version that immediately follows a text.
func behind(text, version string) string {
	return regexp.QuoteMeta(text+version) + `(?:[^0-9]|$)`
}
