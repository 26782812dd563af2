package mesh

import (
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/assay-hpc/assay/perftest/probe"
)

// TestMeshFlags: what is the mesh's, and what each measurement's.
func TestMeshFlags(t *testing.T) {
	rate := func(platform string) (float64, error) {
		if platform != "dgx-a100" {
			t.Errorf("the rate of %q", platform)
		}
		return 200, nil
	}
	m, err := Parse(strings.Fields("--tool=ib_read_bw -d mlx5_0,mlx5_3 -i 2 --pattern rail --serial --samples 5 -D 10 -q4 --hosts a,b --hardware dgx-a100 --output json --html x.html --report_gbits"), rate)
	if err != nil {
		t.Fatal(err)
	}
	want := probe.Default(probe.Read, probe.Bandwidth)
	want.IBPort, want.Duration, want.QPs, want.Gbits = 2, 10*time.Second, 4, true
	o := Options{
		Config: want, Pattern: Rail, Serial: true, Samples: 5, Limit: 90 * time.Second, Names: []string{"a", "b"}, Expect: 200,
		Devices: []string{"mlx5_0", "mlx5_3"}, IBPort: 2,
	}
	if !reflect.DeepEqual(m.Options, o) || !m.JSON || m.HTML != "x.html" {
		t.Errorf("%+v\nwant %+v", m.Options, o)
	}
	if m, err = Parse(nil, nil); err != nil || m.Options.Config.IBPort != 1 || m.Options.IBPort != 0 || m.Options.Limit != time.Minute || m.Options.Samples != 3 {
		t.Errorf("%v %+v", err, m)
	}
}

// TestMeshRefuses: flags of the tools that a mesh has no use for.
func TestMeshRefuses(t *testing.T) {
	for _, line := range []string{
		"-p 1", "-a", "--run_infinitely", "--reversed", "-b --report-both", "--tool write_lat -H", "-W counters/symbol_error", "-w 5", "--out_json",
		"--cpu_util", "--source_ip 10.0.0.1", "--dlid 4", "--wait 4", "--wait_destroy 4", "-R", "-z",
	} {
		if _, err := Parse(strings.Fields(line), nil); err == nil || !strings.Contains(err.Error(), "is not for a mesh: ") {
			t.Errorf("%s: %v", line, err)
		}
	}
}
