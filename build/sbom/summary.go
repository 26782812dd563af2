package sbom

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	spdxjson "github.com/spdx/tools-golang/json"
	"github.com/spdx/tools-golang/spdx"
	"github.com/spdx/tools-golang/spdxlib"

	"github.com/assay-hpc/assay/internal/attest"
)

// Kind is how policies read SBOMs: only our own count; others are ignored.
var Kind = attest.Kind{Name: "sbom", Type: predicateType, Check: func(st *attest.Statement) (attest.Claims, error) {
	var doc struct {
		Name      string `json:"name"`
		Namespace string `json:"documentNamespace"`
	}
	if err := json.Unmarshal(st.Predicate, &doc); err != nil {
		return attest.Claims{}, attest.ErrForeign
	}
	rest, ours := strings.CutPrefix(doc.Namespace, namespace)
	if !ours {
		return attest.Claims{}, attest.ErrForeign
	}
	if _, err := Summarize(st.Predicate); err != nil {
		return attest.Claims{}, err
	}
	target, hex, _ := strings.Cut(rest, "/")
	if err := st.About("sha256:" + hex); err != nil {
		return attest.Claims{}, fmt.Errorf("sbom: %w", err)
	}
	c := attest.Claims{Target: target}
	if platform, ok := strings.CutPrefix(doc.Name, target+"-"); ok {
		c.Platform = strings.Replace(platform, "-", "/", 1)
	}
	return c, nil
}}

// A summary is the part of a document that is of interest to a person.
type summary struct {
	Namespace  string
	Packages   int // Debian packages
	Components []Component
}

// A Component is one component as a document lists it.
type Component struct {
	Name    string `json:"name"`
	Version string `json:"version"`
	License string `json:"license"`
	Base    string `json:"base,omitempty"` // the base image that has it, REFERENCE@DIGEST; "" for what was put in
}

// Summarize checks and reads a document, which need not be ours.
func Summarize(doc []byte) (summary, error) {
	d, err := readDocument(doc)
	if err != nil {
		return summary{}, err
	}
	s := summary{Namespace: d.DocumentNamespace}
	for _, p := range d.Packages {
		for _, ref := range p.PackageExternalReferences {
			switch {
			case ref == nil: // null
			case strings.HasPrefix(ref.Locator, "pkg:deb/"):
				s.Packages++
			case strings.HasPrefix(string(p.PackageSPDXIdentifier), "component-"):
				base, is := strings.CutPrefix(p.PackageSourceInfo, ofBase)
				if !is {
					base = ""
				}
				s.Components = append(s.Components, Component{p.PackageName, p.PackageVersion, p.PackageLicenseDeclared, base})
			}
		}
	}
	return s, nil
}

// readDocument checks and reads a document of anybody. The SPDX library panics at a null where it
// expects an object.
func readDocument(doc []byte) (d *spdx.Document, err error) {
	defer func() {
		if r := recover(); r != nil {
			d, err = nil, fmt.Errorf("sbom: no SPDX document: %v", r)
		}
	}()
	if d, err = spdxjson.Read(bytes.NewReader(doc)); err != nil {
		return nil, fmt.Errorf("sbom: %w", err)
	}
	if slices.Contains(d.Packages, nil) {
		return nil, fmt.Errorf("sbom %s: a package is null", d.DocumentName)
	}
	if err := spdxlib.ValidateDocument(d); err != nil {
		return nil, fmt.Errorf("sbom %s: %w", d.DocumentName, err)
	}
	return d, nil
}
