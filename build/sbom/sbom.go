// Package sbom writes the software bill of materials of one image manifest as an SPDX 2.3
// document: the image, every Debian package in it, and every component that the recipe put there,
// each with version, licence, checksum and origin as far as they are known.
//
// It is pure: the content of the image comes from the inventory that the harness took inside it,
// the pinned packages come from the recipe. The same input gives the same bytes.
package sbom

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	spdxjson "github.com/spdx/tools-golang/json"
	"github.com/spdx/tools-golang/spdx"
	"github.com/spdx/tools-golang/spdx/v2/common"

	"github.com/assay-hpc/assay/build/recipe"
	"github.com/assay-hpc/assay/internal/attest"
	"github.com/assay-hpc/assay/internal/certificate"
)

// predicateType is the in-toto predicate type of an SPDX 2.3 document.
const predicateType = "https://spdx.dev/Document/v2.3"

// namespace is the prefix of our documents' namespaces; target and digest follow.
const namespace = "https://assay-hpc.github.io/spdx/"

// An Image is the subject of a document.
type Image struct {
	Target   string // name in matrix.yaml
	Digest   string // of the platform's manifest, "sha256:…"
	Platform recipe.Platform
	Distro   string // "debian" or "ubuntu": the vendor of the packages
	Release  string // "12", "22.04"
	Tool     string // the program that writes this: "assay-0.1.0"
	Created  time.Time

	Packages   []certificate.InstalledPackage // found in the image
	Debs       []recipe.Deb                   // pinned for it; some may not be in the image
	Components []certificate.Component        // declared by the recipe
}

// document returns the SPDX document.
func document(img Image) (*spdx.Document, error) {
	hex, ok := strings.CutPrefix(img.Digest, "sha256:")
	if !ok || len(hex) != 64 {
		return nil, fmt.Errorf("sbom: image digest %q is not sha256", img.Digest)
	}
	w := writer{img: img, ids: map[common.ElementID]bool{}, licenses: licenses{}}
	w.root(hex)
	w.packages()
	for _, c := range slices.SortedFunc(slices.Values(img.Components), byName) {
		if err := w.component(c); err != nil {
			return nil, err
		}
	}
	return &spdx.Document{
		SPDXVersion: spdx.Version, DataLicense: spdx.DataLicense, SPDXIdentifier: "DOCUMENT",
		DocumentName:      img.Target + "-" + img.Platform.OS + "-" + img.Platform.Arch,
		DocumentNamespace: namespace + img.Target + "/" + hex,
		CreationInfo: &spdx.CreationInfo{
			Creators: []common.Creator{{CreatorType: "Tool", Creator: img.Tool}},
			Created:  img.Created.UTC().Format(time.RFC3339),
		},
		Packages: w.pkgs, Relationships: w.rels, OtherLicenses: w.licenses.extracted(),
	}, nil
}

func byName(a, b certificate.Component) int { return strings.Compare(a.Name, b.Name) }

// Marshal returns the document as JSON.
func Marshal(doc *spdx.Document) ([]byte, error) {
	var b bytes.Buffer
	err := spdxjson.Write(doc, &b, spdxjson.EscapeHTML(false))
	return bytes.TrimSpace(b.Bytes()), err
}

const (
	noAssertion = "NOASSERTION"
	rootID      = common.ElementID("image")
)

type writer struct {
	img      Image
	pkgs     []*spdx.Package
	rels     []*spdx.Relationship
	ids      map[common.ElementID]bool
	licenses licenses
}

// add adds a package and its relationship to the element from.
func (w *writer) add(from common.ElementID, relation string, p *spdx.Package) {
	p.PackageCopyrightText = cmp.Or(p.PackageCopyrightText, noAssertion)
	p.PackageLicenseConcluded = cmp.Or(p.PackageLicenseConcluded, noAssertion)
	p.PackageDownloadLocation = cmp.Or(p.PackageDownloadLocation, noAssertion)
	w.pkgs = append(w.pkgs, p)
	w.rels = append(w.rels, &spdx.Relationship{
		RefA: common.MakeDocElementID("", string(from)), RefB: common.MakeDocElementID("", string(p.PackageSPDXIdentifier)),
		Relationship: relation,
	})
}

// id returns an SPDX identifier that the document does not contain yet: its alphabet is smaller
// than that of package names, so two names may become the same identifier.
func (w *writer) id(parts ...string) common.ElementID {
	base := clean(strings.Join(parts, "-"))
	id := common.ElementID(base)
	for n := 2; w.ids[id]; n++ {
		id = common.ElementID(fmt.Sprintf("%s-%d", base, n))
	}
	w.ids[id] = true
	return id
}

// clean replaces the characters that an SPDX identifier may not contain.
func clean(s string) string {
	return strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '.' || r == '-' {
			return r
		}
		return '-'
	}, s)
}

func (w *writer) root(hex string) {
	w.ids[rootID] = true
	w.add("DOCUMENT", common.TypeRelationshipDescribe, &spdx.Package{
		PackageName: w.img.Target, PackageSPDXIdentifier: rootID, PackageVersion: w.img.Digest,
		PackageChecksums:          []common.Checksum{{Algorithm: common.SHA256, Value: hex}},
		PackageLicenseDeclared:    noAssertion,
		PrimaryPackagePurpose:     "CONTAINER",
		PackageExternalReferences: purl("pkg:oci/" + escape(w.img.Target) + "@" + escape(w.img.Digest) + "?arch=" + w.img.Platform.Arch),
	})
}

func purl(locator string) []*spdx.PackageExternalReference {
	return []*spdx.PackageExternalReference{{
		Category: common.CategoryPackageManager, RefType: common.TypePackageManagerPURL, Locator: locator,
	}}
}

func (w *writer) packages() {
	pinned := map[string]recipe.Deb{}
	for _, d := range w.img.Debs {
		pinned[d.Name+"\x00"+d.Version+"\x00"+d.Arch] = d
	}
	list := slices.SortedFunc(slices.Values(w.img.Packages), func(a, b certificate.InstalledPackage) int {
		return cmp.Or(strings.Compare(a.Name, b.Name), strings.Compare(a.Arch, b.Arch), strings.Compare(a.Version, b.Version))
	})
	for _, p := range list {
		w.deb(p, pinned[p.Name+"\x00"+p.Version+"\x00"+p.Arch])
	}
}

// deb adds one Debian package; pin is zero for a package that comes from the base.
func (w *writer) deb(p certificate.InstalledPackage, pin recipe.Deb) {
	sp := &spdx.Package{
		PackageName: p.Name, PackageVersion: p.Version, PackageSPDXIdentifier: w.id("deb", p.Name, p.Arch),
		PackageLicenseDeclared: w.licenses.all(p.Licenses, "See /usr/share/doc/"+p.Name+"/copyright in the image."),
		PackageHomePage:        p.Homepage, PackageSupplier: supplier(p.Maintainer), PackageSourceInfo: source(p.Source),
		PackageDownloadLocation: pin.URL,
		PackageExternalReferences: purl(fmt.Sprintf("pkg:deb/%s/%s@%s?arch=%s&distro=%s-%s",
			w.img.Distro, escape(p.Name), escape(p.Version), p.Arch, w.img.Distro, w.img.Release)),
	}
	if pin.SHA256 != "" {
		sp.PackageChecksums = []common.Checksum{{Algorithm: common.SHA256, Value: pin.SHA256}}
	}
	w.add(rootID, common.TypeRelationshipContains, sp)
}

// supplier names a package's maintainer. dpkg does not say whether that is a person or a team,
// but SPDX requires one of the two.
func supplier(maintainer string) *common.Supplier {
	if maintainer == "" {
		return nil
	}
	name := strings.NewReplacer("<", "(", ">", ")", "\"", "").Replace(maintainer) // SPDX's form of an address
	return &common.Supplier{SupplierType: "Organization", Supplier: name}
}

func source(name string) string {
	if name == "" {
		return ""
	}
	return "built from the source package " + name
}

// ofBase precedes the reference of the base image that has a component.
const ofBase = "part of the base image "

// component adds a component that the recipe declares. Its first source is its download location;
// further sources are packages of their own, from which it was made.
func (w *writer) component(c certificate.Component) error {
	id := w.id("component", c.Name)
	sp := &spdx.Package{
		PackageName: c.Name, PackageVersion: c.Version, PackageSPDXIdentifier: id, PackageHomePage: c.Homepage,
		PackageLicenseDeclared:    w.licenses.all([]string{c.License}, "See "+cmp.Or(c.Homepage, "the component "+c.Name)+"."),
		PackageExternalReferences: purl(strings.TrimSuffix("pkg:generic/"+escape(c.Name)+"@"+escape(c.Version), "@")),
	}
	if c.Base != "" {
		sp.PackageSourceInfo = ofBase + c.Base
	}
	w.add(rootID, common.TypeRelationshipContains, sp)
	for i, src := range c.Sources {
		sum, err := checksum(src)
		if err != nil {
			return fmt.Errorf("sbom: component %s: %w", c.Name, err)
		}
		if i == 0 {
			sp.PackageDownloadLocation, sp.PackageChecksums = src.URL, sum
			continue
		}
		w.add(id, common.TypeRelationshipGeneratedFrom, &spdx.Package{
			PackageName: c.Name + "/" + src.URL[strings.LastIndex(src.URL, "/")+1:], PackageVersion: c.Version,
			PackageSPDXIdentifier: w.id("source", c.Name, fmt.Sprint(i+1)), PackageLicenseDeclared: noAssertion,
			PackageDownloadLocation: src.URL, PackageChecksums: sum, PrimaryPackagePurpose: "SOURCE",
		})
	}
	return nil
}

func checksum(d certificate.Download) ([]common.Checksum, error) {
	if d.Digest == "" {
		return nil, nil
	}
	hex, ok := strings.CutPrefix(d.Digest, "sha256:")
	if !ok {
		return nil, fmt.Errorf("digest %q of %s is not sha256", d.Digest, d.URL)
	}
	return []common.Checksum{{Algorithm: common.SHA256, Value: hex}}, nil
}

// escape percent-encodes a segment or version of a package URL. A colon stays unchanged: Debian's
// epochs are written 1:2.3.
func escape(s string) string {
	var b strings.Builder
	for _, c := range []byte(s) {
		if c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || strings.IndexByte("-._~:", c) >= 0 {
			b.WriteByte(c)
		} else {
			fmt.Fprintf(&b, "%%%02X", c)
		}
	}
	return b.String()
}

// Statement returns the document of an image as an in-toto Statement with the image as its
// subject: the form in which it is published.
func Statement(img Image) ([]byte, error) {
	doc, err := document(img)
	if err != nil {
		return nil, err
	}
	predicate, err := Marshal(doc)
	if err != nil {
		return nil, err
	}
	return attest.New(predicateType, img.Target, img.Digest, json.RawMessage(predicate))
}
