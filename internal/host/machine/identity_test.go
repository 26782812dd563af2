package machine

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/assay-hpc/assay/internal/certificate"
	"github.com/assay-hpc/assay/internal/host/nvml"
	"github.com/assay-hpc/assay/internal/host/sysfs"
	"github.com/assay-hpc/assay/internal/host/topology"
)

// TestIdentityOf: what identifies a machine is of one kind, so that it stays when
// a GPU is lost or replaced.
func TestIdentityOf(t *testing.T) {
	ports := []certificate.Port{{GUID: "b"}, {GUID: "a"}, {GUID: "a"}}
	gpus := []certificate.GPU{{UUID: "GPU-2"}, {UUID: "GPU-1"}}
	for name, tt := range map[string]struct {
		files map[string]string
		node  certificate.Node
		want  []string
	}{
		"product":    {map[string]string{"sys/class/dmi/id/product_uuid": "4C4C-AB\n", "etc/machine-id": "x\n"}, certificate.Node{Ports: ports, GPUs: gpus}, []string{"dmi 4c4c-ab"}},
		"no product": {map[string]string{"sys/class/dmi/id/product_uuid": "00000000-0000-0000\n"}, certificate.Node{Ports: ports, GPUs: gpus}, []string{"port a", "port b"}},
		"ff":         {map[string]string{"sys/class/dmi/id/product_uuid": "ffffffff-ffff\n"}, certificate.Node{GPUs: gpus}, []string{"GPU-1", "GPU-2"}},
		"machine":    {map[string]string{"etc/machine-id": "c0ffee\n"}, certificate.Node{Name: "n"}, []string{"machine-id c091125a099034e64dc8d0764f1c88db"}},
		"name":       {nil, certificate.Node{Name: "n"}, []string{"name n"}},
	} {
		root := t.TempDir()
		for name, text := range tt.files {
			file := filepath.Join(root, name)
			if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		fs, err := sysfs.Open(root)
		if err != nil {
			t.Fatal(err)
		}
		if d := cmp.Diff(tt.want, identitiesOf(fs, &tt.node)[0]); d != "" {
			t.Errorf("%s (-want +got):\n%s", name, d)
		}
	}
}

func TestVariables(t *testing.T) {
	got := variables([]string{"NCCL_ALGO=Ring", "PATH=/bin", "NCCL_SECRET=x", "UCX_API_KEY=k", "UCX_TLS=rc", "NCCL_DEBUG"})
	if d := cmp.Diff(map[string]string{"NCCL_ALGO": "Ring", "UCX_TLS": "rc", "NCCL_DEBUG": ""}, got); d != "" {
		t.Error(d)
	}
	if variables(nil) != nil {
		t.Error("nothing is not nothing")
	}
}

// TestDrawing draws machines of the topology's own tests.
func TestDrawing(t *testing.T) {
	files, err := filepath.Glob("../topology/testdata/*.xml")
	if err != nil || len(files) == 0 {
		t.Fatalf("%d machines, %v", len(files), err)
	}
	for _, f := range files {
		text, err := os.Open(f)
		if err != nil {
			t.Fatal(err)
		}
		defer text.Close()
		sys, err := topology.Load(text)
		if err != nil {
			t.Fatal(err)
		}
		n := &certificate.Node{Name: "n", Identity: []string{"x"}, Topology: drawing(sys)}
		s := certificate.New(certificate.Predicate{Suite: "s"})
		if err := s.SetNode(n); err != nil {
			t.Fatal(err)
		}
		if _, err := s.Marshal(); err != nil {
			t.Errorf("%s: %v", f, err)
		}
		count := map[certificate.PartKind]int{}
		for _, p := range n.Topology.Parts {
			count[p.Kind]++
		}
		if count[certificate.PartGPU] != len(sys.GPUs) || count[certificate.PartCPU] != len(sys.CPUs) {
			t.Errorf("%s: %v; want %d GPUs, %d processors", f, count, len(sys.GPUs), len(sys.CPUs))
		}
	}
}

// gpus are the GPUs of a driver.
type gpus []nvml.GPU

func (g gpus) Driver() (nvml.Driver, error) {
	return nvml.Driver{GPUs: len(g), Version: "580.65.06"}, nil
}
func (g gpus) GPU(i int, _ func(string)) (nvml.GPU, error) { return g[i], nil }
func (g gpus) Counters(int) (map[string]uint64, error)     { return nil, nil }

// TestEnergy: it is known of the GPUs that the driver keeps running, and of no others.
func TestEnergy(t *testing.T) {
	known, unknown := sysfs.Known(uint64(100)), sysfs.Unknown[uint64](nvml.ErrNotSupported)
	var id Identity
	id.askDriver(gpus{
		{UUID: "GPU-a", Energy: known, Persistence: sysfs.Known(true)},
		{UUID: "GPU-b", Energy: known, Persistence: sysfs.Known(false)},
		{UUID: "GPU-c", Energy: unknown, Persistence: sysfs.Known(true)},
		{UUID: "GPU-d", Energy: known, Persistence: sysfs.Unknown[bool](nvml.ErrNotSupported)},
	})
	if d := cmp.Diff(map[string]uint64{"GPU-a": 100}, id.Energy); d != "" || len(id.Node.GPUs) != 4 {
		t.Errorf("%d GPUs; energy (-want +got):\n%s", len(id.Node.GPUs), d)
	}
}
