// Package oci is how assay and the harness keep images and what is attached to
// them: OCI layouts, registries, referrers. It is the only package beside
// internal/attest/walk that knows go-containerregistry's layouts and remotes.
// It builds nothing and judges nothing.
//
// A [Layout] is one directory that many images share, so that a layer of ten
// images is stored once: [Layout.Assemble] gives a target its index,
// [Layout.Attach] adds a document, [Layout.Put] stores a whole image under a
// name. A [Pusher] brings a manifest, by digest, into a repository, and names it
// with tags when the caller has verified it there. A [Source] reads one image
// back, from either.
//
// Requests that may succeed the next time are repeated, what does not becomes a
// [RemoteError], and no error text shows a credential.
//
// # What a document looks like in a registry
//
// Each is one OCI 1.1 artifact manifest with the empty config, a subject, and
// one layer. What kind of statement it is stands in the annotation
// in-toto.io/predicate-type, on the manifest, where registries copy it into
// the list of referrers, and on the layer, where BuildKit puts it. Readers here
// trust neither: they open the statement.
package oci
