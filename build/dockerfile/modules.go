package dockerfile

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	"github.com/assay-hpc/assay/build/recipe"
)

// isGoModule reports whether a mount is a file of a module proxy, at its path below a directory.
func isGoModule(m recipe.Mount) bool {
	file, ok := strings.CutPrefix(m.From.Ref, goProxy)
	return ok && m.From.Kind == recipe.FromURL && strings.HasSuffix(m.Target, "/"+file)
}

const goProxy = "goproxy:"

// modulesMount mounts the modules of a step as one directory: a module cache has the layout of a
// proxy.
func (d *directory) modulesMount(r recipe.Run) []string {
	i := slices.IndexFunc(r.Mounts, isGoModule)
	if d == nil || i < 0 {
		return nil
	}
	at := strings.TrimSuffix(r.Mounts[i].Target, "/"+strings.TrimPrefix(r.Mounts[i].From.Ref, goProxy))
	return []string{"--mount=from=go-modules,source=/go/cache/download,target=" + at}
}

// goModules writes, before the first stage that compiles Go, a stage with the modules of all: the
// go command fetches them, and the lock's digests verify them. They would be hundreds of downloads.
func (w *writer) goModules(s *recipe.Stage) error {
	if w.dir == nil || w.dir.modules || len(moduleMounts(s)) == 0 {
		return nil
	}
	w.dir.modules = true
	proxy, err := w.location(goProxy)
	if err != nil {
		return err
	}
	from, err := w.from(s.From)
	if err != nil {
		return err
	}
	versions, sums := w.moduleList()
	sumsFile := w.dir.put("go-modules/sums", sums)
	flags, login := []string{fmt.Sprintf("--mount=source=%s,target=%s.sums", sumsFile, stepFile)}, ""
	if w.dir.proxied = w.env.Locked != nil && w.env.Locked(proxy); w.dir.proxied {
		login = " NETRC=" + stepFile + ".netrc"
		flags = append(flags, fmt.Sprintf("--mount=type=secret,id=%s,required=true,target=%s.netrc", netrcSecret, stepFile))
	}
	fetch := recipe.Run{Network: true}
	fetch.Add(recipe.Piece{File: "go-modules/fetch.sh", Text: fmt.Sprintf(`export GOPROXY=%s GOSUMDB=off GOTOOLCHAIN=local GOMODCACHE=/go GOCACHE=/tmp/go-cache%s
cd /tmp
/usr/local/go/bin/go mod download%s
cd /go/cache/download
sha256sum --check --strict --quiet %s.sums
`, shellWord(strings.TrimSuffix(proxy, "/")), login, versions, stepFile)})
	fmt.Fprintf(&w.body, "\nFROM %s AS go-modules\n", from)
	w.script(s, flags, fetch)
	return nil
}

// moduleList returns the modules of all stages as arguments of the go command, and the SHA-256 of
// their files.
func (w *writer) moduleList() (versions, sums string) {
	digests := map[string]string{}
	for i := range w.r.Stages {
		for _, m := range moduleMounts(&w.r.Stages[i]) {
			digests[strings.TrimPrefix(m.From.Ref, goProxy)] = strings.TrimPrefix(m.From.Digest, "sha256:")
		}
	}
	open := 0
	for _, file := range slices.Sorted(maps.Keys(digests)) {
		if digests[file] == "" {
			open++
		}
		sums += digests[file] + "  " + file + "\n"
		if module, ok := strings.CutSuffix(file, ".zip"); ok {
			versions += " \\\n  " + unescape(strings.Replace(module, "/@v/", "@", 1))
		}
	}
	if open > 0 {
		w.dir.unknown = append(w.dir.unknown, fmt.Sprintf("in go-modules/sums, the SHA-256 of %d files", open))
	}
	return versions, sums
}

func moduleMounts(s *recipe.Stage) (out []recipe.Mount) {
	for _, st := range s.Steps {
		if run, ok := st.(recipe.Run); ok {
			for _, m := range run.Mounts {
				if isGoModule(m) {
					out = append(out, m)
				}
			}
		}
	}
	return out
}

// unescape undoes the escaping of capital letters in a proxy's paths.
func unescape(module string) string {
	return capital.ReplaceAllStringFunc(module, func(s string) string { return strings.ToUpper(s[1:]) })
}

var capital = regexp.MustCompile(`![a-z]`)
