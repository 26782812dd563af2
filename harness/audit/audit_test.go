package audit

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/assay-hpc/assay/internal/rootfs"
)

// TestFaults: the list is what it says that it is.
func TestFaults(t *testing.T) {
	t.Parallel()
	all, err := Faults()
	if err != nil {
		t.Fatal(err)
	}
	if len(all) < 100 {
		t.Errorf("%d faults", len(all))
	}
	for _, f := range all {
		for _, s := range f.Source {
			if !strings.HasPrefix(s, "https://") && !strings.HasPrefix(s, "http://") {
				t.Errorf("%s: source %q", f.ID, s)
			}
		}
		for _, a := range f.Arch {
			if a != "amd64" && a != "arm64" {
				t.Errorf("%s: arch %q", f.ID, a)
			}
		}
		if f.Fixed != "" && f.versions.holds(f.Fixed) && !strings.Contains(f.Fixed, ",") {
			t.Errorf("%s: the version that mends it, %s, has it", f.ID, f.Fixed)
		}
	}
	for name, bad := range map[string]string{
		"a constraint": "faults: [{id: nccl-x, component: nccl, versions: '2.28', kind: hang, basis: maintainer, effect: e, remedy: r, source: [https://x]}]",
		"a component":  "faults: [{id: nvcc-x, component: nvcc, versions: '=2.28', kind: hang, basis: maintainer, effect: e, remedy: r, source: [https://x]}]",
		"no source":    "faults: [{id: nccl-x, component: nccl, versions: '=2.28', kind: hang, basis: maintainer, effect: e, remedy: r}]",
		"a field":      "faults: [{id: nccl-x, component: nccl, version: '=2.28'}]",
	} {
		if _, err := parse([]byte(bad)); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}

// TestVersions: order of versions, as packages and libraries write them.
func TestVersions(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		constraint, version string
		want                bool
	}{
		{">=2.28.0 <2.29.3", "2.28.3-1+cuda13.0", true},
		{">=2.28.0 <2.29.3", "2.29.3", false},
		{">=2.28.0 <2.29.3", "2.9.6", false},
		{"=4.1.4", "4.1.4-3+b1", true},
		{"=4.1.4", "4.1.40", false},
		{"<1.17.8", "1.17.7-1", true},
		{">=535 <535.309.01 || >=580 <580.159.03", "580.95.05", true},
		{">=535 <535.309.01 || >=580 <580.159.03", "570.211.01", false},
		{"<3.1.7", "1:3.1.6", true},
		{"=2.12", "2.12.0", true},
		{"<9", "none", false},
	} {
		p, err := parseConstraint(c.constraint)
		if err != nil {
			t.Fatal(err)
		}
		if got := p.holds(c.version); got != c.want {
			t.Errorf("%s holds of %s: %v", c.constraint, c.version, got)
		}
	}
}

func ids(r *Report) (out []string) {
	for _, f := range r.Findings {
		id := f.ID
		if f.If != "" {
			id += "?"
		}
		out = append(out, id)
	}
	return out
}

// TestAudit: architecture, GPU and other components decide, and are asked for where they are not known.
func TestAudit(t *testing.T) {
	t.Parallel()
	audit := func(s System) []string {
		r, err := Audit(s)
		if err != nil {
			t.Fatal(err)
		}
		var b bytes.Buffer
		if err := r.WriteText(&b, 100); err != nil || b.Len() == 0 {
			t.Fatal(err)
		}
		return ids(r)
	}
	const arm = "nccl-arm-proxy-slot-leak"
	nccl := []Version{{Component: "nccl", Version: "2.28.9"}}
	if got := audit(System{Versions: nccl, Arch: "amd64"}); slices.Contains(got, arm) || slices.Contains(got, arm+"?") {
		t.Errorf("on amd64: %v", got)
	}
	if got := audit(System{Versions: nccl, Arch: "arm64"}); !slices.Contains(got, arm) {
		t.Errorf("on arm64: %v", got)
	}
	if got := audit(System{Versions: nccl}); !slices.Contains(got, arm+"?") {
		t.Errorf("of an unknown architecture: %v", got)
	}
	const gb = "nccl-gb200-cx8-no-gdr-hang"
	if got := audit(System{Versions: nccl, GPUs: []string{"NVIDIA B200"}}); slices.Contains(got, gb) {
		t.Errorf("B200 is no GB200: %v", got)
	}
	if got := audit(System{Versions: nccl, GPUs: []string{"NVIDIA GB200"}}); !slices.Contains(got, gb) {
		t.Errorf("GB200: %v", got)
	}
	old := []Version{{Component: "ofi", Version: "1.17.1"}, {Component: "nccl", Version: "2.28.3"}}
	if got := audit(System{Versions: old}); !slices.Contains(got, "ofi-nccl228-init-crash") {
		t.Errorf("two components: %v", got)
	}
	old[1].Version = "2.27.7"
	if got := audit(System{Versions: old}); slices.Contains(got, "ofi-nccl228-init-crash") {
		t.Errorf("two components that go together: %v", got)
	}
	if got := audit(System{Versions: []Version{{Component: "nccl", Version: "99.1"}}}); len(got) != 0 {
		t.Errorf("a version of the future: %v", got)
	}
}

// TestRead finds versions below a root.
func TestRead(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for name, text := range map[string]string{
		"var/lib/dpkg/status": "Package: dpkg\nStatus: install ok installed\nArchitecture: arm64\nVersion: 1.22\nMaintainer: Debian\n\n" +
			"Package: libnccl2\nStatus: install ok installed\nArchitecture: arm64\nVersion: 2.28.9-1+cuda13.0\nMaintainer: cudatools <cudatools@nvidia.com>\n\n" +
			"Package: openmpi-bin\nStatus: install ok installed\nArchitecture: arm64\nVersion: 4.1.4-3+b1\nMaintainer: Debian\n\n" +
			"Package: perftest\nStatus: deinstall ok config-files\nArchitecture: arm64\nVersion: 25.10.0\nMaintainer: Debian\n",
		"proc/driver/nvidia/version":                                                 "NVRM version: NVIDIA UNIX Open Kernel Module for aarch64  580.95.05  Release Build\n",
		"proc/driver/nvidia/gpus/0000:01:00.0/information":                           "Model: \t\t NVIDIA GB200\nIRQ: 1\n",
		"proc/sys/kernel/osrelease":                                                  "6.8.0-31-generic\n",
		"opt/app/lib/python3.12/site-packages/torch-2.12.0+cu130.dist-info/METADATA": "",
	} {
		if err := os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	root, err := rootfs.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	s, err := Read(root)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, v := range s.Versions {
		got = append(got, v.Component+" "+v.Version)
	}
	slices.Sort(got)
	if want := "driver 580.95.05, kernel 6.8.0-31-generic, nccl 2.28.9-1+cuda13.0, openmpi 4.1.4-3+b1, pytorch 2.12.0"; strings.Join(got, ", ") != want {
		t.Errorf("found %s, not %s", strings.Join(got, ", "), want)
	}
	if s.Arch != "arm64" || !slices.Equal(s.GPUs, []string{"NVIDIA GB200"}) {
		t.Errorf("%s, %v", s.Arch, s.GPUs)
	}
}
