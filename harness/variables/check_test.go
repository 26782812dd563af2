package variables

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/assay-hpc/assay/coll/knob"
	"github.com/assay-hpc/assay/harness/suite"
	"github.com/assay-hpc/assay/internal/host/netenv"
	"github.com/assay-hpc/assay/internal/result"
	"github.com/assay-hpc/assay/internal/rootfs"
)

// judged returns the findings of an environment and of files by their names, on a node.
func judged(environ []string, files map[string]string, n *netenv.Node) []Finding {
	c := knob.AlreadySet(environ, func(name string) (string, error) {
		text, ok := files[name]
		if !ok {
			return "", os.ErrNotExist
		}
		return text, nil
	})
	if n == nil {
		return Judge(c, nil, nil)
	}
	var o netenv.Options
	o.Env, o.Problems = ForPlan(c)
	return Judge(c, n, netenv.Make(n, o))
}

// oneSwitch is a node with two GPUs that have NVLink, and without RDMA.
func oneSwitch() *netenv.Node {
	return &netenv.Node{
		GPUs:       []netenv.GPU{{BusID: "0000:01:00.0", NVLink: true}, {BusID: "0000:02:00.0", NVLink: true}},
		Interfaces: []netenv.Interface{{Name: "eth0"}, {Name: "lo", Kind: "loopback"}},
	}
}

func TestJudge(t *testing.T) {
	const conf, mine = "/etc/nccl.conf", "/home/a/.nccl.conf"
	for _, tt := range []struct {
		environ string // separated by spaces
		files   map[string]string
		node    *netenv.Node
		want    []string // "grade …text…", in order
	}{
		{"PATH=/bin UCX_TLS=tcp", nil, oneSwitch(), nil},
		{"NCCL_P2P_DISABLE=1", nil, oneSwitch(), []string{"harms NCCL_P2P_DISABLE=1 (environment): it keeps GPUs from each other's memory, so that NVLink is not used: it is for finding faults; measured on 2 and 4 x H200: "}},
		{"", map[string]string{conf: "NCCL_DEBUG=WARN\nNCCL_P2P_DISABLE=1\n"}, oneSwitch(), []string{"harms NCCL_P2P_DISABLE=1 (/etc/nccl.conf:2): it keeps"}},
		{"NCCL_P2P_DISABLE=0", map[string]string{conf: "NCCL_P2P_DISABLE=1\n"}, oneSwitch(), []string{"differs NCCL_P2P_DISABLE=0 (environment): it hides NCCL_P2P_DISABLE=1 (/etc/nccl.conf:1)"}},
		{"NCCL_P2P_DISABLE=", map[string]string{conf: "NCCL_P2P_DISABLE=1\n"}, oneSwitch(), []string{"differs NCCL_P2P_DISABLE= (environment): it hides NCCL_P2P_DISABLE=1 (/etc/nccl.conf:1)"}},
		{"HOME=/home/a", map[string]string{conf: "NCCL_PROTO=LL\n", mine: "NCCL_PROTO=Simple\n"}, oneSwitch(), []string{"differs NCCL_PROTO=Simple (/home/a/.nccl.conf:1): it hides NCCL_PROTO=LL (/etc/nccl.conf:1)"}},
		{"NCCL_CONF_FILE=/c", map[string]string{"/c": "NCCL_PROTO=LL"}, oneSwitch(), []string{"harms NCCL_PROTO=LL (/c:1): the protocol is forced; LL and LL128 do not reach full bandwidth; measured on any machine: "}},
		{"NCCL_PROTO=^LL128 NCCL_ALGO=Ring", nil, oneSwitch(), []string{"differs NCCL_ALGO=Ring (environment): the algorithm is forced"}},
		{"NCCL_ALGO=Rings", nil, oneSwitch(), []string{`stops NCCL_ALGO="Rings" (environment): there is no algorithm "rings"`}},
		{"NCCL_SOCKET_IFNAME=ib0", nil, oneSwitch(), []string{"stops NCCL_SOCKET_IFNAME=ib0 (environment): it matches no interface of this node (eth0 and lo)"}},
		{"NCCL_IB_HAC=mlx5_0 NCCL_XYZZY_QUUX=1", nil, oneSwitch(), []string{"harms NCCL_IB_HAC (environment) is unknown", "differs NCCL_XYZZY_QUUX (environment) is unknown"}},
		{"NCLL_DEBUG=INFO", nil, oneSwitch(), []string{"harms NCLL_DEBUG (environment) is unknown"}},
		{"", map[string]string{conf: "export NCCL_IB_TC=106\n"}, oneSwitch(), []string{"harms /etc/nccl.conf:1: NCCL_IB_TC is not set: NCCL takes everything before the = for the name"}},
		{"", map[string]string{conf: "a sentence\n"}, oneSwitch(), []string{`harms /etc/nccl.conf:1: "a sentence" is not KEY=VALUE`}},
		{"NCCL_DEBUG=INFO NCCL_DEBUG_SUBSYS=ALL", nil, oneSwitch(), []string{"harms NCCL_DEBUG_SUBSYS=ALL (environment): with NCCL_DEBUG=INFO each rank writes a line for each operation"}},
		{"NCCL_DEBUG=INFO NCCL_DEBUG_SUBSYS=INIT,NET", nil, oneSwitch(), nil},
		{"NCCL_DEBUG=WARN NCCL_DEBUG_SUBSYS=ALL", nil, oneSwitch(), nil},
		{"NCCL_DEBUG_SUBSYS=^INIT NCCL_DEBUG=info", nil, oneSwitch(), []string{"harms NCCL_DEBUG_SUBSYS=^INIT"}},
		{"NCCL_MAX_NCHANNELS=1", nil, oneSwitch(), []string{"harms NCCL_MAX_NCHANNELS=1"}},
		{"NCCL_MAX_NCHANNELS=16", nil, oneSwitch(), []string{"differs NCCL_MAX_NCHANNELS=16"}},
		{"OMPI_MCA_btl_tcp_if_include=eth0 OMPI_MCA_btl_tcp_if_exclude=lo", nil, oneSwitch(), []string{"harms OMPI_MCA_btl_tcp_if_include=eth0 (environment): OMPI_MCA_btl_tcp_if_exclude=lo (environment) is set, too"}},
		{"OMPI_MCA_btl_tcp_if_exclude=docker0", nil, oneSwitch(), []string{"harms OMPI_MCA_btl_tcp_if_exclude=docker0 (environment): it replaces Open MPI's own list"}},
		// An image comes to any node.
		{"NCCL_SOCKET_IFNAME=ib0 NCCL_IB_HCA=mlx5", nil, nil, nil},
		{"NCCL_IB_DISABLE=1 NCCL_NVLS_ENABLE=0", nil, nil, []string{"harms NCCL_IB_DISABLE=1 (environment): RDMA is off", "differs NCCL_NVLS_ENABLE=0"}},
		{"", map[string]string{conf: "NCCL_PROTO=LL,LL256\n"}, nil, []string{`stops NCCL_PROTO="LL,LL256" (/etc/nccl.conf:1)`}},
	} {
		var environ []string
		for item := range strings.FieldsSeq(tt.environ) {
			environ = append(environ, item)
		}
		got := judged(environ, tt.files, tt.node)
		for i, f := range got {
			if text := string(f.Grade) + " " + f.String(); i >= len(tt.want) || !strings.HasPrefix(text, tt.want[i]) || f.Remedy == "" || f.From == "" {
				t.Errorf("%s %q: %s (%s), remedy %q; want %q", tt.environ, tt.files, text, f.From, f.Remedy, tt.want)
			}
		}
		if len(got) != len(tt.want) {
			t.Errorf("%s %q: %d findings; want %q", tt.environ, tt.files, len(got), tt.want)
		}
	}
}

func TestResult(t *testing.T) {
	many := []string{"NCCL_P2P_DISABLE=1", "NCCL_CHECK_POINTERS=1", "NCCL_PROTO=LL", "NCCL_MAX_CTAS=1", "NCCL_ALGO=Rings", "NCCL_BUFFSIZE=8M"}
	c := knob.AlreadySet(many, func(string) (string, error) { return "", os.ErrNotExist })
	r := Result(c, judged(many, nil, oneSwitch()))
	r.ID, r.Title = "variables", Title
	if err := r.Validate(); err != nil {
		t.Fatal(err)
	}
	if r.Verdict != result.Fail || !strings.HasPrefix(r.Reason, "NCCL_ALGO=") || !strings.HasSuffix(r.Reason, "; and 3 more") || !strings.HasPrefix(r.Remedy, "allowed: ") || len(r.Objects) != len(many) {
		t.Errorf("%s: %s; remedy %s; %d objects", r.Verdict, r.Reason, r.Remedy, len(r.Objects))
	}
	for _, environ := range [][]string{nil, {"NCCL_DEBUG=WARN"}, {"NCCL_ALGO=Ring"}} {
		c := knob.AlreadySet(environ, func(string) (string, error) { return "", os.ErrNotExist })
		if r := Result(c, judged(environ, nil, oneSwitch())); r.Verdict != result.Pass || r.Reason == "" {
			t.Errorf("%q: %+v", environ, r)
		}
	}
}

// TestOneObject: what is said twice of a variable is one object.
func TestOneObject(t *testing.T) {
	files := map[string]string{"/etc/nccl.conf": "NCCL_P2P_DISABLE=0\nNCCL_P2P_DISABLE=1\n\x00=\x01\n"}
	environ := []string{"NCCL_P2P_DISABLE=1"}
	c := knob.AlreadySet(environ, func(name string) (string, error) {
		if text, ok := files[name]; ok {
			return text, nil
		}
		return "", os.ErrNotExist
	})
	r := Result(c, judged(environ, files, oneSwitch()))
	r.ID = "variables"
	of := slices.DeleteFunc(slices.Clone(r.Objects), func(o result.Object) bool { return o.Name != "NCCL_P2P_DISABLE" })
	if err := r.Validate(); err != nil || len(of) != 1 || of[0].Verdict != result.Warn || !strings.Contains(of[0].Reason, "it hides NCCL_P2P_DISABLE=0 (/etc/nccl.conf:1)") {
		t.Errorf("%v: %+v", err, r.Objects)
	}
}

func TestInImage(t *testing.T) {
	dir := t.TempDir()
	root, err := rootfs.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	run := func(environ ...string) result.Result {
		return InImage(context.Background(), &suite.Env{Root: root, Environ: environ})
	}
	for environ, want := range map[string]result.Verdict{"NCCL_SOCKET_IFNAME=eth0": result.Pass, "PATH=/bin": result.Skip, "NCLL_DEBUG=INFO": result.Warn, "NCCL_ALGO=Rings": result.Fail} {
		if r := run(environ); r.Verdict != want {
			t.Errorf("%s: %+v", environ, r)
		}
	}
	if err := os.MkdirAll(filepath.Join(dir, "etc"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "etc/nccl.conf"), []byte("NCCL_IB_DISABLE=1\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	if r := run("NCCL_SOCKET_IFNAME=eth0"); r.Verdict != result.Warn || !strings.Contains(r.Reason, "NCCL_IB_DISABLE=1 (/etc/nccl.conf:1)") {
		t.Errorf("%+v", r)
	}
	if r := run("NCCL_IB_DISABLE=0"); r.Verdict != result.Pass {
		t.Errorf("%+v", r)
	}
}

func FuzzJudge(f *testing.F) {
	f.Add("NCCL_ALGO=Ring", "NCCL_DEBUG=INFO\n")
	f.Add("NCCL_PROTO=^;:,", "export A=\x00\n= =\n")
	f.Add("UCX_TLS=,\\rc:x,^", "NCCL_IB_HCA==:,^\n")
	f.Add("NCCL_SOCKET_IFNAME=^=,", "NCCL_DEBUG_SUBSYS=^^\nNCCL_DEBUG=trace")
	f.Fuzz(func(t *testing.T, variable, conf string) {
		for _, n := range []*netenv.Node{nil, {}, oneSwitch()} {
			files := map[string]string{"/etc/nccl.conf": conf}
			c := knob.AlreadySet([]string{variable}, func(name string) (string, error) {
				if text, ok := files[name]; ok {
					return text, nil
				}
				return "", os.ErrNotExist
			})
			r := Result(c, judged([]string{variable}, files, n))
			r.ID = "variables"
			for i := range r.Objects { // as the runner does
				r.Objects[i].Reason = strings.ToValidUTF8(r.Objects[i].Reason, "?")
			}
			if err := r.Validate(); err != nil {
				t.Errorf("%q, %q: %v", variable, conf, err)
			}
		}
	})
}
