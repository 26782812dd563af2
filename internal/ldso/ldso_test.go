package ldso

import (
	"bytes"
	delf "debug/elf"
	"encoding/binary"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/assay-hpc/assay/internal/elf"
	"github.com/assay-hpc/assay/internal/elf/elftest"
	"github.com/assay-hpc/assay/internal/rootfs"
)

var amd64 = elf.Kind{Class: delf.ELFCLASS64, Data: delf.ELFDATA2LSB, Machine: delf.EM_X86_64}

// newCache writes a cache in the new format, after an empty old one if asked.
func newCache(old bool, libs ...[2]string) []byte {
	var b bytes.Buffer
	b.WriteString(cacheMagic)
	strs := headerSize + entrySize*len(libs)
	var table []byte
	put := func(v any) { binary.Write(&b, binary.LittleEndian, v) }
	put([]uint32{uint32(len(libs)), 0, 2, 0, 0, 0, 0})
	for _, l := range libs {
		put([]uint32{0x303, uint32(strs + len(table)), uint32(strs + len(table) + len(l[0]) + 1), 0, 0, 0})
		table = append(table, l[0]+"\x00"+l[1]+"\x00"...)
	}
	b.Write(table)
	if !old {
		return b.Bytes()
	}
	head := append([]byte(oldCacheMagic), 0, 1, 0, 0, 0) // one old entry of 12 bytes
	head = append(head, make([]byte, oldEntrySize)...)
	return append(append(head, make([]byte, 4)...), b.Bytes()...)
}

func TestParseCache(t *testing.T) {
	lib := [2]string{"libx.so.1", "/opt/x/libx.so.1"}
	for _, old := range []bool{false, true} {
		got, err := ParseCache(newCache(old, lib))
		if d := cmp.Diff([]Entry{{Soname: lib[0], Path: lib[1]}}, got); d != "" || err != nil {
			t.Errorf("ParseCache(old=%v): %v\n%s", old, err, d)
		}
	}
	whole := newCache(false, lib)
	for n := range len(whole) {
		if got, err := ParseCache(whole[:n]); err == nil {
			t.Errorf("ParseCache of the first %d bytes = %v; want an error", n, got)
		}
	}
}

func FuzzParseCache(f *testing.F) {
	f.Add(newCache(false, [2]string{"a", "/a"}))
	f.Add(newCache(true, [2]string{"a", "/a"}, [2]string{"b", "/b"}))
	f.Fuzz(func(t *testing.T, b []byte) {
		entries, err := ParseCache(b)
		if err == nil && len(entries)*entrySize > len(b) {
			t.Errorf("%d entries from %d bytes", len(entries), len(b))
		}
	})
}

// tree writes files below a new root. A value that starts with "->" is a link.
func tree(t *testing.T, files map[string]string) rootfs.FS {
	t.Helper()
	dir := t.TempDir()
	for name, content := range files {
		p := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(p), 0o755); err != nil {
			t.Fatal(err)
		}
		var err error
		if to, ok := strings.CutPrefix(content, "->"); ok {
			err = os.Symlink(to, p)
		} else {
			err = os.WriteFile(p, []byte(content), 0o644)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	f, err := rootfs.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

func lib(f elftest.File) string { return string(f.Bytes()) }

func needs(libs ...string) string { return lib(elftest.File{Needed: libs}) }

func TestReadConf(t *testing.T) {
	root := tree(t, map[string]string{
		"etc/ld.so.conf":          "include ld.so.conf.d/*.conf\n/last # comment\n",
		"etc/ld.so.conf.d/b.conf": "/b\n",
		"etc/ld.so.conf.d/a.conf": "/a1, /a2/\ninclude /etc/ld.so.conf\nhwcap 0 nosegneg\n",
	})
	got, err := ReadConf(root)
	a, b := "/etc/ld.so.conf.d/a.conf", "/etc/ld.so.conf.d/b.conf"
	want := []confDir{{"/a1", a}, {"/a2", a}, {"/b", b}, {"/last", "/etc/ld.so.conf"}}
	if d := cmp.Diff(want, got); d != "" || err != nil {
		t.Errorf("ReadConf: %v\n%s", err, d)
	}
	if got, err := ReadConf(tree(t, nil)); got != nil || err != nil {
		t.Errorf("ReadConf of nothing = %v, %v", got, err)
	}
}

func TestResolve(t *testing.T) {
	empty := lib(elftest.File{})
	for _, tt := range []struct {
		name  string
		libs  string // LD_LIBRARY_PATH
		files map[string]string
		want  string // missing libraries, in order
		path  string // of the first library
	}{
		{name: "default directory", files: map[string]string{"x": needs("liba.so"), "usr/lib/liba.so": empty}, path: "/usr/lib/liba.so"},
		{name: "multiarch directory", files: map[string]string{"x": needs("liba.so"), "lib/x86_64-linux-gnu/liba.so": empty}},
		{name: "not there", files: map[string]string{"x": needs("liba.so", "libb.so"), "lib/liba.so": empty}, want: "libb.so"},
		{name: "indirect", files: map[string]string{"x": needs("liba.so"), "lib/liba.so": needs("libb.so")}, want: "libb.so"},
		{name: "circle", files: map[string]string{"x": needs("liba.so"), "lib/liba.so": needs("libb.so"), "lib/libb.so": needs("liba.so")}},
		{name: "other machine is passed over", files: map[string]string{
			"x": needs("liba.so"), "lib/x86_64-linux-gnu/liba.so": lib(elftest.File{Machine: delf.EM_AARCH64}), "usr/lib/liba.so": empty,
		}, path: "/usr/lib/liba.so"},
		{name: "only another machine", files: map[string]string{"x": needs("liba.so"), "lib/liba.so": lib(elftest.File{Machine: delf.EM_AARCH64})}, want: "liba.so"},
		{name: "text file", files: map[string]string{"x": needs("liba.so"), "lib/liba.so": "INPUT(-la)"}, want: "liba.so"},
		{name: "LD_LIBRARY_PATH first", libs: "/none:/o", files: map[string]string{"x": needs("liba.so"), "lib/liba.so": empty, "o/liba.so": empty}, path: "/o/liba.so"},
		{name: "relative entries do not count", libs: "o", files: map[string]string{"x": needs("liba.so"), "o/liba.so": empty}, want: "liba.so"},
		{name: "RUNPATH with origin", files: map[string]string{
			"opt/bin/x": lib(elftest.File{Needed: []string{"liba.so"}, RunPath: "${ORIGIN}/../lib"}), "opt/lib/liba.so": empty,
		}},
		{name: "RUNPATH is not inherited", files: map[string]string{
			"x": lib(elftest.File{Needed: []string{"liba.so"}, RunPath: "/o"}), "o/liba.so": needs("libb.so"), "o/libb.so": empty,
		}, want: "libb.so"},
		{name: "RPATH is inherited", files: map[string]string{
			"x": lib(elftest.File{Needed: []string{"liba.so"}, RPath: "/o"}), "o/liba.so": needs("libb.so"), "o/libb.so": empty,
		}},
		{name: "RUNPATH switches inherited RPATH off", files: map[string]string{
			"x":         lib(elftest.File{Needed: []string{"liba.so"}, RPath: "/o"}),
			"o/liba.so": lib(elftest.File{Needed: []string{"libb.so"}, RunPath: "/none"}), "o/libb.so": empty,
		}, want: "libb.so"},
		{name: "loaded under its soname", files: map[string]string{
			"x":         lib(elftest.File{Needed: []string{"liba.so", "libb.so"}, RunPath: "/o"}),
			"o/liba.so": lib(elftest.File{Soname: "libreal.so.1"}), "o/libb.so": needs("libreal.so.1"),
		}},
		{name: "cache", files: map[string]string{
			"x": needs("liba.so"), "opt/a/liba.so": empty, "etc/ld.so.cache": string(newCache(false, [2]string{"liba.so", "/opt/a/liba.so"})),
		}, path: "/opt/a/liba.so"},
		{name: "cache names what is gone", files: map[string]string{
			"x": needs("liba.so"), "etc/ld.so.cache": string(newCache(false, [2]string{"liba.so", "/opt/a/liba.so"})),
		}, want: "liba.so"},
		{name: "ld.so.conf alone is not read by the loader", files: map[string]string{
			"x": needs("liba.so"), "opt/a/liba.so": empty, "etc/ld.so.conf": "/opt/a\n",
		}, want: "liba.so"},
		{name: "no default directories", files: map[string]string{
			"x": lib(elftest.File{Needed: []string{"liba.so"}, NoDefault: true}), "lib/liba.so": empty,
		}, want: "liba.so"},
		{name: "links inside the root", files: map[string]string{"x": needs("liba.so"), "lib": "->/usr/lib", "usr/lib/liba.so": "->/opt/a.so", "opt/a.so": empty}},
		{name: "a path", files: map[string]string{"x": needs("/o/liba.so", "/o/no.so"), "o/liba.so": empty}, want: "/o/no.so"},
		{name: "a path with origin", files: map[string]string{"opt/bin/x": needs("$ORIGIN/../liba.so"), "opt/liba.so": empty}},
		{name: "static", files: map[string]string{"x": lib(elftest.File{Static: true})}},
		{name: "damaged cache", files: map[string]string{"x": empty, "etc/ld.so.cache": cacheMagic}, want: "error"},
		{name: "musl: libc is the loader, RUNPATH is inherited", files: map[string]string{
			"x":         lib(elftest.File{Needed: []string{"liba.so", "libc.musl-x86_64.so.1", "libm.so.6"}, RunPath: "/o"}),
			"o/liba.so": needs("libb.so", "libc.so"), "o/libb.so": empty, "lib/ld-musl-x86_64.so.1": empty,
		}},
		{name: "musl: path file", files: map[string]string{
			"x": needs("liba.so", "libb.so"), "o/liba.so": empty, "lib/libb.so": empty,
			"lib/ld-musl-x86_64.so.1": empty, "etc/ld-musl-x86_64.path": "/o\n/p",
		}, want: "libb.so"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			l, err := Open(tree(t, tt.files), amd64, tt.libs)
			if tt.want == "error" {
				if err == nil {
					t.Error("Open succeeded")
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			x := "/x"
			if _, ok := tt.files["opt/bin/x"]; ok {
				x = "/opt/bin/x"
			}
			r := l.Resolve(x)
			var missing []string
			for _, m := range r.Missing {
				missing = append(missing, m.Library)
			}
			if got := strings.Join(missing, " "); got != tt.want {
				t.Errorf("missing = %q; want %q", got, tt.want)
			}
			if tt.path != "" && (len(r.Links) == 0 || r.Links[0].Path != tt.path) {
				t.Errorf("found %v; want first %s", r.Links, tt.path)
			}
		})
	}
}

func TestUnlisted(t *testing.T) {
	root := tree(t, map[string]string{"opt/a/liba.so": lib(elftest.File{}), "etc/ld.so.conf": "/opt/a\n"})
	l, err := Open(root, amd64, "")
	if err != nil {
		t.Fatal(err)
	}
	if got := l.Unlisted("liba.so"); !slices.Equal(got, []string{"/opt/a"}) {
		t.Errorf("Unlisted = %q; want /opt/a", got)
	}
}

// TestFind: of the files of a name the one that a program gets.
func TestFind(t *testing.T) {
	root := tree(t, map[string]string{"opt/a/liba.so": lib(elftest.File{}), "usr/lib/liba.so": lib(elftest.File{})})
	for path, want := range map[string]string{"/opt/a": "/opt/a/liba.so", "": "/usr/lib/liba.so"} {
		l, err := Open(root, amd64, path)
		if err != nil {
			t.Fatal(err)
		}
		if got, ok := l.Find("liba.so"); got != want || !ok {
			t.Errorf("with LD_LIBRARY_PATH=%s: %q, %v; want %s", path, got, ok, want)
		}
		if got, ok := l.Find("libb.so"); ok {
			t.Errorf("Find of a library that is not there = %q", got)
		}
	}
}

var lddLine = regexp.MustCompile(`(?m)^\t(\S+) => (not found|/\S+)`)

// TestLDD compares with ldd on files of this machine.
func TestLDD(t *testing.T) {
	kind, ok := elf.KindOf(runtime.GOARCH)
	if _, err := exec.LookPath("ldd"); err != nil || !ok {
		t.Skip("no ldd on this machine")
	}
	var files []string
	for _, pattern := range []string{"/usr/bin/*", "/usr/lib/*-linux-gnu/lib*.so.*", "/usr/lib/*-linux-gnu/*/*.so", "/usr/lib/*-linux-gnu/*/*/*/*.so"} {
		names, _ := filepath.Glob(pattern)
		for i := 0; i < len(names); i += max(1, len(names)/20) { // a sample of each
			files = append(files, names[i])
		}
	}
	l, err := Open(rootfs.FS{}, kind, os.Getenv("LD_LIBRARY_PATH"))
	if err != nil {
		t.Fatal(err)
	}
	compared := 0
	for _, name := range files {
		real, err := filepath.EvalSymlinks(name)
		if err != nil || l.File(real) == nil || l.File(real).Kind != kind || !l.File(real).Dynamic {
			continue
		}
		out, err := exec.Command("ldd", real).Output()
		if err != nil {
			continue // ldd runs the file's own loader, and there may be none
		}
		compared++
		if d := cmp.Diff(lddSays(string(out)), weSay(l.Resolve(real))); d != "" {
			t.Errorf("%s (-ldd +ours):\n%s", real, d)
		}
	}
	t.Logf("%d files compared", compared)
	if compared < 10 {
		t.Errorf("only %d of %d files could be compared", compared, len(files))
	}
}

func lddSays(out string) map[string]string {
	m := map[string]string{}
	for _, f := range lddLine.FindAllStringSubmatch(out, -1) {
		m[f[1]] = clean(f[2])
	}
	return m
}

func weSay(r resolution) map[string]string {
	m := map[string]string{}
	for _, miss := range r.Missing {
		m[miss.Library] = "not found"
	}
	for _, l := range r.Links {
		if !strings.HasPrefix(l.Library, "ld-linux") && l.Library != l.Path && m[l.Library] == "" {
			m[l.Library] = clean(l.Path)
		}
	}
	return m
}

// clean makes one path of the many that lead to a file.
func clean(p string) string {
	if real, err := filepath.EvalSymlinks(p); err == nil {
		return real
	}
	return p
}
