package jobs

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"
)

// TestWalk: of a directory the jobs are found, and other files are counted.
func TestWalk(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), ".jobs") // hidden, and named
	for name, text := range map[string]string{
		"a/train.sh":       "#!/bin/bash\n#SBATCH --nodes=2\nsrun hostname\n",
		"a/launch.sh":      "torchrun --nproc_per_node 8 train.py\n",
		"a/build.sh":       "#!/bin/bash\n# srun comes later\nmake\n",
		"b/empty.slurm":    "",
		"b/job.sbatch":     "#!/bin/sh\nhostname\n",
		"pod.yaml":         "apiVersion: v1\nkind: Pod\nspec:\n  containers: [{name: a, image: b}]\n",
		"list.YML":         "- apiVersion: batch/v1\n  kind: Job\n",
		"values.yaml":      "image: x\n",
		"config.yaml":      "apiVersion: v1\nkind: ConfigMap\n",
		"job.json":         "{}",
		"README.md":        "srun",
		".git/x.sh":        "srun hostname\n",
		".hidden.sh":       "srun hostname\n",
		"unreadable.sh":    "",
		"sub/.x/y/z.slurm": "",
	} {
		if err := os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	files, none, found, err := Walk(dir, func(name string) ([]byte, error) {
		if filepath.Base(name) == "unreadable.sh" {
			return nil, fmt.Errorf("refused")
		}
		return os.ReadFile(name)
	})
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, f := range files {
		name, _ := filepath.Rel(dir, f.Name)
		names = append(names, name)
	}
	if want := []string{"a/launch.sh", "a/train.sh", "b/empty.slurm", "b/job.sbatch", "list.YML", "pod.yaml"}; !slices.Equal(names, want) {
		t.Errorf("jobs %v, want %v", names, want)
	}
	if none != 5 {
		t.Errorf("%d files are no jobs, want 5", none)
	}
	if len(found) != 1 || found[0].Level != LevelSkipped || found[0].Message != "it cannot be read: refused" {
		t.Errorf("found %v", found)
	}
	if _, _, _, err := Walk(filepath.Join(dir, "missing"), os.ReadFile); err == nil {
		t.Error("a directory that is not there is walked")
	}
}
