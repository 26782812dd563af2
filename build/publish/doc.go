// Package publish keeps finished images in an OCI layout and brings them to a
// registry: per-platform manifests, the index over them, the statements about
// them as referrers, and last of all the tags. It builds nothing and judges
// nothing: build/solve fills the layout's blobs, the gate decides whether
// there is anything to publish.
//
// A [Layout] is one directory that all targets of a matrix share, so that a
// layer of ten images is stored once. [Layout.Assemble] gives a target its
// index, [Layout.Attach] adds a statement, [Push] publishes, [Inspect] reads
// back and verifies, from a layout or from a registry.
//
// # What a statement looks like in a registry
//
// Certificate, SBOM and provenance are all in-toto Statements whose subject is
// the manifest that they are attached to; the SBOM's predicate is the SPDX
// document (predicate type https://spdx.dev/Document/v2.3, as the in-toto
// registry of predicates and GitHub's attest-sbom have it). One shape for all
// three means that one rule verifies them all, and that an SBOM moved to
// another image is found out, which a bare application/spdx+json cannot show.
// Each is one OCI 1.1 artifact manifest with the empty config, a subject, and
// one layer:
//
//	artifactType and layer             content
//	application/vnd.in-toto+json       the Statement, unsigned (BuildKit's type for attestations)
//	application/vnd.dsse.envelope.v1+json  the signed Statement in a DSSE envelope
//
// What kind of statement it is stands in the annotation
// in-toto.io/predicate-type, on the manifest, where registries copy it into
// the list of referrers, and on the layer, where BuildKit puts it. Readers here
// trust neither: they open the statement.
package publish
