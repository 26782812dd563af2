package base

import (
	"archive/tar"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/assay-hpc/assay/build/recipe"
)

var epoch = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

func maker(t *testing.T) *Maker {
	return &Maker{
		Dir: t.TempDir(), Archive: "http://mirror.example.org/debian", Canon: "http://archive.example.org/debian", Epoch: epoch,
		Name: func(u string) string { return strings.Replace(u, "http://mirror.example.org/debian/", "debian:", 1) },
		Log:  t.Logf,
	}
}

// tree makes a root file system of the kind that debootstrap leaves, with the
// files in the given order.
func tree(t *testing.T, names []string, files map[string]string) string {
	t.Helper()
	root := filepath.Join(t.TempDir(), "root")
	for _, name := range names {
		file := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(files[name]), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return root
}

func names(files map[string]string) []string {
	var out []string
	for n := range files {
		out = append(out, n)
	}
	slices.Sort(out)
	return out
}

// entries reads a tar.
func entries(t *testing.T, file string) []*tar.Header {
	t.Helper()
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var out []*tar.Header
	for r := tar.NewReader(bytes.NewReader(data)); ; {
		h, err := r.Next()
		if err == io.EOF {
			return out
		}
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, h)
	}
}

// TestTarSameBytes: the order in which files were made, and when, and from
// which directory, does not show.
func TestTarSameBytes(t *testing.T) {
	files := map[string]string{"usr/bin/a": "a", "usr/bin/b": "b", "etc/b/c": "c", "etc/a": "a", "z": "z"}
	list := names(files)
	var sums []string
	for range 2 {
		slices.Reverse(list)
		root := tree(t, list, files)
		if err := os.Symlink("a", filepath.Join(root, "usr/bin/link")); err != nil {
			t.Fatal(err)
		}
		m := maker(t)
		file, err := m.tar(root)
		if err != nil {
			t.Fatal(err)
		}
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		sums = append(sums, fmt.Sprintf("%x", sha256.Sum256(data)))
	}
	if sums[0] != sums[1] {
		t.Errorf("two trees of the same files make different archives: %q", sums)
	}
}

func TestTar(t *testing.T) {
	root := tree(t, []string{"b/file", "a/first", "a/old", "setuid"}, map[string]string{"a/first": "12345"})
	in := func(name string) string { return filepath.Join(root, name) }
	old := epoch.Add(-time.Hour + 300*time.Millisecond)
	for _, err := range []error{
		os.Link(in("a/first"), in("b/second")),
		os.Link(in("a/first"), in("c")),
		os.Symlink("/etc/passwd", in("d")),
		os.Chmod(in("setuid"), 0o755|os.ModeSetuid),
		unix.Mkfifo(in("e"), 0o600),
		os.Chtimes(in("a/old"), old, old),
		os.MkdirAll(in("empty"), 0o700),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	l, err := net.Listen("unix", in("socket"))
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if err := unix.Mknod(in("null"), unix.S_IFCHR|0o666, int(unix.Mkdev(1, 3))); err != nil {
		t.Logf("no device node in this tree: %v", err)
	}
	m := maker(t)
	file, err := m.tar(root)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, h := range entries(t, file) {
		line := fmt.Sprintf("%c %04o %s", h.Typeflag, h.Mode, h.Name)
		if h.Linkname != "" {
			line += " -> " + h.Linkname
		}
		got = append(got, line)
		want := epoch
		if h.Name == "a/old" {
			want = epoch.Add(-time.Hour)
		}
		if !h.ModTime.Equal(want) || !h.AccessTime.IsZero() || !h.ChangeTime.IsZero() {
			t.Errorf("%s is of %v; want %v", h.Name, h.ModTime, want)
		}
		if h.Uname != "" || h.Gname != "" || len(h.PAXRecords) > 0 {
			t.Errorf("%s has owner %q, %q, records %v; names belong to the machine that made it", h.Name, h.Uname, h.Gname, h.PAXRecords)
		}
	}
	want := []string{
		"5 0755 a/", "0 0644 a/first", "0 0644 a/old",
		"5 0755 b/", "0 0644 b/file", "1 0644 b/second -> a/first",
		"1 0644 c -> a/first", "2 0777 d -> /etc/passwd", "6 0600 e", "5 0700 empty/", "0 4755 setuid",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("the archive (-want +got):\n%s", diff)
	}
}

// TestTarCapability: ping needs its file capability in the image.
func TestTarCapability(t *testing.T) {
	root := tree(t, []string{"ping"}, map[string]string{"ping": "x"})
	capability := []byte{1, 0, 0, 2, 0, 32, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0} // cap_net_raw=ep
	if err := unix.Setxattr(filepath.Join(root, "ping"), "security.capability", capability, 0); err != nil {
		t.Skipf("file capabilities cannot be set here: %v", err)
	}
	file, err := maker(t).tar(root)
	if err != nil {
		t.Fatal(err)
	}
	if got := entries(t, file)[0].PAXRecords["SCHILY.xattr.security.capability"]; got != string(capability) {
		t.Errorf("the capability is %q; want %q", got, capability)
	}
}

func TestTarError(t *testing.T) {
	m := maker(t)
	if file, err := m.tar(filepath.Join(m.Dir, "gone")); err == nil {
		t.Errorf("tar of nothing = %s", file)
	}
	if left, _ := os.ReadDir(m.Dir); len(left) > 0 {
		t.Errorf("a failed tar leaves %v", left)
	}
}

func TestNormalise(t *testing.T) {
	gone := map[string]string{
		"etc/hostname": "builder\n", "etc/resolv.conf": "nameserver 192.0.2.1\n", "etc/passwd-": "", "etc/shadow-": "", "etc/.pwd.lock": "",
		"var/log/bootstrap.log": "", "var/log/apt/history.log": "", "var/cache/ldconfig/aux-cache": "", "var/cache/apt/archives/a.deb": "", "var/cache/apt/pkgcache.bin": "",
		"var/lib/apt/lists/x_Packages": "", "var/lib/dpkg/status-old": "", "var/cache/debconf/config.dat-old": "", "debootstrap/debpaths": "",
		"dev/x": "", "proc/x": "", "sys/x": "", "run/x": "", "tmp/x": "",
	}
	kept := map[string]string{
		"etc/passwd": "root:x:0:0:::\n", "var/lib/dpkg/status": "Package: x\n", "var/log/README": "x", "usr/share/doc/x-": "x", "var/cache/apt/archives/lock": "",
	}
	written := map[string]string{
		"etc/shadow":           "root:*:19000:0:99999:7:::\ndaemon:!:20110:0:99999:7:::\n",
		"etc/machine-id":       "0123456789abcdef\n",
		"etc/apt/sources.list": "deb file:///tmp/base-1/repo bookworm main\n", "etc/apt/apt.conf.d/01autoremove": "", "usr/sbin/policy-rc.d": "other",
	}
	all := map[string]string{}
	for _, files := range []map[string]string{gone, kept, written} {
		for n, c := range files {
			all[n] = c
		}
	}
	root := tree(t, names(all), all)
	m := maker(t)
	for range 2 { // what is normal stays as it is
		if err := m.normalise(root, "bookworm"); err != nil {
			t.Fatal(err)
		}
		for n := range gone {
			if _, err := os.Lstat(filepath.Join(root, n)); !errors.Is(err, os.ErrNotExist) {
				t.Errorf("%s is still there (%v)", n, err)
			}
		}
		want := map[string]string{
			"etc/shadow":     "root:*:20454:0:99999:7:::\ndaemon:!:20454:0:99999:7:::\n",
			"etc/machine-id": "",
			"etc/apt/sources.list": "deb http://archive.example.org/debian bookworm main\ndeb http://archive.example.org/debian bookworm-updates main\n" +
				"deb http://archive.example.org/debian-security bookworm-security main\n",
			"usr/sbin/policy-rc.d": "#!/bin/sh\nexit 101\n",
		}
		for n, c := range kept {
			want[n] = c
		}
		for n, c := range want {
			if got, err := os.ReadFile(filepath.Join(root, n)); err != nil || string(got) != c {
				t.Errorf("%s holds %q, %v; want %q", n, got, err, c)
			}
		}
		for _, dir := range []string{"dev", "proc", "sys", "run", "tmp", "var/lib/apt/lists"} {
			if info, err := os.Stat(filepath.Join(root, dir)); err != nil || !info.IsDir() {
				t.Errorf("the directory %s is gone (%v)", dir, err)
			}
		}
	}
	if info, err := os.Stat(filepath.Join(root, "usr/sbin/policy-rc.d")); err != nil || info.Mode().Perm()&0o111 == 0 {
		t.Errorf("policy-rc.d has mode %v (%v); want it executable", info.Mode(), err)
	}
}

func TestNormaliseWithoutShadow(t *testing.T) {
	root := tree(t, []string{"etc/passwd"}, nil)
	if err := maker(t).normalise(root, "bookworm"); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("normalise of a tree without accounts = %v", err)
	}
}

func TestShadow(t *testing.T) {
	file := filepath.Join(t.TempDir(), "shadow")
	for _, tt := range []struct{ in, want string }{
		{"", ""},
		{"root:*:19000:0:99999:7:::\n", "root:*:20454:0:99999:7:::\n"},
		{"a:$6$x:1:2:3:4:5:6:\nb::19000::::::\n", "a:$6$x:20454:2:3:4:5:6:\nb::20454::::::\n"},
		{"never:*::0:99999:7:::\n", "never:*::0:99999:7:::\n"},
		{"sshd:!:19000:0", "sshd:!:20454:0"},
	} {
		if err := os.WriteFile(file, []byte(tt.in), 0o640); err != nil {
			t.Fatal(err)
		}
		if err := maker(t).shadow(file); err != nil {
			t.Fatal(err)
		}
		if got, _ := os.ReadFile(file); string(got) != tt.want {
			t.Errorf("shadow(%q) = %q; want %q", tt.in, got, tt.want)
		}
	}
}

func TestStanzas(t *testing.T) {
	for _, tt := range []struct {
		name, in string
		want     []map[string]string
	}{
		{"nothing", "", nil},
		{"empty lines", "\n\n\n", nil},
		{"two", "Package: a\nVersion: 1:2\n\n\nPackage: b\n", []map[string]string{{"Package": "a", "Version": "1:2"}, {"Package": "b"}}},
		{"no last newline", "Package: a", []map[string]string{{"Package": "a"}}},
		{"continuation lines", "Package: a\nDescription: short\n long: not a field\n\ttab: neither\nSize: 3\n", []map[string]string{{"Package": "a", "Description": "short", "Size": "3"}}},
		{"an empty value", "Package:\n", []map[string]string{{"Package": ""}}},
		{"no field at all", "just words\n", nil},
		{"spaces", "Package :  a  \n", []map[string]string{{"Package ": "a"}}},
	} {
		var got []map[string]string
		if err := stanzas(strings.NewReader(tt.in), func(s map[string]string) error { got = append(got, s); return nil }); err != nil {
			t.Errorf("%s: %v", tt.name, err)
		}
		if diff := cmp.Diff(tt.want, got); diff != "" {
			t.Errorf("%s: stanzas(%q) (-want +got):\n%s", tt.name, tt.in, diff)
		}
	}
	stop := errors.New("stop")
	n := 0
	if err := stanzas(strings.NewReader("a: 1\n\nb: 2\n"), func(map[string]string) error { n++; return stop }); !errors.Is(err, stop) || n != 1 {
		t.Errorf("an error of the callback: %v after %d stanzas", err, n)
	}
	if err := stanzas(strings.NewReader("a: "+strings.Repeat("x", 5<<20)), func(map[string]string) error { return nil }); err == nil {
		t.Error("a line of five megabytes is accepted, or cut without a word")
	}
}

// FuzzStanzas: no stanza is empty, none has a continuation line for a field,
// and what was read reads the same when it is written again.
func FuzzStanzas(f *testing.F) {
	f.Add("Package: a\nVersion: 1:2\n\nPackage: b\nDescription: x\n more\n")
	f.Add("\n\n : \n:\n\t:\na:b\r\n")
	f.Add(":\n")
	f.Fuzz(func(t *testing.T, in string) {
		read := func(in string) []map[string]string {
			var out []map[string]string
			if err := stanzas(strings.NewReader(in), func(s map[string]string) error { out = append(out, s); return nil }); err != nil {
				t.Fatalf("stanzas(%q): %v", in, err)
			}
			return out
		}
		got := read(in)
		var again strings.Builder
		for _, s := range got {
			if len(s) == 0 {
				t.Fatalf("stanzas(%q) gives an empty one", in)
			}
			for k, v := range s {
				if strings.HasPrefix(k, " ") || strings.HasPrefix(k, "\t") || strings.ContainsAny(k+v, "\n") || v != strings.TrimSpace(v) {
					t.Fatalf("stanzas(%q) gives %q: %q", in, k, v)
				}
				fmt.Fprintf(&again, "%s: %s\n", k, v)
			}
			again.WriteString("\n")
		}
		if twice := read(again.String()); !cmp.Equal(got, twice) {
			t.Fatalf("stanzas(%q) = %q; written and read again: %q", in, got, twice)
		}
	})
}

func TestReadPackages(t *testing.T) {
	file := filepath.Join(t.TempDir(), "x_Packages")
	write := func(text string) {
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	write("Package: libc6\nVersion: 2.36-9\nArchitecture: amd64\nFilename: pool/main/g/glibc/libc6.deb\nSize: 42\nSHA256: abcd\nDescription: GNU C Library\n long text\n\n" +
		"Package: adduser\nVersion: 3.134\nArchitecture: all\nFilename: pool/main/a/adduser.deb\nSize: 7\nSHA256: ef\n")
	got := map[string]recipe.Deb{}
	if err := readPackages(file, got); err != nil {
		t.Fatal(err)
	}
	want := map[string]recipe.Deb{
		"libc6":   {Name: "libc6", Version: "2.36-9", Arch: "amd64", URL: "pool/main/g/glibc/libc6.deb", SHA256: "abcd", Size: 42},
		"adduser": {Name: "adduser", Version: "3.134", Arch: "all", URL: "pool/main/a/adduser.deb", SHA256: "ef", Size: 7},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("readPackages (-want +got):\n%s", diff)
	}
	for _, tt := range []struct{ in, want string }{
		{"Package: a\nSize: many\n", `package "a": size "many"`},
		{"Package: a\n", `package "a": size ""`},
	} {
		write(tt.in)
		if err := readPackages(file, got); err == nil || !strings.Contains(err.Error(), tt.want) || !strings.Contains(err.Error(), file) {
			t.Errorf("readPackages(%q) = %v; want %s", tt.in, err, tt.want)
		}
	}
	if err := readPackages(filepath.Join(t.TempDir(), "gone"), got); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("readPackages of nothing = %v", err)
	}
}

func TestDownloaded(t *testing.T) {
	file := filepath.Join(t.TempDir(), "debpaths")
	if err := os.WriteFile(file, []byte("libc6 /var/cache/apt/archives/libc6_2.36-9_amd64.deb\nadduser /var/cache/x.deb\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	index := map[string]recipe.Deb{"other": {Name: "other"}}
	var want []recipe.Deb
	for _, name := range []string{"adduser", "libc6"} {
		d := recipe.Deb{Name: name, Version: "2.36-9", Arch: "amd64", URL: "pool/" + name + ".deb", SHA256: strings.Repeat("ab", 32), Size: 1}
		index[name] = d
		d.URL = "debian:" + d.URL
		want = append(want, d)
	}
	m := maker(t)
	got, err := m.downloaded(file, index)
	if diff := cmp.Diff(want, got); err != nil || diff != "" {
		t.Errorf("downloaded: %v (-want +got):\n%s", err, diff)
	}
	hostile := index["libc6"]
	hostile.Version = "1$(id)"
	index["libc6"] = hostile
	if got, err := m.downloaded(file, index); err == nil || !strings.Contains(err.Error(), `package "libc6": version: "1$(id)"`) {
		t.Errorf("downloaded = %v, %v; want an error that names the version", got, err)
	}
	delete(index, "libc6")
	if got, err := m.downloaded(file, index); err == nil || !strings.Contains(err.Error(), `"libc6"`) {
		t.Errorf("without libc6 in the index: downloaded = %v, %v; want an error that names it", got, err)
	}
}

// deb builds a real package.
func deb(t *testing.T, name, version string) (file string, d recipe.Deb) {
	t.Helper()
	dir := t.TempDir()
	if err := os.MkdirAll(filepath.Join(dir, "DEBIAN"), 0o755); err != nil {
		t.Fatal(err)
	}
	control := fmt.Sprintf("Package: %s\nVersion: %s\nArchitecture: all\nPriority: optional\nMaintainer: Nobody <nobody@example.org>\nDescription: a test\n of some lines\n", name, version)
	if err := os.WriteFile(filepath.Join(dir, "DEBIAN/control"), []byte(control), 0o644); err != nil {
		t.Fatal(err)
	}
	file = filepath.Join(t.TempDir(), "x.deb")
	if out, err := exec.Command("dpkg-deb", "--build", "--root-owner-group", dir, file).CombinedOutput(); err != nil {
		t.Fatalf("dpkg-deb: %v\n%s", err, out)
	}
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	sum := sha256.Sum256(data)
	return file, recipe.Deb{Name: name, Version: version, Arch: "all", URL: "debian:pool/" + name, SHA256: hex.EncodeToString(sum[:]), Size: int64(len(data))}
}

// TestArchive: what debootstrap is served is an archive that describes itself
// rightly.
func TestArchive(t *testing.T) {
	if _, err := exec.LookPath("dpkg-deb"); err != nil {
		t.Skip("dpkg-deb is not installed")
	}
	files := map[string]string{}
	var debs []recipe.Deb
	for _, d := range [][2]string{{"a", "1:2~rc1-3"}, {"b", "4"}} {
		file, deb := deb(t, d[0], d[1])
		files[d[0]] = file
		debs = append(debs, deb)
	}
	m := maker(t)
	m.Fetch = func(_ context.Context, d recipe.Deb) (string, error) { return files[d.Name], nil }
	repo := filepath.Join(t.TempDir(), "repo")
	if err := m.archive(t.Context(), repo, "bookworm", "amd64", debs); err != nil {
		t.Fatal(err)
	}
	packages := filepath.Join(repo, "dists/bookworm/main/binary-amd64/Packages")
	index := map[string]recipe.Deb{}
	if err := readPackages(packages, index); err != nil {
		t.Fatal(err)
	}
	for _, d := range debs {
		got := index[d.Name]
		want := d
		want.URL = "pool/" + d.File()
		if got != want {
			t.Errorf("the index has %+v; want %+v", got, want)
		}
		data, err := os.ReadFile(filepath.Join(repo, got.URL))
		if err != nil {
			t.Error(err)
		}
		if sum := sha256.Sum256(data); hex.EncodeToString(sum[:]) != d.SHA256 {
			t.Errorf("%s is not the package", got.URL)
		}
	}
	text, err := os.ReadFile(packages)
	if err != nil || bytes.Count(text, []byte("\nPriority: required\n")) != 2 || bytes.Contains(text, []byte("optional")) || !bytes.HasSuffix(text, []byte("\n\n")) {
		t.Errorf("Packages (%v):\n%s", err, text)
	}
	release, err := os.ReadFile(filepath.Join(repo, "dists/bookworm/Release"))
	if err != nil {
		t.Fatal(err)
	}
	for _, line := range []string{"Codename: bookworm\n", "Architectures: amd64\n", "Date: Thu, 01 Jan 2026 00:00:00 UTC\n", fmt.Sprintf(" %x %d main/binary-amd64/Packages\n", sha256.Sum256(text), len(text))} {
		if !strings.Contains(string(release), line) {
			t.Errorf("Release lacks %q:\n%s", line, release)
		}
	}
	// The same packages give the same archive.
	again := filepath.Join(t.TempDir(), "repo")
	if err := m.archive(t.Context(), again, "bookworm", "amd64", debs); err != nil {
		t.Fatal(err)
	}
	if other, _ := os.ReadFile(filepath.Join(again, "dists/bookworm/Release")); !bytes.Equal(other, release) {
		t.Error("two archives of the same packages differ")
	}
}

func TestArchiveFetchError(t *testing.T) {
	m := maker(t)
	boom := errors.New("checksum mismatch")
	m.Fetch = func(context.Context, recipe.Deb) (string, error) { return "", boom }
	if err := m.archive(t.Context(), filepath.Join(t.TempDir(), "repo"), "s", "amd64", []recipe.Deb{{Name: "a"}}); !errors.Is(err, boom) {
		t.Errorf("archive = %v; want the fetch's error", err)
	}
}

func TestCleanEnv(t *testing.T) {
	t.Setenv("LC_ALL", "de_DE.UTF-8")
	t.Setenv("TMPDIR", "/somewhere")
	t.Setenv("https_proxy", "http://proxy.example.org")
	env := cleanEnv()
	if !slices.Contains(env, "LC_ALL=C.UTF-8") || !slices.Contains(env, "https_proxy=http://proxy.example.org") || slices.ContainsFunc(env, func(s string) bool { return strings.HasPrefix(s, "TMPDIR=") || strings.Contains(s, "de_DE") }) {
		t.Errorf("cleanEnv() = %q", env)
	}
}

func TestCheck(t *testing.T) {
	err := Check("riscv64")
	if os.Geteuid() != 0 {
		if !errors.Is(err, ErrNotPossible) || !strings.Contains(err.Error(), "root") {
			t.Errorf("Check as a user = %v", err)
		}
		return
	}
	if !errors.Is(err, ErrNotPossible) || !strings.Contains(err.Error(), "make deps") {
		t.Errorf("Check of an architecture that nothing emulates = %v; want the remedy", err)
	}
}
