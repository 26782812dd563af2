package certify

import (
	"fmt"
	"strings"

	"github.com/assay-hpc/assay/dcgm/health"
	"github.com/assay-hpc/assay/harness/image"
	"github.com/assay-hpc/assay/internal/certificate"
	"github.com/assay-hpc/assay/internal/exit"
	"github.com/assay-hpc/assay/internal/host/machine"
	"github.com/assay-hpc/assay/internal/result"
	"github.com/assay-hpc/assay/internal/words"
)

// gpusID is the id of the result that compares the node's GPUs with --gpus. It is in no suite, so
// that neither a suite of one's own nor --only, --skip or a need can leave it out: on a node that
// lost its GPUs all other checks of GPUs may be skipped, and what remains would be a pass.
const gpusID = certificate.GPUsID

// ownIDs are the ids of results that certify itself adds.
var ownIDs = []string{gpusID, baselineID}

// aboutMachine reports whether options say what the machine must have.
func (o *Options) aboutMachine() bool {
	return o.GPUs != nil || o.Ports != nil || o.Hardware != "" || o.Thresholds != ""
}

// checkSubject refuses requirements of the machine for a suite that does not look at it.
func (o *Options) checkSubject(suite string) error {
	if suite == image.Name && o.aboutMachine() {
		return exit.Usagef("--gpus, --ports, --hardware and --thresholds are about the machine, and the suite image looks at the image alone: name a suite about the machine, such as --suite node")
	}
	return nil
}

// presentGPUs compares the number of GPUs that answer with the required one; nil: none is
// required.
func presentGPUs(want *int, n *certificate.Node, facts machine.Facts) *result.Result {
	if want == nil {
		return nil
	}
	have := 0
	for _, g := range n.GPUs {
		if g.UUID != "" { // one without does not answer
			have++
		}
	}
	r := result.Result{ID: gpusID, Title: "the node has the GPUs that it should have", Verdict: result.Pass, Reason: words.Count(have, "GPU"), Wanted: fmt.Sprintf("%d (--gpus)", *want)}
	switch {
	case have == *want && (have > 0 || facts.PCI == 0):
	case have == 0 && facts.PCI == *want:
		r.Verdict, r.Reason = result.Error, fmt.Sprintf("PCI has %s, and the driver cannot be asked%s", words.Count(facts.PCI, "GPU"), why(facts))
		r.Remedy = "use the harness of a CUDA image, on a node whose driver works (nvidia-smi); start a container with all GPUs"
	default:
		r.Verdict, r.Reason = result.Fail, fmt.Sprintf("%s, not %d; PCI has %d", words.Count(have, "GPU"), *want, facts.PCI)
		r.Remedy = "look for the missing GPU in the kernel's log (Xid 79), reboot, then reseat it; or give the right --gpus"
	}
	return &r
}

func why(facts machine.Facts) string {
	if s := strings.TrimSpace(facts.Why); s != "" {
		return ": " + s
	}
	return ""
}

// siteLimits records by which limits of the site the checks judged.
func siteLimits(f *health.SiteFile) *certificate.Limits {
	l := &certificate.Limits{File: f.Name, SHA256: f.SHA256, Checks: map[string]certificate.CheckLimit{}}
	for id, r := range f.Rules {
		l.Checks[id] = certificate.CheckLimit{Limit: r.Limit, Unit: r.Unit, Severity: string(r.Severity), Source: r.Source}
	}
	return l
}
