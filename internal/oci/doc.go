// Package oci stores images and their attachments: OCI layouts, registries, referrers. Only this
// package and internal/attest/walk use go-containerregistry's layouts and remotes. It does not
// build or judge anything.
//
// A [Layout] is one directory that many images share, so that a layer of ten images is stored once:
// [Layout.Assemble] creates a target's index, [Layout.Attach] adds a document, [Layout.Put] stores
// a whole image under a name. [Repository.Push] copies a manifest, by digest, to a repository, and
// [Repository.Tag] tags it when the caller has verified it there. A [Source] reads one image from
// either.
//
// Requests that may succeed later are repeated, other failures become a [RemoteError], and no error
// text contains credentials.
//
// # Documents in a registry
//
// Each document is one OCI 1.1 artifact manifest with the empty config, a subject, and one layer.
// The annotation in-toto.io/predicate-type has the kind of statement: on the manifest, where
// registries copy it into the list of referrers, and on the layer, where BuildKit puts it. Readers
// here trust neither: they open the statement.
package oci
