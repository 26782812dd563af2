package recipe

import (
	"fmt"
	"net/url"
	"regexp"
	"slices"
	"strings"

	"github.com/assay-hpc/assay/build/archive"
)

var (
	hexSum     = regexp.MustCompile(`^[0-9a-f]{64}$`)
	debName    = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9+.-]*$`)
	debVersion = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9.+:~-]*$`)
	debArch    = regexp.MustCompile(`^[a-z0-9][a-z0-9-]*$`)
	plainURL   = regexp.MustCompile(`^[a-z][a-z0-9+-]*:[A-Za-z0-9!#%&+,./:=?@_~-]+$`)
)

// A FieldError says which field of a pinned item is invalid, and why.
type FieldError struct{ Field, Value, Why string }

func (e *FieldError) Error() string {
	value := e.Value
	if len(value) > 100 {
		value = value[:100] + "…"
	}
	return fmt.Sprintf("%s: %q %s", e.Field, value, e.Why)
}

// Validate reports the first malformed field. Fields become file names and words of scripts that
// run as root.
func (d Deb) Validate() error {
	if err := ValidatePackage(d.Name, d.Version); err != nil {
		return err
	}
	for _, f := range []formed{{"arch", d.Arch, debArch, "is not an architecture"}, {"sha256", d.SHA256, hexSum, "is not a SHA-256 of 64 hex digits"}} {
		if err := f.validate(); err != nil {
			return err
		}
	}
	if d.Size < 0 {
		return &FieldError{"size", fmt.Sprint(d.Size), "is negative"}
	}
	return ValidateURL("url", d.URL)
}

// ValidatePackage reports a name or a version that is none of a package.
func ValidatePackage(name, version string) error {
	for _, f := range []formed{{"name", name, debName, "is not a package name"}, {"version", version, debVersion, "is not a package version"}} {
		if err := f.validate(); err != nil {
			return err
		}
	}
	return nil
}

// A formed is a field with the form that its value must have.
type formed struct {
	field, value string
	form         *regexp.Regexp
	what         string
}

func (f formed) validate() error {
	if len(f.value) > 200 || !f.form.MatchString(f.value) {
		return &FieldError{f.field, f.value, f.what}
	}
	return nil
}

// schemes are those of URLs of downloads. All but the first two stand for what a mirror or a default
// says.
var schemes = func() []string {
	all := []string{"https", "http", "goproxy"}
	for _, s := range archive.Schemes() {
		all = append(all, strings.TrimSuffix(s.Name, ":"))
	}
	return all
}()

// ValidateURL reports why a text is not the URL of a download. Such a URL has a known scheme, only
// characters that a URL may contain unescaped and that no shell interprets, no user, no path
// element that leaves a directory, and a file name at the end.
func ValidateURL(field, s string) error {
	bad := func(why string) error { return &FieldError{field, s, why} }
	if len(s) > 2000 || !plainURL.MatchString(s) {
		return bad("is not a URL of plain characters")
	}
	u, err := url.Parse(s)
	if err != nil {
		return bad("is not a URL")
	}
	if u.User != nil {
		u.User = nil
		return &FieldError{field, u.String(), "holds a user; credentials belong to --mirror FROM=TO"}
	}
	path := u.Path
	if !slices.Contains(schemes, u.Scheme) {
		return bad("has a scheme that nothing is downloaded by; these are " + strings.Join(schemes, ", "))
	}
	switch {
	case u.Opaque != "":
		path, err = url.PathUnescape(u.Opaque)
	case u.Host == "":
		return bad("names no host")
	}
	if err != nil {
		return bad("is not a URL")
	}
	parts := strings.Split(path, "/")
	for _, p := range parts {
		if p == ".." { // apt uses "." in the URLs of flat repositories, NVIDIA's among them
			return bad("has a part that leads elsewhere")
		}
	}
	if last := parts[len(parts)-1]; last == "" || last == "." || strings.HasPrefix(last, "-") {
		return bad("does not end in the name of a file")
	}
	return nil
}
