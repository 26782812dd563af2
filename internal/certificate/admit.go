package certificate

import (
	"fmt"
	"slices"
	"time"

	"github.com/assay-hpc/assay/internal/attest"
	"github.com/assay-hpc/assay/internal/result"
)

// An Admitted is a machine's certificate that a policy accepted for telling a scheduler about the
// machine. Only [Admit] makes one.
type Admitted struct {
	st     *Statement
	claims attest.Claims
	digest string
}

// GPUsID is the id of the result that compares a node's GPUs with the number that it should have.
// Every certificate made with certify --gpus has it, whatever the suite.
const GPUsID = "gpus"

// BaselineID is the id of the result that compares figures with those of an earlier certificate.
const BaselineID = "baseline"

// Admit reads a stored certificate, bare or in its envelope, for the admission of a machine: policy
// names the machine by its identity, the suites and the age that are allowed, and the keys.
// A pass must have the result [GPUsID]: on a node that lost its GPUs, their checks are skipped.
func Admit(doc []byte, policy attest.Policy) (*Admitted, error) {
	policy.Use = attest.Admission
	st, a, err := Accept(doc, "", policy)
	if err != nil {
		return nil, err
	}
	counted := slices.ContainsFunc(st.Predicate.Results, func(r result.Result) bool { return r.ID == GPUsID && r.Verdict == result.Pass })
	if st.Predicate.Verdict == result.Pass && !counted {
		return nil, fmt.Errorf("%w: a pass takes a node into service only if it says that all its GPUs are there; make it with certify --gpus N (0 for a node without GPUs)", attest.ErrUse)
	}
	sum, err := st.SHA256()
	if err != nil {
		return nil, err
	}
	return &Admitted{st, a.Claims, "sha256:" + sum}, nil
}

// Statement returns the certificate.
func (a *Admitted) Statement() *Statement { return a.st }

// Digest returns the digest of the certificate's canonical form, "sha256:…".
func (a *Admitted) Digest() string { return a.digest }

// Identity returns the digest of the machine's identity, "sha256:…".
func (a *Admitted) Identity() string { return a.claims.Node }

// Supersedes reports whether the certificate may undo what was done at a time, which was named so:
// its checks must have begun later. The error wraps [attest.ErrTime].
func (a *Admitted) Supersedes(what string, done time.Time) error {
	if err := a.claims.Supersedes(done); err != nil {
		return fmt.Errorf("the certificate is older than %s: %w", what, err)
	}
	return nil
}
