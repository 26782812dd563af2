package knob

import (
	"errors"
	"io/fs"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/assay-hpc/assay/coll/debug"
)

// A Slower is a setting that makes NCCL slower than it could be, or turns off a way for its data.
type Slower struct {
	Name           string
	Effect, Advice string
	Between        bool // it matters between nodes
	Inside         bool // it matters on a node

	may, does func(value string) bool
}

// May says whether a value can make NCCL slower, on some machine.
func (s *Slower) May(value string) bool { return s.may(value) }

// Does says whether a value does so wherever there is what it turns off.
func (s *Slower) Does(value string) bool { return s.does != nil && s.does(value) }

func in(values ...string) func(string) bool {
	return func(v string) bool { return slices.Contains(values, strings.ToLower(v)) }
}

func anyValue(string) bool { return true }

func noSimple(v string) bool { return !strings.Contains(strings.ToLower(v), "simple") }

// Slowers are these settings, the most frequent first. Source: NCCL's guide, chapter "Environment Variables".
var Slowers = []Slower{
	{"NCCL_NVLS_ENABLE", "the reduction in the switch is off", "unset it, unless it works around a fault of the fabric manager: then mend that", true, true, in("0"), in("0")},
	{"NCCL_P2P_DISABLE", "GPUs of a node do not reach each other directly: everything goes through host memory", "unset it", false, true, in("1"), in("1")},
	{"NCCL_P2P_LEVEL", "peer access is limited to near GPUs", "unset it", false, true, in("loc", "0", "pix", "1", "pxb", "2"), in("loc", "0")},
	{"NCCL_SHM_DISABLE", "GPUs without peer access use the network inside a node", "unset it", false, true, in("1"), in("1")},
	{"NCCL_IB_DISABLE", "RDMA is off: NCCL uses TCP", "unset it", true, false, in("1"), in("1")},
	{"NCCL_NET", "TCP is forced", "unset it", true, false, in("socket"), in("socket")},
	{"NCCL_NET_GDR_LEVEL", "GPUDirect RDMA is off or limited: data goes through host memory", "unset it, or NCCL_NET_GDR_LEVEL=PHB and compare", true, false, in("loc", "0", "pix", "1"), in("loc", "0")},
	{"NCCL_ALGO", "the algorithm is forced", "unset it: NCCL chooses by size and topology", true, true, func(v string) bool { return !strings.EqualFold(v, "ring") }, anyValue},
	{"NCCL_PROTO", "the protocol is forced; LL and LL128 do not reach full bandwidth", "unset it: NCCL chooses by size", true, true, anyValue, noSimple},
	{"NCCL_MAX_NCHANNELS", "channels are limited: with few, not all links are used", "unset it", true, true, anyValue, anyValue},
	{"NCCL_MAX_CTAS", "channels are limited: with few, not all links are used", "unset it", true, true, anyValue, anyValue},
	{"NCCL_MIN_NCHANNELS", "the number of channels is forced", "unset it", true, true, anyValue, nil},
	{"NCCL_BUFFSIZE", "buffers have another size than NCCL's 4 MiB", "unset it", true, true, anyValue, nil},
	{"NCCL_NTHREADS", "threads of a block are limited", "unset it", false, true, anyValue, nil},
	{"NCCL_IB_PCI_RELAXED_ORDERING", "relaxed ordering on PCIe is off", "unset it, or set 1: without it writes to GPUs and hosts wait for each other", true, false, in("0"), in("0")},
	{"NCCL_IB_HCA", "only these adapters are used", "name all adapters that belong to GPUs, or unset it", true, false, anyValue, nil},
	{"CUDA_LAUNCH_BLOCKING", "each launch waits for the last one", "unset it", true, true, in("1"), in("1")},
	{"NCCL_DEBUG", "every call is logged, by each rank", "NCCL_DEBUG=WARN, and INFO or TRACE while a fault is looked for", true, true, in("trace"), in("trace")},
	{"NCCL_CHECK_POINTERS", "each call checks its pointers", "unset it, or keep it while a fault is looked for", true, true, in("1"), in("1")},
	{"NCCL_CUMEM_ENABLE", "memory by cuMem is off, and with it the reduction in the switch (NVLS) and NVLink between nodes (MNNVL)", "unset it", true, true, in("0"), in("0")},
	{"NCCL_MNNVL_ENABLE", "NVLink between nodes is off", "unset it", true, false, in("0"), in("0")},
	{"NCCL_PXN_DISABLE", "a GPU does not send through a near GPU's adapter: rails cross in the switches", "unset it", true, false, in("1"), in("1")},
	{"NCCL_GRAPH_FILE", "rings and trees come from this file and not from the machine, which is right where it was made alone", "unset it, unless the machine's vendor says that it needs it", true, true, anyValue, anyValue},
	{"NCCL_NET_PLUGIN", "no plugin of the network is loaded, as clouds' need one (EFA, FastRak, SHARP)", "unset it, unless NCCL's own verbs are wanted", true, false, in("none"), in("none")},
}

// A Problem is what is wrong with a setting, for NCCL: what only this engine does otherwise is none.
type Problem struct {
	Name    string
	Line    int    // of the file; 0 of a variable
	Text    string // what is wrong, and after ; what to do
	Refused bool   // NCCL ends
	Unknown bool   // NCCL has no variable of this name
	Near    string // of an unknown one: the name that was meant, if one is near
}

// quiet matches values of NCCL_DEBUG that NCCL does not know, and that are to log nothing: so they do.
var quiet = regexp.MustCompile(`(?i)^NCCL_DEBUG=(off|none|error|false|0|)$`)

// Problems returns what is wrong with a variable, NAME=VALUE, or with the text of a configuration file, which NCCL reads
// otherwise than a shell does.
func Problems(variable, conf string) (out []Problem) {
	environ := []string{variable}
	if variable == "" {
		environ = []string{confFile + "=" + confName}
	} else if quiet.MatchString(variable) {
		return nil
	}
	k, warnings, err := Load(environ, func(name string) ([]byte, error) {
		if name == confName {
			return []byte(conf), nil
		}
		return nil, fs.ErrNotExist
	})
	add := func(name, text string) *Problem {
		p := Problem{Name: name}
		if m := confLineOf.FindStringSubmatch(text); m != nil {
			p.Line, _ = strconv.Atoi(m[1] + m[2])
			text = strings.Replace(text, m[0], "", 1)
		}
		p.Text = otherLine.ReplaceAllString(strings.Replace(text, " (environment)", "", 1), "line $1")
		out = append(out, p)
		return &out[len(out)-1]
	}
	for _, w := range warnings {
		level := k.Getenv("NCCL_DEBUG")
		if w.Level != debug.Warn || w.Ours || w.Name == "NCCL_DEBUG" && level != "" && quiet.MatchString("NCCL_DEBUG="+level) {
			continue
		}
		p := add(w.Name, w.Message)
		if p.Unknown = strings.HasPrefix(p.Text, w.Name+" is unknown"); p.Unknown || strings.Contains(p.Text, "is not a variable of NCCL") {
			_, near, _ := strings.Cut(p.Text, "; did you mean ")
			p.Near = strings.TrimSuffix(near, "?")
		}
	}
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		for _, err := range joined.Unwrap() {
			if wrong := (*Error)(nil); errors.As(err, &wrong) {
				add(wrong.Name, wrong.Error()).Refused = true
			}
		}
	}
	return out
}

const confName = "nccl.conf"

// confLineOf matches the line's number in a message, and otherLine another line's.
var (
	confLineOf = regexp.MustCompile(`^nccl\.conf:(\d+): | \(nccl\.conf:(\d+)\)`)
	otherLine  = regexp.MustCompile(`nccl\.conf:(\d+)`)
)
