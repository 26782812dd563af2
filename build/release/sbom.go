package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"debug/buildinfo"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spdx/tools-golang/spdx"
	"github.com/spdx/tools-golang/spdx/v2/common"

	"github.com/assay-hpc/assay/build/sbom"
)

// sbom writes an SPDX 2.3 document about an archive: its Go programs, and the modules that each
// was compiled from, as the Go tool recorded them in the program.
func (r *release) sbom(archive string) error {
	programs, err := r.programs(archive)
	if err != nil {
		return err
	}
	if len(programs) == 0 {
		return errors.New("it has no Go program")
	}
	sum, err := r.digest(archive)
	if err != nil {
		return err
	}
	created, err := time.Parse(time.RFC3339, r.date)
	if err != nil {
		return err
	}
	var d spdxDocument
	root := d.add("DOCUMENT", common.TypeRelationshipDescribe, &spdx.Package{
		PackageName: strings.TrimSuffix(archive, ".tar.gz"), PackageVersion: r.version, PackageFileName: archive,
		PackageChecksums:       []common.Checksum{{Algorithm: common.SHA256, Value: sum}},
		PackageLicenseDeclared: "Apache-2.0", PrimaryPackagePurpose: "ARCHIVE",
	})
	for _, p := range programs {
		program := d.add(root, common.TypeRelationshipContains, &spdx.Package{
			PackageName: p.name, PackageVersion: r.version, PackageLicenseDeclared: "NOASSERTION", PrimaryPackagePurpose: "APPLICATION",
			PackageChecksums: []common.Checksum{{Algorithm: common.SHA256, Value: p.sum}},
		})
		for _, m := range p.modules {
			d.add(program, common.TypeRelationshipContains, &spdx.Package{
				PackageName: m.path, PackageVersion: m.version, PackageLicenseDeclared: "NOASSERTION", PrimaryPackagePurpose: "LIBRARY",
				PackageExternalReferences: []*spdx.PackageExternalReference{{Category: common.CategoryPackageManager, RefType: common.TypePackageManagerPURL, Locator: "pkg:golang/" + m.path + "@" + url.PathEscape(m.version)}},
			})
		}
	}
	b, err := sbom.Marshal(&spdx.Document{
		SPDXVersion: spdx.Version, DataLicense: spdx.DataLicense, SPDXIdentifier: "DOCUMENT",
		DocumentName:      archive,
		DocumentNamespace: "https://assay-hpc.github.io/spdx/release/" + sum,
		CreationInfo:      &spdx.CreationInfo{Creators: []common.Creator{{CreatorType: "Tool", Creator: "assay-" + r.version}}, Created: created.UTC().Format(time.RFC3339)},
		Packages:          d.packages, Relationships: d.relations,
	})
	if err != nil {
		return err
	}
	return r.write(strings.TrimSuffix(archive, ".tar.gz")+sbomSuffix, append(b, '\n'))
}

// A spdxDocument collects packages and how they are related.
type spdxDocument struct {
	packages  []*spdx.Package
	relations []*spdx.Relationship
}

// add adds a package below another element, and returns its identifier.
func (d *spdxDocument) add(from, relation string, p *spdx.Package) string {
	id := fmt.Sprintf("p%d", len(d.packages)+1)
	p.PackageSPDXIdentifier = common.ElementID(id)
	p.PackageCopyrightText, p.PackageLicenseConcluded, p.PackageDownloadLocation = "NOASSERTION", "NOASSERTION", "NOASSERTION"
	d.packages = append(d.packages, p)
	d.relations = append(d.relations, &spdx.Relationship{RefA: common.MakeDocElementID("", from), RefB: common.MakeDocElementID("", id), Relationship: relation})
	return id
}

// A program is a Go program of an archive.
type program struct {
	name, sum string
	modules   []module
}

type module struct{ path, version string }

// programs reads an archive's Go programs.
func (r *release) programs(archive string) (out []program, err error) {
	f, err := os.Open(filepath.Join(r.dir, archive))
	if err != nil {
		return nil, err
	}
	defer f.Close()
	z, err := gzip.NewReader(f)
	if err != nil {
		return nil, err
	}
	for t := tar.NewReader(z); ; {
		h, err := t.Next()
		if err == io.EOF {
			return out, nil
		}
		if err != nil {
			return nil, err
		}
		b, err := io.ReadAll(t)
		if err != nil {
			return nil, err
		}
		info, err := buildinfo.Read(bytes.NewReader(b))
		if err != nil {
			continue // not a Go program
		}
		p := program{name: path.Base(h.Name), sum: digestOf(b), modules: []module{{"stdlib", info.GoVersion}}}
		for _, m := range info.Deps {
			if m.Replace != nil {
				m = m.Replace
			}
			p.modules = append(p.modules, module{m.Path, m.Version})
		}
		slices.SortFunc(p.modules, func(a, b module) int { return strings.Compare(a.path, b.path) })
		out = append(out, p)
	}
}
