package jobs

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	mpi "github.com/kubeflow/mpi-operator/pkg/apis/kubeflow/v2beta1"
	"go.yaml.in/yaml/v3"
	"k8s.io/apimachinery/pkg/api/resource"
	k8sjson "sigs.k8s.io/json"
	k8syaml "sigs.k8s.io/yaml"
)

const (
	mpiJobKind = "kubeflow.org/v2beta1 MPIJob"
	jobSetKind = "jobset.x-k8s.io/v1alpha2 JobSet"
	oldMPIKind = "kubeflow.org/v1 MPIJob"
)

// known are the other kinds that jobs are made of. Of those, only the pods matter.
var known = []string{"batch/v1 Job", "apps/v1 DaemonSet", "v1 Pod", "resource.nvidia.com/v1beta1 ComputeDomain"}

// gone are versions that no controller serves any more, and what came in their place.
var gone = map[string]string{
	"kubeflow.org/v1alpha1 MPIJob":    "kubeflow.org/v2beta1",
	"kubeflow.org/v1alpha2 MPIJob":    "kubeflow.org/v2beta1",
	"jobset.x-k8s.io/v1alpha1 JobSet": "jobset.x-k8s.io/v1alpha2",
}

// manifest checks each document of a YAML file.
func (c *checker) manifest(text []byte) {
	var objects []object
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
			objects = c.object(root.Content[0], d.text, objects)
		}
	}
	c.references(objects)
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

// object checks a document, and appends it to the others if it is an object of Kubernetes.
func (c *checker) object(n *yaml.Node, text []byte, others []object) []object {
	s := &places{c: c, pos: map[string]place{}}
	version, kind := field(n, "apiVersion"), field(n, "kind")
	name := version + " " + kind
	switch {
	case !s.note(n, "", 0):
		c.add(LevelSkipped, c.base+n.Line, n.Column, "", "the document is too deep, or its aliases make it too large", "write it out")
		return others
	case n.Kind != yaml.MappingNode || version == "" || kind == "":
		c.add(LevelSkipped, c.base+n.Line, n.Column, "", "this is no object of Kubernetes", "")
		return others
	}
	if now := gone[name]; now != "" {
		s.report(LevelError, "apiVersion", "nothing runs a "+name+" any more", "write "+now)
		return others
	}
	if s.mend(n, "") {
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
		return others
	}
	layoutOf := func(string) layout { return layout{} }
	switch name {
	case mpiJobKind, oldMPIKind:
		job := &mpi.MPIJob{}
		strange, err := k8sjson.UnmarshalStrict(raw, job)
		if err != nil {
			s.skip(err)
			return others
		}
		mpi.SetDefaults_MPIJob(job)
		if name == oldMPIKind {
			s.unknownKind(name, text)
			layoutOf = s.mpiLayout(job)
			break
		}
		for _, e := range strange {
			s.report(LevelWarning, fieldOf(e), strings.TrimPrefix(e.Error(), "json: "), "kubeconform knows all fields, kubectl explain says what they are")
		}
		layoutOf = s.mpiJob(job)
	case jobSetKind:
		set := &Set{}
		if err := json.Unmarshal(raw, set); err != nil {
			s.skip(err)
			return others
		}
		layoutOf = s.jobSet(set)
	default:
		if !slices.Contains(known, name) {
			s.unknownKind(name, text)
		}
		if n := pods(name, all); n > 0 {
			layoutOf = func(string) layout { return layout{nodes: n} }
		}
	}
	s.strict = name == mpiJobKind
	s.batch = strings.HasPrefix(name, "batch/") || kind == "JobSet"
	s.templates = !slices.Contains([]string{"Job", "JobSet", "MPIJob", "PyTorchJob", "Pod", "Deployment", "DaemonSet"}, kind)
	s.labels(all)
	if kind == "PyTorchJob" {
		s.pyTorchJob(all)
	}
	s.pods(all, "", layoutOf)
	return append(others, object{s, c.base, kind, all})
}

// value returns what is at a path of maps, nil if there is nothing.
func value(v any, path ...string) any {
	for _, key := range path {
		m, _ := v.(map[string]any)
		v = m[key]
	}
	return v
}

// labels checks that an object's selector matches its own pods.
func (s *places) labels(object any) {
	want, _ := value(object, "spec", "selector", "matchLabels").(map[string]any)
	template, _ := value(object, "spec", "template", "metadata").(map[string]any)
	have, _ := template["labels"].(map[string]any)
	for _, key := range slices.Sorted(maps.Keys(want)) {
		if template != nil && have[key] != want[key] {
			s.report(LevelError, "spec.template.metadata.labels", fmt.Sprintf("the selector asks for %s=%v, which the pods do not have, and the object is refused", key, want[key]), "write the same labels in both")
		}
	}
}

// pyTorchJob checks the names that the training operator knows.
func (s *places) pyTorchJob(object any) {
	replicas, _ := value(object, "spec", "pytorchReplicaSpecs").(map[string]any)
	for _, name := range slices.Sorted(maps.Keys(replicas)) {
		at := "spec.pytorchReplicaSpecs." + name
		if name != "Master" && name != "Worker" {
			s.report(LevelError, at, "the operator knows no replicas of this name", "write Master or Worker")
		}
		containers, _ := value(replicas[name], "template", "spec", "containers").([]any)
		if !slices.ContainsFunc(containers, func(c any) bool { return value(c, "name") == "pytorch" }) {
			s.report(LevelError, at+".template.spec.containers", "the operator refuses pods without a container called pytorch", "name it so")
		}
	}
}

// unknownKind reports that an object's own fields are not checked.
func (s *places) unknownKind(name string, text []byte) {
	message := name + " is not checked"
	if bytes.Contains(text, []byte("containers")) {
		message = "of " + name + " only the pods are checked"
	}
	s.report(LevelSkipped, "kind", message, "kubectl apply --dry-run=server checks the rest")
}

// pods returns how many pods of an object run together, 0 if that is unknown.
func pods(name string, object any) (n int) {
	number := func(v any, without int) int {
		if n, ok := v.(float64); ok && n == float64(int(n)) {
			return int(n)
		}
		return without
	}
	switch _, kind, _ := strings.Cut(name, " "); kind {
	case "LeaderWorkerSet":
		return number(value(object, "spec", "leaderWorkerTemplate", "size"), 1)
	case "PyTorchJob":
		if value(object, "spec", "elasticPolicy") != nil {
			return 0
		}
		all, _ := value(object, "spec", "pytorchReplicaSpecs").(map[string]any)
		for _, replica := range all {
			n += number(value(replica, "replicas"), 1)
		}
	}
	return n
}

// mend reports scalars that the API refuses, and puts others in their place: values of environment
// variables that are no strings, and quantities that are none.
func (s *places) mend(n *yaml.Node, where string) (changed bool) {
	keys := map[string]bool{}
	for i := 0; n.Kind == yaml.MappingNode && i+1 < len(n.Content); i += 2 {
		key, value := n.Content[i].Value, n.Content[i+1]
		if keys[key] && key != "<<" {
			s.c.add(LevelWarning, s.c.base+n.Content[i].Line, n.Content[i].Column, key, "it is there twice, and the last counts", "write it once")
		}
		keys[key] = true
		if where == "env[]" && key == "value" && value.Kind == yaml.ScalarNode && slices.Contains([]string{"!!int", "!!float", "!!bool"}, value.Tag) {
			s.c.add(LevelError, s.c.base+value.Line, value.Column, "env", fmt.Sprintf("%s is no string, and the API refuses it", value.Value), fmt.Sprintf("write %q", value.Value))
			value.Tag, value.Style = "!!str", yaml.DoubleQuotedStyle
			changed = true
			continue
		}
		if amount := where == "limits" || where == "requests" || key == "sizeLimit"; amount && value.Kind == yaml.ScalarNode && plain.MatchString(value.Value) {
			if _, err := resource.ParseQuantity(value.Value); err != nil {
				s.c.add(LevelError, s.c.base+value.Line, value.Column, key, fmt.Sprintf("%q is no quantity, and the API refuses it", value.Value), "write a number with a unit such as Gi or G, or with none")
				value.Value, changed = "100Gi", true
				continue
			}
		}
		changed = s.mend(value, key) || changed
	}
	if n.Kind == yaml.SequenceNode {
		for _, e := range n.Content {
			changed = s.mend(e, where+"[]") || changed
		}
	}
	return changed
}

// plain matches scalars that nothing is to be filled into.
var plain = regexp.MustCompile(`^[0-9.+-][\w.+-]*$`)

// field returns the value of a mapping's key if it is a scalar, otherwise "".
func field(n *yaml.Node, name string) string {
	for i := 0; i+1 < len(n.Content); i += 2 {
		if n.Content[i].Value == name && n.Content[i+1].Kind == yaml.ScalarNode {
			return n.Content[i+1].Value
		}
	}
	return ""
}
