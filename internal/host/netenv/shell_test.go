package netenv

import (
	"bytes"
	"maps"
	"math/rand/v2"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/assay-hpc/assay/coll/debug"
	"github.com/assay-hpc/assay/coll/knob"
)

// hostile are names that the kernel allows for interfaces, and more.
var hostile = []string{
	"eth0", "a'b", "a;touch${IFS}pwned", "$(touch pwned)", "`touch pwned`", "a\"b", "a\\b", "-n", "#x", "a&b", "a|b", "*", "~", "!x", "ü", "a\nexport PWNED=1", "^x", "=x", "a,b", "a:b", "%s",
}

// TestExportSurvives has sh evaluate what a node with such names gives.
func TestExportSurvives(t *testing.T) {
	sh, err := exec.LookPath("sh")
	if err != nil {
		t.Skip("skipped: there is no sh")
	}
	for _, name := range hostile {
		n := plain()
		n.Interfaces[1].Name = name
		for i := range n.Routes {
			if n.Routes[i].Dev == "eth0" {
				n.Routes[i].Dev = name
			}
		}
		n.Ports[0].Device = name
		p := Make(n, Options{Env: []Setting{{Name: "NCCL_IB_TC", Value: name, From: "a file named " + name}}})
		var b bytes.Buffer
		if err := p.WriteExport(&b); err != nil {
			t.Fatal(err)
		}
		dir := t.TempDir()
		cmd := exec.Command(sh, "-e", "-c", `eval "$1" && env -0`, "sh", b.String())
		cmd.Dir, cmd.Env = dir, []string{"PATH=" + os.Getenv("PATH"), "HOME=" + dir}
		var stderr bytes.Buffer
		cmd.Stderr = &stderr
		out, err := cmd.Output()
		if err != nil {
			t.Errorf("%q: sh: %v: %s\n%s", name, err, stderr.String(), b.String())
			continue
		}
		entries := strings.Split(string(out), "\x00")
		for _, v := range p.Set {
			if !slices.Contains(entries, v.Name+"="+v.Value) {
				t.Errorf("%q: %s is not %q in the shell", name, v.Name, v.Value)
			}
		}
		if len(p.Set) == 0 || slices.Contains(entries, "PWNED=1") {
			t.Errorf("%q: set %v; environment %q", name, p.Set, out)
		}
		if files, _ := filepath.Glob(filepath.Join(dir, "*")); len(files) > 0 {
			t.Errorf("%q: the shell made %v", name, files)
		}
	}
}

// random is a node of parts that chance picks, names among them that no list
// can hold.
func random(r *rand.Rand) (*Node, Options) {
	pick := func(list ...string) string { return list[r.IntN(len(list))] }
	n := plain()
	n.GPUs = make([]GPU, r.IntN(5))
	n.Ports, n.Routes, n.Interfaces = nil, nil, nil
	for _, name := range []string{"lo", "eth0", "eth1", "docker0", "bond0", pick(hostile...)} {
		n.Interfaces = append(n.Interfaces, Interface{
			Name: name, Kind: pick("", "bridge", "bond", "vlan", "vxlan"), State: pick("up", "down", "unknown"), Virtual: r.IntN(2) == 0,
			Master: pick("", "", "bond0", "docker0"), Lower: []string{pick("eth0", "eth1", "nobody", name)},
		})
		if r.IntN(2) == 0 {
			n.Routes = append(n.Routes, Route{To: prefix(pick("0.0.0.0/0", "::/0", "10.0.0.0/24", "fd00::/64", "169.254.0.0/16", "fe80::/64")), Dev: name, Metric: uint32(r.IntN(3))})
		}
	}
	for i := range r.IntN(40) {
		p := Port{Device: pick("mlx5_", "efa_", "rxe") + string(rune('a'+i%26)), Number: 1 + i/26, OnPCI: r.IntN(5) > 0, Vendor: pick("15b3", "15b3", "15b3", VendorAmazon), Model: pick("1021", "a2dc", "efa0", "efa2"),
			Layer: pick("InfiniBand", "InfiniBand", "Ethernet", ""), State: pick("ACTIVE", "ACTIVE", "ACTIVE", "DOWN", "INIT", ""), Gbit: float64(r.IntN(3)) * 200, Netdevs: []string{pick("eth0", "eth1", "ib0")}}
		for range n.GPUs {
			p.Paths = append(p.Paths, pick("PIX", "PXB", "PHB", "NODE", "SYS", "?"))
		}
		for k := range r.IntN(5) {
			p.GIDs = append(p.GIDs, GID{k, addr(pick("fe80::1", "10.0.0.1", "fd00::1", "169.254.1.1")), pick("IB/RoCE v1", roce2), pick("", "eth0", "vlan7")})
		}
		n.Ports = append(n.Ports, p)
	}
	for range r.IntN(3) {
		n.Peers = append(n.Peers, Peer{Name: pick("a", "b", "c"), Addrs: []netip.Addr{addr(pick("10.0.0.9", "fd00::9", "127.0.0.1", "192.0.2.1"))}})
	}
	flip := func() bool { return r.IntN(2) == 0 }
	n.Modules = Modules{flip(), flip(), flip(), flip(), flip(), flip(), flip()}
	n.NVLinkHosts, n.IMEX = flip(), IMEX{Known: flip(), Driver: flip(), Channels: []string{"channel0"}[:r.IntN(2)]}
	n.Cloud, n.TopoFiles = pick("", "azure", "aws"), []string{"/opt/topo.xml"}[:r.IntN(2)]
	n.Plugins = slices.DeleteFunc([]Plugin{sharpPlugin, ofiPlugin, {Path: "/x/libnccl-net.so", Kind: PluginOther, Listed: flip()}}, func(Plugin) bool { return flip() })
	n.Limits = Limits{Memlock: limit(r.Uint64()), SHM: limit(r.Uint64N(2 << 30)), PIDs: limit(r.Uint64N(4096)), IPCLock: flip()}
	o := Options{SHARP: flip(), GDRCopy: flip(), NoIB: r.IntN(5) == 0}
	for _, name := range slices.Sorted(maps.Keys(checks)) {
		if r.IntN(4) == 0 {
			o.Env = append(o.Env, Setting{Name: name, Value: pick("1", "0", "eth0", "=mlx5_a", "^x", "none", "3", "10.0.0.0/8", ""), From: "environment"})
		}
	}
	return n, o
}

// TestEveryPlan: whatever the node, nothing is there twice or without a reason,
// NCCL's reader knows the names and takes the values, and twice the same node
// gives the same plan.
func TestEveryPlan(t *testing.T) {
	kinds := map[Kind]int{}
	for seed := range uint64(3000) {
		n, o := random(rand.New(rand.NewPCG(seed, 1)))
		p := Make(n, o)
		consistent(t, n, p)
		kinds[p.Data.Kind]++
		var environ []string
		for _, v := range p.Set {
			environ = append(environ, v.Name+"="+v.Value)
		}
		_, warnings, err := knob.Load(environ, func(string) ([]byte, error) { return nil, os.ErrNotExist })
		if err != nil {
			t.Errorf("knob.Load: %v", err)
		}
		for _, w := range warnings {
			if w.Level == debug.Warn {
				t.Errorf("knob.Load: %s", w.Message)
			}
		}
		var one, two bytes.Buffer
		if err := p.WriteText(&one, n); err != nil {
			t.Fatal(err)
		}
		n, o = random(rand.New(rand.NewPCG(seed, 1)))
		if err := Make(n, o).WriteText(&two, n); err != nil || one.String() != two.String() {
			t.Errorf("two plans of one node differ (%v):\n%s\n%s", err, one.String(), two.String())
		}
		if t.Failed() {
			t.Fatalf("seed %d: %+v\n%s", seed, o, one.String())
		}
	}
	if len(kinds) != 4 {
		t.Errorf("the random nodes are of the kinds %v; want all four", kinds)
	}
}

func TestApply(t *testing.T) {
	p := Make(plain(), Options{Env: []Setting{{Name: "NCCL_NET", Value: "Socket", From: "environment"}, {Name: "NCCL_IB_HCA", Value: "", From: "environment"}, {Name: "NCCL_IB_TC", Value: "41", From: "environment"}}})
	environ := []string{"PATH=/bin", "NCCL_NET=Socket", "NCCL_IB_HCA=", "NCCL_IB_TC=41", "ODD"}
	for _, tt := range []struct {
		override bool
		net      string
	}{{false, "NCCL_NET=Socket"}, {true, "NCCL_NET=IB"}} {
		got := p.Apply(environ, tt.override)
		for _, want := range []string{"PATH=/bin", "ODD", "NCCL_IB_TC=41", "NCCL_IB_HCA==mlx5_0,mlx5_1", tt.net} {
			if !slices.Contains(got, want) {
				t.Errorf("Apply(override %v) lacks %s: %q", tt.override, want, got)
			}
		}
		var names []string
		for _, e := range got {
			name, _, _ := strings.Cut(e, "=")
			if slices.Contains(names, name) {
				t.Errorf("Apply(override %v) has %s twice: %q", tt.override, name, got)
			}
			names = append(names, name)
		}
	}
	if line := p.Line(false); !strings.Contains(line, "NCCL_IB_HCA==mlx5_0,mlx5_1") || !strings.Contains(line, "kept NCCL_IB_TC NCCL_NET") || !strings.Contains(line, "1 warning") || strings.Contains(line, "\n") {
		t.Errorf("Line = %q", line)
	}
}
