package recipe

import (
	"encoding/json"
	"fmt"
	"net/url"
	"regexp"
	"slices"
	"strings"
)

// A Wheel is one pinned Python package.
type Wheel struct {
	Name    string `json:"name"`
	Version string `json:"version"`
	URL     string `json:"url"`
	SHA256  string `json:"sha256"`
}

var (
	wheelName    = regexp.MustCompile(`^[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?$`)
	wheelVersion = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9.+!_-]*$`)
	wheelFile    = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._+!-]*\.whl$`)
)

// File returns the wheel's file name, from which pip reads what it is: the last element of the URL,
// without percent-encoding.
func (w Wheel) File() string {
	name := w.URL[strings.LastIndex(w.URL, "/")+1:]
	if plain, err := url.PathUnescape(name); err == nil {
		return plain
	}
	return name
}

// Validate reports the first malformed field.
func (w Wheel) Validate() error {
	for _, f := range []struct {
		field, value string
		form         *regexp.Regexp
		what         string
	}{
		{"name", w.Name, wheelName, "is not a Python package"},
		{"version", w.Version, wheelVersion, "is not a version"},
		{"sha256", w.SHA256, hexSum, "is not a SHA-256 of 64 hex digits"},
		{"url", w.File(), wheelFile, "is not a wheel"},
	} {
		if len(f.value) > 200 || !f.form.MatchString(f.value) {
			return &FieldError{f.field, f.value, f.what}
		}
	}
	return ValidateURL("url", w.URL)
}

// WheelsScript asks pip, without installing anything, which wheels of the index $INDEX fulfil the
// requirements in /run/assay, and writes its report to /out/report. pip is the one of the stage's
// Python, in an environment of its own: what fits is for that Python to say.
const WheelsScript = `command -v python3 >/dev/null || { echo "assay: the build has no python3; add python3-venv to its packages" >&2; exit 1; }
python3 -m venv /tmp/assay-venv
set -- --isolated --disable-pip-version-check --no-cache-dir --no-input install --quiet --dry-run --ignore-installed --only-binary :all: --index-url "$INDEX"
case $INDEX in http://*) host=${INDEX#http://}; set -- "$@" --trusted-host "${host%%/*}" ;; esac
/tmp/assay-venv/bin/pip "$@" --requirement /run/assay/requirements.txt --report /out/report
`

// ParseReport reads pip's report of an installation (version 1 of its format). A wheel whose index
// states no SHA-256 has none.
func ParseReport(text []byte) ([]Wheel, error) {
	var report struct {
		Version string `json:"version"`
		Install []struct {
			Download struct {
				URL     string `json:"url"`
				Archive struct {
					Hash   string            `json:"hash"`
					Hashes map[string]string `json:"hashes"`
				} `json:"archive_info"`
			} `json:"download_info"`
			Metadata struct {
				Name    string `json:"name"`
				Version string `json:"version"`
			} `json:"metadata"`
		} `json:"install"`
	}
	if err := json.Unmarshal(text, &report); err != nil {
		return nil, fmt.Errorf("pip's report: %w", err)
	}
	if report.Version != "1" {
		return nil, fmt.Errorf("pip's report has the format %q; only 1 is known", report.Version)
	}
	var out []Wheel
	for _, i := range report.Install {
		at, _, _ := strings.Cut(i.Download.URL, "#")
		w := Wheel{Name: i.Metadata.Name, Version: i.Metadata.Version, URL: at, SHA256: i.Download.Archive.Hashes["sha256"]}
		if sum, is := strings.CutPrefix(i.Download.Archive.Hash, "sha256="); is && w.SHA256 == "" {
			w.SHA256 = sum
		}
		out = append(out, w)
	}
	slices.SortFunc(out, func(a, b Wheel) int { return strings.Compare(strings.ToLower(a.Name), strings.ToLower(b.Name)) })
	return out, nil
}
