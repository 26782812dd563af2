package jobs

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	mpi "github.com/kubeflow/mpi-operator/pkg/apis/kubeflow/v2beta1"
	"go.yaml.in/yaml/v3"
	k8sjson "sigs.k8s.io/json"
	k8syaml "sigs.k8s.io/yaml"
)

const (
	mpiJobKind = "kubeflow.org/v2beta1 MPIJob"
	jobSetKind = "jobset.x-k8s.io/v1alpha2 JobSet"
)

// others are the other kinds that jobs are made of. Of those, only the pods matter.
var others = []string{"batch/v1 Job", "apps/v1 DaemonSet", "v1 Pod", "resource.nvidia.com/v1beta1 ComputeDomain"}

// gone are versions that no controller serves any more, and what came in their place.
var gone = map[string]string{
	"kubeflow.org/v1alpha1 MPIJob":    "kubeflow.org/v2beta1",
	"kubeflow.org/v1alpha2 MPIJob":    "kubeflow.org/v2beta1",
	"jobset.x-k8s.io/v1alpha1 JobSet": "jobset.x-k8s.io/v1alpha2",
}

// manifest checks each document of a YAML file.
func (c *checker) manifest(text []byte) {
	for _, d := range documents(text) {
		c.base = d.line
		var root yaml.Node
		if err := yaml.Unmarshal(d.text, &root); err != nil {
			why := "the document that begins here is not YAML: " + strings.TrimPrefix(err.Error(), "yaml: ")
			if bytes.Contains(d.text, []byte("{{")) {
				why = "the document that begins here is a template"
			}
			c.add(LevelSkipped, c.base+1, 0, "", why, "render it first; kubectl apply --dry-run=client says more")
		} else if len(root.Content) > 0 {
			c.object(root.Content[0], d.text)
		}
	}
}

type document struct {
	text []byte
	line int // number of lines before it
}

// documents splits a file at lines that begin with "---", as kubectl does.
func documents(text []byte) []document {
	out := []document{{}}
	for i, line := range bytes.SplitAfter(text, []byte("\n")) {
		if bytes.HasPrefix(line, []byte("---")) && len(bytes.TrimSpace(line[3:])) == 0 {
			out = append(out, document{line: i + 1})
			continue
		}
		d := &out[len(out)-1]
		d.text = append(d.text, line...)
	}
	return out
}

func (c *checker) object(n *yaml.Node, text []byte) {
	s := &places{c: c, pos: map[string]place{}}
	version, kind := field(n, "apiVersion"), field(n, "kind")
	name := version + " " + kind
	switch {
	case !s.note(n, "", 0):
		c.add(LevelSkipped, c.base+n.Line, n.Column, "", "the document is too deep, or its aliases make it too large", "write it out")
		return
	case n.Kind != yaml.MappingNode || version == "" || kind == "":
		c.add(LevelSkipped, c.base+n.Line, n.Column, "", "this is no object of Kubernetes", "")
		return
	}
	if now := gone[name]; now != "" {
		s.report(LevelError, "apiVersion", "nothing runs a "+name+" any more", "write "+now)
		return
	}
	if s.strings(n, "") {
		if whole, err := yaml.Marshal(n); err == nil {
			text = whole // the rest of the document is checked as if they were strings
		}
	}
	raw, err := k8syaml.YAMLToJSON(text)
	var all any
	if err == nil {
		err = json.Unmarshal(raw, &all)
	}
	if err != nil {
		s.skip(err)
		return
	}
	layoutOf := func(string) layout { return layout{} }
	switch name {
	case mpiJobKind:
		job := &mpi.MPIJob{}
		strange, err := k8sjson.UnmarshalStrict(raw, job)
		if err != nil {
			s.skip(err)
			return
		}
		for _, e := range strange {
			s.report(LevelWarning, fieldOf(e), strings.TrimPrefix(e.Error(), "json: "), "kubeconform knows all fields, kubectl explain says what they are")
		}
		layoutOf = s.mpiJob(job)
	case jobSetKind:
		set := &Set{}
		if err := json.Unmarshal(raw, set); err != nil {
			s.skip(err)
			return
		}
		layoutOf = s.jobSet(set)
	default:
		s.core = !strings.Contains(version, "/") || strings.HasPrefix(version, "batch/") || strings.HasPrefix(version, "apps/")
		if !slices.Contains(others, name) {
			s.report(LevelSkipped, "kind", name+" is not known: only its pods are checked", "kubectl apply --dry-run=server checks the rest")
		}
	}
	s.pods(all, "", layoutOf)
}

// strings reports values of environment variables that are no strings, which the API refuses, and makes strings of them.
func (s *places) strings(n *yaml.Node, where string) (changed bool) {
	for i := 0; n.Kind == yaml.MappingNode && i+1 < len(n.Content); i += 2 {
		key, value := n.Content[i].Value, n.Content[i+1]
		if where == "env" && key == "value" && value.Kind == yaml.ScalarNode && slices.Contains([]string{"!!int", "!!float", "!!bool"}, value.Tag) {
			s.c.add(LevelError, s.c.base+value.Line, value.Column, "env", fmt.Sprintf("%s is no string, and the API refuses it", value.Value), fmt.Sprintf("write %q", value.Value))
			value.Tag, value.Style = "!!str", yaml.DoubleQuotedStyle
			changed = true
			continue
		}
		changed = s.strings(value, key) || changed
	}
	if n.Kind == yaml.SequenceNode {
		for _, e := range n.Content {
			changed = s.strings(e, where) || changed
		}
	}
	return changed
}

// field returns the value of a mapping's key if it is a scalar, otherwise "".
func field(n *yaml.Node, name string) string {
	for i := 0; i+1 < len(n.Content); i += 2 {
		if n.Content[i].Value == name && n.Content[i+1].Kind == yaml.ScalarNode {
			return n.Content[i+1].Value
		}
	}
	return ""
}
