package certificatetest

import (
	"github.com/assay-hpc/assay/internal/attest"
	"github.com/assay-hpc/assay/internal/certificate"
)

// Admit returns a machine's certificate as admitted by a policy that is about it, at the time at
// which it was finished.
func Admit(st *certificate.Statement) *certificate.Admitted {
	doc, err := st.Marshal()
	if err != nil {
		panic(err)
	}
	adm, err := certificate.Admit(doc, attest.Policy{
		Node: certificate.NodeDigest(st.Predicate.Node.Identity), Suites: []string{st.Predicate.Suite}, Now: st.Predicate.Finished,
	})
	if err != nil {
		panic(err)
	}
	return adm
}
