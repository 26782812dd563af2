// Package certificatetest validates documents against the published schema of certificates, for
// tests.
package certificatetest

import (
	"bytes"
	"sync"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/assay-hpc/assay/internal/certificate"
)

var compiled = sync.OnceValues(func() (*jsonschema.Schema, error) {
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(certificate.Schema()))
	if err != nil {
		return nil, err
	}
	c := jsonschema.NewCompiler()
	c.AssertFormat()
	if err := c.AddResource("certificate.schema.json", doc); err != nil {
		return nil, err
	}
	return c.Compile("certificate.schema.json")
})

// Validate reports how a document breaks the schema.
func Validate(doc []byte) error {
	s, err := compiled()
	if err != nil {
		return err
	}
	v, err := jsonschema.UnmarshalJSON(bytes.NewReader(doc))
	if err != nil {
		return err
	}
	return s.Validate(v)
}
