package variables

import (
	"context"
	"fmt"
	"io/fs"
	"slices"
	"strings"

	"github.com/assay-hpc/assay/coll/knob"
	"github.com/assay-hpc/assay/harness/suite"
	"github.com/assay-hpc/assay/internal/host/machine"
	"github.com/assay-hpc/assay/internal/host/netenv"
	"github.com/assay-hpc/assay/internal/result"
	"github.com/assay-hpc/assay/internal/words"
)

// Title is what a pass of the check of a node shows.
const Title = "no variable of NCCL, UCX or Open MPI contradicts the node or slows it down"

// OnNode judges an environment, and NCCL's files, on the node below root.
func OnNode(root string, environ []string) result.Result {
	c, findings, err := Read(root, environ)
	if err != nil {
		return result.Errored("%v", err)
	}
	return Result(c, findings)
}

// Read returns what an environment and NCCL's files set on the node below root, and what is to be said of it.
func Read(root string, environ []string) (c knob.Configuration, findings []Finding, err error) {
	m, err := machine.Read(machine.Options{Root: root})
	if err != nil {
		return c, nil, err
	}
	c = knob.AlreadySet(environ, m.FS.Text)
	var o netenv.Options
	o.Env, o.Problems = ForPlan(c)
	node, plan, err := m.Plan(nil, o)
	if err != nil {
		return c, nil, err
	}
	return c, Judge(c, node, plan), nil
}

// InImage judges an image's environment and its /etc/nccl.conf, which may come to any node.
func InImage(_ context.Context, env *suite.Env) result.Result {
	c := knob.AlreadySet(env.Environ, func(name string) (string, error) {
		if name != "/etc/nccl.conf" && !strings.HasPrefix(name, "/") {
			return "", fs.ErrNotExist
		}
		b, err := env.Root.ReadFile(name, maxConf)
		return string(b), err
	})
	if variablesSet(c) == 0 && len(c.Problems) == 0 {
		return result.Skipped("the image sets none")
	}
	return Result(c, Judge(c, nil, nil))
}

// maxConf bounds what is read of a configuration file.
const maxConf = 1 << 20

// verdicts are the verdicts of grades. What only may be a mistake is shown and passes.
var verdicts = map[netenv.Grade]result.Verdict{netenv.Stops: result.Fail, netenv.Harms: result.Warn, netenv.Differs: result.Pass}

// Result makes a check's result of findings, which are sorted.
func Result(c knob.Configuration, findings []Finding) result.Result {
	set := variablesSet(c)
	if set == 0 && len(findings) == 0 {
		return result.Passed("none is set")
	}
	var r result.Result
	var bad, choices int
	var out strings.Builder
	for _, f := range findings {
		v := verdicts[f.Grade]
		r.Objects = appendObject(r.Objects, f, v)
		switch {
		case v == result.Pass:
			choices++
			fmt.Fprintf(&out, "may be meant: %s; else %s\n", f, f.Remedy)
			continue
		case bad < most:
			r.Add(v, f.String(), f.Remedy)
		}
		bad++
	}
	if bad > most {
		r.Reason += fmt.Sprintf("; and %d more", bad-most)
	}
	if bad == 0 {
		r.Verdict, r.Reason = result.Pass, words.Count(set, "variable")+", none against the node"
		if choices > 0 {
			r.Reason += fmt.Sprintf("; %s may be meant", words.Count(choices, "setting"))
		}
	}
	return r.WithOutput(out.String())
}

// variablesSet returns how many variables are set.
func variablesSet(c knob.Configuration) (n int) {
	for _, s := range c.Set {
		if s.Value != "" && slices.ContainsFunc(families, func(p string) bool { return strings.HasPrefix(s.Name, p) }) {
			n++
		}
	}
	return n
}

// most is how many findings the reason of a result has.
const most = 3

// families are the name prefixes of the variables that are counted.
var families = []string{"NCCL_", "UCX_", "FI_", "GLOO_", "SHARP_", "RDMAV_", "OMPI_MCA_", "PRTE_MCA_"}

// appendObject adds a finding as the object of its variable, or to the object that is there.
func appendObject(all []result.Object, f Finding, v result.Verdict) []result.Object {
	name := f.Name
	if !result.IsName(name) {
		name = f.From
	}
	if !result.IsName(name) {
		name = "configuration"
	}
	text := strings.TrimLeft(strings.TrimPrefix(f.String(), name), "= :") + "; " + f.Remedy
	if i := slices.IndexFunc(all, func(o result.Object) bool { return o.Name == name }); i >= 0 {
		all[i].Verdict, all[i].Reason = result.Worst(all[i].Verdict, v), all[i].Reason+"; "+text
		return all
	}
	return append(all, result.Object{Name: name, Verdict: v, Reason: text})
}
