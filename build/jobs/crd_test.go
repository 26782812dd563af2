package jobs

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	openapi "k8s.io/kube-openapi/pkg/validation/errors"
	"k8s.io/kube-openapi/pkg/validation/spec"
	"k8s.io/kube-openapi/pkg/validation/strfmt"
	"k8s.io/kube-openapi/pkg/validation/validate"
	"sigs.k8s.io/yaml"
)

// A crd is the schema of MPIJobs that a cluster's API server holds them against.
type crd struct{ validator *validate.SchemaValidator }

// parseCRD reads a CustomResourceDefinition of kubeflow.org MPIJobs.
func parseCRD(text []byte) (*crd, error) {
	var def struct {
		Kind string `json:"kind"`
		Spec struct {
			Group string `json:"group"`
			Names struct {
				Kind string `json:"kind"`
			} `json:"names"`
			Versions []struct {
				Name   string `json:"name"`
				Schema struct {
					OpenAPIV3Schema *spec.Schema `json:"openAPIV3Schema"`
				} `json:"schema"`
			} `json:"versions"`
		} `json:"spec"`
	}
	if err := yaml.Unmarshal(text, &def); err != nil {
		return nil, err
	}
	if def.Kind != "CustomResourceDefinition" || def.Spec.Group != "kubeflow.org" || def.Spec.Names.Kind != "MPIJob" {
		return nil, errors.New("this is not the CustomResourceDefinition of kubeflow.org's MPIJob")
	}
	for _, v := range def.Spec.Versions {
		if v.Name == "v2beta1" && v.Schema.OpenAPIV3Schema != nil {
			return &crd{validate.NewSchemaValidator(v.Schema.OpenAPIV3Schema, nil, "", strfmt.Default)}, nil
		}
	}
	return nil, fmt.Errorf("it has no schema of version v2beta1")
}

type problem struct{ field, message string }

// validate returns all that the schema refuses in a document.
func (c *crd) validate(text []byte) []problem {
	var v any
	raw, err := yaml.YAMLToJSON(text)
	if err == nil {
		err = json.Unmarshal(raw, &v)
	}
	if err != nil {
		return []problem{{"", err.Error()}}
	}
	var out []problem
	for _, e := range c.validator.Validate(v).Errors {
		p := problem{"", e.Error()}
		var named *openapi.Validation
		if errors.As(e, &named) {
			p.field = named.Name
		}
		out = append(out, p)
	}
	return out
}

// operatorCRD is the MPI Operator's own, from the module that go.mod pins.
func operatorCRD(t *testing.T) *crd {
	t.Helper()
	out, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", "github.com/kubeflow/mpi-operator").Output()
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join(strings.TrimSpace(string(out)), "manifests", "base", "kubeflow.org_mpijobs.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	c, err := parseCRD(text)
	if err != nil {
		t.Fatal(err)
	}
	return c
}
