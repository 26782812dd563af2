package jobs

import (
	"bytes"
	"cmp"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"github.com/assay-hpc/assay/harness/node"
	"github.com/assay-hpc/assay/internal/hardware/hardwaretest"
	"github.com/assay-hpc/assay/internal/platform"
)

const image = "registry.example/assay:13.0"

// TestHardware holds the profiles against the hardware database of the harness,
// which this package may not import.
func TestHardware(t *testing.T) {
	db, err := platform.Load()
	if err != nil {
		t.Fatal(err)
	}
	doc, err := Load()
	if err != nil {
		t.Fatal(err)
	}
	compared := 0
	for _, p := range doc.Profiles {
		if p.Hardware == "" {
			continue
		}
		hw, err := db.Platform(p.Hardware)
		if err != nil {
			t.Errorf("%s: %v", p.ID, err)
			continue
		}
		if n := hw.GPUsPerNode; len(n) > 0 {
			compared++
			if !slices.Contains(n, p.GPUs.Value) {
				t.Errorf("%s has %d GPUs a node, the database %v", p.ID, p.GPUs.Value, n)
			}
		}
		if hw.GPUsPerDomain > 0 && p.Nodes.Value*p.GPUs.Value != hw.GPUsPerDomain {
			t.Errorf("%s: %d nodes of %d GPUs; a domain has %d", p.ID, p.Nodes.Value, p.GPUs.Value, hw.GPUsPerDomain)
		}
		if hw.NICs == nil {
			continue
		}
		if isEFA := strings.HasPrefix(hw.NICs.Kind, "EFA"); isEFA != (p.Fabric == "efa") {
			t.Errorf("%s: fabric %s, the database says %q", p.ID, p.Fabric, hw.NICs.Kind)
		}
		for _, r := range p.Resources {
			if r.Name == "vpc.amazonaws.com/efa" && r.Value != strconv.FormatFloat(hw.NICs.Count.Value, 'f', -1, 64) {
				t.Errorf("%s asks for %s adapters, the database has %v", p.ID, r.Value, hw.NICs.Count.Value)
			}
		}
	}
	if compared < 6 {
		t.Errorf("only %d profiles were compared", compared)
	}
}

// TestProfilesStrict: what is wrong in the file does not load.
func TestProfilesStrict(t *testing.T) {
	for _, tt := range []struct{ name, old, new, want string }{
		{"unknown field", "fabric: ethernet", "fabrik: ethernet", "fabrik"},
		{"unknown source", "[8, cw-head]\n    nodes: [8, cw-head]\n    fabric: ethernet", "[8, cw-hed]\n    nodes: [8, cw-head]\n    fabric: ethernet", `no source "cw-hed"`},
		{"fact without source", "arch: [amd64, cw-head]", "arch: [amd64]", "a fact is"},
		{"unknown set", "sets: [efa]", "sets: [eva]", `no set "eva"`},
		{"variant neither there nor refused", "      no-ib: an A40 node has no InfiniBand\n", "", "no-ib must be among"},
		{"a refusal without a reason", "no-ib: an A40 node has no InfiniBand", "no-ib: no", `refuse.no-ib: "no" is no reason`},
		{"no quantity", "memory: [400Gi, cw-head]", "memory: [400GiB, cw-head]", `"400GiB" is no quantity`},
		{"no reason", "why: no HCOLL inside MPI", "why: ''", "lacks its name, value or reason"},
		{"twice", "- id: a40", "- id: a100-8x", "a100-8x is there twice"},
	} {
		if _, err := parseProfiles(hardwaretest.Changed(t, tt.old, tt.new)); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: %v; want %q in it", tt.name, err, tt.want)
		}
	}
}

// TestPlatformIsOneFile: one file adds a platform, for what it should reach and for jobs.
func TestPlatformIsOneFile(t *testing.T) {
	files := hardwaretest.Changed(t, "schema: 1\n", "schema: 1\n# and one file more\n")
	files["platforms/our-h200.yaml"] = &fstest.MapFile{Data: []byte(`platforms:
  our-h200:
    name: our nodes with 4 H200
    gpu: h200-sxm
    gpus_per_node: 4
    nics: {count: [4, our-hall, high], gbit_each: [400, our-hall, high], kind: InfiniBand NDR}
    floors: []
    measured: []
sources:
  our-hall: {what: what we bought}
profiles:
  - id: our-h200
    title: our nodes with 4 H200
    hardware: our-h200
    arch: [amd64, our-hall]
    gpus: [4, our-hall]
    nodes: [2, our-hall]
    fabric: infiniband
    refuse: {sharp: not bought, gdrcopy: not bought, no-ib: not without}
`)}
	db, err := platform.Parse(files)
	if err != nil {
		t.Fatal(err)
	}
	if p, err := db.Platform("our-h200"); err != nil || p.NICs.Count.Value != 4 {
		t.Errorf("%+v, %v", p, err)
	}
	d, err := parseProfiles(files)
	if err != nil {
		t.Fatal(err)
	}
	if p, err := d.Profile("our-h200"); err != nil || !strings.Contains(p.Refuse["dra"], "NVLink ends at the node") {
		t.Errorf("%+v, %v", p, err)
	}
	j, err := plan(d, Options{Profile: "our-h200", Scheduler: "slurm", Image: "r.example/assay:1"})
	if err != nil || j.nodes(j.profile) != 2 || j.profile.GPUs.Value != 4 {
		t.Errorf("%+v, %v", j, err)
	}
}

// pairs are all sets of at most two variants.
func pairs() [][]string {
	out := [][]string{nil}
	for i, a := range VariantNames {
		out = append(out, []string{a})
		for _, b := range VariantNames[i+1:] {
			out = append(out, []string{a, b})
		}
	}
	return out
}

// TestEveryCombination: profile by scheduler by variants either renders, and
// passes a check, or is refused with a reason for each variant that is at fault.
func TestEveryCombination(t *testing.T) {
	doc, err := Load()
	if err != nil {
		t.Fatal(err)
	}
	crd := operatorCRD(t)
	rendered, refused := 0, 0
	for _, p := range doc.Profiles {
		for _, s := range Schedulers {
			for _, variants := range pairs() {
				for _, o := range []Options{{}, {Suite: "node"}, {Run: RunNCCL, NoExec: true}} {
					o.Profile, o.Scheduler, o.Variants, o.Image, o.Site = p.ID, s, variants, image, p.Site
					if s == Hostfile {
						o.Hosts = []string{"n1", "n2"}
					}
					if _, ok := p.Sites["coreweave"]; ok {
						o.Site = "coreweave"
					}
					text, err := Render(o)
					var no *Refusal
					if errors.As(err, &no) {
						refused++
						for _, line := range no.Problems {
							if !strings.HasPrefix(line, "--") {
								t.Errorf("%s %s %v: the reason %q does not begin with the flag", p.ID, s, variants, line)
							}
						}
						continue
					}
					if err != nil {
						t.Fatalf("%s %s %v: %v", p.ID, s, variants, err)
					}
					rendered++
					name := "job" + map[string]string{MPIOperator: ".yaml", JobSet: ".yaml", Kubernetes: ".yaml", Hostfile: ""}[s]
					for _, f := range Check([]File{{name, text}}, nil) {
						if asked := slices.Contains(variants, "no-ib") && strings.HasSuffix(f.Remedy, "unless the nodes have neither"); !asked {
							t.Errorf("%s %s %v: %s", p.ID, s, variants, f)
						}
					}
					for _, d := range documents(text) {
						if s != MPIOperator || !bytes.Contains(d.text, []byte("kind: MPIJob")) {
							continue
						}
						for _, f := range crd.validate(d.text) {
							t.Errorf("%s %s %v: the operator's CRD refuses %s: %s", p.ID, s, variants, f.field, f.message)
						}
					}
				}
			}
		}
	}
	t.Logf("%d rendered, %d refused", rendered, refused)
	if rendered < 300 || refused < 300 {
		t.Errorf("%d rendered, %d refused: too few to mean anything", rendered, refused)
	}
}

func TestRefusals(t *testing.T) {
	ok := Options{Profile: "h100-8x", Scheduler: MPIOperator, Image: image}
	for _, tt := range []struct {
		name   string
		change func(*Options)
		want   []string // parts of each problem, in order
	}{
		{"nothing", func(*Options) {}, nil},
		{"profile", func(o *Options) { o.Profile = "h100-8" }, []string{`did you mean "h100-8x"`}},
		{"scheduler", func(o *Options) { o.Scheduler = "pbs" }, []string{`no scheduler "pbs"`}},
		{"several at once", func(o *Options) { o.Variants, o.Run, o.Nodes = []string{"dra", "sharpe"}, "all", -1 },
			[]string{"--dra: NVLink", `did you mean "sharp"`, `--run "all"`, "--nodes -1"}},
		{"contradiction", func(o *Options) { o.Variants = []string{"no-ib", "sharp", "gdrcopy"} }, []string{"--no-ib with --sharp", "--no-ib with --gdrcopy"}},
		{"sizes of a suite", func(o *Options) { o.Min = "8" }, []string{"a suite has its own"}},
		{"suite of a benchmark", func(o *Options) { o.Run, o.Suite = RunColl, "fabric" }, []string{"--suite"}},
		{"fabric of one", func(o *Options) { o.Scheduler, o.Suite = Kubernetes, "fabric" }, []string{"--suite fabric: with kubernetes nodes run by themselves"}},
		{"size", func(o *Options) { o.Run, o.Min, o.Max, o.Factor = RunColl, "8 GB", "-1", 1 }, []string{"--min", "--max", "--factor"}},
		{"image", func(o *Options) { o.Image = "assay; rm -rf /" }, []string{"--image"}},
		{"site", func(o *Options) { o.Site = "moon" }, []string{"h100-8x knows coreweave, none"}},
		{"partition elsewhere", func(o *Options) { o.Partition = "gpu" }, []string{"--partition is for slurm"}},
		{"partition with a line break", func(o *Options) { o.Scheduler, o.Partition = SlurmBare, "a\n#SBATCH --uid=0" }, []string{"--partition"}},
		{"name with a line break", func(o *Options) { o.Name = "a\n#SBATCH --uid=0" }, []string{"--name"}},
		{"name with a line break for docker", func(o *Options) { o.Scheduler, o.Name = Docker, "a\n#SBATCH --uid=0" }, []string{`--name "a\n#SBATCH --uid=0"`}},
		{"name with a line break for a hostfile", func(o *Options) { o.Scheduler, o.Hosts, o.Name = Hostfile, []string{"n1"}, "a\nevil slots=8" }, []string{"--name"}},
		{"name that is a path", func(o *Options) { o.Scheduler, o.Hosts, o.Name = Hostfile, []string{"n1"}, "../a" }, []string{"--name"}},
		{"name with a colon for a volume", func(o *Options) { o.Scheduler, o.Name = Docker, "a:b" }, []string{"--name"}},
		{"name that is a flag", func(o *Options) { o.Scheduler, o.Hosts, o.Name = Hostfile, []string{"n1"}, "-a" }, []string{"--name"}},
		{"paths with control characters", func(o *Options) {
			o.Scheduler, o.OutputDir, o.ImageDir = SlurmEnroot, "/a\rb", "c\x1b[2J"
		}, []string{"--certificates", "--image-dir"}},
		{"harness with a line break", func(o *Options) { o.Scheduler, o.Harness = SlurmBare, "/h\n#SBATCH --uid=0" }, []string{"--harness"}},
		{"account with a line break", func(o *Options) { o.Scheduler, o.Account = SlurmEnroot, "a\n" }, []string{"--account"}},
		{"networks with a line break", func(o *Options) { o.Networks = "a\nb" }, []string{"--networks"}},
		{"image with a line break", func(o *Options) { o.Image = image + "\n" }, []string{"--image"}},
		{"env with a control character", func(o *Options) { o.Env = []Var{{Name: "A", Value: "\x1b[2J"}} }, []string{"one line"}},
		{"env with a tab", func(o *Options) { o.Env = []Var{{Name: "A", Value: "a\tb"}} }, nil},
		{"env", func(o *Options) { o.Env = []Var{{Name: "A B", Value: "1"}, {Name: "A", Value: "1\n2"}} }, []string{`"A B"`, "one line"}},
		{"name too long", func(o *Options) { o.Name = strings.Repeat("a", 60) }, []string{"--name"}},
		{"output without a claim", func(o *Options) { o.OutputDir = "/out" }, []string{"--claim"}},
		{"relative output", func(o *Options) { o.Scheduler, o.OutputDir = SlurmBare, "out" }, []string{"absolute"}},
		{"time", func(o *Options) { o.Time = time.Second }, []string{"--time"}},
		{"selector", func(o *Options) { o.Selector = "a b=c" }, []string{"--selector"}},
		{"daemonset of all nodes", func(o *Options) { o.Scheduler, o.DaemonSet, o.Site = Kubernetes, true, "none" }, []string{"every node of the cluster"}},
		{"hostfile without hosts", func(o *Options) { o.Scheduler = Hostfile }, []string{"--hosts"}},
		{"docker on two nodes", func(o *Options) { o.Scheduler, o.Nodes = Docker, 2 }, []string{"--nodes 2"}},
		{"roce without networks", func(o *Options) { o.Profile, o.Variants = "gb300-nvl72", []string{"roce"} }, []string{"--networks or --site"}},
		{"nccl-tests of a JobSet", func(o *Options) { o.Scheduler, o.Run = JobSet, RunNCCL }, []string{"--run nccl-tests: NVIDIA's programs find each other by MPI"}},
		{"dra of a JobSet", func(o *Options) { o.Profile, o.Scheduler, o.Variants = "gb200-nvl72", JobSet, []string{"dra"} }, nil},
		{"partition of a JobSet", func(o *Options) { o.Scheduler, o.Partition = JobSet, "gpu" }, []string{"--partition is for slurm"}},
		{"name too long for a JobSet", func(o *Options) { o.Scheduler, o.Name = JobSet, strings.Repeat("a", 50) }, []string{"--name: a pod would be called"}},
		{"Spectrum-X on InfiniBand", func(o *Options) { o.Profile, o.Variants = "gb300-nvl72", []string{"spectrum-x"} }, []string{"--spectrum-x: Spectrum-X is Ethernet"}},
		{"Spectrum-X without adapters", func(o *Options) { o.Profile, o.Variants = "generic", []string{"no-ib", "spectrum-x"} }, []string{"--no-ib with --spectrum-x"}},
		{"Spectrum-X where nobody has it", func(o *Options) { o.Variants = []string{"spectrum-x"} }, []string{"--spectrum-x: no sample"}},
		{"generic and fixed", func(o *Options) { o.Profile, o.NoExec = "generic", true }, []string{"fixes no variables"}},
	} {
		o := ok
		tt.change(&o)
		_, err := Render(o)
		var no *Refusal
		errors.As(err, &no)
		if no == nil {
			no = &Refusal{}
			if err != nil {
				t.Errorf("%s: %v", tt.name, err)
			}
		}
		good := len(no.Problems) == len(tt.want)
		for i := range tt.want {
			good = good && strings.Contains(no.Problems[i], tt.want[i])
		}
		if !good {
			t.Errorf("%s: %q; want %q", tt.name, no.Problems, tt.want)
		}
	}
}

// TestOutputIsNotExpanded: Kubernetes expands $(NAME) in commands, and a
// directory may be called so.
func TestOutputIsNotExpanded(t *testing.T) {
	text, err := Render(Options{Profile: "h100-8x", Scheduler: Kubernetes, Image: image, Claim: "c", OutputDir: "/a/$(HOSTNAME)"})
	if err != nil {
		t.Fatal(err)
	}
	if want := "- /a/$$(HOSTNAME)/$(NODE_NAME)/\n"; !strings.Contains(string(text), want) {
		t.Errorf("%s\nwant %q in it", text, want)
	}
}

// TestLongestName: where all variants, a benchmark and the number of nodes make
// a name too long for Kubernetes, that is said before the operator says it.
func TestLongestName(t *testing.T) {
	o := Options{Profile: "gb300-nvl72", Scheduler: MPIOperator, Image: image, Nodes: 9999, Run: RunNCCL, Variants: []string{"multirack", "roce", "dra"}, Site: "coreweave"}
	if _, err := Render(o); err != nil {
		t.Error(err)
	}
	o.Op = "reduce_scatter"
	if _, err := Render(o); err == nil || !strings.Contains(err.Error(), "--name") {
		t.Errorf("%v; want that --name is needed", err)
	}
	o.Name = "short"
	if _, err := Render(o); err != nil {
		t.Error(err)
	}
}

// TestRows: what the rows of nccl-tests' README differ in is in the jobs.
func TestRows(t *testing.T) {
	for _, tt := range []struct {
		profile, variant, scheduler string
		has, not                    []string
	}{
		{"a100-8x", "", SlurmBare, []string{"NCCL_NET_PLUGIN=none", "UCX_NET_DEVICES=ibp0:1,ibp1:1,ibp2:1,ibp3:1\n"}, []string{"COLLNET", "UCX_TLS"}},
		{"a100-8x", "sharp", SlurmBare, []string{"NCCL_COLLNET_ENABLE=1", "NCCL_NET_PLUGIN=sharp"}, []string{"NCCL_ALGO"}},
		{"a100-8x", "gdrcopy", MPIOperator, []string{"NCCL_GDRCOPY_ENABLE", "path: /dev/gdrdrv", "memory: 400Gi"}, []string{"COLLNET"}},
		{"a100-8x", "no-ib", MPIOperator, []string{"NCCL_IB_DISABLE"}, []string{"rdma/ib", "IPC_LOCK", "NCCL_IB_HCA"}},
		{"h100-8x", "", SlurmEnroot, []string{"UCX_TLS=tcp", "PMIX_MCA_gds='^ds12'", "cpus-per-task=8"}, []string{"ibp7"}},
		{"h100-8x", "", MPIOperator, []string{"ibp7:1", "NCCL_NET_PLUGIN"}, []string{"UCX_TLS", "NCCL_ALGO"}},
		{"h100-8x", "sharp", MPIOperator, []string{"COLLNETCHAIN", "name: NCCL_NET_PLUGIN\n              value: sharp\n"}, []string{"value: none"}},
		{"gb200-nvl72", "", MPIOperator, []string{"slotsPerWorker: 4", `- "72"`, "NVIDIA_IMEX_CHANNELS", "NCCL_MNNVL_ENABLE"}, []string{"NCCL_NVLS_ENABLE"}},
		{"gb300-nvl72", "roce", MPIOperator, []string{"fd02::/16", "cw-multus/ibs3p3-macvlan"}, []string{"NVIDIA_IMEX_CHANNELS", "NCCL_MNNVL_ENABLE"}},
		{"gb300-nvl72", "roce spectrum-x", MPIOperator, []string{"name: NCCL_NET_PLUGIN\n              value: spcx\n", "fd02::/16", "- -x\n            - NCCL_NET_PLUGIN\n", "- -x\n            - LD_LIBRARY_PATH\n"}, []string{"value: none"}},
		{"gb300-nvl72", "roce spectrum-x", SlurmEnroot, []string{"NCCL_NET_PLUGIN=spcx", "fd02::/16"}, []string{"NCCL_NET_PLUGIN=none"}},
		{"gb300-nvl72", "multirack", MPIOperator, []string{"minDomains: 2", `- "128"`}, nil},
		{"gb300-nvl72", "dra", MPIOperator, []string{"kind: ComputeDomain", "resourceClaimTemplateName"}, []string{"NVIDIA_IMEX_CHANNELS"}},
		{"aws-p5", "", MPIOperator, []string{`vpc.amazonaws.com/efa: "32"`, "hugepages-2Mi: 5Gi", "Libfabric"}, []string{"FI_PROVIDER", "NCCL_PROTO"}},
	} {
		o := Options{Profile: tt.profile, Scheduler: tt.scheduler, Image: image, NoExec: true, Run: RunNCCL}
		o.Variants = strings.Fields(tt.variant)
		if slices.Contains(o.Variants, "roce") {
			o.Site = "coreweave"
		}
		text, err := Render(o)
		if err != nil {
			t.Errorf("%s %s: %v", tt.profile, tt.variant, err)
		}
		for _, want := range tt.has {
			if !strings.Contains(string(text), want) {
				t.Errorf("%s %s %s lacks %q:\n%s", tt.profile, tt.variant, tt.scheduler, want, text)
			}
		}
		for _, not := range tt.not {
			if strings.Contains(string(text), not) {
				t.Errorf("%s %s %s has %q", tt.profile, tt.variant, tt.scheduler, not)
			}
		}
	}
}

// TestSuites: which suite a certification runs, with how many processes, until
// when, and where its results go.
func TestSuites(t *testing.T) {
	for _, tt := range []struct {
		scheduler, suite string
		nodes            int
		has, not         []string
	}{
		{SlurmBare, "", 4, []string{"--ntasks-per-node=1\n", "--gpus-per-node=8\n", "--cpus-per-task=64\n", "fabric --out \"$out/\"", "--wait=0", "time=0-01:15"}, []string{"SLURMD_NODENAME"}},
		{SlurmBare, "", 1, []string{"certify", "--suite node", "time=0-00:30"}, []string{"SLURMD_NODENAME", "--suite fabric"}},
		{SlurmBare, "full", 4, []string{"--out \"$1/$SLURMD_NODENAME/\"", "time=0-01:00"}, []string{"--suite fabric"}},
		{MPIOperator, "", 4, []string{"slotsPerWorker: 1\n", "ppr:1:node", "--enable-recovery", "- fabric\n", "fieldPath: spec.nodeName"}, nil},
		{MPIOperator, "", 1, []string{"- node\n"}, []string{"- fabric\n"}},
		{MPIOperator, "quick", 4, []string{`--out "$dir/${NODE_NAME:-$$(hostname)}/"`}, []string{"- fabric\n"}},
		{JobSet, "", 4, []string{"- fabric\n", "name: WORLD_SIZE\n                value: \"4\"", "- --out\n              - /var/lib/assay/\n"}, []string{"- node\n"}},
		{JobSet, "quick", 4, []string{"- /var/lib/assay/$(NODE_NAME)/\n"}, []string{"- fabric\n"}},
		{Kubernetes, "", 4, []string{"- node\n"}, []string{"- fabric\n"}},
		{Hostfile, "", 2, []string{"n1 slots=1\n", "-np 2 --map-by ppr:1:node"}, []string{"DeepSpeed"}},
		{Docker, "", 1, []string{"--suite node --out \"$out/\""}, nil},
	} {
		o := Options{Profile: "h100-8x", Scheduler: tt.scheduler, Suite: tt.suite, Nodes: tt.nodes, Image: image}
		switch tt.scheduler {
		case Hostfile:
			o.Hosts = []string{"n1", "n2"}
		case MPIOperator, JobSet, Kubernetes:
			o.Claim = "results"
		}
		text, err := Render(o)
		if err != nil {
			t.Errorf("%s %s %d: %v", tt.scheduler, tt.suite, tt.nodes, err)
		}
		joined := strings.ReplaceAll(string(text), " \\\n ", "")
		for _, want := range tt.has {
			if !strings.Contains(joined, want) {
				t.Errorf("%s %s %d lacks %q:\n%s", tt.scheduler, tt.suite, tt.nodes, want, text)
			}
		}
		for _, not := range tt.not {
			if strings.Contains(joined, not) {
				t.Errorf("%s %s %d has %q:\n%s", tt.scheduler, tt.suite, tt.nodes, not, text)
			}
		}
	}
}

// TestSuiteTime holds the jobs' limits against those of the harness's suites, which
// this package may not import.
func TestSuiteTime(t *testing.T) {
	for _, name := range node.Names() {
		f, err := node.Load(name)
		if err != nil {
			t.Fatal(err)
		}
		if limit := cmp.Or(suiteTime[name], defaultTime); limit < f.Limit+10*time.Minute {
			t.Errorf("a job of the suite %s has %v; the suite may take %v", name, limit, f.Limit)
		}
	}
}

// TestQuote has a shell read what was quoted for it.
func TestQuote(t *testing.T) {
	for _, s := range []string{"", "plain", "^docker,lo", "it's", `a"b`, "$HOME", "a b", "`id`", "~", "=x", "*", "a\\b", "ü", "!x", "-n"} {
		out, err := exec.Command("bash", "-c", "printf %s "+quote(s)).Output()
		if err != nil || string(out) != s {
			t.Errorf("a shell reads %s as %q, %v; want %q", quote(s), out, err, s)
		}
	}
}

func TestHosts(t *testing.T) {
	for in, want := range map[string]string{
		"a,b": "a b", "n[1-3]": "n1 n2 n3", "n[08-10].x,b": "n08 n09 n10.x b", "n[3-1]": "", "n[1-": "", "n[x-y]": "", "n[1-999999999]": "",
	} {
		want := strings.ReplaceAll(want, "n08 n09 n10.x", "n08.x n09.x n10.x")
		got, err := Hosts(in)
		if strings.Join(got, " ") != want || (err != nil) != (want == "") {
			t.Errorf("Hosts(%s) = %q, %v; want %q", in, got, err, want)
		}
	}
}

// TestHostfileRuns has a real mpirun read the hostfile and its command.
func TestHostfileRuns(t *testing.T) {
	if _, err := exec.LookPath("mpirun"); err != nil {
		t.Skip("no mpirun on this machine: apt-get install openmpi-bin")
	}
	text, err := Render(Options{
		Profile: "generic", Scheduler: Hostfile, Hosts: []string{"localhost"}, GPUs: 2, Harness: "/bin/echo", NoExec: true, Run: RunColl,
		Env: []Var{{Name: "GREETING", Value: "a b'c"}},
	})
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "hosts")
	if err := os.WriteFile(file, text, 0o644); err != nil {
		t.Fatal(err)
	}
	_, command, _ := strings.Cut(string(text), "#   mpirun ")
	command, _, _ = strings.Cut(command, "\n")
	cmd := exec.Command("bash", "-c", "mpirun "+strings.Replace(command, " FILE ", " "+file+" ", 1))
	cmd.Env = append(os.Environ(), "OMPI_ALLOW_RUN_AS_ROOT=1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1")
	out, err := cmd.CombinedOutput()
	if want := "coll all_reduce -b 8 -e 16G -f 2 -g 1"; err != nil || strings.Count(string(out), want) != 2 {
		t.Errorf("%s: %v\n%s\nwant %q from two ranks", command, err, out, want)
	}
}
