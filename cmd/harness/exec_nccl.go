package main

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/assay-hpc/assay/harness/libnccl"
	"github.com/assay-hpc/assay/harness/sysfs"
)

// Whose NCCL a command is to have: what --engine and ASSAY_NCCL take.
const (
	ncclOurs   = "ours"
	ncclNVIDIA = "nvidia"
	ncclAuto   = "auto"

	ncclVariable = "ASSAY_NCCL"
)

// ncclWish is what the flag says, or else the environment; "": nothing is to be changed.
func ncclWish(flag string) (string, error) {
	wish, from := flag, "--engine"
	if wish == "" {
		wish, from = os.Getenv(ncclVariable), ncclVariable
	}
	switch wish {
	case "", ncclOurs, ncclNVIDIA, ncclAuto:
		return wish, nil
	}
	return "", usagef("exec: %s is %s, %s or %s, not %q", from, ncclOurs, ncclNVIDIA, ncclAuto, wish)
}

// hasDriver reports whether the kernel's part of a GPU driver is loaded. The rest of
// it takes a second to say so.
func hasDriver(root string) bool {
	machine, err := sysfs.Open(root)
	if err != nil {
		return false
	}
	_, err = machine.Text("/proc/driver/nvidia/version")
	return err == nil
}

// chooseNCCL returns the environment of a program that is to have the NCCL of a wish,
// and says in a line which that is: "" where nothing was changed.
func chooseNCCL(wish string, driver bool, environ []string) (_ []string, said string, err error) {
	if wish == "" {
		return environ, "", nil
	}
	self, err := os.Executable()
	if err != nil {
		return nil, "", err
	}
	places := ncclPlaces(self)
	switch wish {
	case ncclOurs:
		ours, err := findOurs(places)
		if err != nil {
			return nil, "", err
		}
		environ, said = withOurs(ours, environ)
	case ncclNVIDIA:
		environ, said = withNVIDIA(environ)
	default:
		ours, err := findOurs(places)
		if err != nil || !driver || preloaded(environ) {
			return environ, "", nil
		}
		environ, said = withOurs(ours, environ)
		return environ, said, nil
	}
	// Programs that this one starts may come by harness exec, too.
	return setIn(environ, ncclVariable, wish), said, nil
}

// ncclPlaces are where our library may be: in images it is in the directory lib
// beside the program's bin, after make libnccl beside the program.
func ncclPlaces(self string) []string {
	bin := filepath.Dir(self)
	return []string{filepath.Join(filepath.Dir(bin), "lib", libnccl.Name), filepath.Join(bin, libnccl.Name)}
}

// preloaded reports whether somebody has chosen a library already.
func preloaded(environ []string) bool {
	return slices.ContainsFunc(entries(environ, "LD_PRELOAD"), func(file string) bool { return filepath.Base(file) == libnccl.Name })
}

// findOurs returns our library.
func findOurs(places []string) (string, error) {
	var wrong []string
	for _, p := range places {
		err := libnccl.Installed(p)
		if err == nil {
			return p, nil
		}
		wrong = append(wrong, err.Error())
	}
	return "", fmt.Errorf("assay's %s was not found: %s; remedy: make libnccl makes it and %s: copy both into one of these directories, or take --engine %s",
		libnccl.Name, strings.Join(wrong, "; "), libnccl.Engine, ncclNVIDIA)
}

// withOurs preloads our library: a program that brings one of its own finds that by
// an RPATH, before LD_LIBRARY_PATH counts. The latter is for programs that look for the file.
func withOurs(ours string, environ []string) ([]string, string) {
	environ = withoutLibraries(environ, func(file string) bool { return file == ours })
	environ = prepend(environ, "LD_PRELOAD", ours)
	environ = prepend(environ, "LD_LIBRARY_PATH", filepath.Dir(ours))
	return environ, "NCCL is assay's: " + ours
}

// withNVIDIA takes ours out, and sees to it that the loader finds NVIDIA's.
func withNVIDIA(environ []string) ([]string, string) {
	environ = withoutLibraries(environ, func(file string) bool {
		id, err := libnccl.ReadFile(file)
		return err == nil && id.Maker == libnccl.Assay
	})
	dir, first := libnccl.FindNVIDIA(valueIn(environ, "LD_LIBRARY_PATH"))
	if dir == "" {
		return environ, "NCCL is what the program brings: the loader finds none of NVIDIA's"
	}
	// Where it is found anyhow, its directory in front would only hide others' files.
	if !first {
		environ = prepend(environ, "LD_LIBRARY_PATH", dir)
	}
	return environ, "NCCL is NVIDIA's: " + filepath.Join(dir, libnccl.Name) + ", unless the program brings its own"
}

// withoutLibraries takes libraries out of LD_PRELOAD, and their directories out of
// LD_LIBRARY_PATH.
func withoutLibraries(environ []string, out func(file string) bool) []string {
	environ = withoutEntries(environ, "LD_PRELOAD", out)
	return withoutEntries(environ, "LD_LIBRARY_PATH", func(dir string) bool { return out(filepath.Join(dir, libnccl.Name)) })
}

// entries are those of one of the loader's lists.
func entries(environ []string, name string) []string {
	between := ":;"
	if name == "LD_PRELOAD" {
		between = ": "
	}
	return strings.FieldsFunc(valueIn(environ, name), func(r rune) bool { return strings.ContainsRune(between, r) })
}

// withoutEntries takes entries out of one of the loader's lists.
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

// valueIn is a variable's value; the first of two counts, as for getenv.
func valueIn(environ []string, name string) string {
	for _, e := range environ {
		if v, ok := strings.CutPrefix(e, name+"="); ok {
			return v
		}
	}
	return ""
}

// setIn gives a variable a value; with none it is taken out.
func setIn(environ []string, name, value string) []string {
	environ = slices.DeleteFunc(slices.Clone(environ), func(e string) bool { return strings.HasPrefix(e, name+"=") })
	if value == "" {
		return environ
	}
	return append(environ, name+"="+value)
}
