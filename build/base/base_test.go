package base

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/klauspost/compress/zstd"
	"github.com/ulikunitz/xz"

	"github.com/assay-hpc/assay/build/archive"
	"github.com/assay-hpc/assay/build/matrix"
	"github.com/assay-hpc/assay/build/recipe"
)

var epoch = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

func maker(t *testing.T) *Maker {
	return &Maker{
		Dir: t.TempDir(), Archive: archive.Of("bookworm", "amd64"), Root: "http://mirror.example.org/debian", Canon: "http://archive.example.org/debian", Epoch: epoch,
		Name: func(u string) string { return strings.Replace(u, "http://mirror.example.org/debian/", "debian:", 1) },
		Log:  t.Logf,
	}
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

// content is the content of a member of the packages in tests.
func content(name string) []byte { return []byte("content of " + name) }

// debFile writes a package with these members; compression is the end of its data archive's name.
func debFile(t *testing.T, compression string, members ...tar.Header) string {
	t.Helper()
	var data bytes.Buffer
	var w io.WriteCloser
	var err error
	switch compression {
	case ".xz":
		w, err = xz.NewWriter(&data)
	case ".zst":
		w, err = zstd.NewWriter(&data)
	default:
		w = nopCloser{&data}
	}
	if err != nil {
		t.Fatal(err)
	}
	tw := tar.NewWriter(w)
	for _, h := range members {
		text := content(h.Name)
		if h.Typeflag == 0 {
			h.Typeflag = tar.TypeReg
		}
		if h.Typeflag == tar.TypeReg && h.Size == 0 {
			h.Size = int64(len(text))
		}
		if h.Mode == 0 {
			h.Mode = 0o644
		}
		if h.ModTime.IsZero() {
			h.ModTime = epoch.Add(-time.Hour)
		}
		if err := tw.WriteHeader(&h); err != nil {
			t.Fatal(err)
		}
		if h.Size == int64(len(text)) {
			if _, err := tw.Write(text); err != nil {
				t.Fatal(err)
			}
		}
	}
	_ = tw.Close() // a member may lack its content
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	var deb bytes.Buffer
	deb.WriteString(arMagic)
	for _, m := range []struct {
		name string
		text []byte
	}{{"debian-binary", []byte("2.0\n")}, {"control.tar", []byte("odd")}, {"data.tar" + compression, data.Bytes()}} {
		fmt.Fprintf(&deb, "%-16s%-12d%-6d%-6d%-8s%-10d`\n", m.name, 0, 0, 0, "100644", len(m.text))
		deb.Write(m.text)
		if len(m.text)%2 == 1 {
			deb.WriteByte('\n')
		}
	}
	file := filepath.Join(t.TempDir(), "x.deb")
	if err := os.WriteFile(file, deb.Bytes(), 0o644); err != nil {
		t.Fatal(err)
	}
	return file
}

type nopCloser struct{ io.Writer }

func (nopCloser) Close() error { return nil }

// debs are packages a, b, c … of one version.
func debs(n int) []recipe.Deb {
	var out []recipe.Deb
	for i := range n {
		out = append(out, recipe.Deb{Name: string(rune('a' + i)), Version: "1", Arch: "all"})
	}
	return out
}

// describe returns a line for each member of a tar: type, mode, path, link, and time relative to
// the epoch if it is not the epoch.
func describe(t *testing.T, file string) []string {
	t.Helper()
	var out []string
	for _, h := range entries(t, file) {
		line := fmt.Sprintf("%c %04o %s", h.Typeflag, h.Mode, h.Name)
		if h.Linkname != "" {
			line += " -> " + h.Linkname
		}
		if d := h.ModTime.Sub(epoch); d != 0 {
			line += " " + d.String()
		}
		out = append(out, line)
	}
	return out
}

// TestSeed: the packages' files are merged as if they had been unpacked one after the other, each
// only once, in usr where they are named by an alias of it; and the packages are there.
func TestSeed(t *testing.T) {
	dir := func(name string) tar.Header { return tar.Header{Typeflag: tar.TypeDir, Name: name, Mode: 0o755} }
	files := []string{
		debFile(t, ".xz", dir("./"), dir("./usr/"), dir("./usr/bin/"), tar.Header{Name: "./usr/bin/x", Mode: 0o4755},
			tar.Header{Typeflag: tar.TypeLink, Name: "./usr/bin/y", Linkname: "./usr/bin/x"}, tar.Header{Typeflag: tar.TypeSymlink, Name: "./etc/l", Linkname: "../../../etc/passwd", Mode: 0o777}),
		debFile(t, ".zst", dir("./lib/"), dir("./lib/s/"), dir("./bin/"), tar.Header{Name: "./bin/x"}, tar.Header{Typeflag: tar.TypeLink, Name: "./bin/z", Linkname: "./bin/x"}),
		debFile(t, "", dir("./usr/lib/"), tar.Header{Typeflag: tar.TypeDir, Name: "./usr/lib/s/", Mode: 0o755, ModTime: epoch.Add(-time.Minute)}, dir("./alone/"), dir("./alone/below/")),
	}
	m := maker(t)
	file, err := m.seed(t.Context(), debs(3), files)
	if err != nil {
		t.Fatal(err)
	}
	got := describe(t, file)
	want := []string{
		"0 4755 usr/bin/x -1h0m0s", "1 0644 usr/bin/y -> usr/bin/x -1h0m0s", "2 0777 etc/l -> ../../../etc/passwd -1h0m0s",
		"1 0644 usr/bin/z -> usr/bin/x -1h0m0s",
		"0 0644 var/cache/apt/archives/a_1_all.deb", "0 0644 var/cache/apt/archives/b_1_all.deb", "0 0644 var/cache/apt/archives/c_1_all.deb",
		"2 0777 bin -> usr/bin", "2 0777 lib -> usr/lib",
		"5 0755 alone/ -1h0m0s", "5 0755 alone/below/ -1h0m0s", "5 0755 dev/", "5 0755 etc/", "5 0755 proc/",
		"5 0755 usr/", "5 0755 usr/bin/", "5 0755 usr/lib/ -1h0m0s", "5 0755 usr/lib/s/ -1m0s",
		"5 0755 var/", "5 0755 var/cache/", "5 0755 var/cache/apt/", "5 0755 var/cache/apt/archives/", "5 0755 var/cache/apt/archives/partial/",
		"5 0755 var/lib/", "5 0755 var/lib/apt/", "5 0755 var/lib/apt/lists/", "5 0755 var/lib/apt/lists/partial/",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("the seed (-want +got):\n%s", diff)
	}
	again, err := m.seed(t.Context(), debs(3), files)
	if err != nil {
		t.Fatal(err)
	}
	a, _ := os.ReadFile(file)
	if b, _ := os.ReadFile(again); !bytes.Equal(a, b) {
		t.Error("two seeds of the same packages differ")
	}
}

// TestSeedRefuses: a package that a lock names can contain anything. What could be written outside
// of a directory that it is unpacked in, or without end, is refused, with the package and the
// member; and no part of a seed is left.
func TestSeedRefuses(t *testing.T) {
	link := func(name, to string) tar.Header {
		return tar.Header{Typeflag: tar.TypeSymlink, Name: name, Linkname: to, Mode: 0o777}
	}
	one := func(h ...tar.Header) [][]tar.Header { return [][]tar.Header{h} }
	for _, tt := range []struct {
		name string
		debs [][]tar.Header
		want string
	}{
		{"parent", one(tar.Header{Name: "../../../tmp/marker"}), `package a 1: member "../../../tmp/marker" is not a path below the root`},
		{"parent inside", one(tar.Header{Name: "./usr/../../tmp/marker"}), `is not a path below the root`},
		{"absolute", one(tar.Header{Name: "/tmp/marker"}), `member "/tmp/marker" is not a path below the root`},
		{"through a link", one(link("./x", "/"), tar.Header{Name: "./x/tmp/marker"}), `member "./x/tmp/marker" is below "x", which is no directory`},
		{"through another package's link", [][]tar.Header{{link("./x", "/tmp")}, {tar.Header{Name: "./x/marker"}}}, `package b 1: member "./x/marker" is below "x"`},
		{"directory over a link", [][]tar.Header{{link("./x", "/tmp")}, {tar.Header{Typeflag: tar.TypeDir, Name: "./x/"}}}, `package b 1: member "./x/" is a directory, and another package has a file`},
		{"link instead of a directory of ours", one(link("./var/cache", "/tmp"), link("./etc", "/etc"), tar.Header{Name: "./etc/fstab"}), `member "./etc/fstab" is below "etc"`},
		{"below an alias that is a link", one(link("./usr/bin", "/tmp"), tar.Header{Name: "./bin/x"}), `member "./bin/x" is below "usr/bin", which is no directory`},
		{"hard link outside", one(tar.Header{Typeflag: tar.TypeLink, Name: "./x", Linkname: "/etc/shadow"}), `is a link to "/etc/shadow", which is not a path below the root`},
		{"hard link to a parent", one(tar.Header{Typeflag: tar.TypeLink, Name: "./x", Linkname: "../etc/shadow"}), `is a link to "../etc/shadow"`},
		{"hard link to nothing", one(tar.Header{Typeflag: tar.TypeLink, Name: "./x", Linkname: "etc/shadow"}), `is a link to "etc/shadow", which is no file before it`},
		{"block device", one(tar.Header{Typeflag: tar.TypeBlock, Name: "./sda", Devmajor: 8}), `member "./sda" is a device`},
		{"character device", one(tar.Header{Typeflag: tar.TypeChar, Name: "./mem", Devmajor: 1, Devminor: 1}), `is a device`},
		{"FIFO", one(tar.Header{Typeflag: tar.TypeFifo, Name: "./etc/os-release"}), `is a device or another special file`},
		{"huge", one(tar.Header{Name: "./x", Size: 1 << 40}), `is too large (1099511627776 bytes)`},
		{"one of the packages", one(tar.Header{Name: "./var/cache/apt/archives/a_1_all.deb"}), `a package contains /var/cache/apt/archives/a_1_all.deb`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var files []string
			for _, members := range tt.debs {
				files = append(files, debFile(t, "", members...))
			}
			m := maker(t)
			if file, err := m.seed(t.Context(), debs(len(files)), files); err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("seed = %q, %v; want %s", file, err, tt.want)
			}
			if left, _ := os.ReadDir(m.Dir); len(left) > 0 {
				t.Errorf("%v is left", left)
			}
		})
	}
}

// TestSeedLimit: the limit holds for all packages together, whatever they declare.
func TestSeedLimit(t *testing.T) {
	s := &seed{tw: tar.NewWriter(io.Discard), have: map[string]*tar.Header{}, by: map[string]string{}, aliased: map[string]bool{}, size: maxUnpacked - 3}
	if err := s.member(&tar.Header{Typeflag: tar.TypeReg, Name: "a", Size: 3}, strings.NewReader("abc")); err != nil {
		t.Error(err)
	}
	if err := s.member(&tar.Header{Typeflag: tar.TypeReg, Name: "b", Size: 1}, strings.NewReader("b")); err == nil || !strings.Contains(err.Error(), "2048 MB together") {
		t.Errorf("a byte more: %v", err)
	}
	for i := range maxMembers {
		s.have[fmt.Sprint(i)] = nil
	}
	if err := s.member(&tar.Header{Typeflag: tar.TypeSymlink, Name: "c"}, strings.NewReader("")); err == nil || !strings.Contains(err.Error(), "500000 members together") {
		t.Errorf("a member more: %v", err)
	}
}

// TestMembersMalformed: what is no package is an error, not a crash.
func TestMembersMalformed(t *testing.T) {
	good, err := os.ReadFile(debFile(t, ".xz", tar.Header{Name: "./x"}))
	if err != nil {
		t.Fatal(err)
	}
	bz2 := bytes.Replace(good, []byte("data.tar.xz "), []byte("data.tar.bz2"), 1)
	for name, tt := range map[string]struct {
		text []byte
		want string
	}{
		"empty":             {nil, "it is no ar archive"},
		"text":              {[]byte("<!doctype html>"), "it is no ar archive"},
		"no data":           {good[:len(arMagic)+arHeader+4], "it has no member data.tar"},
		"cut":               {good[:len(good)-120], "data.tar.xz: "},
		"cut in a member":   {good[:len(arMagic)+arHeader+2], "is cut off"},
		"size":              {bytes.Replace(good, []byte("4         `"), []byte("-4        `"), 1), `the header of member "debian-binary" is malformed`},
		"compression":       {bz2, "its compression is not one of"},
		"no such decoder":   {bytes.Replace(good, []byte("\xfd7zXZ"), []byte("\xfd7zXY"), 1), "data.tar.xz: "},
		"another algorithm": {bytes.Replace(good, []byte("data.tar.xz "), []byte("data.tar.zst"), 1), "data.tar.zst: "},
	} {
		t.Run(name, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "x.deb")
			if err := os.WriteFile(file, tt.text, 0o644); err != nil {
				t.Fatal(err)
			}
			err := members(file, func(_ *tar.Header, r io.Reader) error { _, err := io.Copy(io.Discard, r); return err })
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("members = %v; want %s", err, tt.want)
			}
		})
	}
}

// FuzzMembers: no file makes reading a package panic.
func FuzzMembers(f *testing.F) {
	f.Add([]byte(arMagic))
	f.Add(fmt.Appendf(nil, "%s%-16s%-12d%-6d%-6d%-8s%-10d`\n%s", arMagic, "data.tar", 0, 0, 0, "100644", 512, make([]byte, 512)))
	f.Fuzz(func(t *testing.T, text []byte) {
		file := filepath.Join(t.TempDir(), "x.deb")
		if err := os.WriteFile(file, text, 0o644); err != nil {
			t.Fatal(err)
		}
		s := &seed{tw: tar.NewWriter(io.Discard), have: map[string]*tar.Header{}, by: map[string]string{}, aliased: map[string]bool{}}
		_ = members(file, s.member)
	})
}

// TestNormalise: nothing is left of the machine, the time and the container.
func TestNormalise(t *testing.T) {
	var exported bytes.Buffer
	tw := tar.NewWriter(&exported)
	const capability = "\x01\x00\x00\x02\x00 \x00\x00"
	for _, h := range []tar.Header{
		{Typeflag: tar.TypeDir, Name: "dev/", Mode: 0o755, ModTime: epoch.Add(time.Hour)},
		{Typeflag: tar.TypeReg, Name: "dev/x", Mode: 0o644},
		{Typeflag: tar.TypeDir, Name: "etc/", Mode: 0o755, ModTime: epoch.Add(time.Nanosecond)},
		{Typeflag: tar.TypeReg, Name: "etc/resolv.conf", Mode: 0o644},
		{Typeflag: tar.TypeBlock, Name: "etc/sda", Devmajor: 8},
		{Typeflag: tar.TypeFifo, Name: "fifo", Mode: 0o600, ModTime: epoch},
		{Typeflag: tar.TypeReg, Name: "ping", Mode: 0o4755, Uid: 1, Gid: 2, Uname: "builder", Gname: "builder", ModTime: epoch.Add(-time.Hour + 300*time.Millisecond),
			AccessTime: epoch, ChangeTime: epoch, Format: tar.FormatPAX, PAXRecords: map[string]string{fileCapability: capability, "SCHILY.xattr.user.x": "y"}},
		{Typeflag: tar.TypeLink, Name: "ping2", Linkname: "ping", Mode: 0o4755, ModTime: epoch},
		{Typeflag: tar.TypeReg, Name: "proc/x", Mode: 0o644},
		{Typeflag: tar.TypeSymlink, Name: "sh", Linkname: "dash", Mode: 0o777, ModTime: epoch},
		{Typeflag: tar.TypeDir, Name: "system/", Mode: 0o755, ModTime: epoch},
		{Typeflag: tar.TypeReg, Name: "sys/x", Mode: 0o644},
	} {
		if err := tw.WriteHeader(&h); err != nil {
			t.Fatal(err)
		}
	}
	if err := tw.Close(); err != nil {
		t.Fatal(err)
	}
	m := maker(t)
	file, err := m.normalise(bytes.NewReader(exported.Bytes()))
	if err != nil {
		t.Fatal(err)
	}
	want := []string{"5 0755 dev/", "5 0755 etc/", "6 0600 fifo", "0 4755 ping -1h0m0s", "1 4755 ping2 -> ping", "2 0777 sh -> dash", "5 0755 system/"}
	if diff := cmp.Diff(want, describe(t, file)); diff != "" {
		t.Errorf("the base (-want +got):\n%s", diff)
	}
	for _, h := range entries(t, file) {
		if h.Uname != "" || h.Gname != "" || !h.AccessTime.IsZero() || !h.ChangeTime.IsZero() {
			t.Errorf("%s has owner %q, %q, times %v, %v", h.Name, h.Uname, h.Gname, h.AccessTime, h.ChangeTime)
		}
		want := map[string]string(nil)
		if h.Name == "ping" {
			want = map[string]string{fileCapability: capability}
		}
		if diff := cmp.Diff(want, h.PAXRecords); diff != "" {
			t.Errorf("%s: records (-want +got):\n%s", h.Name, diff)
		}
	}
	for _, cut := range []int{700, exported.Len() - 1200} {
		if file, err := m.normalise(bytes.NewReader(exported.Bytes()[:cut])); err == nil {
			t.Errorf("normalise of the first %d bytes = %s; want an error", cut, file)
		}
	}
	if left, _ := os.ReadDir(m.Dir); len(left) != 1 {
		t.Errorf("failed ones leave %v", left)
	}
}

// TestMake: the packages are executed by what runs steps, and by nothing else; files are left by
// nobody.
func TestMake(t *testing.T) {
	m := maker(t)
	file := debFile(t, ".xz", tar.Header{Name: "./bin/sh", Mode: 0o755})
	m.Fetch = func(context.Context, recipe.Deb) (string, error) { return file, nil }
	boom := errors.New("no builder")
	var fail error
	m.Run = func(_ context.Context, arch, fileSystem string, step Step, out string) error {
		want := []string{"DEBS=a_1_all.deb b_1_all.deb", "SOURCES=deb http://archive.example.org/debian bookworm main\ndeb http://archive.example.org/debian bookworm-updates main\ndeb http://archive.example.org/debian-security bookworm-security main\n", "SOURCE_DATE_EPOCH=1767225600"}
		if diff := cmp.Diff(want, step.Env); diff != "" || arch != "arm64" || step.Script != bootstrap {
			t.Errorf("the step is for %s (-want +got):\n%s", arch, diff)
		}
		text, err := os.ReadFile(fileSystem)
		if err != nil || !bytes.Contains(text, content("./bin/sh")) {
			t.Errorf("the step's file system has no file of the packages (%v)", err)
		}
		return errors.Join(fail, os.WriteFile(out, text, 0o600))
	}
	d := matrix.Debootstrap{Suite: "bookworm", Variant: "minbase"}
	made, err := m.Make(t.Context(), d, "arm64", debs(2))
	if err != nil {
		t.Fatal(err)
	}
	if got := describe(t, made); !slices.Contains(got, "0 0755 usr/bin/sh -1h0m0s") {
		t.Errorf("the base holds %q", got)
	}
	if left, _ := os.ReadDir(m.Dir); len(left) != 1 {
		t.Errorf("%v is left beside the base", left)
	}
	fail = boom
	if _, err := m.Make(t.Context(), d, "arm64", debs(2)); !errors.Is(err, boom) {
		t.Errorf("Make = %v; want the step's error", err)
	}
	m.Fetch = func(context.Context, recipe.Deb) (string, error) { return "", boom }
	if _, err := m.Make(t.Context(), d, "arm64", debs(2)); !errors.Is(err, boom) {
		t.Errorf("Make = %v; want the download's error", err)
	}
	if left, _ := os.ReadDir(m.Dir); len(left) != 1 {
		t.Errorf("failed ones leave %v", left)
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

func TestCleanEnv(t *testing.T) {
	t.Setenv("LC_ALL", "de_DE.UTF-8")
	t.Setenv("TMPDIR", "/somewhere")
	t.Setenv("https_proxy", "http://proxy.example.org")
	env := cleanEnv()
	if !slices.Contains(env, "LC_ALL=C.UTF-8") || !slices.Contains(env, "https_proxy=http://proxy.example.org") || slices.ContainsFunc(env, func(s string) bool { return strings.HasPrefix(s, "TMPDIR=") || strings.Contains(s, "de_DE") }) {
		t.Errorf("cleanEnv() = %q", env)
	}
}

// TestKeyring: Ubuntu's key needs no package of this machine; Debian's does, and is named if missing.
func TestKeyring(t *testing.T) {
	m := maker(t)
	m.Archive.Keyring = filepath.Join(t.TempDir(), "gone.gpg")
	if file, err := m.keyring(t.TempDir()); !errors.Is(err, ErrNotPossible) || !strings.Contains(err.Error(), "gone.gpg is missing; run: apt-get install debian-archive-keyring") {
		t.Errorf("keyring = %q, %v; want the remedy", file, err)
	}
	m.Archive = archive.Of("noble", "amd64")
	file, err := m.keyring(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	if text, err := os.ReadFile(file); err != nil || len(text) == 0 || !bytes.Equal(text, m.Archive.Key) {
		t.Errorf("%s has %d bytes (%v); want Ubuntu's key", file, len(text), err)
	}
}
