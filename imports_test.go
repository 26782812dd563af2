package assay_test

import (
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"
	"testing"
)

// layers of what measures, from below: a package imports those of lower layers
// alone. So an operation goes down from the communicator to its executors and never
// back up, and neither executor knows the communicator; and a probe goes down from
// its options to the loop that posts.
var layers = [][]string{
	{"harness/nvml"},
	{"coll/model", "coll/elem", "coll/debug", "coll/flight", "coll/topology", "coll/transport/rendezvous", "coll/cuda/driver", "perftest/verbs", "perftest/probe/wire", "perftest/judge", "perftest/tcp"},
	{"coll/op", "coll/cuda/kernels", "internal/rig", "perftest/probe", "dcgm/health"},
	{"coll/schedule", "coll/colltest", "coll/transport", "coll/knob", "coll/nccl", "coll/perf", "perftest/mesh", "perftest/gpumem", "perftest/membw", "dcgm/diag"},
	{"coll/host", "coll/predict", "coll/bootstrap", "coll/transport/shm", "coll/transport/slots", "coll/transport/socket", "coll/transport/transporttest", "coll/cuda/bench", "coll/perf/commtest", "dcgm/hostengine"},
	{"coll/choose", "coll/transport/verbs", "coll/transport/netplugin"},
	{"coll/executor", "coll/transport/netplugin/netplugintest"},
	{"coll", "coll/cuda"},
	{"coll/perf/world", "coll/watch", "coll/model/modeltest"},
}

func TestLayers(t *testing.T) {
	const module = "github.com/assay-hpc/assay/"
	layer := func(p string) int {
		return slices.IndexFunc(layers, func(l []string) bool { return slices.Contains(l, p) })
	}
	seen := map[string]bool{}
	for _, top := range []string{"coll", "perftest", "dcgm", "internal/rig", "harness/nvml"} {
		err := fs.WalkDir(os.DirFS("."), top, func(name string, _ fs.DirEntry, err error) error {
			if err != nil || !strings.HasSuffix(name, ".go") || strings.HasSuffix(name, "_test.go") {
				return err
			}
			f, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.ImportsOnly)
			if err != nil {
				return err
			}
			from := path.Dir(name)
			if f.Name.Name == "main" {
				return nil
			}
			seen[from] = true
			if layer(from) < 0 {
				t.Errorf("%s is in no layer", from)
			}
			for _, i := range f.Imports {
				if to, ok := strings.CutPrefix(strings.Trim(i.Path.Value, `"`), module); ok && layer(to) >= layer(from) {
					t.Errorf("%s imports %s, which is not below it", name, to)
				}
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	for _, l := range layers {
		for _, p := range l {
			if !seen[p] {
				t.Errorf("there is no package %s", p)
			}
		}
	}
}
