// Package mirror determines where a download or image is really fetched from: it expands the
// schemes that represent a client's default (those of distributions' archives, goproxy:) and applies
// the user's --mirror FROM=TO rules, for air-gapped sites and tests.
package mirror

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"

	"github.com/assay-hpc/assay/build/archive"
)

// A Rule redirects every URL or image reference that starts with From.
type Rule struct {
	From, To string // no credentials; To is the absolute path of a directory, or a URL or reference
	auth     credential
}

// IsPath reports whether [Resolver.URL] returned the path of a file of this machine. Only a rule
// whose To is a directory leads to one: no URL of a lock or of a server is a path.
func IsPath(at string) bool { return strings.HasPrefix(at, "/") }

// ParseRule reads "FROM=TO". If TO is a URL, it may have a user and password. If it is an
// absolute path, it is a directory that contains each download at its URL's own path.
func ParseRule(s string) (Rule, error) {
	from, to, ok := strings.Cut(s, "=")
	bad := func(format string, args ...any) (Rule, error) {
		shown := userinfo.ReplaceAllString(from, "***@")
		if ok && strings.ContainsAny(to, "@:") { // it may contain a password, in any form
			shown += "=…"
		} else if ok {
			shown += "=" + to
		}
		return Rule{}, fmt.Errorf("--mirror %q "+format, append([]any{shown}, args...)...)
	}
	if !ok || from == "" || to == "" || strings.ContainsFunc(s, forbidden) || strings.Contains(from, "://") && userinfo.MatchString(from) {
		return bad("is not FROM=TO, for example docker.io=mirror.example:5000")
	}
	if dir, ok := strings.CutPrefix(to, "file://"); ok {
		to = dir
	}
	if IsPath(to) {
		if !strings.Contains(from, ":") {
			return bad("redirects image references to a directory; a directory holds downloads, and images want a registry")
		}
		if strings.ContainsAny(to, "?#%") {
			return bad("names a directory with ?, # or %% in its path; choose another")
		}
		return Rule{From: strings.TrimSuffix(from, "/"), To: "/" + strings.Trim(to, "/")}, nil
	}
	isURL := strings.Contains(to, "://")
	from, to = strings.TrimSuffix(from, "/"), strings.TrimSuffix(to, "/")
	if !isURL {
		if host, _, _ := strings.Cut(to, "/"); strings.Contains(host, "@") {
			return bad("has a user or password for a registry; give them to: docker login")
		}
		return Rule{From: from, To: to}, nil
	}
	plain, auth, usable := split(to)
	if !usable {
		return bad("redirects to no URL that can be used: SCHEME://[USER:PASSWORD@]HOST[:PORT][/PATH], with %%XX for what a URL cannot hold, and no space in user or password")
	}
	return Rule{from, plain, auth}, nil
}

// userinfo matches user and password, which errors omit.
var userinfo = regexp.MustCompile(`[^/=\s]*@`)

// forbidden reports whether the character cannot occur in a URL or reference; [Sed] relies on it.
func forbidden(c rune) bool { return c <= ' ' || c == 0x7f || strings.ContainsRune(`"'\`+"`|^<>", c) }

// A Resolver maps the names in recipes to the locations to fetch from.
type Resolver struct {
	rules []Rule // longest From first
	// Defaults has, for the scheme of each archive ("debian:") and goProxy, a function that
	// returns the root URL, which may have a credential.
	Defaults map[string]func() (string, error)
}

const goProxy = "goproxy:"

// A scheme begins a name in a lock and stands for a default's root URL, with a suffix.
type scheme struct{ name, of, suffix string }

var schemes = func() []scheme {
	all := []scheme{{goProxy, goProxy, ""}}
	for _, s := range archive.Schemes() {
		all = append(all, scheme{s.Name, s.Archive.Scheme, s.Suffix})
	}
	return all
}()

// New returns a resolver with the given rules; the longest match wins.
func New(rules ...Rule) *Resolver {
	rules = slices.Clone(rules)
	slices.SortStableFunc(rules, func(a, b Rule) int { return cmp.Compare(len(b.From), len(a.From)) })
	defaults := map[string]func() (string, error){goProxy: sync.OnceValues(DefaultGoProxy)}
	for _, a := range archive.All {
		defaults[a.Scheme] = sync.OnceValues(func() (string, error) { return DefaultArchive(a) })
	}
	return &Resolver{rules: rules, Defaults: defaults}
}

// Rules returns the rules, longest first.
func (r *Resolver) Rules() []Rule { return r.rules }

// URL returns where a download's URL is fetched from: a URL, or the absolute path of a file
// ([IsPath]). Rules are applied first to the name as
// written in the lock, then to the expanded URL.
func (r *Resolver) URL(u string) (string, error) {
	if to, ok := r.apply(u); ok {
		return to, nil
	}
	root, rest, err := r.expand(u)
	if err != nil {
		return "", err
	}
	if root == "" {
		return u, nil
	}
	full := root + "/" + rest
	if to, ok := r.apply(full); ok {
		return to, nil
	}
	return full, nil
}

// Name is the inverse of URL, for URLs that a package tool reports: it returns the name to put
// into the lock.
func (r *Resolver) Name(u string) string {
	longest := -1
	name := u
	for _, rule := range r.rules {
		if rest, ok := under(u, rule.To); ok && len(rule.To) > longest {
			if strings.HasSuffix(rule.From, ":") {
				rest = strings.TrimPrefix(rest, "/")
			}
			name, longest = join(rule.From, rest), len(rule.To)
		}
	}
	u = name
	for _, s := range schemes {
		if s.name == goProxy {
			continue // no package tool reports its URLs
		}
		if root, err := r.Root(s.name); err == nil {
			if rest, ok := under(u, root); ok {
				return s.name + strings.TrimPrefix(rest, "/")
			}
		}
	}
	return u
}

// Image returns the reference to pull for a reference in the matrix.
func (r *Resolver) Image(ref string) string {
	// A rule for a scheme is not for images: "ubuntu:24.04" is one.
	images := Resolver{rules: slices.DeleteFunc(slices.Clone(r.rules), func(r Rule) bool { return strings.HasSuffix(r.From, ":") })}
	if to, ok := images.apply(ref); ok {
		return to
	}
	return ref
}

// Sed returns a sed script that applies the rules to text such as apt's source lists. Each URL is
// redirected once: no rule changes the result of another.
func (r *Resolver) Sed() string {
	var find, put strings.Builder
	for i, rule := range r.texts() {
		from, mark := sedSpecial.ReplaceAllString(rule.From, `\$0`), fmt.Sprintf("@assay%d@", i)
		fmt.Fprintf(&find, `s|%[1]s\([/[:space:]]\)|%[2]s\1|g;s|%[1]s$|%[2]s|;`, from, mark)
		fmt.Fprintf(&put, "s|%s|%s|g;", mark, strings.ReplaceAll(rule.To, "&", `\&`))
	}
	return find.String() + put.String()
}

var sedSpecial = regexp.MustCompile(`[][.*$]`)

// texts returns the rules in the order in which URL tries them, in the form that applies to a
// text of plain URLs.
func (r *Resolver) texts() []Rule {
	var names, urls []Rule
	for _, rule := range r.rules {
		if IsPath(rule.To) {
			continue // builders cannot read the directory
		}
		if strings.Contains(rule.From, "://") {
			urls = append(urls, rule)
		} else if root, rest, err := r.expand(rule.From); err == nil && root != "" {
			names = append(names, Rule{From: strings.TrimSuffix(root+"/"+rest, "/"), To: rule.To})
		}
	}
	return append(names, urls...)
}

func (r *Resolver) apply(s string) (string, bool) {
	for _, rule := range r.rules {
		if rest, ok := under(s, rule.From); ok {
			if IsPath(rule.To) {
				return downloadFile(rule.To, rest), true
			}
			return join(rule.To, rest), true
		}
	}
	return "", false
}

// downloadFile returns the file of a directory that contains downloads at the path of their URL. It lies
// below the directory whatever the URL says; a query has no part in it.
func downloadFile(dir, rest string) string {
	if i := strings.IndexAny(rest, "?#"); i >= 0 {
		rest = rest[:i]
	}
	if decoded, err := url.PathUnescape(rest); err == nil {
		rest = decoded
	}
	return path.Join(dir, path.Clean("/"+rest))
}

// join appends the rest of a URL to a root; a rule that maps a scheme (debian:) to a URL leaves a
// rest without a slash.
func join(root, rest string) string {
	if rest == "" || strings.ContainsRune("/:@?#", rune(rest[0])) || strings.HasSuffix(root, ":") {
		return root + rest
	}
	return root + "/" + rest
}

// under reports whether s is prefix or lies below it, and the rest.
func under(s, prefix string) (string, bool) {
	rest, ok := strings.CutPrefix(s, prefix)
	if !ok || rest == "" || strings.HasSuffix(prefix, ":") {
		return rest, ok
	}
	if strings.Contains(prefix, "://") {
		return rest, strings.ContainsRune("/?#", rune(rest[0])) // a colon starts another server's port
	}
	if !strings.Contains(prefix, "/") && rest[0] == ':' && strings.Contains(rest, "/") {
		return "", false // a registry on another port
	}
	return rest, strings.ContainsRune("/:@", rune(rest[0]))
}

func (r *Resolver) expand(u string) (root, rest string, err error) {
	for _, s := range schemes {
		if rest, ok := strings.CutPrefix(u, s.name); ok {
			root, err = r.Root(s.name)
			return root, strings.TrimPrefix(rest, "/"), err
		}
	}
	return "", "", nil
}

// Root returns the root URL that a scheme stands for by default, without a credential.
func (r *Resolver) Root(name string) (string, error) {
	s := schemes[slices.IndexFunc(schemes, func(s scheme) bool { return s.name == name })]
	root, err := r.Defaults[s.of]()
	if err != nil {
		return "", err
	}
	root, _, ok := split(root)
	if !ok {
		return "", fmt.Errorf("this machine's default for %s is not a URL that can be used; give --mirror %[1]s=URL", s.of)
	}
	return root + s.suffix, nil
}

// DefaultArchive returns the root of the archive that debootstrap on this machine uses by default.
func DefaultArchive(a archive.Archive) (string, error) {
	program, err := exec.LookPath("debootstrap")
	if err != nil {
		program = "/usr/sbin/debootstrap"
	}
	if real, err := filepath.EvalSymlinks(program); err == nil { // /sbin may be a link
		program = real
	}
	path := filepath.Join(filepath.Dir(program), "..", a.DefaultIn)
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return "", fmt.Errorf("no archive is known here for %s: debootstrap, whose default it is, is not installed (make deps; or --mirror %[1]s=URL where packages are only fetched)", a.Scheme)
	}
	if err != nil {
		return "", err
	}
	for line := range strings.Lines(string(text)) {
		if root := webURL.FindString(line); root != "" && strings.Contains(line, a.DefaultLine) {
			return strings.TrimSuffix(root, "/"), nil
		}
	}
	return "", fmt.Errorf("%s names no default archive for %s; give --mirror %[2]s=URL", path, a.Scheme)
}

var webURL = regexp.MustCompile(`https?://[^"\s]+`)

// DefaultGoProxy returns the first proxy of GOPROXY, as set in the environment or reported by the
// go command.
func DefaultGoProxy() (string, error) {
	list := os.Getenv("GOPROXY")
	if list == "" {
		out, err := exec.CommandContext(context.Background(), "go", "env", "GOPROXY").Output()
		if err != nil {
			return "", fmt.Errorf("no Go module proxy is known here: GOPROXY is not set and the go command did not answer (%w)", err)
		}
		list = strings.TrimSpace(string(out))
	}
	for _, p := range strings.FieldsFunc(list, func(r rune) bool { return r == ',' || r == '|' }) {
		if strings.Contains(p, "://") {
			return strings.TrimSuffix(p, "/"), nil
		}
	}
	return "", fmt.Errorf("GOPROXY=%q names no proxy to fetch from", userinfo.ReplaceAllString(list, "***@"))
}
