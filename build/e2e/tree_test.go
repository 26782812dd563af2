package e2e

import (
	"crypto/sha256"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"sort"
	"strconv"
	"syscall"
	"testing"

	"github.com/assay-hpc/assay/build/driver"
)

func epoch(w *driver.Workspace) string { return strconv.FormatInt(w.Lock.Epoch, 10) }

// tree describes every file below root: type, permissions, owner, and content
// or link target.
func tree(t *testing.T, root string) map[string]string {
	t.Helper()
	out := map[string]string{}
	err := filepath.WalkDir(root, func(p string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		st := info.Sys().(*syscall.Stat_t)
		what := ""
		switch {
		case info.Mode()&fs.ModeSymlink != 0:
			what, err = os.Readlink(p)
		case info.Mode().IsRegular():
			what, err = sum(p)
		}
		name, _ := filepath.Rel(root, p)
		out[name] = fmt.Sprintf("%s %d:%d %s", info.Mode(), st.Uid, st.Gid, what)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func sum(p string) (string, error) {
	f, err := os.Open(p)
	if err != nil {
		return "", err
	}
	defer f.Close()
	h := sha256.New()
	_, err = io.Copy(h, f)
	return fmt.Sprintf("%x", h.Sum(nil)), err
}

// compareTrees reports every path in which two trees differ.
func compareTrees(t *testing.T, a, b string) {
	t.Helper()
	ta, tb := tree(t, a), tree(t, b)
	paths := map[string]bool{}
	for p := range ta {
		paths[p] = true
	}
	for p := range tb {
		paths[p] = true
	}
	var differ []string
	for p := range paths {
		if ta[p] != tb[p] {
			differ = append(differ, fmt.Sprintf("%s: %q and %q", p, ta[p], tb[p]))
		}
	}
	sort.Strings(differ)
	for i, d := range differ {
		if i == 20 {
			t.Errorf("… and %d more", len(differ)-20)
			break
		}
		t.Error(d)
	}
	t.Logf("%d paths compared", len(paths))
}
