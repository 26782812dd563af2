package driver

import (
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/assay-hpc/assay/internal/exit"
)

// contents returns a directory's files by relative path, without that of its sums.
func contents(t *testing.T, dir string) map[string]string {
	t.Helper()
	all := map[string]string{}
	dir, err := filepath.EvalSymlinks(dir)
	if err != nil {
		t.Fatal(err)
	}
	err = filepath.WalkDir(dir, func(file string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		text, err := os.ReadFile(file)
		rel, _ := filepath.Rel(dir, file)
		all[rel] = string(text)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	delete(all, dockerfileSums)
	return all
}

func TestWriteDockerfile(t *testing.T) {
	parent := t.TempDir()
	dir := filepath.Join(parent, "a", "b")
	first := map[string]string{"Dockerfile": "FROM a\n", "nccl/build.sh": "make\n", "gone/old.sh": "old\n"}
	second := map[string]string{"Dockerfile": "FROM b\n", "nccl/build.sh": "make\n", "new/new.sh": "new\n"}
	write := func(at string, files map[string]string) {
		t.Helper()
		if err := WriteDockerfile(at, files); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(files, contents(t, at)); diff != "" {
			t.Errorf("the directory (-want +got):\n%s", diff)
		}
	}
	write(dir, first)
	if err := os.Chmod(dir, 0o750); err != nil {
		t.Fatal(err)
	}
	write(dir, second)
	if st, err := os.Stat(dir); err != nil || st.Mode().Perm() != 0o750 {
		t.Errorf("its mode is %v, %v; want what it was", st.Mode(), err)
	}
	if _, err := os.Stat(filepath.Join(dir, "gone")); err == nil {
		t.Error("what is no longer part is still there")
	}
	link := filepath.Join(parent, "link")
	if err := os.Symlink(filepath.Join("a", "b"), link); err != nil {
		t.Fatal(err)
	}
	write(link, first)
	if st, err := os.Lstat(link); err != nil || st.Mode()&fs.ModeSymlink == 0 {
		t.Errorf("the link is %v, %v", st, err)
	}
	empty := filepath.Join(parent, "empty")
	if err := os.Mkdir(empty, 0o755); err != nil {
		t.Fatal(err)
	}
	write(empty, first)
	for _, in := range []string{parent, filepath.Dir(dir)} {
		left, err := filepath.Glob(filepath.Join(in, ".part-*"))
		if err != nil || len(left) > 0 {
			t.Errorf("%v is left, %v", left, err)
		}
	}
}

// TestWriteDockerfileRefuses: nothing that anybody else wrote is lost.
func TestWriteDockerfileRefuses(t *testing.T) {
	files := map[string]string{"Dockerfile": "FROM a\n", "nccl/build.sh": "make\n"}
	put := func(name, text string) func(t *testing.T, dir string) {
		return func(t *testing.T, dir string) {
			t.Helper()
			if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
	for _, tt := range []struct {
		name   string
		change func(t *testing.T, dir string)
		want   string
	}{
		{"a file more", put("notes", "mine\n"), "contains notes, which assay did not write there"},
		{"an edited file", put("nccl/build.sh", "make more\n"), "nccl/build.sh in "},
		{"sums that are not its own", put(dockerfileSums, "x  Dockerfile\n"), "Dockerfile in "},
		{"a link more", func(t *testing.T, dir string) {
			if err := os.Symlink("Dockerfile", filepath.Join(dir, "link")); err != nil {
				t.Fatal(err)
			}
		}, "contains link, which assay did not write there"},
		{"no sums", func(t *testing.T, dir string) {
			if err := os.Remove(filepath.Join(dir, dockerfileSums)); err != nil {
				t.Fatal(err)
			}
		}, "contains Dockerfile, which assay did not write there"},
		{"the working directory", func(t *testing.T, dir string) { t.Chdir(filepath.Join(dir, "nccl")) }, "is or contains the working directory"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "dir")
			if err := WriteDockerfile(dir, files); err != nil {
				t.Fatal(err)
			}
			tt.change(t, dir)
			before := contents(t, dir)
			err := WriteDockerfile(dir, map[string]string{"Dockerfile": "FROM b\n"})
			if err == nil || !strings.Contains(err.Error(), tt.want) || exit.Of(err) != exit.Usage {
				t.Errorf("WriteDockerfile = %v (status %d); want %s", err, exit.Of(err), tt.want)
			}
			if after := contents(t, dir); !maps.Equal(before, after) {
				t.Errorf("it was changed:\n%s", cmp.Diff(before, after))
			}
		})
	}
	file := filepath.Join(t.TempDir(), "file")
	put("file", "text\n")(t, filepath.Dir(file))
	if err := WriteDockerfile(file, files); err == nil || !strings.Contains(err.Error(), "is not a directory") {
		t.Errorf("onto a file: %v", err)
	}
	if err := os.Symlink("nowhere", file+".link"); err != nil {
		t.Fatal(err)
	}
	if err := WriteDockerfile(file+".link", files); err == nil || !strings.Contains(err.Error(), "is a link to nothing") {
		t.Errorf("onto a dangling link: %v", err)
	}
}
