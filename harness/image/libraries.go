package image

import (
	"context"
	delf "debug/elf"
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/assay-hpc/assay/harness/suite"
	"github.com/assay-hpc/assay/internal/elf"
	"github.com/assay-hpc/assay/internal/ldso"
	"github.com/assay-hpc/assay/internal/result"
)

func isLoadable(f *elf.File) bool { return f.Type == delf.ET_EXEC || f.Type == delf.ET_DYN }

// libraries checks that no file of the image lacks a library. Libraries that the image declares
// absent have their own checks and do not count here; those that the base lacked already are
// listed.
func (s *state) libraries(_ context.Context, _ *suite.Env) result.Result {
	sc, err := s.scan()
	if err != nil {
		return result.Errored("%v", err)
	}
	if len(sc.files)+len(sc.damaged)+len(sc.foreign) == 0 {
		return result.Skipped("the image has no ELF file in the usual directories")
	}
	var out strings.Builder
	fmt.Fprintf(&out, "%d files of %v looked at\n", len(sc.files), sc.kind)
	if n := len(sc.foreign); n > 0 {
		fmt.Fprintf(&out, "%d files for other machines not looked at: %s\n", n, someOf(sc.foreign))
	}
	for lib, files := range sc.absent {
		fmt.Fprintf(&out, "%d files need %s, which is declared absent\n", len(files), lib)
	}
	for _, line := range sc.asideByLibrary() {
		fmt.Fprintln(&out, line)
	}
	faults := slices.Concat(sc.missingByLibrary(), sc.interpreters, sc.damaged)
	for _, f := range faults {
		fmt.Fprintln(&out, f)
	}
	switch {
	case len(faults) > 0:
		return result.Failed("%s", someOf(faults)).WithOutput(out.String())
	case len(sc.files) == 0:
		return result.Skipped("all %d ELF files are for machines other than %v", len(sc.foreign), sc.kind).WithOutput(out.String())
	}
	reason := fmt.Sprintf("%d files", len(sc.files))
	if len(sc.aside) > 0 {
		reason += fmt.Sprintf("; set aside: %s that the base brought, and that lacked libraries there already", sc.asideFiles())
	}
	return result.Passed("%s", reason).WithOutput(out.String())
}

// missingByLibrary returns one line for each library that is missing.
func (s *scan) missingByLibrary() []string {
	by := map[string][]string{}
	for _, m := range s.missing {
		who := m.File
		if m.By != m.File {
			who += " (through " + m.By + ")"
		}
		by[m.Library] = append(by[m.Library], who)
	}
	var lines []string
	for lib, files := range by {
		lines = append(lines, fmt.Sprintf("%s is missing, needed by %s%s", lib, someOf(files), s.hint(lib)))
	}
	slices.Sort(lines)
	return lines
}

// hint returns the likely reason why the loader does not find a library.
func (s *scan) hint(lib string) string {
	if s.base != nil && s.base.libraries[lib] {
		return " (the base had it, and it is gone)"
	}
	s.mu.Lock()
	dirs := s.loader.Unlisted(lib)
	s.mu.Unlock()
	if len(dirs) > 0 {
		return fmt.Sprintf(" (it lies in %s, which ld.so.conf names, but ld.so.cache lacks it: run ldconfig)", dirs[0])
	}
	for _, f := range s.files {
		if path.Base(f) == lib {
			return fmt.Sprintf(" (it lies in %s, where the loader does not look)", path.Dir(f))
		}
	}
	return ""
}

// absentChecks returns a check for each library that is declared absent.
func (s *state) absentChecks() []suite.Check {
	var list []suite.Check
	seen := map[string]bool{}
	for _, a := range s.Spec.Absent {
		if seen[a.Library] {
			continue
		}
		seen[a.Library] = true
		list = append(list, suite.Check{
			ID: "libraries/absent/" + a.Library, Title: "what needs " + a.Library + " finds it",
			Run: func(context.Context, *suite.Env) result.Result { return s.absentLibrary(a.Library, a.Because) },
		})
	}
	return list
}

// absentLibrary returns a skip, or a pass if the image has the library after all.
func (s *state) absentLibrary(library, because string) result.Result {
	sc, err := s.scan()
	if err != nil {
		return result.Errored("%v", err)
	}
	if files := sc.absent[library]; len(files) > 0 {
		return result.Skipped("not in the image, by declaration: %s; %d files need it", because, len(files)).
			WithOutput(strings.Join(files, "\n") + "\n")
	}
	for _, f := range sc.files {
		if slices.Contains(sc.loader.File(f).Needed, library) {
			return result.Passed("it is here, although declared absent: all that need it find it")
		}
	}
	return result.Skipped("nothing in the image needs it at start; it is declared absent: %s", because)
}

// missingNames returns the sorted names of the libraries, without duplicates.
func missingNames(ms []ldso.Missing) []string {
	var names []string
	for _, m := range ms {
		names = append(names, m.Library)
	}
	slices.Sort(names)
	return slices.Compact(names)
}
