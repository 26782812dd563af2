package main

import (
	"runtime"

	"github.com/assay-hpc/assay/build/provenance"
	"github.com/assay-hpc/assay/internal/attest"
)

// buildType is the document that says how .ci/release turns a commit into the files.
const buildType = "https://github.com/assay-hpc/assay/blob/main/docs/releases.md"

// A predicate is SLSA's provenance v1 of a release.
type predicate struct {
	BuildDefinition struct {
		BuildType            string                `json:"buildType"`
		ExternalParameters   map[string]string     `json:"externalParameters"`
		ResolvedDependencies []provenance.Resource `json:"resolvedDependencies"`
	} `json:"buildDefinition"`
	RunDetails struct {
		Builder provenance.Builder `json:"builder"`
	} `json:"runDetails"`
}

// provenance writes a statement about all files and, with a key, its envelope.
func (r *release) provenance() error {
	names, err := r.files()
	if err != nil {
		return err
	}
	st := attest.Statement{Header: attest.Header{Type: attest.StatementType, PredicateType: provenance.PredicateType}}
	for _, name := range names {
		sum, err := r.digest(name)
		if err != nil {
			return err
		}
		st.Subject = append(st.Subject, attest.Subject{Name: name, Digest: map[string]string{"sha256": sum}})
	}
	var p predicate
	p.BuildDefinition.BuildType = buildType
	p.BuildDefinition.ExternalParameters = map[string]string{"version": r.version}
	p.BuildDefinition.ResolvedDependencies = []provenance.Resource{
		{URI: "git+https://github.com/assay-hpc/assay", Digest: map[string]string{"gitCommit": r.commit}},
		{Name: "go", URI: "pkg:generic/go@" + runtime.Version()},
	}
	p.RunDetails.Builder = provenance.Builder{ID: r.builder, Version: map[string]string{"go": runtime.Version()}}
	if st.Predicate, err = attest.Encode(p); err != nil {
		return err
	}
	b, err := attest.Encode(st)
	if err != nil {
		return err
	}
	if err := r.write(provenanceFile, b); err != nil || r.key == nil {
		return err
	}
	signed, err := attest.Sign(attest.TypeStatement, b, r.key)
	if err != nil {
		return err
	}
	return r.write(envelope, signed)
}
