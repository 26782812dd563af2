// Package provenance describes how an image was built: a SLSA Provenance v1 predicate in an
// in-toto Statement v1, with every base image, download and Debian package that went in, by
// digest.
//
// It is pure. The caller provides the parameters and the place of the build, the recipe provides
// the inputs. The same input gives the same bytes.
package provenance

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/assay-hpc/assay/build/recipe"
	"github.com/assay-hpc/assay/internal/attest"
)

// Types that a statement declares.
const (
	PredicateType = "https://slsa.dev/provenance/v1"
	// BuildType defines how to read the parameters: it is the document that describes External
	// and Internal below.
	BuildType = "https://github.com/assay-hpc/assay/build/v1"
)

// A Predicate is SLSA's provenance v1.
type Predicate struct {
	BuildDefinition buildDefinition `json:"buildDefinition"`
	RunDetails      runDetails      `json:"runDetails"`
}

// A buildDefinition contains all inputs of a build.
type buildDefinition struct {
	BuildType            string     `json:"buildType"`
	ExternalParameters   External   `json:"externalParameters"`
	InternalParameters   Internal   `json:"internalParameters"`
	ResolvedDependencies []Resource `json:"resolvedDependencies"`
}

// External is what the user or process that started the build chose.
type External struct {
	Target   string   `json:"target"`
	Platform string   `json:"platform"` // "linux/amd64"
	Matrix   Resource `json:"matrix"`   // matrix.yaml by its digest
}

// Internal is what assay set by itself.
type Internal struct {
	Recipe string `json:"recipe"`          // SHA-256 of the recipe
	Lock   string `json:"lock,omitempty"`  // SHA-256 of matrix.lock
	Epoch  int64  `json:"sourceDateEpoch"` // the time of every file in the image
}

// runDetails describes this one run.
type runDetails struct {
	Builder  Builder  `json:"builder"`
	Metadata Metadata `json:"metadata"`
}

// A Builder identifies the party that vouches for the provenance: a URI, and the versions of the
// programs that took part.
type Builder struct {
	ID      string            `json:"id"`
	Version map[string]string `json:"version,omitempty"` // "assay": "0.1.0", "buildkit": …
}

// Metadata of a run. Times are in UTC.
type Metadata struct {
	InvocationID string `json:"invocationId,omitempty"`
	StartedOn    string `json:"startedOn,omitempty"`
	FinishedOn   string `json:"finishedOn,omitempty"`
}

// A Resource is in-toto's ResourceDescriptor.
type Resource struct {
	Name             string            `json:"name,omitempty"`
	URI              string            `json:"uri,omitempty"`
	Digest           map[string]string `json:"digest,omitempty"` // algorithm → hex
	DownloadLocation string            `json:"downloadLocation,omitempty"`
}

// A Build is what the caller knows about one build of one platform.
type Build struct {
	Recipe *recipe.Recipe
	Digest string // of the resulting image manifest, "sha256:…"

	MatrixFile   string // its name, as given
	MatrixDigest string // "sha256:…" of its text
	LockDigest   string
	Epoch        int64
	// More lists what went in besides what the recipe names, such as the
	// packages of a base that assay made itself.
	More []recipe.Deb

	Builder           Builder
	InvocationID      string
	Started, Finished time.Time
}

// Statement returns the provenance of a build as an in-toto Statement with the image as its
// subject.
func Statement(b Build) ([]byte, error) {
	p, err := New(b)
	if err != nil {
		return nil, err
	}
	doc, err := attest.New(PredicateType, b.Recipe.Target, b.Digest, p)
	if err != nil {
		return nil, fmt.Errorf("provenance of %s: image: %w", b.Recipe.Target, err)
	}
	return doc, nil
}

// New returns the provenance of a build.
func New(b Build) (*Predicate, error) {
	if b.Builder.ID == "" {
		return nil, fmt.Errorf("provenance of %s: no builder id", b.Recipe.Target)
	}
	matrix, err := digest(b.MatrixDigest)
	if err != nil {
		return nil, fmt.Errorf("provenance of %s: %s: %w", b.Recipe.Target, b.MatrixFile, err)
	}
	deps, err := dependencies(b.Recipe, b.More)
	if err != nil {
		return nil, fmt.Errorf("provenance of %s: %w", b.Recipe.Target, err)
	}
	return &Predicate{
		BuildDefinition: buildDefinition{
			BuildType: BuildType,
			ExternalParameters: External{
				Target: b.Recipe.Target, Platform: b.Recipe.Platform.String(),
				Matrix: Resource{Name: b.MatrixFile, Digest: matrix},
			},
			InternalParameters:   Internal{Recipe: b.Recipe.Declared(), Lock: strings.TrimPrefix(b.LockDigest, "sha256:"), Epoch: b.Epoch},
			ResolvedDependencies: deps,
		},
		RunDetails: runDetails{
			Builder:  b.Builder,
			Metadata: Metadata{InvocationID: b.InvocationID, StartedOn: stamp(b.Started), FinishedOn: stamp(b.Finished)},
		},
	}, nil
}

func stamp(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.UTC().Format(time.RFC3339)
}

func digest(s string) (map[string]string, error) {
	hex, ok := strings.CutPrefix(s, "sha256:")
	if !ok || len(hex) != 64 {
		return nil, fmt.Errorf("digest %q is not sha256", s)
	}
	return map[string]string{"sha256": hex}, nil
}

// dependencies lists everything that any stage of the recipe takes from outside, once each,
// sorted by URI.
func dependencies(r *recipe.Recipe, more []recipe.Deb) ([]Resource, error) {
	c := collector{}
	for _, s := range r.Stages {
		c.source(s.From)
		for _, st := range s.Steps {
			c.step(st)
		}
	}
	c.debs(more)
	for _, part := range r.Components {
		if o := part.Origin; o != nil { // a component of the matrix's own
			c["assay:component/"+part.Name] = dependency{Resource{URI: "assay:component/" + part.Name, Name: o.URL}, o.Digest}
		}
	}
	out := []Resource{}
	for _, uri := range slices.Sorted(maps.Keys(c)) {
		d, err := digest(c[uri].digest)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", uri, err)
		}
		res := c[uri].Resource
		res.Digest = d
		out = append(out, res)
	}
	return out, nil
}

type dependency struct {
	Resource
	digest string
}

type collector map[string]dependency

func (c collector) step(s recipe.Step) {
	switch s := s.(type) {
	case recipe.Run:
		for _, m := range s.Mounts {
			c.source(m.From)
		}
	case recipe.Copy:
		c.source(s.From)
	case recipe.Apt:
		c.debs(s.Debs)
	}
}

// source records a source from outside; stages and caches are not.
func (c collector) source(s recipe.Source) {
	uri := ""
	switch s.Kind {
	case recipe.FromImage:
		uri = "docker://" + s.Ref
	case recipe.FromURL:
		uri = s.Ref
	case recipe.FromLayout:
		uri = "assay:" + s.Ref
	default:
		return
	}
	c[uri] = dependency{Resource{Name: s.Name(), URI: uri}, s.Digest}
}

func (c collector) debs(debs []recipe.Deb) {
	for _, d := range debs {
		uri := fmt.Sprintf("pkg:deb/%s@%s?arch=%s", escape(d.Name), escape(d.Version), d.Arch)
		c[uri] = dependency{Resource{Name: d.Name, URI: uri, DownloadLocation: d.URL}, "sha256:" + d.SHA256}
	}
}

// escape percent-encodes the character in Debian's names and versions that a package URL may not
// contain unencoded.
func escape(s string) string { return strings.ReplaceAll(s, "+", "%2B") }
