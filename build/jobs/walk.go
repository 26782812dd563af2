package jobs

import (
	"cmp"
	"errors"
	"io/fs"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// suffixes are those of files in a directory that may be jobs.
var suffixes = []string{".sh", ".sbatch", ".slurm", ".yaml", ".yml"}

var (
	starts    = regexp.MustCompile(`(?m)^#SBATCH\s|^[^#\n]*\b(?:srun|mpirun|mpiexec(?:\.hydra)?|orterun|prterun|torchrun|deepspeed|accelerate(?:\s+|\.commands\.)launch|torch\.distributed\.(?:run|launch)|tune\s+run|sglang\.launch_server|(?:python3?|-m)\s.*--nproc[-_]per[-_]node)\b`)
	versioned = regexp.MustCompile(`(?m)^\s*(?:- )?["']?apiVersion["']?\s*:`)
	runs      = regexp.MustCompile(`(?m)["']?\bcontainers["']?\s*:|^\s*(?:- )?["']?kind["']?\s*:\s*["']?(?:\w*Job|JobSet|LeaderWorkerSet|Pod|PodTemplate|Deployment|DaemonSet|StatefulSet|ReplicaSet)\b`)
)

// IsJob reports whether a file of a directory is one to check: a batch script, a script that starts processes with a
// launcher, or an object of Kubernetes that has pods.
func IsJob(f File) bool {
	switch strings.ToLower(filepath.Ext(f.Name)) {
	case ".sbatch", ".slurm":
		return true
	case ".sh":
		return starts.Match(f.Text)
	case ".yaml", ".yml":
		return versioned.Match(f.Text) && runs.Match(f.Text)
	}
	return false
}

// Walk returns the jobs below a directory, in the order of their names; hidden files and directories are left out. none is
// how many other files there are, which are no jobs. What cannot be read is a finding. read returns a file's content.
func Walk(dir string, read func(name string) ([]byte, error)) (files []File, none int, found []Finding, err error) {
	err = filepath.WalkDir(dir, func(name string, e fs.DirEntry, err error) error {
		hidden := strings.HasPrefix(filepath.Base(name), ".") && name != dir
		switch {
		case hidden && e != nil && e.IsDir():
			return fs.SkipDir
		case hidden:
			return nil
		case err != nil && name == dir:
			return err
		case err != nil:
			found = append(found, unread(name, err))
			return nil
		case e.IsDir():
			return nil
		case !slices.Contains(suffixes, strings.ToLower(filepath.Ext(name))):
			none++
			return nil
		}
		text, err := read(name)
		if err != nil {
			found = append(found, unread(name, err))
			return nil
		}
		if f := (File{Name: name, Text: text}); IsJob(f) {
			files = append(files, f)
		} else {
			none++
		}
		return nil
	})
	return files, none, found, err
}

// unread is the finding of what cannot be read.
func unread(name string, err error) Finding {
	if e, ok := errors.AsType[*fs.PathError](err); ok {
		err = cmp.Or(e.Err, err)
	}
	return Finding{File: name, Level: LevelSkipped, Message: "it cannot be read: " + err.Error(), Remedy: "make it readable, or take it out"}
}
