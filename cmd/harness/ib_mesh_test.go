package main

import (
	"os"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/assay-hpc/assay/perftest/mesh"
	"github.com/assay-hpc/assay/perftest/probe"
)

// TestMeshFlags: what is the mesh's, and what each measurement's.
func TestMeshFlags(t *testing.T) {
	m, err := parseMesh(strings.Fields("--tool=ib_read_bw -d mlx5_0,mlx5_3 -i 2 --pattern rail --serial --samples 5 -D 10 -q4 --hosts a,b --platform dgx-a100 --output json --html x.html --report_gbits"))
	if err != nil {
		t.Fatal(err)
	}
	want := probe.Default(probe.Read, probe.Bandwidth)
	want.IBPort, want.Duration, want.QPs, want.Gbits = 2, 10*time.Second, 4, true
	o := mesh.Options{
		Config: want, Pattern: mesh.Rail, Serial: true, Samples: 5, Limit: 90 * time.Second, Names: []string{"a", "b"}, Expect: 200,
		Devices: []string{"mlx5_0", "mlx5_3"}, IBPort: 2,
	}
	if !reflect.DeepEqual(m.mesh, o) || !m.json || m.html != "x.html" {
		t.Errorf("%+v\nwant %+v", m.mesh, o)
	}
	if m, err = parseMesh(nil); err != nil || m.mesh.Config.IBPort != 1 || m.mesh.IBPort != 0 || m.mesh.Limit != time.Minute || m.mesh.Samples != 3 {
		t.Errorf("%v %+v", err, m)
	}
}

// TestMeshRefuses: flags of the tools that a mesh has no use for.
func TestMeshRefuses(t *testing.T) {
	for _, line := range []string{
		"-p 1", "-a", "--run_infinitely", "--reversed", "-b --report-both", "--tool write_lat -H", "-W counters/symbol_error", "-w 5", "--out_json",
		"--cpu_util", "--source_ip 10.0.0.1", "--dlid 4", "--wait 4", "--wait_destroy 4", "-R", "-z",
	} {
		if _, err := parseMesh(strings.Fields(line)); err == nil || !strings.Contains(err.Error(), "is not for a mesh: ") {
			t.Errorf("%s: %v", line, err)
		}
	}
}

// TestMeshWithoutDevice: one line says what is missing.
func TestMeshWithoutDevice(t *testing.T) {
	if _, err := os.Stat("/sys/class/infiniband"); err == nil {
		t.Skip("this machine has RDMA devices")
	}
	var out, errOut strings.Builder
	if got := run([]string{"harness", "ib", "mesh"}, &out, &errOut); got != exitNotDone || out.Len() > 0 || strings.Count(errOut.String(), "\n") != 1 ||
		!strings.Contains(errOut.String(), "/sys/class/infiniband") {
		t.Errorf("status %d\n%s%s", got, out.String(), errOut.String())
	}
}
