package oci

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/types"

	"github.com/assay-hpc/assay/internal/attest"
)

// Indexes, manifests, configurations and lists of referrers are not signed, and decide which image
// is used. The functions below are their only readers here: what they accept, other programs read
// in the same way.

// A FormatError says that a document is not what its descriptor says, or that readers may differ in
// what they see in it.
type FormatError struct {
	What string // "index sha256:…"
	Err  error
}

func (e *FormatError) Error() string { return e.What + ": " + e.Err.Error() }
func (e *FormatError) Unwrap() error { return e.Err }

// Permanent marks an error that a retry does not fix.
func (e *FormatError) Permanent() {}

// Names that only one of the two kinds of manifests has.
var (
	inIndex    = []string{"manifests"}
	inManifest = []string{"config", "layers", "fsLayers", "history", "signatures", "blobs"}
)

// ParseIndex reads an index with a media type. what names it in errors.
func ParseIndex(what string, raw []byte, mt types.MediaType) (*v1.IndexManifest, error) {
	idx := new(v1.IndexManifest)
	err := parse(raw, idx, inIndex, inManifest)
	switch {
	case err != nil:
	case idx.MediaType != "" && idx.MediaType != mt:
		err = fmt.Errorf("it calls itself a %q, its descriptor says %q", idx.MediaType, mt)
	case idx.SchemaVersion != 2:
		err = fmt.Errorf("schemaVersion is %d, not 2", idx.SchemaVersion)
	}
	for _, d := range idx.Manifests {
		err = errors.Join(err, complete(d))
	}
	return idx, formatError(what, err)
}

// ParseManifest reads an image's or an artifact's manifest with a media type; "" if no descriptor
// says it.
func ParseManifest(what string, raw []byte, mt types.MediaType) (*v1.Manifest, error) {
	m := new(v1.Manifest)
	err := parse(raw, m, []string{"config", "layers"}, slices.Concat(inIndex, []string{"fsLayers", "history", "signatures", "blobs"}))
	switch {
	case err != nil:
	case m.MediaType != "" && mt == "" && !m.MediaType.IsImage():
		err = fmt.Errorf("it calls itself a %q", m.MediaType)
	case m.MediaType != "" && mt != "" && m.MediaType != mt:
		err = fmt.Errorf("it calls itself a %q, its descriptor says %q", m.MediaType, mt)
	case m.SchemaVersion != 2:
		err = fmt.Errorf("schemaVersion is %d, not 2", m.SchemaVersion)
	case m.Config.Size > maxBlob:
		err = fmt.Errorf("its configuration has %d bytes; at most %d are read", m.Config.Size, maxBlob)
	}
	for _, d := range append(slices.Clone(m.Layers), m.Config) {
		err = errors.Join(err, complete(d))
	}
	return m, formatError(what, err)
}

// ParseConfig reads an image's configuration.
func ParseConfig(what string, raw []byte) (*v1.ConfigFile, error) {
	c := new(v1.ConfigFile)
	err := attest.DecodeUnsigned(raw, maxBlob, c, "Labels", "ExposedPorts", "Volumes")
	if err == nil && (c.OS == "" || c.Architecture == "") {
		err = errors.New("it is no image's configuration: it names no system or no architecture")
	}
	return c, formatError(what, err)
}

func formatError(what string, err error) error {
	if err == nil {
		return nil
	}
	return &FormatError{what, err}
}

// parse decodes a manifest that has certain fields and not others.
func parse(raw []byte, v any, has, hasNot []string) error {
	if err := attest.DecodeUnsigned(raw, maxBlob, v); err != nil {
		return err
	}
	var top map[string]json.RawMessage
	if err := json.Unmarshal(raw, &top); err != nil || top == nil {
		return errors.New("it is not an object")
	}
	for _, name := range has {
		begin := byte('[')
		if name == "config" {
			begin = '{'
		}
		value := bytes.TrimSpace(top[name])
		if begin == '[' && string(value) == "null" {
			continue // an empty list, as some programs write it
		}
		if len(value) == 0 || value[0] != begin {
			return fmt.Errorf("it has no %q, or something else in its place", name)
		}
	}
	for name := range top {
		if slices.ContainsFunc(hasNot, func(n string) bool { return strings.EqualFold(n, name) }) {
			return fmt.Errorf("it has %q: it is an index and a manifest at once, or neither", name)
		}
	}
	return nil
}

// complete checks that a descriptor names content, and compares what it may carry with its digest.
func complete(d v1.Descriptor) error {
	if d.Digest.Hex == "" || d.Size < 0 {
		return fmt.Errorf("a descriptor of type %q has no digest, or the size %d", d.MediaType, d.Size)
	}
	if d.Data == nil {
		return nil
	}
	if own := descriptor(d.MediaType, d.Data); own.Digest != d.Digest || own.Size != d.Size {
		return fmt.Errorf("the data in the descriptor of %s is something else", d.Digest)
	}
	return nil
}
