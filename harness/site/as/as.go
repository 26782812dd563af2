// Package as states what a certificate says of its machine in the words and exit statuses of other
// tools that judge nodes, for programs that read theirs. docs/node.md has the table, with the sources.
package as

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/assay-hpc/assay/harness/site"
	"github.com/assay-hpc/assay/harness/site/nvsentinel"
	"github.com/assay-hpc/assay/internal/certificate"
	"github.com/assay-hpc/assay/internal/result"
)

// A Form is the way in which another tool states its verdict.
type Form struct {
	Name string
	// NoVerdict is the tool's exit status when it could not judge the node at all.
	NoVerdict int
	// Details: whoever starts the tool reads [Reason] from file descriptor 3.
	Details bool

	exit map[result.Verdict]int
	// harmless is the environment's NAME=VALUE with which no verdict is a failure; "": there is none.
	harmless string
	// document returns a text, or what is written as JSON.
	document func(st *certificate.Statement, getenv func(string) string) (any, error)
}

// forms are all forms.
var forms = []Form{
	// CRITICAL and UNKNOWN are 1, a run without a verdict is 2.
	{Name: "health-validation", NoVerdict: 2, exit: statuses(0, 1, 1), document: healthValidation},
	{Name: "nvsentinel", NoVerdict: 3, exit: statuses(0, 1, 3), harmless: "PROCESSING_STRATEGY=STORE_ONLY", document: healthEvents},
	// What could not be checked never drains a node.
	{Name: "soperator", NoVerdict: 0, Details: true, exit: statuses(0, 1, 0), document: soperator},
	// There a check that cannot run has failed.
	{Name: "nhc", NoVerdict: 3, exit: statuses(0, 1, 3), document: nhc},
}

// statuses are those of a pass, of a failure, and where nothing was shown.
func statuses(pass, fail, nothing int) map[result.Verdict]int {
	return map[result.Verdict]int{result.Pass: pass, result.Fail: fail, result.Error: nothing, result.Skip: nothing}
}

// Names are the names of all forms.
func Names() (names []string) {
	for _, f := range forms {
		names = append(names, f.Name)
	}
	return names
}

// Lookup returns the form with a name.
func Lookup(name string) (Form, error) {
	i := slices.IndexFunc(forms, func(f Form) bool { return f.Name == name })
	if i < 0 {
		return Form{}, fmt.Errorf("it is one of %s, not %q", strings.Join(Names(), ", "), name)
	}
	return forms[i], nil
}

// Status returns the tool's exit status for a certificate. getenv returns the variables by which the
// tool is configured.
func (f Form) Status(st *certificate.Statement, getenv func(string) string) int {
	if name, value, ok := strings.Cut(f.harmless, "="); ok && getenv(name) == value {
		return 0
	}
	return f.exit[st.Predicate.Verdict]
}

// Document returns what the tool would print about the certificate's machine, with its line end; of
// a tool that says nothing on success, nothing. It is an error if the certificate is not about one
// machine. getenv returns the variables by which the tool is configured.
func (f Form) Document(st *certificate.Statement, getenv func(string) string) ([]byte, error) {
	if len(st.Predicate.Machines) > 0 {
		return nil, errors.New("the certificate is about several machines: name one")
	}
	if st.Predicate.Node == nil {
		return nil, fmt.Errorf("the suite %s says nothing about a machine", st.Predicate.Suite)
	}
	doc, err := f.document(st, getenv)
	if err != nil {
		return nil, err
	}
	if text, ok := doc.(string); ok {
		return []byte(text), nil
	}
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	err = enc.Encode(doc)
	return b.Bytes(), err
}

// maxReason is the maximum length of a reason, which is to fit into a scheduler's.
const maxReason = 200

// Reason returns why a certificate is no pass, in one line; "" for a pass.
func Reason(st *certificate.Statement) string {
	return strings.TrimPrefix(site.Reason(st, maxReason), site.Prefix)
}

// healthEvents is what NVSentinel's preflight checks send, in protobuf's JSON.
func healthEvents(st *certificate.Statement, getenv func(string) string) (any, error) {
	strategy, err := nvsentinel.ParseStrategy(getenv("PROCESSING_STRATEGY"))
	if err != nil {
		return nil, err
	}
	return nvsentinel.Of(st, st.Predicate.Node.Name, strategy).JSON(), nil
}

// A test and its checks are as Nebius' health-checker prints them, whose output soperator's checks
// read: status is PASS, FAIL or ERROR.
type test struct {
	Name   string  `json:"name"`
	Checks []check `json:"checks"`
}

type check struct {
	Name  string `json:"name"`
	State state  `json:"state"`
}

type state struct {
	Status string `json:"status"`
	Error  string `json:"error,omitempty"`
}

// soperator is the line that soperator's checks read. A skipped check has no state there.
func soperator(st *certificate.Statement, _ func(string) string) (any, error) {
	word := map[result.Verdict]string{result.Pass: "PASS", result.Warn: "PASS", result.Fail: "FAIL", result.Error: "ERROR", result.Skip: "ERROR"}
	t := test{Name: st.Predicate.Suite, Checks: []check{}}
	for _, r := range st.Predicate.Results {
		if r.Verdict == result.Skip {
			continue
		}
		c := check{Name: r.ID, State: state{Status: word[r.Verdict]}}
		if r.Verdict == result.Fail || r.Verdict == result.Error {
			c.State.Error = r.Reason
		}
		t.Checks = append(t.Checks, c)
	}
	return struct {
		Status string `json:"status"`
		Tests  []test `json:"tests"`
	}{word[st.Predicate.Verdict], []test{t}}, nil
}

// nhc is what LBNL's Node Health Check prints: nothing about a node that is well.
func nhc(st *certificate.Statement, _ func(string) string) (any, error) {
	if st.Predicate.Verdict == result.Pass {
		return "", nil
	}
	// It evaluates what its checks say between apostrophes.
	return "ERROR:  nhc:  Health check failed:  " + strings.ReplaceAll(Reason(st), "'", "’") + "\n", nil
}
