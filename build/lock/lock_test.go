package lock

import (
	"bytes"
	"strings"
	"testing"

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
		"goproxy:golang.org/toolchain/@v/v0.0.1-go1.26.8.linux-amd64.zip": {Digest: "sha256:" + sum("33"), From: "resolved"},
		"https://downloads.example.org/x?v=1#frag":                        {Digest: "sha256:" + sum("44"), From: `the "publisher", in a note: it's`},
	}
	l.Debs = map[string]PackageSet{
		"base-bookworm-minbase/amd64": {Request: "bookworm minbase", Packages: []recipe.Deb{
			{Name: "libstdc++6", Version: "12.2.0-14", Arch: "amd64", URL: "debian:pool/main/g/gcc-12/libstdc++6_12.2.0-14_amd64.deb", SHA256: sum("55"), Size: 613_000},
			{Name: "openssh-server", Version: "1:9.2p1-2+deb12u3~rc1", Arch: "amd64", URL: "debian:pool/o.deb", SHA256: sum("66"), Size: 1},
		}},
		"fabric-debian12/arm64": {Request: sum("77")},
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
	f.Add("version: 1\ndebs: {k: {request: r, packages: []}}\n")
	f.Add("version: 1\ndownloads: &a {x: {from: y}}\nimages: *a\n")
	f.Fuzz(func(t *testing.T, text string) {
		l, err := Read("fuzz", strings.NewReader(text))
		if err != nil {
			return
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
