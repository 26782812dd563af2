package jobs

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/assay-hpc/assay/internal/words"
)

// An object is a document of a manifest.
type object struct {
	*places
	base int // lines before it
	kind string
	all  any
}

// references checks what objects of a file name in one another. Of a kind that the file has no object
// of, all are elsewhere.
func (c *checker) references(objects []object) {
	names := map[string][]string{} // by kind
	var pods []map[string]any      // labels
	for _, o := range objects {
		names[o.kind] = append(names[o.kind], text(value(o.all, "metadata", "name")))
		if o.kind == "ComputeDomain" { // which makes one
			names["ResourceClaimTemplate"] = append(names["ResourceClaimTemplate"], text(value(o.all, "spec", "channel", "resourceClaimTemplate", "name")))
		}
		visit(o.all, "", func(_ string, m map[string]any) {
			labels, _ := value(m, "metadata", "labels").(map[string]any)
			if _, pod := value(m, "spec", "containers").([]any); pod {
				pods = append(pods, labels)
			}
		})
	}
	for _, o := range objects {
		c.base = o.base
		wants := func(path, kind, name string) {
			all := names[kind]
			if name == "" || len(all) == 0 || slices.Contains(all, name) {
				return
			}
			if near := words.Nearest(name, all); strings.Contains(near, name) || strings.Contains(name, near) || words.Distance(name, near) <= len(name)/2 {
				o.report(LevelWarning, path, fmt.Sprintf("no %s of this file is called %q", kind, name), "write "+near+", unless it is elsewhere")
			}
		}
		if o.kind == "StatefulSet" {
			wants("spec.serviceName", "Service", text(value(o.all, "spec", "serviceName")))
		}
		visit(o.all, "", func(at string, m map[string]any) {
			if labels, _ := m["labels"].(map[string]any); labels != nil {
				wants(at+".labels", "LocalQueue", text(labels["kueue.x-k8s.io/queue-name"]))
			}
			if name := text(m["resourceClaimTemplateName"]); name != "" {
				wants(at+".resourceClaimTemplateName", "ResourceClaimTemplate", name)
			}
		})
		if selector, _ := value(o.all, "spec", "selector").(map[string]any); o.kind == "Service" && len(selector) > 0 && len(pods) > 0 {
			given := strings.Contains(strings.Join(slices.Collect(maps.Keys(selector)), ""), "/") || selector["job-name"] != nil // by a controller
			if !given && !slices.ContainsFunc(pods, func(labels map[string]any) bool { return within(selector, labels) }) {
				o.report(LevelWarning, "spec.selector", "no pod of this file has these labels, so the service's name leads to none", "write the labels of the pods, unless these are elsewhere")
			}
		}
	}
}

// within reports whether all labels of a selector are among others.
func within(selector, labels map[string]any) bool {
	for key, v := range selector {
		if labels[key] != v {
			return false
		}
	}
	return true
}

// text returns a value that is a string, otherwise "".
func text(v any) string {
	s, _ := v.(string)
	return s
}

// visit calls f for all maps in a value, with their paths.
func visit(v any, at string, f func(at string, m map[string]any)) {
	switch v := v.(type) {
	case []any:
		for i, one := range v {
			visit(one, fmt.Sprintf("%s[%d]", at, i), f)
		}
	case map[string]any:
		f(strings.Trim(at, "."), v)
		for _, name := range slices.Sorted(maps.Keys(v)) {
			visit(v[name], at+"."+name, f)
		}
	}
}
