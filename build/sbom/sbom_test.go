package sbom

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	spdxjson "github.com/spdx/tools-golang/json"
	"github.com/spdx/tools-golang/spdx"
	"github.com/spdx/tools-golang/spdxlib"

	"github.com/assay-hpc/assay/build/recipe"
	"github.com/assay-hpc/assay/internal/attest"
	"github.com/assay-hpc/assay/internal/certificate"
	"github.com/assay-hpc/assay/internal/golden"
)

func hex(pair string) string { return strings.Repeat(pair, 32) }

func sample() Image {
	return Image{
		Target: "fabric-debian12", Digest: "sha256:" + hex("12"), Platform: recipe.Platform{OS: "linux", Arch: "amd64"},
		Distro: "debian", Release: "12", Tool: "assay-0.1.0", Created: time.Date(2026, 3, 1, 13, 0, 0, 0, time.FixedZone("CET", 3600)),
		Packages: []certificate.InstalledPackage{
			{Name: "libstdc++6", Version: "12.2.0-14", Arch: "amd64", Source: "gcc-12", Homepage: "https://gcc.gnu.org/",
				Maintainer: "Debian GCC Maintainers <debian-gcc@lists.debian.org>",
				Licenses:   []string{"GPL-3.0-or-later WITH GCC-exception-3.1", "LGPL-2.1-or-later OR MIT"}},
			{Name: "openssh-server", Version: "1:9.2p1-2+deb12u3", Arch: "amd64", Licenses: []string{"LicenseRef-OpenSSH", "BSD-2-Clause"}},
			{Name: "adduser", Version: "3.134", Arch: "all", Licenses: []string{certificate.NoAssertion}},
		},
		Debs: []recipe.Deb{
			{Name: "openssh-server", Version: "1:9.2p1-2+deb12u3", Arch: "amd64", URL: "debian:pool/main/o/openssh/openssh-server_9.2p1.deb", SHA256: hex("34")},
			{Name: "adduser", Version: "3.130", Arch: "all", URL: "debian:pool/old.deb", SHA256: hex("56")}, // another version: says nothing
		},
		Components: []certificate.Component{
			{Name: "nccl", Version: "2.27.6-1", License: "BSD-3-Clause", Homepage: "https://developer.nvidia.com/nccl", Sources: []certificate.Download{
				{URL: "https://example.com/nccl.tar.gz", Digest: "sha256:" + hex("78")},
				{URL: "https://example.com/patches/fix.patch", Digest: "sha256:" + hex("9a")}}},
			{Name: "cudnn", Version: "9.10", License: "LicenseRef-NVIDIA-cuDNN", Sources: []certificate.Download{{URL: "https://example.com/cudnn.tar.xz"}}},
			{Name: "harness", Version: "0.1.0", License: "see the file"},
			{Name: "mpi", License: certificate.NoAssertion, Base: "registry.example/base:1@sha256:" + hex("bc")},
		},
	}
}

func marshal(t *testing.T, img Image) (*spdx.Document, []byte) {
	t.Helper()
	doc, err := document(img)
	if err != nil {
		t.Fatal(err)
	}
	b, err := Marshal(doc)
	if err != nil {
		t.Fatal(err)
	}
	return doc, b
}

func TestGolden(t *testing.T) {
	_, b := marshal(t, sample())
	var got bytes.Buffer
	if err := json.Indent(&got, b, "", "  "); err != nil {
		t.Fatal(err)
	}
	golden.Check(t, "fabric.spdx.json", got.String())
}

func TestRoundTrip(t *testing.T) {
	doc, b := marshal(t, sample())
	again, err := spdxjson.Read(bytes.NewReader(b))
	if err != nil {
		t.Fatal(err)
	}
	if err := spdxlib.ValidateDocument(again); err != nil {
		t.Error(err)
	}
	ids, err := spdxlib.GetDescribedPackageIDs(again)
	if err != nil || len(ids) != 1 || ids[0] != rootID {
		t.Errorf("the document describes %v, %v; want the image", ids, err)
	}
	ignore := []cmp.Option{cmpopts.IgnoreFields(spdx.Package{}, "IsFilesAnalyzedTagPresent"), cmpopts.IgnoreUnexported(spdx.Package{}), cmpopts.EquateEmpty()}
	if diff := cmp.Diff(doc, again, ignore...); diff != "" {
		t.Errorf("written and read again (-wrote +read):\n%s", diff)
	}
}

func TestOrderDoesNotMatter(t *testing.T) {
	img := sample()
	_, want := marshal(t, img)
	for i, j := 0, len(img.Packages)-1; i < j; i, j = i+1, j-1 {
		img.Packages[i], img.Packages[j] = img.Packages[j], img.Packages[i]
	}
	img.Components[0], img.Components[2] = img.Components[2], img.Components[0]
	if _, got := marshal(t, img); !bytes.Equal(got, want) {
		t.Errorf("another order of the same input gives another document:\n%s", cmp.Diff(string(want), string(got)))
	}
}

func TestEveryIDIsUnique(t *testing.T) {
	img := sample()
	img.Packages = []certificate.InstalledPackage{
		{Name: "g++", Version: "1", Arch: "amd64"}, {Name: "g--", Version: "1", Arch: "amd64"}, {Name: "g+-", Version: "1", Arch: "amd64"},
	}
	doc, b := marshal(t, img)
	seen := map[spdx.ElementID]bool{}
	for _, p := range doc.Packages {
		if seen[p.PackageSPDXIdentifier] {
			t.Errorf("two packages are called %s", p.PackageSPDXIdentifier)
		}
		seen[p.PackageSPDXIdentifier] = true
	}
	if s, err := Summarize(b); err != nil || s.Packages != 3 {
		t.Errorf("Summarize = %+v, %v; want 3 packages", s, err)
	}
}

func TestLicenses(t *testing.T) {
	for in, want := range map[string]string{
		"":                                "NOASSERTION",
		"NOASSERTION":                     "NOASSERTION",
		"MIT":                             "MIT",
		"MIT|BSD-3-Clause|MIT":            "BSD-3-Clause AND MIT",
		"MIT|GPL-2.0-only OR MIT":         "(GPL-2.0-only OR MIT) AND MIT",
		"(MIT OR ISC) AND Zlib":           "(MIT OR ISC) AND Zlib",
		"GPL-2.0+":                        "GPL-2.0+",
		"see the file":                    "LicenseRef-see-the-file",
		"MIT OR":                          "LicenseRef-MIT-OR",
		"(MIT":                            "LicenseRef--MIT",
		"MIT)":                            "LicenseRef-MIT-",
		"public_domain":                   "LicenseRef-public-domain",
		"LicenseRef-a AND LicenseRef-b":   "LicenseRef-a AND LicenseRef-b",
		"GPL-2.0-only WITH LicenseRef-ex": "GPL-2.0-only WITH LicenseRef-ex",
	} {
		l := licenses{}
		got := l.all(strings.Split(in, "|"), "somewhere")
		if got != want {
			t.Errorf("all(%q) = %q; want %q", in, got, want)
		}
		for _, w := range tokens(got) {
			if strings.HasPrefix(w, licenseRef) && l[w] == nil {
				t.Errorf("all(%q): %s has no extracted text", in, w)
			}
		}
		if refs := strings.Count(got, licenseRef); refs != len(l) {
			t.Errorf("all(%q): %d extracted licences for %d references", in, len(l), refs)
		}
	}
}

func TestRefuses(t *testing.T) {
	img := sample()
	img.Digest = "sha512:00"
	if _, err := document(img); err == nil {
		t.Error("an image digest that is not sha256 was accepted")
	}
	img = sample()
	img.Components[0].Sources[0].Digest = "md5:00"
	if _, err := document(img); err == nil || !strings.Contains(err.Error(), "nccl") {
		t.Errorf("Document with an md5 source = %v; want an error that names nccl", err)
	}
	for _, bad := range []string{"", "{}", `{"spdxVersion":"SPDX-9"}`} {
		if _, err := Summarize([]byte(bad)); err == nil {
			t.Errorf("Summarize(%q) succeeded", bad)
		}
	}
}

func TestSummarize(t *testing.T) {
	_, b := marshal(t, sample())
	got, err := Summarize(b)
	if err != nil {
		t.Fatal(err)
	}
	want := summary{
		Namespace: "https://assay-hpc.github.io/spdx/fabric-debian12/" + hex("12"), Packages: 3,
		Components: []Component{{"cudnn", "9.10", "LicenseRef-NVIDIA-cuDNN", ""}, {"harness", "0.1.0", "LicenseRef-see-the-file", ""}, {"mpi", "", "NOASSERTION", "registry.example/base:1@sha256:" + hex("bc")}, {"nccl", "2.27.6-1", "BSD-3-Clause", ""}},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("Summarize (-want +got):\n%s", diff)
	}
}

func TestStatementIsAboutTheImage(t *testing.T) {
	b, err := Statement(sample())
	if err != nil {
		t.Fatal(err)
	}
	s, err := attest.Parse(b)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.About("sha256:" + hex("12")); err != nil || s.PredicateType != predicateType {
		t.Errorf("statement is %+v: %v", s, err)
	}
	img := sample()
	want := attest.Claims{Target: img.Target, Platform: img.Platform.String()}
	if got, err := Kind.Check(s); err != nil || got != want {
		t.Errorf("Check = %+v, %v; want %+v", got, err, want)
	}
	if _, err := Summarize(s.Predicate); err != nil {
		t.Errorf("its predicate: %v", err)
	}
}
