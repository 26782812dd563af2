package certificate

import (
	"bytes"
	_ "embed"
)

//go:embed certificate.schema.json
var schema []byte

// Schema returns the JSON Schema (2020-12) of a certificate, for programs that
// read it without this package. What it accepts, Parse may still refuse: one
// spelling of each document, ids that are unique, times that do not run backwards.
func Schema() []byte { return bytes.Clone(schema) }
