package sbom

import (
	"bytes"
	"fmt"
	"strings"

	spdxjson "github.com/spdx/tools-golang/json"
	"github.com/spdx/tools-golang/spdxlib"
)

// A Summary is what a person wants to know of a document.
type Summary struct {
	Namespace  string
	Packages   int // Debian packages
	Components []Component
}

// A Component is one component as a document lists it.
type Component struct {
	Name    string `json:"name"`
	Version string `json:"version"`
	License string `json:"license"`
}

// Summarize reads a document, which need not be ours, after checking it.
func Summarize(doc []byte) (Summary, error) {
	d, err := spdxjson.Read(bytes.NewReader(doc))
	if err != nil {
		return Summary{}, fmt.Errorf("sbom: %w", err)
	}
	if err := spdxlib.ValidateDocument(d); err != nil {
		return Summary{}, fmt.Errorf("sbom %s: %w", d.DocumentName, err)
	}
	s := Summary{Namespace: d.DocumentNamespace}
	for _, p := range d.Packages {
		for _, ref := range p.PackageExternalReferences {
			switch {
			case strings.HasPrefix(ref.Locator, "pkg:deb/"):
				s.Packages++
			case strings.HasPrefix(string(p.PackageSPDXIdentifier), "component-"):
				s.Components = append(s.Components, Component{p.PackageName, p.PackageVersion, p.PackageLicenseDeclared})
			}
		}
	}
	return s, nil
}
