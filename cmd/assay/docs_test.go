package main

import (
	"bytes"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	assay "github.com/assay-hpc/assay"
	"github.com/assay-hpc/assay/build/driver"
	"github.com/assay-hpc/assay/build/lock"
	"github.com/assay-hpc/assay/build/recipe"
	"github.com/assay-hpc/assay/internal/certificate"
	"github.com/assay-hpc/assay/internal/certificate/certificatetest"
	"github.com/assay-hpc/assay/internal/golden"
	"github.com/assay-hpc/assay/internal/grammar"
)

// TestCommandsDocument holds docs/commands.md against the program's own
// commands and flags.
func TestCommandsDocument(t *testing.T) {
	golden.File(t, filepath.Join("..", "..", "docs", "commands.md"), grammar.Reference(newApp(io.Discard, io.Discard), commandsHead, noHelp))
}

// block returns the first fenced block of the language in a document.
func block(t *testing.T, file, language string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("..", "..", file))
	if err != nil {
		t.Fatal(err)
	}
	_, rest, ok := strings.Cut(string(text), "\n```"+language+"\n")
	sample, _, closed := strings.Cut(rest, "\n```\n")
	if !ok || !closed {
		t.Fatalf("%s has no block of %s", file, language)
	}
	return sample
}

// TestSamples reads the documents' samples with the code that they describe.
func TestSamples(t *testing.T) {
	if _, err := certificate.Parse([]byte(block(t, "docs/certificate.md", "json"))); err != nil {
		t.Errorf("docs/certificate.md: %v", err)
	}
	if err := certificatetest.Validate([]byte(block(t, "docs/certificate.md", "json"))); err != nil {
		t.Errorf("docs/certificate.md: %v", err)
	}
	l, err := lock.Read("docs/lock.md", strings.NewReader(block(t, "docs/lock.md", "yaml")))
	if err != nil {
		t.Fatal(err)
	}
	_, written, _ := strings.Cut(string(l.Marshal()), "version:")
	if d := cmp.Diff("version:"+written, block(t, "docs/lock.md", "yaml")+"\n"); d != "" {
		t.Errorf("docs/lock.md: not as assay lock writes it (-written +sample):\n%s", d)
	}
}

// TestPublishedSchema wants the schema in docs to be the program's.
func TestPublishedSchema(t *testing.T) {
	golden.File(t, filepath.Join("..", "..", "docs", "certificate.schema.json"), string(certificate.Schema()))
}

// TestOverview wants every command in the table of docs/overview.md.
func TestOverview(t *testing.T) {
	text, err := os.ReadFile(filepath.Join("..", "..", "docs", "overview.md"))
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range newApp(io.Discard, io.Discard).Commands {
		if !c.Hidden && !strings.Contains(string(text), "`assay "+c.Name+"`") {
			t.Errorf("docs/overview.md does not name the command %q", c.Name)
		}
	}
}

// TestBaseImages holds docs/base-images.md against the recipes of all targets: what
// containers start, the variables, the directories, and a job that can be checked.
func TestBaseImages(t *testing.T) {
	text, err := os.ReadFile(filepath.Join("..", "..", "docs", "base-images.md"))
	if err != nil {
		t.Fatal(err)
	}
	doc := string(text)
	t.Chdir(t.TempDir()) // the embedded matrix
	t.Setenv("ASSAY_STATE_DIR", t.TempDir())
	w, err := driver.Open(driver.Options{Version: assay.Version})
	if err != nil {
		t.Fatal(err)
	}
	named := regexp.MustCompile(`/opt/[a-z_-]+(?:/[a-z_-]+)?`)
	lacks := map[string]bool{}
	for _, target := range w.Targets {
		for _, p := range target.Platforms {
			res, err := w.Recipe(target, p, p)
			if err != nil {
				t.Fatal(err)
			}
			c := res.Recipe.Config
			if len(c.Entrypoint) > 0 || !slices.Equal(c.Cmd, []string{"/bin/bash"}) || c.WorkingDir != "" && c.WorkingDir != "/opt/nccl-tests" {
				t.Errorf("%s starts %q %q in %q", target.Name, c.Entrypoint, c.Cmd, c.WorkingDir)
			}
			for _, v := range c.Env {
				if !strings.Contains(doc, "`"+v.Name+"`") && !strings.Contains(doc, "`"+v.Name+"="+v.Value+"`") {
					lacks[v.Name] = true
				}
			}
			for _, step := range res.Recipe.Image().Steps {
				dir := ""
				switch s := step.(type) {
				case recipe.Copy:
					dir = named.FindString(s.Dst)
				case recipe.Symlink:
					dir = named.FindString(s.Path)
				}
				if dir != "" && !strings.Contains(doc, dir) {
					lacks[dir] = true
				}
			}
		}
	}
	for name := range lacks {
		t.Errorf("docs/base-images.md says nothing of %s", name)
	}
	_, rest, _ := strings.Cut(doc, "\n```yaml\n")
	job, _, ok := strings.Cut(rest, "\n```\n")
	if !ok {
		t.Fatal("docs/base-images.md has no job")
	}
	if err := os.WriteFile("job.yaml", []byte(job), 0o644); err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	if code := run(t.Context(), []string{"assay", "jobs", "check", "job.yaml"}, &out, &out); code != 0 || !strings.Contains(out.String(), "0 errors, 0 warnings") {
		t.Errorf("the job is checked with status %d:\n%s", code, out.String())
	}
}

const commandsHead = `# assay's commands

<!-- Written by "go test ./cmd/assay -args -update" from the program itself. -->

Results go to stdout, remarks and progress to stderr. Flags may stand before or after arguments; what follows ` + "`--`" + `
is an argument. Exit status: 0 all is well, 1 a check or a build failed, 2 wrong usage or bad input, 3 it could not run
(no builder, no registry, interrupted).

Without ` + "`--matrix`" + ` a command reads ` + "`./matrix.yaml`, else the matrix that the binary carries. `ASSAY_STATE_DIR`" + ` says where
builders, downloads and bases are kept (default: ` + "`assay`" + ` in the user's cache directory).
`
