package knob

import (
	"io/fs"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// A Slower is a setting that makes NCCL slower than it could be, or turns off a way for its data.
type Slower struct {
	Name           string
	Effect, Advice string
	Between        bool // it matters between nodes
	Inside         bool // it matters on a node
	Costs          []Cost

	may, does, harms func(value string) bool
}

// A Cost is what a setting was measured to cost. Source: an address, or a page of docs.
type Cost struct {
	On     string // on which machine
	Text   string
	Source string
}

// May says whether a value can make NCCL slower, on some machine.
func (s *Slower) May(value string) bool { return s.may(value) }

// Does says whether a value does so wherever there is what it turns off.
func (s *Slower) Does(value string) bool { return s.does != nil && s.does(value) }

// Harms says whether a value does so, and sites have hardly a reason to choose it for all jobs.
func (s *Slower) Harms(value string) bool { return s.harms != nil && s.harms(value) }

// SlowerNamed returns the row of a variable, or nil.
func SlowerNamed(name string) *Slower {
	i := slices.IndexFunc(Slowers, func(s Slower) bool { return s.Name == name })
	if i < 0 {
		return nil
	}
	return &Slowers[i]
}

func in(values ...string) func(string) bool {
	return func(v string) bool { return slices.Contains(values, strings.ToLower(v)) }
}

func anyValue(string) bool { return true }

// without returns whether a list of protocols leaves out all of these, for all operations or for one.
func without(names ...string) func(string) bool {
	return func(v string) bool {
		for list := range strings.SplitSeq(strings.ToLower(v), ";") {
			if _, of, single := strings.Cut(list, ":"); single {
				list = of
			}
			list, not := strings.CutPrefix(strings.TrimSpace(list), "^")
			words := strings.FieldsFunc(list, func(r rune) bool { return r == ',' || r == ' ' })
			has := func(name string) bool { return slices.Contains(words, name) != not }
			if len(words) > 0 && !slices.ContainsFunc(names, has) {
				return true
			}
		}
		return false
	}
}

// Slowers are these settings, the most frequent first. Source: NCCL's guide, chapter "Environment Variables".
var Slowers = []Slower{
	{Name: "NCCL_NVLS_ENABLE", Effect: "the reduction in the switch is off", Advice: "unset it, unless it works around a fault of the fabric manager: then mend that", Between: true, Inside: true, may: in("0"), does: in("0"),
		Costs: []Cost{{"8 x H100", "all_reduce 367 GB/s in place of 480", "https://github.com/NVIDIA/nccl-tests/issues/212"}}},
	{Name: "NCCL_P2P_DISABLE", Effect: "GPUs of a node do not reach each other directly: everything goes through host memory", Advice: "unset it", Inside: true, may: in("1"), does: in("1"), harms: in("1"),
		Costs: []Cost{{"2 and 4 x H200", "all_reduce of 128 MiB 28 and 26 GB/s in place of 281 and 326", "docs/lab/gpu-collectives.md"}}},
	{Name: "NCCL_P2P_LEVEL", Effect: "peer access is limited to near GPUs", Advice: "unset it", Inside: true, may: in("loc", "0", "pix", "1", "pxb", "2"), does: in("loc", "0"), harms: in("loc", "0")},
	{Name: "NCCL_SHM_DISABLE", Effect: "GPUs without peer access use the network inside a node", Advice: "unset it", Inside: true, may: in("1"), does: in("1"), harms: in("1"),
		Costs: []Cost{{"2 and 4 x H200, with NCCL_P2P_DISABLE=1", "all_reduce of 64 MiB 4.2 and 3.1 GB/s, over sockets", "docs/lab/gpu-collectives.md"}}},
	{Name: "NCCL_IB_DISABLE", Effect: "RDMA is off: NCCL uses TCP", Advice: "unset it", Between: true, may: in("1"), does: in("1"), harms: in("1")},
	{Name: "NCCL_NET", Effect: "TCP is forced", Advice: "unset it", Between: true, may: in("socket"), does: in("socket"), harms: in("socket")},
	{Name: "NCCL_NET_GDR_LEVEL", Effect: "GPUDirect RDMA is off or limited: data goes through host memory", Advice: "unset it, or NCCL_NET_GDR_LEVEL=PHB and compare", Between: true, may: in("loc", "0", "pix", "1"), does: in("loc", "0"), harms: in("loc", "0"),
		Costs: []Cost{{"8 GPUs a node with one HDR adapter", "all_reduce 16 GB/s in place of 24", "https://github.com/NVIDIA/nccl/issues/412"}}},
	{Name: "NCCL_ALGO", Effect: "the algorithm is forced", Advice: "unset it: NCCL chooses by size and topology", Between: true, Inside: true, may: func(v string) bool { return !strings.EqualFold(v, "ring") }, does: anyValue},
	{Name: "NCCL_PROTO", Effect: "the protocol is forced; LL and LL128 do not reach full bandwidth", Advice: "unset it: NCCL chooses by size", Between: true, Inside: true, may: anyValue, does: without("simple"), harms: without("simple", "ll128"),
		Costs: []Cost{{"any machine", "LL sends a flag with every four bytes: at most half of the bandwidth", "NCCL's model of its own speed, src/graph/tuning.cc"}}},
	{Name: "NCCL_MAX_NCHANNELS", Effect: "channels are limited: with few, not all links are used", Advice: "unset it", Between: true, Inside: true, may: anyValue, does: anyValue, harms: in("1", "2")},
	{Name: "NCCL_MAX_CTAS", Effect: "channels are limited: with few, not all links are used", Advice: "unset it", Between: true, Inside: true, may: anyValue, does: anyValue, harms: in("1", "2")},
	{Name: "NCCL_MIN_NCHANNELS", Effect: "the number of channels is forced", Advice: "unset it", Between: true, Inside: true, may: anyValue},
	{Name: "NCCL_BUFFSIZE", Effect: "buffers have another size than NCCL's 4 MiB", Advice: "unset it", Between: true, Inside: true, may: anyValue},
	{Name: "NCCL_NTHREADS", Effect: "threads of a block are limited", Advice: "unset it", Inside: true, may: anyValue},
	{Name: "NCCL_IB_PCI_RELAXED_ORDERING", Effect: "relaxed ordering on PCIe is off", Advice: "unset it, or set 1: without it writes to GPUs and hosts wait for each other", Between: true, may: in("0"), does: in("0")},
	{Name: "NCCL_IB_HCA", Effect: "only these adapters are used", Advice: "name all adapters that belong to GPUs, or unset it", Between: true, may: anyValue},
	{Name: "CUDA_LAUNCH_BLOCKING", Effect: "each launch waits for the last one", Advice: "unset it", Between: true, Inside: true, may: in("1"), does: in("1"), harms: in("1")},
	{Name: "NCCL_DEBUG", Effect: "every call is logged, by each rank", Advice: "NCCL_DEBUG=WARN, and INFO or TRACE while a fault is looked for", Between: true, Inside: true, may: in("trace"), does: in("trace"), harms: in("trace")},
	{Name: "NCCL_CHECK_POINTERS", Effect: "each call checks its pointers", Advice: "unset it, or keep it while a fault is looked for", Between: true, Inside: true, may: in("1"), does: in("1"), harms: in("1")},
	{Name: "NCCL_CUMEM_ENABLE", Effect: "memory by cuMem is off, and with it the reduction in the switch (NVLS) and NVLink between nodes (MNNVL)", Advice: "unset it", Between: true, Inside: true, may: in("0"), does: in("0")},
	{Name: "NCCL_MNNVL_ENABLE", Effect: "NVLink between nodes is off", Advice: "unset it", Between: true, may: in("0"), does: in("0")},
	{Name: "NCCL_PXN_DISABLE", Effect: "a GPU does not send through a near GPU's adapter: rails cross in the switches", Advice: "unset it", Between: true, may: in("1"), does: in("1")},
	{Name: "NCCL_GRAPH_FILE", Effect: "rings and trees come from this file and not from the machine, which is right where it was made alone", Advice: "unset it, unless the machine's vendor says that it needs it", Between: true, Inside: true, may: anyValue, does: anyValue},
	{Name: "NCCL_NET_PLUGIN", Effect: "no plugin of the network is loaded, as clouds' need one (EFA, FastRak, SHARP)", Advice: "unset it, unless NCCL's own verbs are wanted", Between: true, may: in("none"), does: in("none")},
}

// Problems returns what is wrong with a variable, NAME=VALUE, or with the text of a configuration file, which NCCL reads
// otherwise than a shell does.
func Problems(variable, conf string) (problems []Problem) {
	environ := []string{variable}
	if variable == "" {
		environ = []string{confFile + "=" + confName}
	}
	_, problems = read(environ, func(name string) (string, error) {
		if name == confName {
			return conf, nil
		}
		return "", fs.ErrNotExist
	})
	for i := range problems {
		p := &problems[i]
		if m := confLineOf.FindStringSubmatch(p.Text); m != nil {
			p.Line, _ = strconv.Atoi(m[1] + m[2])
			p.Text = strings.Replace(p.Text, m[0], "", 1)
		}
		p.Text = otherLine.ReplaceAllString(strings.Replace(p.Text, " (environment)", "", 1), "line $1")
	}
	return problems
}

const confName = "nccl.conf"

// confLineOf matches the line's number in a message, and otherLine another line's.
var (
	confLineOf = regexp.MustCompile(`^nccl\.conf:(\d+): | \(nccl\.conf:(\d+)\)`)
	otherLine  = regexp.MustCompile(`nccl\.conf:(\d+)`)
)
