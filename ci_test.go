package assay_test

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"

	"github.com/assay-hpc/assay/build/lock"
	"github.com/assay-hpc/assay/build/recipe"
)

// TestWorkflowTriggers: a push that changes anything that assay is compiled from,
// or carries (what images hold is made from that), starts the workflows that build
// images and resolve the lock.
func TestWorkflowTriggers(t *testing.T) {
	cmd := exec.Command("go", "list", "-deps", "-f", `{{with .Module}}{{if .Main}}{{range $f := $.GoFiles}}{{$.Dir}}/{{$f}}
{{end}}{{range $f := $.EmbedFiles}}{{$.Dir}}/{{$f}}
{{end}}{{end}}{{end}}`, "./cmd/assay")
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go list: %v", err)
	}
	root, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"build.yml", "lock.yml"} {
		file := filepath.Join(".github", "workflows", name)
		files := []string{"matrix.yaml", "matrix.lock", "go.mod", "go.sum", "action/install", file}
		if name == "build.yml" {
			files = append(files, ".github/workflows/image.yml") // which it calls
		}
		for line := range strings.Lines(string(out)) {
			if line = strings.TrimSpace(line); line != "" {
				files = append(files, strings.TrimPrefix(line, root+"/"))
			}
		}
		paths := triggers(t, file)
		missing := map[string]string{}
		for _, f := range files {
			if !slices.ContainsFunc(paths, func(p string) bool { return matches(t, p, f) }) {
				top, _, _ := strings.Cut(f, "/")
				missing[top] = f
			}
		}
		for _, top := range slices.Sorted(maps.Keys(missing)) {
			t.Errorf("%s: on.push.paths %q have no %q: a change of %s starts no run", file, paths, top, missing[top])
		}
	}
}

// triggers are the paths whose changes start a workflow.
func triggers(t *testing.T, file string) []string {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var doc struct {
		On struct {
			Push struct{ Paths []string }
		}
	}
	if err := yaml.Unmarshal(text, &doc); err != nil {
		t.Fatal(err)
	}
	return doc.On.Push.Paths
}

// matches knows the two forms of GitHub's patterns that are in use: a file, and
// everything below a directory.
func matches(t *testing.T, pattern, file string) bool {
	t.Helper()
	dir, below := strings.CutSuffix(pattern, "/**")
	if strings.ContainsAny(dir, "*?[!") {
		t.Fatalf("pattern %q: want a file or DIR/**", pattern)
	}
	return pattern == file || below && strings.HasPrefix(file, dir+"/")
}

// TestScriptsNameNoHost: scripts take archives and proxies from the machine that
// they run on, so none names a host.
func TestScriptsNameNoHost(t *testing.T) {
	host := regexp.MustCompile(`\b(https?|ftp|rsync)://[A-Za-z0-9]`)
	scripts := 0
	err := filepath.WalkDir(".", func(file string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			if err == nil && slices.Contains([]string{".git", "bin", "out"}, file) {
				return fs.SkipDir
			}
			return err
		}
		text, err := os.ReadFile(file)
		if err != nil || file != "Makefile" && !bytes.HasPrefix(text, []byte("#!")) {
			return err
		}
		scripts++
		for i, line := range bytes.Split(text, []byte("\n")) {
			if host.Match(line) {
				t.Errorf("%s:%d names a host: %s", file, i+1, line)
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if scripts < 20 {
		t.Errorf("%d scripts; want 20 and more", scripts)
	}
}

// TestGPUBundle: what runs on GPU machines runs tests that the bundle contains.
func TestGPUBundle(t *testing.T) {
	read := func(file string) string {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	var packages []string
	if m := regexp.MustCompile(`(?m)^for package in (.*); do$`).FindStringSubmatch(read(".ci/gpu/bundle")); m != nil {
		packages = strings.Fields(m[1])
	}
	run := regexp.MustCompile(`(?m)\btest_of ([a-z]\S*)`).FindAllStringSubmatch(read(".ci/gpu/run"), -1)
	if len(packages) == 0 || len(run) == 0 {
		t.Fatalf("%d packages and %d calls of tests were found", len(packages), len(run))
	}
	for _, m := range run {
		if !slices.ContainsFunc(packages, func(p string) bool { return strings.ReplaceAll(p, "/", "-") == m[1] }) {
			t.Errorf(".ci/gpu/run runs the tests of %s, which .ci/gpu/bundle does not contain", m[1])
		}
	}
	for _, p := range packages {
		if _, err := os.Stat(p); err != nil {
			t.Error(err)
		}
	}
}

// TestMakeTargets: what documents, scripts and messages say to run with make exists.
func TestMakeTargets(t *testing.T) {
	parts := map[string]*regexp.Regexp{
		"Makefile": regexp.MustCompile(`(?m)^([a-z-]+):`), ".ci/test": regexp.MustCompile(`(?m)^only_([a-z0-9]+)\(`),
	}
	parts[".ci/bench"] = parts[".ci/test"]
	known := map[string][]string{}
	for file, name := range parts {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range name.FindAllStringSubmatch(string(text), -1) {
			known[file] = append(known[file], m[1])
		}
	}
	quoted, only := regexp.MustCompile("`make ([a-z][a-z-]*)"), regexp.MustCompile(`\b(test|bench) ONLY='?([a-z0-9]+)`)
	said := 0
	wants := func(file, kind string, names ...string) {
		for _, n := range names {
			if said++; !slices.Contains(known[kind], n) {
				t.Errorf("%s names %q, which %s does not have", file, n, kind)
			}
		}
	}
	for _, file := range tracked(t) {
		if !slices.Contains([]string{".md", ".go", ".yml"}, filepath.Ext(file)) && !strings.HasPrefix(file, ".ci/") {
			continue
		}
		if file == "CHANGELOG.md" || file == "ci_test.go" {
			continue // what was, and this test
		}
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range quoted.FindAllSubmatch(text, -1) {
			wants(file, "Makefile", string(m[1]))
		}
		for _, m := range only.FindAllSubmatch(text, -1) {
			wants(file, ".ci/"+string(m[1]), string(m[2]))
		}
	}
	if said < 60 {
		t.Errorf("%d calls of make in documents; want 60 and more", said)
	}
}

// TestScriptsAreListed: .ci/README.md says of each script what it is for, and of none that is gone.
func TestScriptsAreListed(t *testing.T) {
	text, err := os.ReadFile(".ci/README.md")
	if err != nil {
		t.Fatal(err)
	}
	listed := map[string]bool{}
	for line := range strings.Lines(string(text)) {
		if !strings.HasPrefix(line, "| `") {
			continue
		}
		first, _, _ := strings.Cut(line[2:], " | ")
		for name := range strings.SplitSeq(first, ", ") {
			name = strings.Trim(name, "`")
			listed[name] = true
			if _, err := os.Stat(filepath.Join(".ci", name)); err != nil {
				t.Errorf(".ci/README.md: %v", err)
			}
		}
	}
	for _, file := range tracked(t) {
		name, ok := strings.CutPrefix(file, ".ci/")
		if !ok {
			continue
		}
		script, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if bytes.HasPrefix(script, []byte("#!")) && !listed[name] && !listed[filepath.Dir(name)+"/"] {
			t.Errorf(".ci/README.md does not say what %s is for", file)
		}
	}
}

// TestCached: .ci/cached sees in a build's log whether stages were run.
func TestCached(t *testing.T) {
	for _, tt := range []struct{ name, log, want string }{
		{"cached", "#1 [base] bookworm linux/amd64\n#1 DONE 0.1s\n\n#7 [harness-amd64 amd64] compile the harness\n#7 CACHED\n#8 [image amd64] merge\n#8 DONE 1.0s\n", ""},
		{"run", "#7 [harness-amd64 amd64] compile the harness\n#7 0.1 go build\n#7 DONE 80.1s\n", "run, though another target has built it: [harness-amd64 amd64] compile the harness\n"},
		{"one of two run", "#6 [harness-amd64 amd64] unpack\n#6 CACHED\n#7 [harness-amd64 amd64] compile\n#7 DONE 80.1s\n", "[harness-amd64 amd64] compile\n"},
		{"seen again", "#7 [harness-amd64 amd64] compile\n#7 ...\n#3 [x amd64] y\n#3 DONE 0.1s\n#7 [harness-amd64 amd64] compile\n#7 CACHED\n", ""},
		{"another's stage", "#7 [harness-amd64-cuda amd64] compile\n#7 DONE 80.1s\n", "the log does not show from the cache: harness-amd64\n"},
		{"nothing", "", "the log does not show from the cache: harness-amd64\n"},
	} {
		log := filepath.Join(t.TempDir(), "build.log")
		if err := os.WriteFile(log, []byte(tt.log), 0o644); err != nil {
			t.Fatal(err)
		}
		cmd := exec.Command(".ci/cached", log)
		cmd.Stdin = strings.NewReader("harness-amd64\n")
		out, err := cmd.CombinedOutput()
		if (err == nil) != (tt.want == "") || !strings.Contains(string(out), tt.want) {
			t.Errorf("%s: %v, %q; want %q", tt.name, err, out, tt.want)
		}
	}
}

// TestVuln: .ci/vuln/check never takes an unreachable database for a result.
func TestVuln(t *testing.T) {
	// The first call is with -db DB -scan module -format json: six arguments.
	const lost = `echo 'govulncheck: fetching vulnerabilities: Get "https://db.example.test": no such host' >&2; exit 1`
	for _, tt := range []struct {
		name, program, ci string
		ok                bool
		want              string
	}{
		{"no database", lost, "", true, "skipped: the vulnerability database cannot be read: govulncheck: fetching"},
		{"no database in CI", lost, "true", false, "vuln: failed: the vulnerability database cannot be read"},
		{"another error", "echo 'govulncheck: no go.mod' >&2; exit 1", "", false, "no go.mod"},
		{"nothing found", "[ $# = 6 ] || echo \"$@\"", "true", true, "-db file:///db ./..."},
		{"a vulnerability", "[ $# = 6 ] && exit; echo 'Vulnerability #1'; exit 3", "", false, "Vulnerability #1"},
	} {
		program := filepath.Join(t.TempDir(), "govulncheck")
		if err := os.WriteFile(program, []byte("#!/bin/sh\n"+tt.program+"\n"), 0o755); err != nil {
			t.Fatal(err)
		}
		cmd := exec.Command(".ci/vuln/check")
		cmd.Env = append(os.Environ(), "GOVULNCHECK="+program, "GOVULNDB=file:///db", "CI="+tt.ci)
		out, err := cmd.CombinedOutput()
		if (err == nil) != tt.ok || !strings.Contains(string(out), tt.want) {
			t.Errorf("%s: %v, %q; want %q", tt.name, err, out, tt.want)
		}
	}
}

// TestCVEs: .ci/cves asks OSV for both versions of what changed, and names what only the earlier
// one had. The answers have the form of recorded ones.
func TestCVEs(t *testing.T) {
	deb := func(name, source, version string) recipe.Deb {
		return recipe.Deb{Name: name, Version: version, Arch: "amd64", URL: "debian:pool/main/x/" + source + "/" + name + ".deb", SHA256: version}
	}
	locked := func(versions ...string) *lock.Lock {
		l := lock.New()
		l.Debs = map[string]lock.PackageSet{
			"old/amd64": {Packages: []recipe.Deb{deb("libssl1.1", "openssl", versions[0]), deb("openssl", "openssl", versions[0])}},
			"new/amd64": {Packages: []recipe.Deb{deb("libpam0g", "pam", versions[1]), deb("bash", "bash", versions[2])}},
		}
		return l
	}
	type change struct {
		lock.Change
		Targets []string `json:"targets"`
	}
	var changes []change
	for _, c := range lock.Diff(locked("1.1.1n-0+deb10u5", "1.5.2-6+deb12u1", "5.2.15-2+b13"), locked("1.1.1n-0+deb10u6", "1.5.2-6+deb12u2", "5.2.15-2+b14")) {
		targets := map[string][]string{"old/amd64": {"fabric-debian10"}, "new/amd64": {"cuda12.4-debian12", "fabric-debian12"}}[c.Key]
		changes = append(changes, change{c, targets})
	}
	in, err := json.Marshal(map[string]any{"changes": changes})
	if err != nil {
		t.Fatal(err)
	}
	known := map[string]string{
		"Debian:10 openssl 1.1.1n-0+deb10u5": `{"vulns": [{"id": "DLA-3530-1", "modified": "2026-03-09T01:19:28.929204Z"}]}`,
		"Debian:12 pam 1.5.2-6+deb12u1":      `{"vulns": [{"id": "DEBIAN-CVE-2024-22365", "modified": "2026-03-09T01:21:14.798998Z"}, {"id": "DEBIAN-CVE-2025-8941", "modified": "2026-03-09T01:21:14.798998Z"}]}`,
		"Debian:12 pam 1.5.2-6+deb12u2":      `{"vulns": [{"id": "DEBIAN-CVE-2024-22365", "modified": "2026-03-09T01:21:14.798998Z"}]}`,
	}
	more := ""
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var ask struct {
			Queries []struct {
				Package struct{ Ecosystem, Name string }
				Version string
			}
		}
		if err := json.NewDecoder(r.Body).Decode(&ask); err != nil || r.Method != http.MethodPost || r.URL.Path != "/v1/querybatch" {
			http.Error(w, "bad request", http.StatusBadRequest)
			return
		}
		var answers []string
		for _, q := range ask.Queries {
			a := cmp.Or(known[q.Package.Ecosystem+" "+q.Package.Name+" "+q.Version], "{}")
			if q.Package.Name == more {
				a = `{"vulns": [{"id": "DEBIAN-CVE-2001-1", "modified": "2026-03-09T01:21:14.798998Z"}], "next_page_token": "x"}`
			}
			answers = append(answers, a)
		}
		fmt.Fprintf(w, `{"results": [%s]}`, strings.Join(answers, ", "))
	}))
	defer server.Close()
	cves := func(url string) (string, error) {
		cmd := exec.Command(".ci/cves")
		cmd.Stdin = bytes.NewReader(in)
		cmd.Env = append(os.Environ(), "OSV="+url, "no_proxy=127.0.0.1")
		out, err := cmd.CombinedOutput()
		return string(out), err
	}
	const openssl = "openssl 1.1.1n-0+deb10u5 → 1.1.1n-0+deb10u6 (Debian:10): "
	want := openssl + "DLA-3530-1\npam 1.5.2-6+deb12u1 → 1.5.2-6+deb12u2 (Debian:12): CVE-2025-8941\n2 changed source packages, 2 vulnerabilities fixed\n"
	if got, err := cves(server.URL); err != nil || got != want {
		t.Errorf("%v\n%s\nwant\n%s", err, got, want)
	}
	more = "openssl"
	if got, err := cves(server.URL); err != nil || !strings.Contains(got, openssl+"more than the database lists at once\n") {
		t.Errorf("%v\n%s", err, got)
	}
	server.Close()
	var exit *exec.ExitError
	if got, err := cves(server.URL); !errors.As(err, &exit) || exit.ExitCode() != 3 || !strings.Contains(got, "cannot be asked") {
		t.Errorf("without a database: %v\n%s", err, got)
	}
}

// TestDependabot: every module, every package.json and every file that uses actions is in
// .github/dependabot.yml.
func TestDependabot(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(".github", "dependabot.yml"))
	if err != nil {
		t.Fatal(err)
	}
	var doc struct {
		Updates []struct {
			Ecosystem   string `yaml:"package-ecosystem"`
			Directories []string
		}
	}
	if err := yaml.Unmarshal(text, &doc); err != nil {
		t.Fatal(err)
	}
	got := map[string][]string{}
	for _, u := range doc.Updates {
		got[u.Ecosystem] = append(got[u.Ecosystem], u.Directories...)
	}
	ecosystems := map[string]string{"go.mod": "gomod", "package.json": "npm", "action.yml": "github-actions"}
	want := map[string][]string{"github-actions": {"/"}} // the workflows
	for _, file := range tracked(t) {
		dir, name := filepath.Split("/" + file)
		if e := ecosystems[name]; e != "" {
			want[e] = append(want[e], filepath.Clean(dir))
		}
	}
	for e, dirs := range want {
		slices.Sort(dirs)
		slices.Sort(got[e])
		if !slices.Equal(dirs, got[e]) {
			t.Errorf("%s: directories %q; want %q", e, got[e], dirs)
		}
	}
}

// tracked returns git's files outside testdata.
func tracked(t *testing.T) []string {
	t.Helper()
	out, err := exec.Command("git", "ls-files").Output()
	if err != nil {
		t.Skipf("git ls-files: %v", err)
	}
	return slices.DeleteFunc(strings.Fields(string(out)), func(file string) bool { return strings.Contains("/"+file, "/testdata/") })
}

// TestActionsPinned: an action of another repository is used by a commit, the same one
// everywhere, with its version in a comment.
func TestActionsPinned(t *testing.T) {
	uses := regexp.MustCompile(`uses: (.+)`)
	pinned := regexp.MustCompile(`^([\w.-]+/[\w.-]+(?:/[\w.-]+)*)@[0-9a-f]{40} # v\d+\.\d+\.\d+$`)
	files, err := filepath.Glob(".github/workflows/*.yml")
	if err != nil {
		t.Fatal(err)
	}
	first := map[string]string{}
	for _, file := range append(files, "action/action.yml") {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range uses.FindAllStringSubmatch(string(text), -1) {
			if strings.HasPrefix(m[1], "./") {
				continue
			}
			p := pinned.FindStringSubmatch(m[1])
			switch {
			case p == nil:
				t.Errorf("%s: %s is not pinned as OWNER/NAME@COMMIT # vX.Y.Z", file, m[1])
			case first[p[1]] == "":
				first[p[1]] = m[1]
			case first[p[1]] != m[1]:
				t.Errorf("%s: %s; elsewhere %s", file, m[1], first[p[1]])
			}
		}
	}
}

// TestScripts: shellcheck, which knows the shell of the first line, finds nothing in any script
// outside testdata.
func TestScripts(t *testing.T) {
	first := regexp.MustCompile(`^#!.*sh\n`)
	var files []string
	for _, file := range tracked(t) {
		text, err := os.ReadFile(file)
		if err != nil && !errors.Is(err, fs.ErrNotExist) { // removed, and not yet committed
			t.Fatal(err)
		}
		if first.Match(text) {
			files = append(files, file)
		}
	}
	if len(files) < 20 {
		t.Errorf("%d scripts", len(files))
	}
	shellcheckAll(t, files)
}

// TestActionsScripts: bash reads the scripts of action.yml, and shellcheck finds nothing in them.
// actionlint reads workflows alone.
func TestActionsScripts(t *testing.T) {
	text, err := os.ReadFile(filepath.Join("action", "action.yml"))
	if err != nil {
		t.Fatal(err)
	}
	type step struct {
		Uses, Shell, Run string
		Env              map[string]string
	}
	var doc struct {
		Inputs map[string]struct{ Description string }
		Runs   struct{ Steps []step }
	}
	if err := yaml.Unmarshal(text, &doc); err != nil {
		t.Fatal(err)
	}
	for name, in := range doc.Inputs {
		if in.Description == "" {
			t.Errorf("the input %s has no description", name)
		}
		if !strings.Contains(string(text), "${{ inputs."+name+" ") {
			t.Errorf("the input %s is not used", name)
		}
	}
	for _, m := range regexp.MustCompile(`\binputs\.([\w-]+)`).FindAllStringSubmatch(string(text), -1) {
		if _, ok := doc.Inputs[m[1]]; !ok {
			t.Errorf("there is no input %s", m[1])
		}
	}
	dir := t.TempDir()
	var files []string
	for i, s := range doc.Runs.Steps {
		if s.Run == "" {
			continue
		}
		if s.Shell != "bash" {
			t.Errorf("step %d: shell %q; want bash", i+1, s.Shell)
		}
		if strings.Contains(s.Run, "${{") {
			t.Errorf("step %d: an expression in a script; give it by env", i+1)
		}
		file := filepath.Join(dir, "step"+string(rune('1'+i)))
		if err := os.WriteFile(file, []byte("#!/usr/bin/env bash\nset -euo pipefail\n"+s.Run), 0o644); err != nil {
			t.Fatal(err)
		}
		files = append(files, file)
	}
	shellcheckAll(t, files)
}

func shellcheckAll(t *testing.T, files []string) {
	t.Helper()
	shellcheck, err := exec.LookPath("shellcheck")
	if err != nil {
		t.Skip("no shellcheck")
	}
	if out, err := exec.Command(shellcheck, files...).CombinedOutput(); err != nil {
		t.Errorf("shellcheck: %v\n%s", err, out)
	}
}
