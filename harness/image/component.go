package image

import (
	"context"
	"fmt"
	"io/fs"
	"path"
	"regexp"
	"strings"
	"time"

	"github.com/assay-hpc/assay/harness/suite"
	"github.com/assay-hpc/assay/internal/certificate"
	"github.com/assay-hpc/assay/internal/confine"
	"github.com/assay-hpc/assay/internal/result"
)

// componentChecks turns the declared checks into checks of the suite. A component without declared
// checks is listed as a skip.
func (s *state) componentChecks() []suite.Check {
	var list []suite.Check
	used := map[string]int{}
	add := func(component, name, title string, c suite.Check) {
		id := "component/" + slug(component)
		if name != "" {
			id += "/" + slug(name)
		}
		if used[id]++; used[id] > 1 {
			id += fmt.Sprintf("#%d", used[id])
		}
		c.ID, c.Component, c.Title = id, component, title
		list = append(list, c)
	}
	for _, comp := range s.Spec.Components {
		if len(comp.Checks) == 0 && comp.Name != "harness" { // the harness has harness/version
			add(comp.Name, "", comp.Name+" works", suite.Check{Run: func(context.Context, *suite.Env) result.Result {
				return result.Skipped("the declaration gives no check for this component")
			}})
		}
		for _, c := range comp.Checks {
			add(comp.Name, c.Name, comp.Name+": "+c.Name, suite.Check{
				Timeout: time.Duration(c.Seconds) * time.Second,
				Run:     func(ctx context.Context, env *suite.Env) result.Result { return s.component(ctx, env, c) },
			})
		}
	}
	return list
}

// component runs one declared check.
func (s *state) component(ctx context.Context, env *suite.Env, c certificate.Check) result.Result {
	switch c.Kind {
	case certificate.CheckCommand:
		return s.command(ctx, env, c)
	case certificate.CheckFile:
		return checkFile(env, c)
	case certificate.CheckLoad:
		return s.load(ctx, env, c)
	}
	return result.Errored("this harness knows no kind of check %q", c.Kind)
}

func (s *state) command(ctx context.Context, env *suite.Env, c certificate.Check) result.Result {
	if len(c.Command) == 0 {
		return result.Errored("the declared check has no command")
	}
	match, err := regexp.Compile(c.Match)
	if err != nil {
		return result.Errored("the declared check's match: %v", err)
	}
	if s.Runner == nil {
		return result.Skipped(notInside)
	}
	out, err := s.run(ctx, env, confine.Program{Args: c.Command, Env: c.Env})
	if err != nil {
		return s.excuse(env, c.Command[0], result.Failed("%v", err).WithOutput(out))
	}
	if !match.MatchString(out) {
		return result.Failed("%s printed nothing that matches %q", strings.Join(c.Command, " "), c.Match).WithOutput(out)
	}
	return result.Passed("%s", match.FindString(out)).WithOutput(out)
}

// cannotLoad matches the message with which glibc's and musl's loaders give up.
var cannotLoad = regexp.MustCompile(`(?i)error (while )?loading shared librar`)

// excuse turns the failure of a program into a skip if the loader gave up and all missing libraries
// are declared absent: the program was never started.
func (s *state) excuse(env *suite.Env, program string, failure result.Result) result.Result {
	p, err := env.Root.LookPath(program, env.Getenv("PATH"))
	if err != nil || !cannotLoad.MatchString(failure.Output) {
		return failure
	}
	if p, err = env.Root.Resolve(p); err != nil {
		return failure
	}
	if reason, only := s.onlyAbsent(p); only {
		return result.Skipped("%s", reason).WithOutput(failure.Output)
	}
	return failure
}

// onlyAbsent reports whether a file lacks libraries, and all of them are declared absent.
func (s *state) onlyAbsent(p string) (reason string, only bool) {
	sc, err := s.scan()
	if err != nil {
		return "", false
	}
	names := missingNames(sc.unresolved(p))
	for _, lib := range names {
		because, ok := s.absent(lib)
		if !ok {
			return "", false
		}
		reason += fmt.Sprintf("it needs %s, which is declared absent: %s; ", lib, because)
	}
	return strings.TrimSuffix(reason, "; "), len(names) > 0
}

func checkFile(env *suite.Env, c certificate.Check) result.Result {
	st, err := env.Root.Stat(c.Path)
	if err != nil {
		return result.Failed("%v", err)
	}
	have := mode(st.Mode())
	if have&c.Mode != c.Mode {
		return result.Failed("%s has mode %04o; %04o must be set", c.Path, have, c.Mode)
	}
	if c.Mode&0o111 != 0 && !st.Mode().IsRegular() && !st.IsDir() {
		return result.Failed("%s is no regular file: %v", c.Path, st.Mode().Type())
	}
	return result.Passed("%s, %s, mode %04o", c.Path, describeSize(st), have)
}

func describeSize(st fs.FileInfo) string {
	if st.IsDir() {
		return "a directory"
	}
	return fmt.Sprintf("%d bytes", st.Size())
}

// load lets the image's own dynamic loader load a library into a program that does nothing, with
// every symbol bound at once.
func (s *state) load(ctx context.Context, env *suite.Env, c certificate.Check) result.Result {
	if !path.IsAbs(c.Path) || strings.ContainsAny(c.Path, ": \t\n") {
		return result.Errored("the library %q must be an absolute path without colons and spaces", c.Path)
	}
	sc, err := s.scan()
	if err != nil {
		return result.Errored("%v", err)
	}
	real, err := env.Root.Resolve(c.Path)
	if err != nil {
		return result.Failed("%v", err)
	}
	if missing := missingNames(sc.unresolved(c.Path)); len(missing) > 0 {
		if reason, only := s.onlyAbsent(c.Path); only {
			return result.Skipped("%s", reason)
		}
		return result.Failed("%s lacks %s", c.Path, strings.Join(missing, ", "))
	}
	if s.Runner == nil {
		return result.Skipped(notInside)
	}
	return s.preload(ctx, env, sc, c, real)
}

// preload runs /bin/true with the library. glibc's loader reports a library that it cannot open on
// stderr and continues; a missing symbol ends the program.
func (s *state) preload(ctx context.Context, env *suite.Env, sc *scan, c certificate.Check, real string) result.Result {
	sc.mu.Lock()
	host := sc.loader.File("/bin/true")
	lib := sc.loader.File(real)
	sc.mu.Unlock()
	switch {
	case lib == nil || !lib.Dynamic:
		return result.Failed("%s is no shared library", c.Path)
	case lib.Kind != sc.kind:
		return result.Failed("%s is for %v, not %v", c.Path, lib.Kind, sc.kind)
	case host == nil || host.Interp == "":
		return result.Errored("the image has no dynamically linked /bin/true to load a library into")
	}
	extra := append([]string{"LC_ALL=C", "LD_BIND_NOW=1", "LD_PRELOAD=" + c.Path}, c.Env...)
	out, err := s.run(ctx, env, confine.Program{Args: []string{"/bin/true"}, Env: extra})
	if err != nil || strings.Contains(out, "ERROR: ld.so:") {
		return result.Failed("the loader refuses %s: %s", c.Path, firstLine(out, err)).WithOutput(out)
	}
	return result.Passed("%s", c.Path)
}

// firstLine returns the first non-empty line of the output, else the error.
func firstLine(out string, err error) string {
	for line := range strings.Lines(out) {
		if line = strings.TrimSpace(line); line != "" {
			return line
		}
	}
	return fmt.Sprint(err)
}
