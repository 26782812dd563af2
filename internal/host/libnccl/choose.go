package libnccl

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// Which NCCL a command gets: values of "harness exec --engine" and of Variable.
const (
	WishOurs   = "ours"
	WishNVIDIA = "nvidia"
	WishAuto   = "auto"
)

// Variable is the environment variable that chooses for commands without --engine.
const Variable = "ASSAY_NCCL"

// Wish returns which NCCL a command should get: the value of the flag, or else of Variable. ""
// means that nothing is to be changed.
func Wish(flag string) (string, error) {
	wish, from := flag, "--engine"
	if wish == "" {
		wish, from = os.Getenv(Variable), Variable
	}
	switch wish {
	case "", WishOurs, WishNVIDIA, WishAuto:
		return wish, nil
	}
	return "", fmt.Errorf("%s is %s, %s or %s, not %q", from, WishOurs, WishNVIDIA, WishAuto, wish)
}

// Choose returns the environment in which a program gets the NCCL of a wish, and a line that says
// which one it is, "" if nothing was changed. driver says whether there is a GPU driver.
func Choose(wish string, driver bool, environ []string) (_ []string, said string, err error) {
	if wish == "" {
		return environ, "", nil
	}
	self, err := os.Executable()
	if err != nil {
		return nil, "", err
	}
	in := places(self)
	switch wish {
	case WishOurs:
		ours, err := findOurs(in)
		if err != nil {
			return nil, "", err
		}
		environ, said = withOurs(ours, environ)
	case WishNVIDIA:
		environ, said = withNVIDIA(environ)
	default:
		ours, err := findOurs(in)
		if err != nil || !driver || preloaded(environ) {
			return environ, "", nil
		}
		environ, said = withOurs(ours, environ)
		return environ, said, nil
	}
	// The program may start others through harness exec.
	return setIn(environ, Variable, wish), said, nil
}

// places returns the paths at which our library may be: in images it is in the
// directory lib next to the program's bin, after make libnccl next to the program.
func places(self string) []string {
	bin := filepath.Dir(self)
	return []string{filepath.Join(filepath.Dir(bin), "lib", Name), filepath.Join(bin, Name)}
}

// preloaded reports whether LD_PRELOAD already contains an NCCL library.
func preloaded(environ []string) bool {
	return slices.ContainsFunc(entries(environ, "LD_PRELOAD"), func(file string) bool { return filepath.Base(file) == Name })
}

// findOurs returns the path of our library.
func findOurs(places []string) (string, error) {
	var wrong []string
	for _, p := range places {
		err := installed(p)
		if err == nil {
			return p, nil
		}
		wrong = append(wrong, err.Error())
	}
	return "", fmt.Errorf("assay's %s was not found: %s; remedy: make libnccl makes it and %s: copy both into one of these directories, or take --engine %s",
		Name, strings.Join(wrong, "; "), Engine, WishNVIDIA)
}

// withOurs preloads our library: a program that brings its own NCCL finds that by an
// RPATH, which precedes LD_LIBRARY_PATH. LD_LIBRARY_PATH is for programs that look for
// the file.
func withOurs(ours string, environ []string) ([]string, string) {
	environ = withoutLibraries(environ, func(file string) bool { return file == ours })
	environ = prepend(environ, "LD_PRELOAD", ours)
	environ = prepend(environ, "LD_LIBRARY_PATH", filepath.Dir(ours))
	return environ, "NCCL is assay's: " + ours
}

// withNVIDIA removes our library, and ensures that the loader finds NVIDIA's.
func withNVIDIA(environ []string) ([]string, string) {
	environ = withoutLibraries(environ, func(file string) bool {
		id, err := ReadFile(file)
		return err == nil && id.Maker == Assay
	})
	dir, first := FindNVIDIA(valueIn(environ, "LD_LIBRARY_PATH"))
	if dir == "" {
		return environ, "NCCL is what the program brings: the loader finds none of NVIDIA's"
	}
	// If the loader finds it anyway, its directory in front would only hide files of other
	// libraries.
	if !first {
		environ = prepend(environ, "LD_LIBRARY_PATH", dir)
	}
	return environ, "NCCL is NVIDIA's: " + filepath.Join(dir, Name) + ", unless the program brings its own"
}

// withoutLibraries removes libraries from LD_PRELOAD, and their directories from
// LD_LIBRARY_PATH.
func withoutLibraries(environ []string, out func(file string) bool) []string {
	environ = withoutEntries(environ, "LD_PRELOAD", out)
	return withoutEntries(environ, "LD_LIBRARY_PATH", func(dir string) bool { return out(filepath.Join(dir, Name)) })
}

// entries returns the entries of one of the loader's lists.
func entries(environ []string, name string) []string {
	between := ":;"
	if name == "LD_PRELOAD" {
		between = ": "
	}
	return strings.FieldsFunc(valueIn(environ, name), func(r rune) bool { return strings.ContainsRune(between, r) })
}

// withoutEntries removes entries from one of the loader's lists.
func withoutEntries(environ []string, name string, out func(string) bool) []string {
	all := entries(environ, name)
	kept := slices.DeleteFunc(slices.Clone(all), out)
	if len(kept) == len(all) {
		return environ
	}
	return setIn(environ, name, strings.Join(kept, ":"))
}

// prepend puts an entry in front of a list.
func prepend(environ []string, name, entry string) []string {
	if old := valueIn(environ, name); old != "" {
		entry += ":" + old
	}
	return setIn(environ, name, entry)
}

// valueIn returns a variable's value. The first of duplicates counts, as for getenv.
func valueIn(environ []string, name string) string {
	for _, e := range environ {
		if v, ok := strings.CutPrefix(e, name+"="); ok {
			return v
		}
	}
	return ""
}

// setIn sets a variable. With an empty value it removes the variable.
func setIn(environ []string, name, value string) []string {
	environ = slices.DeleteFunc(slices.Clone(environ), func(e string) bool { return strings.HasPrefix(e, name+"=") })
	if value == "" {
		return environ
	}
	return append(environ, name+"="+value)
}
