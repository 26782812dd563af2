package jobs

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"reflect"
	"strings"

	mpi "github.com/kubeflow/mpi-operator/pkg/apis/kubeflow/v2beta1"
	mpivalidation "github.com/kubeflow/mpi-operator/pkg/apis/kubeflow/validation"
	"go.yaml.in/yaml/v3"
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	k8sjson "sigs.k8s.io/json"
	k8syaml "sigs.k8s.io/yaml"

	"github.com/assay-hpc/assay/internal/words"
)

// kinds are the objects that a job can consist of, by API version and kind.
var kinds = map[string]func() any{
	"kubeflow.org/v2beta1 MPIJob":               func() any { return new(mpi.MPIJob) },
	"jobset.x-k8s.io/v1alpha2 JobSet":           func() any { return new(Set) },
	"batch/v1 Job":                              func() any { return new(batchv1.Job) },
	"apps/v1 DaemonSet":                         func() any { return new(appsv1.DaemonSet) },
	"v1 Pod":                                    func() any { return new(corev1.Pod) },
	"resource.nvidia.com/v1beta1 ComputeDomain": func() any { return new(ComputeDomain) },
}

// manifest checks each document of a YAML file.
func (c *checker) manifest(text []byte) {
	any := false
	for _, d := range documents(text) {
		c.base = d.line
		var root yaml.Node
		switch err := yaml.NewDecoder(bytes.NewReader(d.text)).Decode(&root); {
		case errors.Is(err, io.EOF):
			continue
		case err != nil:
			c.bad(c.base+1, "", "the document that begins here is not YAML: "+strings.TrimPrefix(err.Error(), "yaml: "), "lines count from here; correct it")
		default:
			c.object(root.Content[0], d.text)
		}
		any = true
	}
	if !any {
		c.base = 0
		c.bad(0, "", "there is no document in it", "assay jobs render writes one")
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
	switch {
	case n.Kind != yaml.MappingNode:
		c.add(LevelError, c.base+n.Line, n.Column, "", "this is no object", "write a mapping with apiVersion and kind")
		return
	case !s.note(n, "", 0):
		c.add(LevelError, c.base+n.Line, n.Column, "", "the document is too deep, or its aliases make it too large", "write it out")
		return
	}
	version, kind := field(n, "apiVersion"), field(n, "kind")
	make, ok := kinds[version+" "+kind]
	if !ok {
		s.unknownKind(n, version, kind)
		return
	}
	o := make()
	raw, err := k8syaml.YAMLToJSONStrict(text)
	if err != nil {
		s.refused(err)
		return
	}
	refused, err := k8sjson.UnmarshalStrict(raw, o)
	for _, e := range append(refused, err) {
		if e != nil {
			s.refused(e)
		}
	}
	if err != nil {
		return
	}
	s.names(kind, o)
	if job, ok := o.(*mpi.MPIJob); ok {
		s.mpiJob(job)
	}
	if set, ok := o.(*Set); ok {
		s.jobSet(set)
	}
	s.pods(o)
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

func (s *places) unknownKind(n *yaml.Node, version, kind string) {
	var names []string
	for k := range kinds {
		v, name, _ := strings.Cut(k, " ")
		if name == kind && v != version {
			s.report(LevelError, "apiVersion", fmt.Sprintf("there is no %s in %q", kind, version), "write "+v)
			return
		}
		names = append(names, name)
	}
	best := words.Nearest(kind, names)
	if version == "" || kind == "" || words.Distance(kind, best) <= 2 {
		s.report(LevelError, "kind", fmt.Sprintf("there is no %q in %q", kind, version), fmt.Sprintf("did you mean %s?", best))
		return
	}
	s.c.add(LevelSkipped, s.c.base+n.Line, n.Column, "kind", kind+" is not of the kinds that jobs are made of", "kubectl apply --dry-run=server checks it")
}

// names checks object names. Two objects of one kind must not share a name.
func (s *places) names(kind string, o any) {
	meta := reflect.ValueOf(o).Elem().FieldByName("ObjectMeta")
	name, namespace := meta.FieldByName("Name").String(), meta.FieldByName("Namespace").String()
	if errs := validation.IsDNS1123Subdomain(name); len(errs) > 0 {
		s.report(LevelError, "metadata.name", fmt.Sprintf("%q is not a name", name), "write lower-case letters, digits and hyphens, at most 63")
	}
	if namespace != "" && len(validation.IsDNS1123Label(namespace)) > 0 {
		s.report(LevelError, "metadata.namespace", fmt.Sprintf("%q is no namespace", namespace), "write lower-case letters, digits and hyphens, at most 63")
	}
	key := kind + " " + namespace + "/" + name
	if other, ok := s.c.names[key]; ok {
		s.report(LevelError, "metadata.name", fmt.Sprintf("%s has a %s of this name, too", other, kind), "the second would take the first one's place; give them different names")
	}
	s.c.names[key] = s.c.file
}

// mpiJob validates an MPIJob with the operator's own code.
func (s *places) mpiJob(job *mpi.MPIJob) {
	mpi.SetDefaults_MPIJob(job)
	for _, e := range mpivalidation.ValidateMPIJob(job) {
		s.report(LevelError, e.Field, e.ErrorBody(), "the operator refuses it")
	}
	s.ranks(job)
}
