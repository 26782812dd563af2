package lock

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"time"
	"unicode"

	"github.com/assay-hpc/assay/build/recipe"
)

var (
	reference  = regexp.MustCompile(`^[a-z0-9][a-z0-9.-]*(:[0-9]+)?(/[a-z0-9][a-z0-9._-]*)*(:[A-Za-z0-9_][A-Za-z0-9_.-]*)?$`)
	setKey     = regexp.MustCompile(`^[a-z0-9][a-z0-9._-]*([+]own)?/[a-z0-9]+$`)
	digestForm = regexp.MustCompile(`^sha256:[0-9a-f]{64}$`)
	request    = regexp.MustCompile(`^[A-Za-z0-9 ._+-]*$`)
)

// lastDay is the latest epoch with a four-digit year.
var lastDay = time.Date(9999, 12, 31, 0, 0, 0, 0, time.UTC).Unix()

// validate reports the first entry, in the file's order, with a malformed field. The values of a
// lock become paths, image references and words of scripts that run as root.
func (l *Lock) validate() error {
	if l.Epoch < 0 || l.Epoch > lastDay {
		return &recipe.FieldError{Field: "epoch", Value: fmt.Sprint(l.Epoch), Why: "is not a time from 1970 to 9999"}
	}
	for _, k := range slices.Sorted(maps.Keys(l.Images)) {
		if err := match("images", k, reference, "is not a reference to an image"); err != nil {
			return err
		}
		if err := l.Images[k].validate(); err != nil {
			return fmt.Errorf("images: %s: %w", k, err)
		}
	}
	for _, k := range slices.Sorted(maps.Keys(l.Downloads)) {
		if err := recipe.ValidateURL("downloads", k); err != nil {
			return err
		}
		if err := l.Downloads[k].validate(); err != nil {
			return fmt.Errorf("downloads: %s: %w", k, err)
		}
	}
	for _, k := range slices.Sorted(maps.Keys(l.Debs)) {
		if err := match("debs", k, setKey, "is not NAME/ARCHITECTURE"); err != nil {
			return err
		}
		if err := l.Debs[k].validate(); err != nil {
			return fmt.Errorf("debs: %s: %w", k, err)
		}
	}
	for _, k := range slices.Sorted(maps.Keys(l.Wheels)) {
		if err := match("wheels", k, setKey, "is not NAME/ARCHITECTURE"); err != nil {
			return err
		}
		if err := l.Wheels[k].validate(); err != nil {
			return fmt.Errorf("wheels: %s: %w", k, err)
		}
	}
	return nil
}

func (s WheelSet) validate() error {
	if err := match("request", s.Request, request, "is not a request"); err != nil {
		return err
	}
	seen := map[string]bool{}
	for i, w := range s.Wheels {
		err := w.Validate()
		if err == nil && seen[w.File()] {
			err = &recipe.FieldError{Field: "url", Value: w.URL, Why: "has the file name of another wheel of the set"}
		}
		if err != nil {
			return fmt.Errorf("wheel %d: %w", i+1, err)
		}
		seen[w.File()] = true
	}
	return nil
}

func (e Entry) validate() error {
	if e.Digest != "" {
		if err := match("digest", e.Digest, digestForm, "is not sha256: and 64 hex digits"); err != nil {
			return err
		}
	}
	if e.Size < 0 {
		return &recipe.FieldError{Field: "size", Value: fmt.Sprint(e.Size), Why: "is negative"}
	}
	if len(e.From) > 200 || strings.ContainsFunc(e.From, func(r rune) bool { return !unicode.IsPrint(r) }) {
		return &recipe.FieldError{Field: "from", Value: e.From, Why: "is not a line of text"}
	}
	return nil
}

func (s PackageSet) validate() error {
	if err := match("request", s.Request, request, "is not a request"); err != nil {
		return err
	}
	for _, name := range slices.Sorted(maps.Keys(s.Installed)) {
		if err := recipe.ValidatePackage(name, s.Installed[name]); err != nil {
			return fmt.Errorf("installed: %w", err)
		}
	}
	seen := map[string]bool{}
	for i, d := range s.Packages {
		if err := d.Validate(); err != nil {
			return fmt.Errorf("package %d: %w", i+1, err)
		}
		if seen[d.File()] {
			return fmt.Errorf("package %d: %w", i+1, &recipe.FieldError{Field: "name", Value: d.Name, Why: "is in the set already"})
		}
		seen[d.File()] = true
	}
	return nil
}

func match(field, value string, form *regexp.Regexp, why string) error {
	if len(value) > 300 || !form.MatchString(value) {
		return &recipe.FieldError{Field: field, Value: value, Why: why}
	}
	return nil
}
