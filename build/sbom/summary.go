package sbom

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"

	spdxjson "github.com/spdx/tools-golang/json"
	"github.com/spdx/tools-golang/spdxlib"

	"github.com/assay-hpc/assay/internal/attest"
)

// Kind is how policies read SBOMs: only our own count; others are ignored.
var Kind = attest.Kind{Name: "sbom", Type: PredicateType, Check: func(st *attest.Statement) (attest.Claims, error) {
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

// A Summary is the part of a document that is of interest to a person.
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

// Summarize checks and reads a document, which need not be ours.
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
