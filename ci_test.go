package assay_test

import (
	"bytes"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"
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
		files := []string{"matrix.yaml", "matrix.lock", "go.mod", "go.sum", file}
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
