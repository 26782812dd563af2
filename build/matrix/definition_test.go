package matrix

import (
	"errors"
	"fmt"
	"io/fs"
	"reflect"
	"regexp"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/assay-hpc/assay/build/recipe"
	"github.com/assay-hpc/assay/internal/golden"
)

var amd64 = recipe.Platform{OS: "linux", Arch: "amd64"}

// withComponents is a matrix of one image with the given entries under components.
func withComponents(entries string) string {
	return "version: 1\nrepository: ghcr.io/x/y\nimages:\n  - name: one\n    distro: debian\n    release: \"12\"\n" +
		"    base: {debootstrap: {suite: bookworm, variant: minbase}}\n    platforms: [linux/amd64]\n    tag: \"{name}-{recipe}\"\n    components:\n" + entries
}

// own reads a matrix whose components are in the given files.
func own(entries string, files fstest.MapFS) (*File, []Target, error) {
	f, err := Parse("matrix.yaml", strings.NewReader(withComponents(entries)), library(), func(dir string) (fs.FS, error) { return fs.Sub(files, strings.TrimPrefix(dir, "./")) })
	if err != nil {
		return nil, nil, err
	}
	targets, err := f.Targets()
	return f, targets, err
}

// tool is a component in a directory.
func tool(yaml string, beside ...string) fstest.MapFS {
	files := fstest.MapFS{"components/tool/component.yaml": {Data: []byte(yaml)}}
	for _, name := range beside {
		files["components/tool/"+name] = &fstest.MapFile{Data: []byte("make\n")}
	}
	return files
}

const inTool = "      tool: ./components/tool\n"

// wrong are mistakes in components: in an entry of the matrix, or in the component.yaml of ./components/tool.
var wrong = []struct {
	name, entries, yaml string
	files               []string
}{
	{name: "a misspelled key", yaml: "version: 1.0.0\nlicense: MIT\ninstal: [{from: usr/, to: /usr/}]\n"},
	{name: "a misspelled key of a check", yaml: "packages: [jq]\nchecks: [{name: version, runs: [jq, --version]}]\n"},
	{name: "a misspelled variable", yaml: "version: 1.0.0\nlicense: MIT\nsources: {tool: \"https://example.org/tool-{verison}.tar.gz\"}\nbuild: {script: build.sh}\ninstall: [{from: usr/, to: /usr/}]\n", files: []string{"build.sh"}},
	{name: "a variable without its brace", yaml: "packages: [jq]\nenv: {TOOL: \"{version\"}\n"},
	{name: "a variable of a component that there is not", yaml: "packages: [jq]\nenv: {TOOL: \"{version of ncll}\"}\n"},
	{name: "a variable without quotes", yaml: "packages: [jq]\nenv:\n  TOOL: {version}\n"},
	{name: "a shell's variable is none", yaml: "packages: [jq]\nenv: {TOOL: \"${HOME}/{versio}\"}\n"},
	{name: "a script that there is not", yaml: "version: 1.0.0\nlicense: MIT\nbuild: {script: bild.sh}\ninstall: [{from: usr/, to: /usr/}]\n", files: []string{"build.sh"}},
	{name: "a script in an entry", entries: "      tool: {version: 1.0.0, license: MIT, build: {script: build.sh}, install: [{from: usr/, to: /usr/}]}\n"},
	{name: "a script outside", yaml: "version: 1.0.0\nlicense: MIT\nbuild: {script: ../build.sh}\ninstall: [{from: usr/, to: /usr/}]\n"},
	{name: "a file that there is not", yaml: "version: 1.0.0\nlicense: MIT\nfiles: [{path: /etc/tool.conf, from: tool.conf}]\n"},
	{name: "wheels without requirements", yaml: "version: 1.0.0\nlicense: MIT\nsources: {py: {wheels: \"https://example.org/simple\"}}\nbuild: {script: build.sh}\ninstall: [{from: opt/, to: /opt/}]\n", files: []string{"build.sh", "requirements.txt"}},
	{name: "requirements without wheels", yaml: "version: 1.0.0\nlicense: MIT\nsources: {py: {requirements: requirements.txt}}\nbuild: {script: build.sh}\ninstall: [{from: opt/, to: /opt/}]\n", files: []string{"build.sh", "requirements.txt"}},
	{name: "wheels and a URL", yaml: "version: 1.0.0\nlicense: MIT\nsources: {py: {url: \"https://example.org/py.tar.gz\", wheels: \"https://example.org/simple\", requirements: requirements.txt}}\nbuild: {script: build.sh}\ninstall: [{from: opt/, to: /opt/}]\n", files: []string{"build.sh", "requirements.txt"}},
	{name: "requirements that there are not", yaml: "version: 1.0.0\nlicense: MIT\nsources: {py: {wheels: \"https://example.org/simple\", requirements: requirement.txt}}\nbuild: {script: build.sh}\ninstall: [{from: opt/, to: /opt/}]\n", files: []string{"build.sh", "requirements.txt"}},
	{name: "an index with a password", yaml: "version: 1.0.0\nlicense: MIT\nsources: {py: {wheels: \"https://me:secret@example.org/simple\", requirements: requirements.txt}}\nbuild: {script: build.sh}\ninstall: [{from: opt/, to: /opt/}]\n", files: []string{"build.sh", "requirements.txt"}},
	{name: "a misspelled key of wheels", yaml: "version: 1.0.0\nlicense: MIT\nsources: {py: {wheel: \"https://example.org/simple\", requirements: requirements.txt}}\nbuild: {script: build.sh}\ninstall: [{from: opt/, to: /opt/}]\n", files: []string{"build.sh", "requirements.txt"}},
	{name: "a file of two kinds", yaml: "version: 1.0.0\nlicense: MIT\nfiles: [{path: /etc/tool.conf, content: a, link: b}]\n"},
	{name: "a file of no kind", yaml: "version: 1.0.0\nlicense: MIT\nfiles: [{path: /etc/tool.conf}]\n"},
	{name: "a file with a relative path", yaml: "version: 1.0.0\nlicense: MIT\nfiles: [{path: etc/tool.conf, content: a}]\n"},
	{name: "a file in the harness's place", yaml: "version: 1.0.0\nlicense: MIT\nfiles: [{path: /opt/assay/bin/harness, content: a}]\n"},
	{name: "a file over the accounts", yaml: "version: 1.0.0\nlicense: MIT\nfiles: [{path: /etc/passwd, content: a}]\n"},
	{name: "a mode that is a number", yaml: "version: 1.0.0\nlicense: MIT\nfiles: [{path: /etc/tool.conf, content: a, mode: 0755}]\n"},
	{name: "a build without a license", yaml: "version: 1.0.0\nbuild: {script: build.sh}\ninstall: [{from: usr/, to: /usr/}]\n", files: []string{"build.sh"}},
	{name: "a license in words", yaml: "license: GNU General Public License\npackages: [jq]\n"},
	{name: "a build that installs nothing", yaml: "version: 1.0.0\nlicense: MIT\nbuild: {script: build.sh}\n", files: []string{"build.sh"}},
	{name: "an installation of no build", yaml: "version: 1.0.0\nlicense: MIT\npackages: [jq]\ninstall: [{from: usr/, to: /usr/}]\n"},
	{name: "nothing at all", yaml: "about: nothing\n"},
	{name: "an empty file", yaml: ""},
	{name: "no YAML", yaml: "packages: [jq\n"},
	{name: "no mapping", yaml: "- jq\n"},
	{name: "packages as one text", yaml: "packages: jq\n"},
	{name: "two packages in one", yaml: "packages: [jq curl]\n"},
	{name: "a condition on what there is not", yaml: "packages: [{when: {debain: \"12\"}, install: [jq]}]\n"},
	{name: "a condition that is none", yaml: "packages: [{when: {cuda: newest}, install: [jq]}]\n"},
	{name: "a mount that there is not", yaml: "version: 1.0.0\nlicense: MIT\nbuild: {script: build.sh, mounts: [cdua]}\ninstall: [{from: usr/, to: /usr/}]\n", files: []string{"build.sh"}},
	{name: "a row that there is not", yaml: "version: 1.0.0\nlicense: MIT\nbuild: {script: build.sh, row: {distro: newest}}\ninstall: [{from: usr/, to: /usr/}]\n", files: []string{"build.sh"}},
	{name: "a repository without a key", yaml: "apt: [{name: site, url: \"https://apt.example.org/debian\", suite: ./}]\npackages: [tool]\n"},
	{name: "a key without its fingerprint", yaml: "apt: [{name: site, url: \"https://apt.example.org/debian\", suite: ./, key: {file: site.asc}}]\npackages: [tool]\n", files: []string{"site.asc"}},
	{name: "a short fingerprint", yaml: "apt: [{name: site, url: \"https://apt.example.org/debian\", suite: ./, key: {file: site.asc, fingerprint: 0123ABCD}}]\npackages: [tool]\n", files: []string{"site.asc"}},
	{name: "a key and none", yaml: "apt: [{name: site, url: \"https://apt.example.org/debian\", suite: ./, unsigned: true, key: {file: site.asc, fingerprint: 0123456789ABCDEF0123456789ABCDEF01234567}}]\npackages: [tool]\n", files: []string{"site.asc"}},
	{name: "a check of two kinds", yaml: "packages: [jq]\nchecks: [{name: version, run: [jq, --version], load: /usr/lib/libjq.so.1}]\n"},
	{name: "a check without a name", yaml: "packages: [jq]\nchecks: [{run: [jq, --version]}]\n"},
	{name: "a pattern that is none", yaml: "packages: [jq]\nchecks: [{name: version, run: [jq, --version], prints: \"jq-(\"}]\n"},
	{name: "a library that prints", yaml: "packages: [jq]\nchecks: [{load: /usr/lib/libjq.so.1, prints: jq}]\n"},
	{name: "code", yaml: "builtin: why not\npackages: [jq]\n"},
	{name: "an alias", yaml: "packages: &p [jq]\nregister: *p\n"},
	{name: "an environment variable that is none", yaml: "packages: [jq]\nenv: {TOOL-HOME: /usr}\n"},
	{name: "a directory that there is not", entries: "      tool: ./components/tol\n", yaml: "packages: [jq]\n"},
	{name: "an absolute path", entries: "      tool: /opt/components/tool\n", yaml: "packages: [jq]\n"},
	{name: "a path that is none", entries: "      tool: {from: components/tool}\n", yaml: "packages: [jq]\n"},
	{name: "a key beside from", entries: "      tool: {from: ./components/tool, versoin: 1.0.0}\n", yaml: "packages: [jq]\n"},
	{name: "another harness", entries: "      harness: ./components/tool\n", yaml: "packages: [jq]\n"},
	{name: "a name that is assay's", entries: "      openmpi: {packages: [openmpi-bin]}\n"},
	{name: "a name that is a fact's", entries: "      cuda: {packages: [jq]}\n"},
	{name: "a name that is none", entries: "      My_Tool: {packages: [jq]}\n"},
	{name: "a component that nobody defines", entries: "      jq: distro\n"},
	{name: "no version", entries: "      tool: {env: {TOOL: /usr}}\n"},
	{name: "no version in a directory", yaml: "env: {TOOL: /usr}\n"},
	{name: "a need that the image has not", yaml: "needs: {cuda: \">=12\"}\npackages: [jq]\n"},
	{name: "a conflict", entries: "      hwloc: distro\n" + inTool, yaml: "conflicts: {hwloc: they fight}\npackages: [jq]\n"},
	{name: "a requirement that does not hold", yaml: "requires: [{when: {debian: \">=12\"}, require: {hwloc: present}, because: it reads the topology}]\npackages: [jq]\n"},
	{name: "a version of another form", entries: "      tool: {from: ./components/tool, version: 2.0.0}\n", yaml: "versions: {form: '1\\.[0-9.]+', example: 1.0.0}\npackages: [jq]\n"},
	{name: "a toolkit that is mounted without CUDA", yaml: "version: 1.0.0\nlicense: MIT\nbuild: {script: build.sh, mounts: [cuda]}\ninstall: [{from: usr/, to: /usr/}]\n", files: []string{"build.sh"}},
	{name: "a variable without a value", yaml: "packages: [jq]\nenv: {TOOL: \"{cuda.major}\"}\n"},
	{name: "the version of what is not there", yaml: "packages: [jq]\nenv: {TOOL: \"{version of nccl}\"}\n"},
	{name: "a file that two write", entries: "      other: {version: 1.0.0, license: MIT, files: [{path: /etc/tool, content: a}]}\n" + inTool, yaml: "version: 1.0.0\nlicense: MIT\nfiles: [{path: /etc/tool, content: b}]\n"},
	{name: "an example of another form", yaml: "versions: {form: '1\\.[0-9.]+', example: 2.0.0}\npackages: [jq]\n"},
}

// TestWrongComponents: each mistake has file, line, what and remedy.
func TestWrongComponents(t *testing.T) {
	var b strings.Builder
	for _, w := range wrong {
		entries := w.entries
		if entries == "" {
			entries = inTool
		}
		_, _, err := own(entries, tool(w.yaml, w.files...))
		all, ok := errors.AsType[Errors](err)
		if !ok {
			t.Errorf("%s: %v; want Errors", w.name, err)
			continue
		}
		checkErrors(t, all)
		fmt.Fprintf(&b, "%s\n\t%s\n", w.name, strings.ReplaceAll(err.Error(), "\n", "\n\t"))
	}
	golden.Check(t, "wrong_components.golden", b.String())
}

// TestOwnComponents: what a user's component makes of one target.
func TestOwnComponents(t *testing.T) {
	files := tool(`version: 1.4.0
license: MIT
homepage: https://git.example.org/me/tool
vars:
  flavour: [{when: {platform: linux/arm64}, value: arm}, {value: "{arch}-{version.minor}"}]
sources: {tool: "https://git.example.org/me/tool/{version}.tar.gz", extra: "https://git.example.org/extra"}
packages: [{when: {debian: ">=13"}, install: [new]}, {unless: {debian: ">=13"}, install: ["old={version}-1"]}, both]
build: {packages: [gcc, make], script: [build.sh, more.sh]}
install: [{from: usr/, to: /usr/}]
files:
  - {path: /etc/tool.conf, content: "{flavour} {{x} ${HOME}\n"}
  - {path: /usr/bin/t, link: tool}
  - {path: /usr/bin/run, from: run.sh, mode: "0755"}
env: {TOOL_HOME: /usr, EMPTY: ""}
path: [/opt/tool/bin, {when: {hwloc: present}, dir: /opt/hwloc/bin}]
checks:
  - {name: version, run: [tool, --version], prints: '^tool {version:exact} [{{]'}
  - {unless: {cuda: none}, name: cuda, sh: "true"}
  - {exec: /usr/bin/tool}
`, "build.sh", "more.sh", "run.sh")
	f, targets, err := own("      jq: {packages: [jq]}\n      hwloc: distro\n"+inTool, files)
	if err != nil {
		t.Fatal(err)
	}
	p, err := f.Definition("tool").Part(targets[0], amd64, func(string) string { return "" })
	if err != nil {
		t.Fatal(err)
	}
	for text, want := range map[string]bool{
		"tool 1.4.0 {": true, "tool v1.4.0 {": true, "tool 1.4.01 {": false, "tool 11.4.0 {": false, "tool 2.1.4.0 {": false, "a tool 1.4.0 {": false,
	} {
		if got := regexp.MustCompile(p.Checks[0].Match).MatchString(text); got != want {
			t.Errorf("%q matches %q: %v; want %v", p.Checks[0].Match, text, got, want)
		}
	}
	for what, c := range map[string]struct{ got, want any }{
		"version":  {p.Version, "1.4.0"},
		"from":     {p.From, "./components/tool"},
		"packages": {p.Packages, []string{"old=1.4.0-1", "both"}},
		"sources":  {p.Sources, []Source{{Name: "tool", URL: "https://git.example.org/me/tool/1.4.0.tar.gz"}}},
		"scripts":  {p.Build.Scripts, []Script{{"build.sh", "make\n"}, {"more.sh", "make\n"}}},
		"files":    {p.Files, []PartFile{{Path: "/etc/tool.conf", Content: "amd64-1.4 {x} ${HOME}\n", Mode: 0o644}, {Path: "/usr/bin/t", Link: "tool", Mode: 0o644}, {Path: "/usr/bin/run", Content: "make\n", Mode: 0o755}}},
		"env":      {p.Env, []Pair{{"TOOL_HOME", "/usr"}, {"EMPTY", ""}}},
		"lists":    {p.Lists, []List{{"PATH", []string{"/opt/tool/bin", "/opt/hwloc/bin"}}}},
		"checks":   {len(p.Checks), 2},
		"flavour":  {p.Vars["FLAVOUR"], "amd64-1.4"},
		"jq":       {targets[0].Version("jq"), "distro"},
	} {
		if !reflect.DeepEqual(c.got, c.want) {
			t.Errorf("%s = %#v; want %#v", what, c.got, c.want)
		}
	}
}
