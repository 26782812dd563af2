package dpkg

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/assay-hpc/assay/internal/rootfs"
)

// ErrNotMachineReadable says that a copyright file is free text.
var ErrNotMachineReadable = errors.New("the copyright file is not machine-readable")

const copyrightLimit = 16 << 20

// Licenses returns the licences of an installed package as SPDX expressions,
// sorted, from /usr/share/doc.
func Licenses(root rootfs.FS, name string) ([]string, error) {
	b, err := root.ReadFile("/usr/share/doc/"+name+"/copyright", copyrightLimit)
	if err != nil {
		return nil, err
	}
	return parseCopyright(b)
}

// parseCopyright reads a file in Debian's format 1.0 (DEP-5) and returns the licences that it
// assigns to files, as SPDX expressions, sorted.
func parseCopyright(b []byte) ([]string, error) {
	head, _, _ := strings.Cut(strings.TrimSpace(string(b)), "\n")
	if !strings.HasPrefix(head, "Format:") && !strings.HasPrefix(head, "Format-Specification:") {
		return nil, ErrNotMachineReadable
	}
	var found []string
	for para, err := range paragraphs(b) {
		if err != nil {
			return nil, fmt.Errorf("copyright:%w", err)
		}
		_, files := para.field["files"]
		_, header := para.field["format"]
		// A paragraph with only a licence spells out a name that is used elsewhere.
		if name := para.field["license"]; name != "" && (files || header) {
			found = append(found, SPDX(name))
		}
	}
	if len(found) == 0 {
		return nil, ErrNotMachineReadable
	}
	slices.Sort(found)
	return slices.Compact(found), nil
}

// spdx maps Debian's short names (copyright-format 1.0, section 7.1) to SPDX
// identifiers where they differ. Versioned GNU licences are handled by gnu.
var spdx = map[string]string{
	"expat": "MIT", "mit": "MIT", "mit/x11": "MIT", "x11": "X11", "isc": "ISC", "zlib": "Zlib",
	"apache": "Apache-2.0", "apache-2": "Apache-2.0", "apache-2.0": "Apache-2.0", "asl-2.0": "Apache-2.0",
	"artistic": "Artistic-1.0-Perl", "artistic-1": "Artistic-1.0", "artistic-2": "Artistic-2.0", "artistic-2.0": "Artistic-2.0",
	"bsd-2-clause": "BSD-2-Clause", "bsd-3-clause": "BSD-3-Clause", "bsd-4-clause": "BSD-4-Clause", "bsd-4-clause-uc": "BSD-4-Clause-UC",
	"bsl-1.0": "BSL-1.0", "boost-1.0": "BSL-1.0", "cc0": "CC0-1.0", "cc0-1.0": "CC0-1.0", "curl": "curl",
	"mpl-1.1": "MPL-1.1", "mpl-2.0": "MPL-2.0", "openssl": "OpenSSL", "python-2.0": "Python-2.0", "psf-2": "PSF-2.0",
	"unlicense": "Unlicense", "w3c": "W3C", "zpl-2.1": "ZPL-2.1", "ofl-1.1": "OFL-1.1", "hpnd": "HPND", "0bsd": "0BSD",
	"bzip2": "bzip2-1.0.6", "perl": "Artistic-1.0-Perl OR GPL-1.0-or-later", "sleepycat": "Sleepycat", "ncsa": "NCSA", "wtfpl": "WTFPL",
	"cc-by-4.0": "CC-BY-4.0", "cc-by-sa-3.0": "CC-BY-SA-3.0", "cc-by-sa-4.0": "CC-BY-SA-4.0", "epl-1.0": "EPL-1.0", "tcl": "TCL",
}

// SPDX converts a licence in Debian's syntax to an SPDX expression. An unknown name becomes a
// LicenseRef-, so that the result claims nothing that the file does not say.
func SPDX(debian string) string {
	debian = strings.TrimSpace(debian)
	// "A or B, and C": the comma binds weakest (copyright-format 1.0, 7.2).
	clauses := splitWord(strings.ReplaceAll(debian, ", ", " , "), ",")
	for i, c := range clauses {
		c = strings.TrimPrefix(strings.TrimSpace(c), "and ")
		clauses[i] = operators(c, len(clauses) > 1)
	}
	return strings.Join(clauses, " AND ")
}

// operators reads "A or B and C"; "and" binds more tightly than "or".
func operators(s string, inside bool) string {
	alts := splitWord(s, "or")
	for i, alt := range alts {
		parts := splitWord(alt, "and")
		for j, p := range parts {
			parts[j] = license(p)
			if strings.Contains(parts[j], " OR ") && len(parts) > 1 {
				parts[j] = "(" + parts[j] + ")"
			}
		}
		alts[i] = strings.Join(parts, " AND ")
	}
	out := strings.Join(alts, " OR ")
	if inside && len(alts) > 1 {
		out = "(" + out + ")"
	}
	return out
}

func splitWord(s, word string) []string {
	var out []string
	var cur []string
	for f := range strings.FieldsSeq(s) {
		if strings.EqualFold(f, word) && len(cur) > 0 {
			out, cur = append(out, strings.Join(cur, " ")), nil
			continue
		}
		cur = append(cur, f)
	}
	if len(cur) > 0 || len(out) == 0 {
		out = append(out, strings.Join(cur, " "))
	}
	return out
}

// license maps one name.
func license(name string) string {
	name = strings.TrimSpace(name)
	key := strings.ToLower(name)
	if id, ok := spdx[key]; ok {
		return id
	}
	if id, ok := gnu(key); ok {
		return id
	}
	return "LicenseRef-" + idString(name)
}

// gnuVersions are the versions in SPDX's list.
var gnuVersions = map[string][]string{
	"gpl": {"1.0", "2.0", "3.0"}, "lgpl": {"2.0", "2.1", "3.0"}, "agpl": {"3.0"}, "gfdl": {"1.1", "1.2", "1.3"},
}

// gnu maps "gpl-2+" to "GPL-2.0-or-later".
func gnu(key string) (string, bool) {
	family, ver, ok := strings.Cut(key, "-")
	if !ok || gnuVersions[family] == nil {
		return "", false
	}
	suffix := "-only"
	if v, plus := strings.CutSuffix(ver, "+"); plus {
		ver, suffix = v, "-or-later"
	}
	if !strings.Contains(ver, ".") {
		ver += ".0"
	}
	if !slices.Contains(gnuVersions[family], ver) {
		return "", false
	}
	return strings.ToUpper(family) + "-" + ver + suffix, true
}

// idString replaces what SPDX does not allow in an identifier.
func idString(s string) string {
	id := strings.Map(func(r rune) rune {
		switch {
		case r >= 'a' && r <= 'z', r >= 'A' && r <= 'Z', r >= '0' && r <= '9', r == '.', r == '-':
			return r
		case r == '+':
			return 'P' // "-2+" and "-2" must not become one name
		}
		return '-'
	}, s)
	if id = strings.Trim(id, "-"); id == "" {
		return "unnamed"
	}
	return id
}
