package image

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/assay-hpc/assay/harness/suite"
	"github.com/assay-hpc/assay/internal/ldso"
	"github.com/assay-hpc/assay/internal/result"
	"github.com/assay-hpc/assay/internal/rootfs"
)

// comesLater returns why a directory of a library path may be missing, and whether it may.
func comesLater(dir string) (string, bool) {
	if dir == "/usr/local/nvidia" || strings.HasPrefix(dir, "/usr/local/nvidia/") {
		return "NVIDIA's images name it for drivers that a runtime mounts there", true
	}
	return "", false
}

// libraryPath checks that the directories in LD_LIBRARY_PATH exist.
func (s *state) libraryPath(_ context.Context, env *suite.Env) result.Result {
	value := env.Getenv("LD_LIBRARY_PATH")
	if value == "" {
		return result.Skipped("LD_LIBRARY_PATH is not set")
	}
	var bad, notes []string
	for _, dir := range filepath.SplitList(value) {
		why, later := comesLater(dir)
		switch {
		case dir == "" || !path.IsAbs(dir):
			bad = append(bad, fmt.Sprintf("the entry %q depends on where a program is started", dir))
		case env.Root.IsDir(dir):
		case later:
			notes = append(notes, dir+" does not exist: "+why)
		default:
			bad = append(bad, dir+" does not exist")
		}
	}
	return judge(bad, notes, value)
}

// judge creates a result from faults and notes.
func judge(bad, notes []string, seen string) result.Result {
	var out string
	for _, l := range slices.Concat(bad, notes) {
		out += l + "\n"
	}
	if len(bad) > 0 {
		return result.Failed("%s", someOf(bad)).WithOutput(out)
	}
	return result.Passed("%s", seen).WithOutput(out)
}

// ldConf checks that the directories in ld.so.conf exist. Files of Debian packages are exempt:
// Debian itself names directories for the administrator that are created when first needed.
func (s *state) ldConf(_ context.Context, env *suite.Env) result.Result {
	dirs, err := ldso.ReadConf(env.Root)
	if err != nil {
		return result.Failed("%v", err)
	}
	if len(dirs) == 0 {
		return result.Skipped("the image has no ld.so.conf")
	}
	owned := packageFiles(env.Root, "/etc/ld.so.conf")
	var bad, notes []string
	for _, d := range dirs {
		why, later := comesLater(d.Dir)
		if owned[d.File] {
			why, later = "the file belongs to a Debian package", true
		}
		switch {
		case env.Root.IsDir(d.Dir):
		case later:
			notes = append(notes, fmt.Sprintf("%s names %s, which does not exist: %s", d.File, d.Dir, why))
		default:
			bad = append(bad, fmt.Sprintf("%s names %s, which does not exist", d.File, d.Dir))
		}
	}
	return judge(bad, notes, fmt.Sprintf("%d directories", len(dirs)))
}

// packageFiles returns the files with a prefix that belong to Debian packages.
func packageFiles(root rootfs.FS, prefix string) map[string]bool {
	owned := map[string]bool{}
	lists, err := root.Glob("/var/lib/dpkg/info/*.list")
	if err != nil {
		return owned
	}
	for _, list := range lists {
		f, err := root.Open(list)
		if err != nil {
			continue
		}
		for sc := bufio.NewScanner(f); sc.Scan(); {
			if strings.HasPrefix(sc.Text(), prefix) {
				owned[sc.Text()] = true
			}
		}
		f.Close()
	}
	return owned
}

// profilePath is the file in which the build puts the environment for login shells, which do not
// inherit the image's environment.
const profilePath = "/etc/profile.d/assay.sh"

// profile checks that profilePath sets the variables to the same values as the image's environment.
func (s *state) profile(_ context.Context, env *suite.Env) result.Result {
	b, err := env.Root.ReadFile(profilePath, 1<<20)
	if errors.Is(err, fs.ErrNotExist) {
		return result.Skipped("there is no %s", profilePath)
	}
	if err != nil {
		return result.Failed("%v", err)
	}
	vars, err := parseProfile(string(b))
	if err != nil {
		return result.Failed("%s:%v", profilePath, err)
	}
	var bad []string
	for _, v := range vars {
		if have := env.Getenv(v.name); !v.agrees(have) {
			bad = append(bad, fmt.Sprintf("%s is %q for login shells and %q in the image", v.name, v.value, have))
		}
	}
	return judge(bad, nil, fmt.Sprintf("%d variables", len(vars)))
}
