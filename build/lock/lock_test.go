package lock

import (
	"bytes"
	"net/url"
	"path"
	"slices"
	"strconv"
	"strings"
	"testing"
	"unicode"

	"github.com/google/go-cmp/cmp"

	"github.com/assay-hpc/assay/build/recipe"
	"github.com/assay-hpc/assay/internal/golden"
)

func sum(pair string) string { return strings.Repeat(pair, 32) }

func sample() *Lock {
	l := New()
	l.Epoch = 1_767_225_600
	l.Images = map[string]Entry{
		"docker.io/nvidia/cuda:12.9.1-devel-ubuntu24.04": {Digest: "sha256:" + sum("11"), From: "resolved"},
		"docker.io/nvidia/cuda:13.0.2-devel-ubuntu24.04": {From: "unresolved"},
		"registry.example.org:5000/a/b:1":                {Digest: "sha256:" + sum("22")},
	}
	l.Downloads = map[string]Entry{
		"goproxy:golang.org/toolchain/@v/v0.0.1-go1.26.8.linux-amd64.zip": {Digest: "sha256:" + sum("33"), Size: 68_000_000, From: "resolved"},
		"https://downloads.example.org/x?v=1#frag":                        {Digest: "sha256:" + sum("44"), From: `the "publisher", in a note: it's`},
	}
	l.Debs = map[string]PackageSet{
		"base-bookworm-minbase/amd64": {Request: "bookworm minbase", Packages: []recipe.Deb{
			{Name: "libstdc++6", Version: "12.2.0-14", Arch: "amd64", URL: "debian:pool/main/g/gcc-12/libstdc++6_12.2.0-14_amd64.deb", SHA256: sum("55"), Size: 613_000},
			{Name: "openssh-server", Version: "1:9.2p1-2+deb12u3~rc1", Arch: "amd64", URL: "debian:pool/o.deb", SHA256: sum("66"), Size: 1},
		}},
		"fabric-debian12/arm64": {Request: sum("77")},
		"site-debian12/amd64":   {Request: sum("88"), Installed: map[string]string{"jq": "1.6-2.1", "libstdc++6": "12.2.0-14"}},
	}
	l.Wheels = map[string]WheelSet{
		"wheels-py-agent-bookworm/amd64": {Request: sum("88"), Wheels: []recipe.Wheel{
			{Name: "torch", Version: "2.9.0+cu130", URL: "https://w.example.org/torch-2.9.0%2Bcu130-cp312-cp312-linux_x86_64.whl", SHA256: sum("99")},
		}},
		"wheels-py-agent-bookworm/arm64": {Request: sum("aa")},
	}
	return l
}

func read(t testing.TB, text string) *Lock {
	t.Helper()
	l, err := Read("matrix.lock", strings.NewReader(text))
	if err != nil {
		t.Fatalf("Read: %v\n%s", err, text)
	}
	return l
}

func TestRoundTrip(t *testing.T) {
	empty := New()
	empty.Epoch = 0
	images := New()
	images.Images["docker.io/a:1"] = Entry{Digest: "sha256:" + sum("11"), From: "resolved"}
	for name, l := range map[string]*Lock{"sample": sample(), "empty": empty, "images alone": images} {
		text := l.Marshal()
		got := read(t, string(text))
		if diff := cmp.Diff(l, got); diff != "" {
			t.Errorf("%s: Read(Marshal) (-want +got):\n%s", name, diff)
		}
		if again := got.Marshal(); !bytes.Equal(again, text) {
			t.Errorf("%s: Marshal(Read(Marshal)) differs:\n%s", name, cmp.Diff(string(text), string(again)))
		}
		if !bytes.Equal(l.Marshal(), text) {
			t.Errorf("%s: Marshal gives two texts for one lock", name)
		}
	}
	golden.Check(t, "sample.golden", string(sample().Marshal()))
}

// TestRead: entries can be added to whatever was read.
func TestReadEmpty(t *testing.T) {
	for _, text := range []string{"", "\n", "version: 1\n", "version: 1\nimages:\ndownloads: {}\ndebs: null\n", string(New().Marshal()), "# nothing yet\n"} {
		l := read(t, text)
		l.Images["a"], l.Downloads["b"], l.Debs["c"] = Entry{}, Entry{}, PackageSet{}
	}
}

func TestReadErrors(t *testing.T) {
	var b strings.Builder
	for _, text := range []string{
		"version: 1\nimage:\n  a: {digest: x}\n",
		"version: 1\nimages:\n  a: {digest: x, who: me}\n",
		"version: 1\ndebs:\n  a/amd64:\n    request: x\n    packages:\n      - {name: a, size: many}\n",
		"version: 1\nimages:\n  a: {from: x}\n  a: {from: y}\n",
		"version: 2\nkinds: [of, another, format]\n",
		"version: 0\n",
		"version: one\n",
		"version: 1\nimages: [a, b]\n",
		"version: 1\n\timages:\n",
		"version: 1\n---\nversion: 1\n",
		"just a word",
	} {
		l, err := Read("dir/matrix.lock", strings.NewReader(text))
		if err == nil {
			t.Errorf("Read(%q) = %+v; want an error", text, l)
			continue
		}
		if !strings.HasPrefix(err.Error(), "dir/matrix.lock: ") {
			t.Errorf("Read(%q) = %q, which does not name the file", text, err)
		}
		b.WriteString(text + "=> " + err.Error() + "\n\n")
	}
	golden.Check(t, "errors.golden", b.String())
}

// TestReadHostile: what a lock says becomes paths, images' references and words
// of scripts that run as root, so no field holds what would lead out of a
// directory, begin an option, or mean something to a shell.
func TestReadHostile(t *testing.T) {
	yaml := func(s string) string { return strconv.Quote(s) }
	entry := func(section, key, digest, from string) string {
		return "version: 1\n" + section + ":\n  " + yaml(key) + ": {digest: " + yaml(digest) + ", from: " + yaml(from) + "}\n"
	}
	set := func(key, request, name, version, arch, url, sha256 string) string {
		return "version: 1\ndebs:\n  " + yaml(key) + ":\n    request: " + yaml(request) + "\n    packages:\n      - {name: " + yaml(name) +
			", version: " + yaml(version) + ", arch: " + yaml(arch) + ", url: " + yaml(url) + ", sha256: " + yaml(sha256) + ", size: 1}\n"
	}
	good := []string{"k/amd64", sum("77"), "ssh", "1:9-1", "amd64", "debian:pool/ssh.deb", sum("55")}
	pinned := func(i int, v string) string {
		f := slices.Clone(good)
		f[i] = v
		return set(f[0], f[1], f[2], f[3], f[4], f[5], f[6])
	}
	read(t, pinned(0, good[0]))
	goodWheel := []string{"k/amd64", sum("77"), "torch", "2.9.0+cu130", "https://w.example.org/torch-2.9.0-py3-none-any.whl", sum("55")}
	wheel := func(i int, v string) string {
		f := slices.Clone(goodWheel)
		f[i] = v
		return "version: 1\nwheels:\n  " + yaml(f[0]) + ":\n    request: " + yaml(f[1]) + "\n    wheels:\n      - {name: " + yaml(f[2]) +
			", version: " + yaml(f[3]) + ", url: " + yaml(f[4]) + ", sha256: " + yaml(f[5]) + "}\n"
	}
	// Each field, with what its error names, and what it is when it is right.
	fields := []struct {
		name, right string
		text        func(v string) string
	}{
		{"images", "docker.io/a:1", func(v string) string { return entry("images", v, "sha256:"+sum("11"), "resolved") }},
		{"images: docker.io/a:1: digest", "sha256:" + sum("11"), func(v string) string { return entry("images", "docker.io/a:1", v, "resolved") }},
		{"images: docker.io/a:1: from", "resolved", func(v string) string { return entry("images", "docker.io/a:1", "sha256:"+sum("11"), v) }},
		{"downloads", "https://a.example.org/x.tgz", func(v string) string { return entry("downloads", v, "sha256:"+sum("11"), "resolved") }},
		{"downloads: https://a.example.org/x: digest", "sha256:" + sum("11"), func(v string) string { return entry("downloads", "https://a.example.org/x", v, "resolved") }},
		{"downloads: https://a.example.org/x: from", "resolved", func(v string) string {
			return entry("downloads", "https://a.example.org/x", "sha256:"+sum("11"), v)
		}},
		{"debs", good[0], func(v string) string { return pinned(0, v) }},
		{"debs: k/amd64: request", good[1], func(v string) string { return pinned(1, v) }},
		{"debs: k/amd64: package 1: name", good[2], func(v string) string { return pinned(2, v) }},
		{"debs: k/amd64: package 1: version", good[3], func(v string) string { return pinned(3, v) }},
		{"debs: k/amd64: package 1: arch", good[4], func(v string) string { return pinned(4, v) }},
		{"debs: k/amd64: package 1: url", good[5], func(v string) string { return pinned(5, v) }},
		{"debs: k/amd64: package 1: sha256", good[6], func(v string) string { return pinned(6, v) }},
		{"wheels", goodWheel[0], func(v string) string { return wheel(0, v) }},
		{"wheels: k/amd64: request", goodWheel[1], func(v string) string { return wheel(1, v) }},
		{"wheels: k/amd64: wheel 1: name", goodWheel[2], func(v string) string { return wheel(2, v) }},
		{"wheels: k/amd64: wheel 1: version", goodWheel[3], func(v string) string { return wheel(3, v) }},
		{"wheels: k/amd64: wheel 1: url", goodWheel[4], func(v string) string { return wheel(4, v) }},
		{"wheels: k/amd64: wheel 1: sha256", goodWheel[5], func(v string) string { return wheel(5, v) }},
	}
	for _, f := range fields {
		read(t, f.text(f.right))
		for _, v := range []string{
			"../../../etc/cron.d/x", f.right + "/../../x", "/etc/passwd", "$(touch /tmp/x)", f.right + "$(id)", "`id`", f.right + "`id`", f.right + "\nx", "\n", f.right + "\x00", f.right + "\x1b[2J",
			"-o=Dir::Bin::dpkg=/bin/sh", "--help", f.right + "'", f.right + "\"", f.right + ";id", f.right + "|id", f.right + "&&id", f.right + " -y", f.right + "\\", strings.Repeat("a", 900),
			"https://robot:hunter2@a.example.org/x", "https://hunter2@a.example.org/x.tgz", "debian:../x", "debian:a/%2e%2e/%2E%2e/x.deb", "https://a.example.org/", "https:///x", "x", "file:///etc/shadow", "file://localhost/etc/shadow", "ftp://a.example.org/x", "unix:/run/x", "data:a,b",
		} {
			text := f.text(v)
			l, err := Read("dir/matrix.lock", strings.NewReader(text))
			if err == nil {
				if harmless(l) {
					continue // what is bad in one field is right in another
				}
				t.Errorf("%s: Read accepts %.100q", f.name, v)
				continue
			}
			if got := err.Error(); !strings.HasPrefix(got, "dir/matrix.lock: "+f.name+": ") || !strings.Contains(got, "run \"assay lock\"") || len(got) > 1000 || strings.Contains(got, "hunter2") && strings.Contains(f.name, "url") {
				t.Errorf("%s: Read(%.100q) = %.500q; want file, entry, field and remedy", f.name, v, got)
			}
		}
	}
	for text, want := range map[string]string{
		"version: 1\nepoch: -1\n":                                                     `dir/matrix.lock: epoch: "-1" is not`,
		"version: 1\nepoch: 9223372036854775807":                                      `dir/matrix.lock: epoch: "9223372036854775807" is not`,
		strings.Replace(pinned(0, good[0]), "size: 1", "size: -1", 1):                 `dir/matrix.lock: debs: k/amd64: package 1: size: "-1" is negative`,
		"version: 1\ndownloads:\n  https://a.example.org/x: {size: -1}\n":             `dir/matrix.lock: downloads: https://a.example.org/x: size: "-1" is negative`,
		pinned(0, good[0]) + strings.SplitAfter(pinned(0, good[0]), "packages:\n")[1]: `dir/matrix.lock: debs: k/amd64: package 2: name: "ssh" is in the set already`,
		wheel(2, "torch") + strings.SplitAfter(wheel(2, "torch"), "    wheels:\n")[1]: `dir/matrix.lock: wheels: k/amd64: wheel 2: url: "https://w.example.org/torch-2.9.0-py3-none-any.whl" has the file name`,
	} {
		if _, err := Read("dir/matrix.lock", strings.NewReader(text)); err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("Read(%q) = %v; want %s", text, err, want)
		}
	}
}

// harmless reports whether everything in a lock can be a path below a
// directory and a word of a shell.
func harmless(l *Lock) bool {
	word := func(s string) bool {
		return !strings.HasPrefix(s, "-") && !strings.ContainsAny(s, " \t\n\r\x00\x1b'\"`$;|<>(){}\\*")
	}
	file := func(s string) bool { return word(s) && s != "" && s != "." && s != ".." && !strings.Contains(s, "/") }
	below := func(s string) bool {
		if scheme, _, _ := strings.Cut(s, ":"); !slices.Contains([]string{"https", "http", "debian", "debian-security", "goproxy"}, scheme) {
			return false
		}
		s, err := url.PathUnescape(s)
		return err == nil && !slices.Contains(strings.FieldsFunc(s, func(r rune) bool { return r == '/' || r == ':' }), "..")
	}
	line := func(s string) bool { return !strings.ContainsFunc(s, unicode.IsControl) }
	for k, e := range l.Images {
		if !word(k) || !word(e.Digest) || !line(e.From) {
			return false
		}
	}
	for k, e := range l.Downloads {
		u, err := url.Parse(k)
		if !word(k) || !below(k) || !word(e.Digest) || !line(e.From) || err != nil || u.User != nil || !file(path.Base(u.Path+u.Opaque)) {
			return false
		}
	}
	for k, s := range l.Debs {
		if !word(k) || strings.Contains(k, "..") || !line(s.Request) {
			return false
		}
		for _, d := range s.Packages {
			u, err := url.Parse(d.URL)
			if !file(d.Name) || !file(d.Arch) || !file(d.File()) || !word(d.Version) || !word(d.URL) || !below(d.URL) || !file(d.SHA256) || d.Size < 0 || err != nil || u.User != nil {
				return false
			}
		}
	}
	for k, s := range l.Wheels {
		if !word(k) || strings.Contains(k, "..") || !line(s.Request) {
			return false
		}
		for _, w := range s.Wheels {
			u, err := url.Parse(w.URL)
			if !file(w.Name) || !file(w.File()) || !word(w.Version) || !word(w.URL) || !below(w.URL) || !file(w.SHA256) || err != nil || u.User != nil {
				return false
			}
		}
	}
	return true
}

func TestPackageSetDigest(t *testing.T) {
	set := sample().Debs["base-bookworm-minbase/amd64"]
	want := set.Digest()
	if (PackageSet{Request: "x"}).Digest() != "" {
		t.Error("an unresolved set has a digest")
	}
	for name, change := range map[string]func(*PackageSet){
		"version":  func(s *PackageSet) { s.Packages[0].Version += "x" },
		"checksum": func(s *PackageSet) { s.Packages[0].SHA256 = sum("99") },
		"name":     func(s *PackageSet) { s.Packages[0].Name += "x" },
		"arch":     func(s *PackageSet) { s.Packages[0].Arch += "x" },
		"one less": func(s *PackageSet) { s.Packages = s.Packages[1:] },
	} {
		other := sample().Debs["base-bookworm-minbase/amd64"]
		change(&other)
		if other.Digest() == want {
			t.Errorf("another %s gives the same digest", name)
		}
	}
	moved := sample().Debs["base-bookworm-minbase/amd64"]
	moved.Packages[0].URL = "https://elsewhere.example.org/x.deb"
	if moved.Digest() != want {
		t.Error("the same packages from elsewhere have another digest")
	}
}

// FuzzRead: what is accepted re-encodes to a text that says the same, and that
// text is canonical.
func FuzzRead(f *testing.F) {
	f.Add(string(sample().Marshal()))
	f.Add("version: 1\nimages: {'a: b #c': {digest: \"\\x00\"}, \"\": {}, ~: {}, {}: {}}\n")
	f.Add("version: 1\nepoch: 9223372036854775807\ndebs:\n  ? |-\n    a\n    b\n  : {request: !!str 1, packages: [{name: 'a, b', arch: \"}\", version: ~}]}\n")
	f.Add("version: 1\ndebs: {k/amd64: {request: r, packages: []}}\n")
	f.Add("version: 1\ndownloads: {\"https://u:p@h/../-x\": {}, \"debian:%2e%2e/x\": {}, \"a:/\": {}, \"a:b?c\": {}}\n")
	f.Add("version: 1\ndownloads: &a {x: {from: y}}\nimages: *a\n")
	f.Fuzz(func(t *testing.T, text string) {
		l, err := Read("fuzz", strings.NewReader(text))
		if err != nil {
			return
		}
		if !harmless(l) {
			t.Fatalf("Read(%q) accepts %+v", text, l)
		}
		for k, s := range l.Debs { // an empty list says the same as none
			if len(s.Packages) == 0 {
				l.Debs[k] = PackageSet{Request: s.Request}
			}
		}
		once := l.Marshal()
		again, err := Read("again", bytes.NewReader(once))
		if err != nil {
			t.Fatalf("Read(Marshal(Read(%q))): %v\n%s", text, err, once)
		}
		if diff := cmp.Diff(l, again); diff != "" {
			t.Fatalf("Read(Marshal(Read(%q))) (-want +got):\n%s\n%s", text, diff, once)
		}
		if twice := again.Marshal(); !bytes.Equal(once, twice) {
			t.Fatalf("Marshal is not canonical:\n%s\n%s", once, twice)
		}
	})
}
