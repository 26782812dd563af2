// Package hardwaretest helps to test readers of the hardware database.
package hardwaretest

import (
	"io/fs"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/assay-hpc/assay/internal/hardware"
)

// Changed returns the files of the database, with old replaced by now once, in the first file that
// contains it.
func Changed(t testing.TB, old, now string) fstest.MapFS {
	t.Helper()
	out := fstest.MapFS{}
	done := false
	err := fs.WalkDir(hardware.Files, ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		b, err := fs.ReadFile(hardware.Files, name)
		text := string(b)
		if !done {
			text = strings.Replace(text, old, now, 1)
			done = text != string(b)
		}
		out[name] = &fstest.MapFile{Data: []byte(text)}
		return err
	})
	if err != nil || !done {
		t.Fatalf("no file has %q: %v", old, err)
	}
	return out
}
