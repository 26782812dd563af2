package dpkg

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/assay-hpc/assay/internal/rootfs"
)

const status = `Package: zlib1g
Status: install ok installed
Architecture: amd64
Source: zlib (1:1.2.13.dfsg-1)
Version: 1:1.2.13.dfsg-1
Pre-Depends: dpkg (>= 1.17)
Depends: libc6 (>= 2.14), debconf:any | cdebconf-2.0 [amd64]
Provides: libz1 (= 1.2.13), zlib
Description: compression library
 Two lines.
 .
 Three.

Package: adduser
Status: install ok half-configured
Architecture: all
Version: 3.134
`

func tree(t testing.TB, files map[string]string) rootfs.FS {
	t.Helper()
	dir := t.TempDir()
	for name, content := range files {
		p := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(p), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(p, []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	f, err := rootfs.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

func TestRead(t *testing.T) {
	got, err := Read(tree(t, map[string]string{
		"var/lib/dpkg/status":                      status,
		"var/lib/dpkg/status.d/base-files":         "Package: base-files\nVersion: 12\nArchitecture: amd64\n",
		"var/lib/dpkg/status.d/base-files.md5sums": "0 x\n",
	}))
	want := []Package{
		{Name: "adduser", Version: "3.134", Arch: "all", Status: "install ok half-configured"},
		{Name: "base-files", Version: "12", Arch: "amd64", Status: installed},
		{Name: "zlib1g", Version: "1:1.2.13.dfsg-1", Arch: "amd64", Status: installed, Source: "zlib (1:1.2.13.dfsg-1)",
			Needs: [][]string{{"dpkg"}, {"libc6"}, {"debconf", "cdebconf-2.0"}}, Provides: []string{"libz1", "zlib"}},
	}
	if d := cmp.Diff(want, got); d != "" || err != nil {
		t.Errorf("Read (-want +got): %v\n%s", err, d)
	}
	if _, err := Read(tree(t, nil)); !errors.Is(err, ErrNoDatabase) {
		t.Errorf("Read of nothing = %v; want ErrNoDatabase", err)
	}
}

func TestParseStatusErrors(t *testing.T) {
	for in, want := range map[string]string{
		" continued\n":                   "1: a line continues",
		"Package: a\n\nVersion: 1\n":     "3: a paragraph has no field Package",
		"Package: a\nnonsense\n":         `2: "nonsense" is neither`,
		"Package: a\n\n\nnonsense again": `4: "nonsense again" is neither`,
	} {
		if _, err := ParseStatus([]byte(in)); err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("ParseStatus(%q) = %v; want %s…", in, err, want)
		}
	}
}

func TestSPDX(t *testing.T) {
	for in, want := range map[string]string{
		"GPL-2+":                        "GPL-2.0-or-later",
		"GPL-2":                         "GPL-2.0-only",
		"LGPL-2.1+":                     "LGPL-2.1-or-later",
		"GPL-3.0+":                      "GPL-3.0-or-later",
		"GFDL-1.3":                      "GFDL-1.3-only",
		"Expat":                         "MIT",
		"GPL-2+ or Artistic":            "GPL-2.0-or-later OR Artistic-1.0-Perl",
		"GPL-2 or Expat, and BSL-1.0":   "(GPL-2.0-only OR MIT) AND BSL-1.0",
		"Expat and Perl":                "MIT AND (Artistic-1.0-Perl OR GPL-1.0-or-later)",
		"GPL-2+ with OpenSSL exception": "LicenseRef-GPL-2P-with-OpenSSL-exception",
		"public-domain":                 "LicenseRef-public-domain",
		"LGPL-9":                        "LicenseRef-LGPL-9",
		"":                              "LicenseRef-unnamed",
		"or":                            "LicenseRef-or",
	} {
		if got := SPDX(in); got != want {
			t.Errorf("SPDX(%q) = %q; want %q", in, got, want)
		}
	}
}

func TestParseCopyright(t *testing.T) {
	const dep5 = "Format: https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/\nSource: x\n\n" +
		"Files: *\nCopyright: A\nLicense: GPL-2+\n On Debian systems …\n\nFiles: b\nLicense: Expat\n\n" +
		"Files: c\nLicense: GPL-2+\n\nLicense: only-spelled-out\n text\n"
	got, err := parseCopyright([]byte(dep5))
	if want := []string{"GPL-2.0-or-later", "MIT"}; !slices.Equal(got, want) || err != nil {
		t.Errorf("ParseCopyright = %q, %v; want %q", got, err, want)
	}
	for _, prose := range []string{"", "This is zlib, by …\n", "Format: x\n\nFiles: *\n"} {
		if got, err := parseCopyright([]byte(prose)); !errors.Is(err, ErrNotMachineReadable) {
			t.Errorf("ParseCopyright(%q) = %q, %v; want ErrNotMachineReadable", prose, got, err)
		}
	}
}

// TestMachine compares with dpkg-query where this machine has it.
func TestMachine(t *testing.T) {
	out, err := exec.Command("dpkg-query", "-W", "-f", "${Package} ${Version} ${Architecture} ${Status}\n").Output()
	if err != nil {
		t.Skip("no dpkg-query on this machine: ", err)
	}
	want := strings.Split(strings.TrimSpace(string(out)), "\n")
	pkgs, err := Read(rootfs.FS{})
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, p := range pkgs {
		got = append(got, strings.Join([]string{p.Name, p.Version, p.Arch, p.Status}, " "))
	}
	slices.Sort(want)
	slices.Sort(got)
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("Read (-dpkg-query +got):\n%s", d)
	}
}

func FuzzParseStatus(f *testing.F) {
	f.Add([]byte(status))
	f.Fuzz(func(t *testing.T, b []byte) {
		pkgs, err := ParseStatus(b)
		for _, p := range pkgs {
			if err == nil && p.Name == "" {
				t.Error("a package without a name")
			}
		}
	})
}

var license1 = regexp.MustCompile(`^[()A-Za-z0-9.\- ]+$`)

func FuzzParseCopyright(f *testing.F) {
	f.Add([]byte("Format: x\nLicense: GPL-2+ or Expat, and Zlib\n"))
	f.Fuzz(func(t *testing.T, b []byte) {
		got, _ := parseCopyright(b)
		for _, l := range got {
			if !license1.MatchString(l) {
				t.Errorf("licence %q is no SPDX expression", l)
			}
		}
	})
}
