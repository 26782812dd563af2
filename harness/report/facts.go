package report

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/assay-hpc/assay/internal/certificate"
	"github.com/assay-hpc/assay/internal/words"
)

// A fact is a line about a certificate.
type fact struct{ Name, Value string }

// A factList omits empty values.
type factList []fact

func (l *factList) add(name, value string) {
	if value != "" {
		*l = append(*l, fact{name, value})
	}
}

// facts lists the subjects of a certificate and where it was created.
func facts(s *certificate.Statement) []fact {
	p := &s.Predicate
	e := p.Environment
	var out factList
	for _, sub := range s.Subject {
		name := "image"
		if isNode(sub) {
			name = "node"
		}
		out.add(name, subject(sub))
	}
	out.add("target", e.Target)
	out.add("recipe", e.Recipe)
	out.add("platform", e.Platform)
	out.add("system", e.OS)
	out.add("kernel", e.Kernel)
	out.add("processor", e.CPU)
	if e.CPUs > 0 {
		out.add("processors", strconv.Itoa(e.CPUs))
	}
	out.add("harness", join(p.Harness.Version, p.Harness.Commit))
	out.add("limits", limitsFile(p.Limits))
	out.add("selected", p.Selected.String())
	out.add("repeated", p.After.String())
	out.add("started", p.Started.Format(time.RFC3339))
	out.add("took", fmt.Sprint(p.Finished.Sub(p.Started)))
	return out
}

// limitsFile names the site's file of limits.
func limitsFile(l *certificate.Limits) string {
	if l == nil {
		return ""
	}
	return fmt.Sprintf("%s, for %s, sha256:%.12s", l.File, words.Count(len(l.Checks), "check"), l.SHA256)
}

// nodeFacts lists the known facts about the machine.
func nodeFacts(n *certificate.Node) []fact {
	var out factList
	out.add("name", n.Name)
	out.add("machine", machineName(n))
	out.add("cloud", cloud(n))
	out.add("inside", n.Container)
	out.add("hardware", platform(n))
	out.add("GPUs", gpus(n))
	out.add("driver", n.Driver)
	out.add("CUDA", n.CUDA)
	out.add("ports", ports(n))
	for _, name := range slices.Sorted(maps.Keys(n.Versions)) {
		out.add(name, n.Versions[name])
	}
	for _, name := range slices.Sorted(maps.Keys(n.Variables)) {
		out.add("variable", name+"="+n.Variables[name])
	}
	return out
}

func machineName(n *certificate.Node) string { return strings.TrimSpace(n.Vendor + " " + n.Product) }

func cloud(n *certificate.Node) string { return strings.TrimSpace(n.Cloud + " " + n.Instance) }

// platform returns the most similar platform, and how the machine differs from it.
func platform(n *certificate.Node) string {
	if len(n.Differences) == 0 {
		return n.Platform
	}
	name := n.Platform
	name = cmp.Or(name, "no known platform")
	return name + "; differs: " + strings.Join(n.Differences, "; ")
}

func gpus(n *certificate.Node) string {
	return counted(n.GPUs, func(g certificate.GPU) string {
		if g.Memory == 0 {
			return g.Name
		}
		return fmt.Sprintf("%s (%.0f GB)", g.Name, float64(g.Memory)/1e9)
	})
}

func ports(n *certificate.Node) string {
	return counted(n.Ports, func(p certificate.Port) string {
		rate := ""
		if p.Gbit != 0 {
			rate = fmt.Sprintf("%.4g Gb/s", p.Gbit)
		}
		return strings.Join(strings.Fields(p.Device+" "+p.LinkLayer+" "+rate+" "+p.State), " ")
	})
}

// counted lists distinct descriptions of things, each with its number: "8 × NVIDIA H200".
func counted[T any](things []T, what func(T) string) string {
	var order []string
	n := map[string]int{}
	for _, t := range things {
		s := what(t)
		if n[s] == 0 {
			order = append(order, s)
		}
		n[s]++
	}
	for i, s := range order {
		order[i] = strings.TrimSpace(fmt.Sprintf("%d × %s", n[s], s))
	}
	return strings.Join(order, ", ")
}

func prefixed(prefix, s string) string {
	if s == "" {
		return ""
	}
	return prefix + s
}

// join lists the non-empty parts.
func join(parts ...string) string {
	return strings.Join(slices.DeleteFunc(parts, func(s string) bool { return s == "" }), ", ")
}

func isNode(s certificate.Subject) bool { return strings.HasPrefix(s.Name, certificate.NodePrefix) }

// subject formats an image as registries do, and a machine likewise.
func subject(s certificate.Subject) string {
	if d := s.Digest["sha256"]; d != "" {
		return s.Name + "@sha256:" + d
	}
	return s.Name
}
