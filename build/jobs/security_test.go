package jobs

import (
	"bytes"
	"errors"
	"strings"
	"testing"

	mpi "github.com/kubeflow/mpi-operator/pkg/apis/kubeflow/v2beta1"
	"k8s.io/pod-security-admission/api"
	"k8s.io/pod-security-admission/policy"
	"sigs.k8s.io/yaml"
)

// TestRestricted holds the pods of every MPIJob against the Pod Security Standard
// that the job says it keeps to, by the checks of the API server itself, of its
// oldest version with all that is used and of its newest.
func TestRestricted(t *testing.T) {
	doc, err := Load()
	if err != nil {
		t.Fatal(err)
	}
	standard, err := policy.NewEvaluator(policy.DefaultChecks(), nil)
	if err != nil {
		t.Fatal(err)
	}
	kept, not := 0, 0
	for _, p := range doc.Profiles {
		for _, variants := range pairs() {
			for _, o := range []Options{{}, {Claim: "results"}, {Run: RunNCCL}} {
				o.Profile, o.Scheduler, o.Variants, o.Image = p.ID, MPIOperator, variants, image
				text, err := Render(o)
				var no *Refusal
				if errors.As(err, &no) {
					continue
				}
				if err != nil {
					t.Fatal(err)
				}
				says := bytes.Contains(text, []byte("Standard restricted"))
				if says {
					kept++
				} else {
					not++
				}
				for _, d := range documents(text) {
					var job mpi.MPIJob
					if err := yaml.Unmarshal(d.text, &job); err != nil || job.Kind != mpi.Kind {
						continue
					}
					for role, r := range job.Spec.MPIReplicaSpecs {
						for _, version := range []api.Version{api.MajorMinorVersion(1, 22), api.LatestVersion()} {
							got := policy.AggregateCheckResults(standard.EvaluatePod(api.LevelVersion{Level: api.LevelRestricted, Version: version}, &r.Template.ObjectMeta, &r.Template.Spec))
							if got.Allowed != says && (says || role == mpi.MPIReplicaTypeWorker) {
								t.Errorf("%s %v %s: the file says %t, the standard %t: %s", p.ID, variants, role, says, got.Allowed, got.ForbiddenDetail())
							}
						}
					}
				}
				if root := strings.Contains(string(text), "--allow-run-as-root"); root == says {
					t.Errorf("%s %v: --allow-run-as-root %t", p.ID, variants, root)
				}
			}
		}
	}
	if kept < 10 || not < 10 {
		t.Errorf("%d restricted, %d not: too few to mean anything", kept, not)
	}
}
