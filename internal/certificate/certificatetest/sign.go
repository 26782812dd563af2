package certificatetest

import (
	"crypto"

	"github.com/assay-hpc/assay/internal/attest"
	"github.com/assay-hpc/assay/internal/certificate"
)

// Sign returns a certificate in a signed envelope.
func Sign(st *certificate.Statement, key crypto.Signer) ([]byte, error) {
	doc, err := st.Marshal()
	if err != nil {
		return nil, err
	}
	return attest.Sign(attest.TypeStatement, doc, key)
}
