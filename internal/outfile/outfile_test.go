package outfile

import (
	"os"
	"path/filepath"
	"testing"
)

// holds returns the files of a directory with their texts.
func holds(t *testing.T, dir string) map[string]string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]string{}
	for _, e := range entries {
		b, _ := os.ReadFile(filepath.Join(dir, e.Name())) // "" for a directory
		out[e.Name()] = string(b)
	}
	return out
}

func TestWrite(t *testing.T) {
	dir := t.TempDir()
	name := filepath.Join(dir, "x")
	for _, text := range []string{"first", "second, longer", ""} {
		if err := Write(name, []byte(text)); err != nil {
			t.Fatal(err)
		}
		if got := holds(t, dir); len(got) != 1 || got["x"] != text {
			t.Errorf("%v; want %q alone", got, text)
		}
	}
	if st, err := os.Stat(name); err != nil || st.Mode() != 0o644 {
		t.Errorf("%v, %v", st.Mode(), err)
	}
	if err := os.Mkdir(filepath.Join(dir, "d"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := Write(filepath.Join(dir, "d"), nil); err == nil || len(holds(t, dir)) != 2 {
		t.Errorf("over a directory: %v, %v", err, holds(t, dir))
	}
	if err := Write(filepath.Join(dir, "none", "x"), nil); err == nil {
		t.Error("into a directory that is not there")
	}
}

// TestDir: all files or none, and no directory that was made for nothing.
func TestDir(t *testing.T) {
	name := filepath.Join(t.TempDir(), "a", "b")
	d, err := OpenDir(name)
	if err != nil {
		t.Fatal(err)
	}
	d.Close()
	if _, err := os.Stat(name); !os.IsNotExist(err) {
		t.Errorf("an empty directory was left: %v", err)
	}
	if d, err = OpenDir(name); err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	if err := d.Write(map[string][]byte{"x": []byte("1"), "y": []byte("2")}); err != nil {
		t.Fatal(err)
	}
	d.Close()
	if got := holds(t, name); len(got) != 2 || got["x"] != "1" || got["y"] != "2" {
		t.Errorf("%v", got)
	}
	if err := os.Mkdir(filepath.Join(name, "z"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := d.Write(map[string][]byte{"z": []byte("3"), "zz": []byte("4")}); err == nil || len(holds(t, name)) != 3 {
		t.Errorf("over a directory: %v, %v", err, holds(t, name))
	}
	if _, err := OpenDir(filepath.Join(name, "x")); err == nil {
		t.Error("a file is not a directory")
	}
}
