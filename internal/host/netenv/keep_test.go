package netenv

import (
	"cmp"
	"slices"
	"strings"
	"testing"
)

// kept are variables that the user has set on plain, or a change of it, and what
// is said against them; "": nothing.
var kept = []struct {
	set     string
	change  func(n *Node, o *Options)
	against string
}{
	{"NCCL_SOCKET_IFNAME=eth0", nil, ""},
	{"NCCL_SOCKET_IFNAME==eth0", nil, ""},
	{"NCCL_SOCKET_IFNAME=eth", nil, ""},
	{"NCCL_SOCKET_IFNAME=^docker,lo", nil, ""},
	{"NCCL_SOCKET_IFNAME=^=docker0,lo", nil, ""},
	{"NCCL_SOCKET_IFNAME=^docker0", nil, "takes in lo: an exclusion replaces NCCL's own"},
	{"NCCL_SOCKET_IFNAME=^lo", nil, "takes in docker0: an exclusion replaces NCCL's own"},
	{"NCCL_SOCKET_IFNAME==eth", nil, "matches no interface of this node (lo, eth0 and docker0)"},
	{"NCCL_SOCKET_IFNAME=^eth", nil, "leaves out eth0"},
	{"NCCL_SOCKET_IFNAME=docker0", nil, "leaves out eth0"},
	{"NCCL_SOCKET_IFNAME=eth0,docker", nil, "takes in docker0"},
	{"GLOO_SOCKET_IFNAME=eth0", nil, ""},
	{"GLOO_SOCKET_IFNAME=docker0", nil, "leaves out eth0"},
	{"OMPI_MCA_btl_tcp_if_include=10.0.0.0/24", nil, ""},
	{"OMPI_MCA_btl_tcp_if_include=10.1.0.0/24", nil, "leaves out eth0"},
	{"OMPI_MCA_btl_tcp_if_include=10.0.0.0/16", func(n *Node, _ *Options) { n.Interfaces[1].Addrs = nil }, ""},
	{"OMPI_MCA_oob_tcp_if_include=docker0,eth0", nil, ""},
	{"PRTE_MCA_oob_tcp_if_include=docker0", nil, "leaves out eth0"},
	{"OMPI_MCA_btl_tcp_if_exclude=lo,docker0", nil, ""},
	{"OMPI_MCA_btl_tcp_if_exclude=lo,10.0.0.0/8", nil, "leaves out eth0"},
	{"UCX_NET_DEVICES=mlx5_0:1,mlx5_1:1", nil, ""},
	{"UCX_NET_DEVICES=all", nil, ""},
	{"UCX_NET_DEVICES=eth0", nil, ""},
	{"UCX_NET_DEVICES=mlx5_0:1,ibp0:1", nil, "names ibp0"},
	{"NCCL_IB_HCA==mlx5_0,mlx5_1", nil, ""},
	{"NCCL_IB_HCA==mlx5_1:1,mlx5_0:1", nil, ""},
	{"NCCL_IB_HCA=^mlx5_10", nil, ""},
	{"NCCL_IB_HCA=mlx5_0,mlx5_1", nil, "takes in mlx5_10"},
	{"NCCL_IB_HCA=mlx5", nil, "takes in mlx5_10"},
	{"NCCL_IB_HCA==mlx5_0", nil, "leaves out mlx5_1"},
	{"NCCL_IB_HCA==mlx5_0:2,mlx5_1", nil, "leaves out mlx5_0"},
	{"NCCL_IB_HCA=mlx5_7", func(n *Node, _ *Options) { efa(n) }, ""},
	{"NCCL_IB_GID_INDEX=0", nil, ""}, // InfiniBand
	{"NCCL_IB_GID_INDEX=3", func(n *Node, _ *Options) { roce(n) }, ""},
	{"NCCL_IB_GID_INDEX=-1", func(n *Node, _ *Options) { roce(n) }, ""},
	{"NCCL_IB_GID_INDEX=2", func(n *Node, _ *Options) { roce(n) }, "is IB/RoCE v1 of mlx5_0"},
	{"NCCL_IB_GID_INDEX=1", func(n *Node, _ *Options) { roce(n) }, "link-local"},
	{"NCCL_IB_GID_INDEX=7", func(n *Node, _ *Options) { roce(n) }, "is not an address"},
	{"NCCL_SOCKET_FAMILY=AF_INET", nil, ""},
	{"NCCL_SOCKET_FAMILY=AF_INET6", nil, "is not the family"},
	{"NCCL_SOCKET_FAMILY=AF_INET6", func(n *Node, _ *Options) { n.Routes = append(n.Routes, Route{To: prefix("fd00::/64"), Dev: "eth0"}) }, ""},
	{"NCCL_SOCKET_FAMILY=AF_INET", func(n *Node, _ *Options) { n.Routes = []Route{{To: prefix("::/0"), Dev: "eth0"}} }, "is not the family"},
	{"NCCL_NET=ib", nil, ""},
	{"NCCL_NET=Socket", nil, "sends data over TCP"},
	{"NCCL_NET=Socket", func(n *Node, _ *Options) { n.Ports = nil }, ""},
	{"NCCL_NET=IB", func(n *Node, _ *Options) { n.Ports = nil }, "makes NCCL fail"},
	{"NCCL_NET_PLUGIN=none", nil, ""},
	{"NCCL_NET_PLUGIN=spcx", func(n *Node, _ *Options) { roce(n) }, "it is not here"},
	{"NCCL_NET_PLUGIN=spcx", func(n *Node, _ *Options) { roce(n); n.Plugins = []Plugin{spectrumXPlugin} }, ""},
	{"NCCL_NET_PLUGIN=spcx", func(n *Node, _ *Options) { n.Plugins = []Plugin{spectrumXPlugin} }, "is for Spectrum-X, and there is InfiniBand"},
	{"NCCL_NET_PLUGIN=none", func(n *Node, _ *Options) { efa(n); n.Plugins = []Plugin{ofiPlugin} }, "keeps the OFI plugin out"},
	{"NCCL_NET_PLUGIN=none", func(n *Node, o *Options) { n.Plugins, o.SHARP = []Plugin{sharpPlugin}, true }, "keeps the SHARP plugin out"},
	{"NCCL_IB_DISABLE=1", nil, "turns off"},
	{"NCCL_IB_DISABLE=0", nil, ""},
	{"NCCL_IB_DISABLE=1", func(n *Node, _ *Options) { n.Ports = nil }, ""},
	{"NCCL_NET_GDR_LEVEL=SYS", nil, ""},
	{"NCCL_NET_GDR_LEVEL=LOC", nil, "turns GPUDirect RDMA off"},
	{"NCCL_P2P_DISABLE=1", nil, "finding faults"},
	{"NCCL_P2P_DISABLE=1", func(n *Node, _ *Options) { n.GPUs = n.GPUs[:1] }, ""},
	{"NCCL_SHM_DISABLE=1", nil, "finding faults"},
	{"NCCL_SHM_DISABLE=0", nil, ""},
	{"NCCL_PROTO=Simple", nil, ""},
	{"NCCL_PROTO=Simple", func(n *Node, _ *Options) { efa(n) }, "undoes"},
	{"NCCL_BUFFSIZE=8388608", func(n *Node, _ *Options) { efa(n) }, "undoes"},
	{"RDMAV_FORK_SAFE=1", nil, ""},
	{"RDMAV_FORK_SAFE=1", func(n *Node, _ *Options) { efa(n) }, "must not be set"},
	{"FI_PROVIDER=tcp", func(n *Node, _ *Options) { efa(n) }, "is not what was found: efa"},
	{"FI_PROVIDER=EFA", func(n *Node, _ *Options) { efa(n) }, ""},
	{"NCCL_GDRCOPY_ENABLE=1", nil, "cannot work"},
	{"NCCL_GDRCOPY_ENABLE=1", func(n *Node, _ *Options) { n.Modules.GDRDrv, n.Modules.GDRDev = true, true }, ""},
	{"NCCL_MNNVL_ENABLE=1", nil, "the platform is not known"},
	{"NCCL_MNNVL_ENABLE=1", func(n *Node, _ *Options) { n.Platform = "dgx-h100" }, "NVLinks end at the host"},
	{"NCCL_MNNVL_ENABLE=1", func(n *Node, _ *Options) { n.NVLinkHosts = true }, "no IMEX channel"},
	{"NCCL_MNNVL_ENABLE=0", func(n *Node, _ *Options) { n.NVLinkHosts, n.IMEX.Channels = true, []string{"channel0"} }, "NVLink could carry"},
	{"NCCL_MNNVL_ENABLE=2", nil, ""},
	{"NCCL_COLLNET_ENABLE=1", nil, "has no effect"},
	{"NCCL_COLLNET_ENABLE=1", func(n *Node, _ *Options) { n.Plugins = []Plugin{sharpPlugin} }, ""},
	{"NCCL_COLLNET_ENABLE=1 NCCL_NET_PLUGIN=none", func(n *Node, _ *Options) { n.Plugins = []Plugin{sharpPlugin} }, "has no effect with NCCL_NET_PLUGIN=none"},
	{"NCCL_IB_TC=106", nil, ""},
	{"NCCL_DEBUG=INFO", nil, ""},
	{"NCCL_TOPO_FILE=/mine.xml", func(n *Node, _ *Options) { hideSwitches(n); n.TopoFiles = []string{"/theirs.xml"} }, ""},
}

func TestKept(t *testing.T) {
	for _, tt := range kept {
		n, o := plain(), Options{}
		for item := range strings.FieldsSeq(tt.set) {
			name, value, _ := strings.Cut(item, "=")
			o.Env = append(o.Env, Setting{Name: name, Value: value, From: "environment"})
		}
		if tt.change != nil {
			tt.change(n, &o)
		}
		p := Make(n, o)
		consistent(t, n, p)
		at := slices.IndexFunc(p.Kept, func(k Kept) bool { return k.Name == o.Env[0].Name })
		if at < 0 {
			t.Errorf("%s is not among the kept ones: %v", tt.set, p.Kept)
			continue
		}
		got := p.Kept[at].Against
		if (got == "") != (tt.against == "") || !strings.Contains(got, tt.against) {
			t.Errorf("against %s: %q; want %q", tt.set, got, tt.against)
		}
		warned := slices.ContainsFunc(p.Warnings, func(w Warning) bool { return strings.HasPrefix(w.What, o.Env[0].Name+"=") })
		if warned != (got != "") {
			t.Errorf("%s: warned %v, against %q", tt.set, warned, got)
		}
	}
}

// TestGrades: what ends NCCL or harms is told from what a site or a job may have a reason for.
func TestGrades(t *testing.T) {
	nvlink := func(n *Node, _ *Options) {
		for i := range n.GPUs {
			n.GPUs[i].NVLink = true
		}
	}
	noPorts := func(n *Node, _ *Options) { n.Ports = nil }
	for _, tt := range []struct {
		set, from string
		change    func(n *Node, o *Options)
		want      Grade
	}{
		{"NCCL_SOCKET_IFNAME=ib", "", nil, Stops},
		{"NCCL_SOCKET_IFNAME=^lo,eth,docker", "", nil, Stops},
		{"NCCL_SOCKET_IFNAME=^lo,docker", "", nil, ""},
		{"NCCL_SOCKET_IFNAME=ib", "", func(n *Node, _ *Options) { n.Interfaces = nil }, ""}, // a container that hides them
		{"NCCL_SOCKET_IFNAME=ib0", "", func(n *Node, _ *Options) { n.Interfaces = append(n.Interfaces, Interface{Name: "ib0"}) }, Differs},
		{"NCCL_SOCKET_IFNAME=lo", "", nil, Differs}, // a job of one host
		{"NCCL_SOCKET_IFNAME=lo", "/etc/nccl.conf:1", nil, Harms},
		{"NCCL_SOCKET_IFNAME=lo", "", func(n *Node, _ *Options) { n.Peers = []Peer{{Name: "b"}} }, Harms},
		{"NCCL_SOCKET_IFNAME=^docker0", "", nil, Harms}, // lo comes first
		{"NCCL_SOCKET_IFNAME=^lo", "", nil, Differs},
		{"NCCL_SOCKET_IFNAME=^lo", "", noPorts, Harms},
		{"GLOO_SOCKET_IFNAME=ens3", "", nil, Harms},
		{"GLOO_SOCKET_IFNAME=docker0", "", nil, Differs},
		{"OMPI_MCA_btl_tcp_if_include=ib0", "", nil, Harms},
		{"UCX_NET_DEVICES=ibp0:1", "", nil, Harms},
		{"UCX_NET_DEVICES=ibp0:1,mlx5_0:1", "", nil, Differs},
		{"UCX_TLS=rc,sm,self", "", noPorts, Harms},
		{"UCX_TLS=rc,sm,self", "", nil, ""},
		{"UCX_TLS=tcp,self,sm", "", noPorts, ""},
		{"UCX_TLS=^rc", "", noPorts, ""},
		{"UCX_TLS=self,cuda_ipc", "", noPorts, ""},
		{"NCCL_IB_HCA=ibp", "", nil, Harms},
		{"NCCL_IB_HCA=ibp NCCL_NET=IB", "", nil, Stops},
		{"NCCL_IB_HCA=mlx5", "", nil, Differs},
		{"NCCL_IB_HCA=mlx5_0,mlx5_1", "", nil, Harms}, // mlx5_1 is mlx5_10, too
		{"NCCL_IB_HCA==mlx5_0", "", nil, Harms},
		{"NCCL_IB_HCA==mlx5_0,mlx5_1,mlx5_10", "", nil, Harms}, // the storage card by its name
		{"NCCL_IB_HCA==mlx5_10", "", nil, Harms},
		{"NCCL_IB_DISABLE=1", "", nil, Harms},
		{"NCCL_IB_DISABLE=1", "", func(n *Node, _ *Options) { efa(n) }, ""}, // its plugin does not read it
		{"NCCL_NET=IB", "", noPorts, Stops},
		{"NCCL_NET=IB", "", func(n *Node, _ *Options) { n.Ports = n.Ports[:1]; n.Ports[0].OnPCI = false }, Harms}, // soft RoCE
		{"NCCL_NET=IB", "", func(n *Node, _ *Options) { efa(n) }, Stops},
		{"NCCL_NET=Socket", "", nil, Harms},
		{"NCCL_P2P_DISABLE=1", "", nil, Differs},
		{"NCCL_P2P_DISABLE=1", "", nvlink, Harms},
		{"NCCL_SHM_DISABLE=1", "", nil, Harms},
		{"NCCL_SHM_DISABLE=1", "", nvlink, Differs},
		{"NCCL_SHM_DISABLE=1 NCCL_P2P_DISABLE=1", "", nvlink, Harms},
		{"NCCL_SOCKET_FAMILY=ipv4", "", nil, ""}, // NCCL does not read it
		{"NCCL_SOCKET_FAMILY=AF_INET6", "", nil, Harms},
		{"FI_PROVIDER=tcp", "", func(n *Node, _ *Options) { efa(n) }, Differs},
	} {
		n, o := plain(), Options{}
		for item := range strings.FieldsSeq(tt.set) {
			name, value, _ := strings.Cut(item, "=")
			o.Env = append(o.Env, Setting{Name: name, Value: value, From: cmp.Or(tt.from, Environment)})
		}
		if tt.change != nil {
			tt.change(n, &o)
		}
		p := Make(n, o)
		at := slices.IndexFunc(p.Kept, func(k Kept) bool { return k.Name == o.Env[0].Name })
		if at < 0 || p.Kept[at].Grade != tt.want {
			t.Errorf("%s: %+v; want %q", tt.set, p.Kept, tt.want)
		}
	}
}

// TestOthersVariables: what is nobody's of these is neither kept nor shown, and
// what is set to nothing counts as not set.
func TestOthersVariables(t *testing.T) {
	p := Make(plain(), Options{Env: []Setting{{Name: "PATH", Value: "/bin", From: "environment"}, {Name: "OMPI_COMM_WORLD_RANK", Value: "1", From: "environment"}, {Name: "SECRET_TOKEN", Value: "x", From: "environment"}, {Name: "NCCL_NET", Value: "", From: "environment"}}})
	if len(p.Kept) != 0 || !slices.ContainsFunc(p.Set, func(v Variable) bool { return v.Name == "NCCL_NET" }) {
		t.Errorf("kept %v, set %v", p.Kept, p.Set)
	}
}
