package image

import (
	"crypto/md5"
	"encoding/binary"
	"fmt"
	"strings"
	"testing"

	"github.com/assay-hpc/assay/internal/certificate"
	"github.com/assay-hpc/assay/internal/elf/elftest"
)

// loaderCache is an ld.so.cache that names libraries in /usr/lib.
func loaderCache(libraries ...string) string {
	const header, entry = 48, 24
	b := []byte("glibc-ld.so.cache1.1")
	b = binary.LittleEndian.AppendUint32(b, uint32(len(libraries)))
	b = append(b, make([]byte, header-len(b))...)
	b[28] = 2 // little endian
	names := ""
	for _, l := range libraries {
		at := header + entry*len(libraries) + len(names)
		names += l + "\x00/usr/lib/" + l + "\x00"
		for _, v := range []int{0x303, at, at + len(l) + 1, 0, 0, 0} {
			b = binary.LittleEndian.AppendUint32(b, uint32(v))
		}
	}
	return string(b) + names
}

func installedPackage(name, version string) string {
	return fmt.Sprintf("Package: %s\nStatus: install ok installed\nArchitecture: amd64\nVersion: %s\n\n", name, version)
}

// TestBase: what a package of the base lacked in the base is set aside, and
// nothing else is.
func TestBase(t *testing.T) {
	ui := strings.TrimPrefix(exe(elftest.File{Needed: []string{"libGL.so.1", "libQt.so.6"}}), "x:")
	module := lib("libGL.so.1")
	good := with(loaderFile, files{
		"opt/nvidia/nsight/ui":        "x:" + ui,
		"opt/nvidia/nsight/module.so": module,
		"var/lib/dpkg/status":         installedPackage("nsight", "2025.2") + installedPackage("libx", "2"),
		"var/lib/dpkg/info/nsight:amd64.md5sums": fmt.Sprintf("%x  opt/nvidia/nsight/ui\n%x  opt/nvidia/nsight/module.so\n",
			md5.Sum([]byte(ui)), md5.Sum([]byte(module))),
		"opt/assay/base/dpkg-status": installedPackage("nsight", "2025.2") + installedPackage("libx", "1"),
		"opt/assay/base/ld.so.cache": loaderCache("libc.so.6"),
	})
	spec := &certificate.ImageSpec{Version: 1, Platform: "linux/amd64"}
	records := t.TempDir()
	write(t, records, files{
		"dpkg-status": good["opt/assay/base/dpkg-status"], "ld.so.cache": good["opt/assay/base/ld.so.cache"],
		"info/nsight:amd64.md5sums": good["var/lib/dpkg/info/nsight:amd64.md5sums"],
	})
	for _, tt := range []struct {
		name  string
		cfg   Config
		files files
		want  []want
	}{
		{"the base's own", Config{Spec: spec}, good, []want{
			{"libraries", "pass", "2 files that the base brought"},
			{"libraries", "pass", "set aside: libGL.so.1 is missing, as in the base, for the base's own nsight 2025.2: /opt/nvidia/nsight/module.so, /opt/nvidia/nsight/ui\n"},
			{"libraries", "pass", "set aside: libQt.so.6"},
		}},
		{"a file of ours beside it", Config{Spec: spec}, with(good, files{"opt/nvidia/nsight/ours.so": module}),
			[]want{{"libraries", "fail", "libGL.so.1 is missing, needed by /opt/nvidia/nsight/ours.so"}}},
		{"a program of ours that loads the base's", Config{Spec: spec}, with(good, files{"opt/x/bin/p": exe(elftest.File{Needed: []string{"module.so"}, RunPath: "/opt/nvidia/nsight"})}),
			[]want{{"libraries", "fail", "needed by /opt/x/bin/p (through /opt/nvidia/nsight/module.so)"}}},
		{"a file that was replaced", Config{Spec: spec}, with(good, files{"opt/nvidia/nsight/module.so": lib("libGL.so.1", "libc.so.6")}),
			[]want{{"libraries", "fail", "libGL.so.1 is missing, needed by /opt/nvidia/nsight/module.so"}}},
		{"a package that was replaced", Config{Spec: spec}, with(good, files{"var/lib/dpkg/status": installedPackage("nsight", "2025.3")}),
			[]want{{"libraries", "fail", "libQt.so.6 is missing, needed by /opt/nvidia/nsight/ui"}}},
		{"a package that the base did not have", Config{Spec: spec}, with(good, files{"opt/assay/base/dpkg-status": installedPackage("libx", "1")}),
			[]want{{"libraries", "fail", "libQt.so.6 is missing"}}},
		{"a library that the base had", Config{Spec: spec}, with(good, files{"opt/assay/base/ld.so.cache": loaderCache("libQt.so.6")}),
			[]want{{"libraries", "fail", "libQt.so.6 is missing, needed by /opt/nvidia/nsight/ui (the base had it, and it is gone)"}}},
		{"checksums of the base's own, where those of the image lie", Config{Spec: spec, Records: records}, with(good, files{
			"opt/nvidia/nsight/ours.so": module, "var/lib/dpkg/info/libx.md5sums": fmt.Sprintf("%x  opt/nvidia/nsight/ours.so\n", md5.Sum([]byte(module))),
			"var/lib/dpkg/status": installedPackage("nsight", "2025.2") + installedPackage("libx", "1"),
		}), []want{
			{"libraries", "fail", "libGL.so.1 is missing, needed by /opt/nvidia/nsight/ours.so\n"},
			{"libraries", "fail", "set aside: libQt.so.6"},
		}},
		{"records that cannot be read", Config{Spec: spec}, with(good, files{"opt/assay/base/dpkg-status": "/"}), []want{{"libraries", "error", "dpkg-status"}}},
		{"damaged records", Config{Spec: spec}, with(good, files{"opt/assay/base/ld.so.cache": "x"}), []want{{"libraries", "error", "/opt/assay/base/ld.so.cache"}}},
		{"an image that is not believed", Config{Unbelieved: true}, good, []want{{"libraries", "fail", "libGL.so.1 is missing"}}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got := results(t, tt.cfg, fixture(t, tt.files))
			for _, w := range tt.want {
				r := got[w.id]
				if r.Verdict != w.verdict || !strings.Contains(r.Reason+"\n"+r.Output, w.text) {
					t.Errorf("%s = %s (%s)\n%s; want %s, …%s…", w.id, r.Verdict, r.Reason, r.Output, w.verdict, w.text)
				}
			}
		})
	}
}

// TestAssayBase: of an image on an image of assay's, the declarations of both are read.
func TestAssayBase(t *testing.T) {
	const from = "registry.example/assay:1@sha256:00"
	own := `{"version":1,"target":"own","platform":"linux/amd64","recipe":"00","components":[{"name":"harness","version":"","license":"NOASSERTION","base":"` + from + `"},{"name":"jq","version":"1.7","license":"MIT"}]}`
	base := `{"version":1,"target":"base","platform":"linux/amd64","recipe":"00","components":[{"name":"harness","version":"0.1.0","license":"Apache-2.0"},{"name":"openmpi","version":"4.1.4","license":"BSD-3-Clause"}]}`
	for name, c := range map[string]struct {
		files files
		want  string
	}{
		"both":            {files{"opt/assay/image.json": own, "opt/assay/base/image.json": base}, "harness 0.1.0 " + from + ", jq 1.7, openmpi 4.1.4 " + from},
		"no base":         {files{"opt/assay/image.json": base, "opt/assay/base/image.json": own}, "harness 0.1.0, openmpi 4.1.4"},
		"no declaration":  {files{"opt/assay/image.json": own}, "the base " + from + " is no image of assay's: it has no /opt/assay/image.json"},
		"a damaged one":   {files{"opt/assay/image.json": own, "opt/assay/base/image.json": "{"}, "of the base " + from + ": image declaration: "},
		"a base's prose":  {files{"opt/assay/image.json": own, "opt/assay/base/image.json": base + "x"}, "more text follows"},
		"of version nine": {files{"opt/assay/image.json": own, "opt/assay/base/image.json": strings.Replace(base, `"version":1`, `"version":9`, 1)}, "version 9"},
	} {
		spec, err := ReadSpec(fixture(t, c.files).Root, "")
		var got []string
		if err == nil {
			for _, has := range spec.Components {
				got = append(got, strings.TrimSpace(has.Name+" "+has.Version+" "+has.Base))
			}
		} else {
			got = []string{err.Error()}
		}
		if text := strings.Join(got, ", "); err == nil && text != c.want || err != nil && !strings.Contains(text, c.want) {
			t.Errorf("%s: %s; want %s", name, text, c.want)
		}
	}
}
