package certificate

import (
	"bytes"
	_ "embed"
)

//go:embed certificate.schema.json
var schema []byte

// Schema returns the JSON Schema (2020-12) of a certificate, for programs that read it without
// this package. Parse may still refuse what the schema accepts: it also requires one spelling of
// each document, unique ids, and times that do not run backwards.
func Schema() []byte { return bytes.Clone(schema) }
