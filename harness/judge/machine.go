package judge

import (
	"cmp"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/assay-hpc/assay/internal/platform"
)

// A Machine is the hardware that measurements are judged by. Zero fields are not known.
type Machine struct {
	Name    string  `json:"name,omitempty"`
	GPU     string  `json:"gpu,omitempty"`
	PerNode int     `json:"gpusPerNode,omitempty"`
	NICs    int     `json:"nics,omitempty"` // of a node
	Gbit    float64 `json:"gbit,omitempty"` // of each
	Nodes   int     `json:"nodes,omitempty"`
	Kind    string  `json:"kind,omitempty"` // "InfiniBand", "RoCE", "EFA", "TCPXO", "Ethernet", "TCP"
	From    string  `json:"from,omitempty"` // who says so

	gpu  *gpu
	key  string // of the hardware database
	text string // as it was given

	links    int  // NVLinks between two GPUs, where that was said; 0: all
	apart    bool // the nodes are not of one NVLink fabric
	host     span // between host and device, where the machine and not the GPU decides; and by which path
	hostPath string
}

// wire is what a node's NICs carry together in one direction, GB/s; 0: not known.
func (m *Machine) wire() float64 { return float64(m.NICs) * m.Gbit / 8 }

func (m *Machine) nics() string {
	if m.NICs == 0 {
		return "NICs unknown"
	}
	kind := ""
	if m.Kind != "" {
		kind = " " + m.Kind
	}
	return fmt.Sprintf("%d x %g Gb/s%s a node", m.NICs, m.Gbit, kind)
}

var (
	countedGPU = regexp.MustCompile(`(\d+)\s*(?:[x×*]\s*)?(?:nvidia\s+|amd\s+|tesla\s+|geforce\s+)*$`)
	wholeNode  = regexp.MustCompile(`\b[hd]gx\b`)
	nicKinds   = []struct{ word, kind string }{
		{"roce", "RoCE"}, {"infiniband", "InfiniBand"}, {"efa", "EFA"}, {"tcpxo", "TCPXO"}, {"tcpx", "TCPX"}, {"slingshot", "Slingshot"},
		{"tcp", "TCP"}, {"ethernet", "Ethernet"}, {"gbe", "Ethernet"}, {" ib", "InfiniBand"},
	}
	infiniBand = map[string]float64{"xdr": 800, "ndr": 400, "hdr": 200, "edr": 100, "fdr": 56}
)

// ParseMachine reads what somebody calls his machine: a name of the hardware database or an alias, or GPUs and NICs:
// "8 x H100 PCIe, 1 x 100G a node", "8 x NDR400 InfiniBand".
func ParseMachine(db *platform.DB, text string) (*Machine, error) {
	m := &Machine{Name: text, From: "--platform"}
	if db.Platforms[text] != nil {
		m.fromDB(db, text)
		m.text = text
		return m, nil
	}
	if key := db.Find(text); key != "" {
		m.fromDB(db, key)
	}
	low := counted(strings.ToLower(text))
	m.text = text
	if c := nodesOf.FindStringSubmatch(low); c != nil && !eachNode.MatchString(c[0]) {
		m.Nodes, _ = strconv.Atoi(c[1])
	} else if c := ofInstances.FindStringSubmatch(low); c != nil && m.key != "" {
		m.Nodes, _ = strconv.Atoi(c[1])
	}
	if g := findGPU(low); g != nil && g != m.gpu {
		m.setGPU(g)
	}
	if m.gpu != nil {
		at := m.gpu.name.FindStringIndex(low)
		if at != nil {
			if c := countedGPU.FindStringSubmatch(low[:at[0]]); c != nil {
				m.PerNode = perNode(low, c[1])
				if nodesOf.FindStringSubmatch(low) == nil { // so many GPUs, and no instances: "2 x A40"
					m.Nodes = 0
				}
			} else if wholeNode.MatchString(low) {
				m.PerNode = m.gpu.GPUs
			}
			if c := dies.FindStringSubmatch(low); c != nil {
				m.PerNode, _ = strconv.Atoi(c[1])
			}
			low = low[:at[0]] + " gpu " + low[at[1]:]
		}
	}
	m.parseNICs(low)
	if c := joined.FindStringSubmatch(low); c != nil {
		m.links, _ = strconv.Atoi(c[1] + c[2])
	}
	m.apart = acrossDomains.MatchString(low)
	switch {
	case thunderbolt.MatchString(low):
		m.host, m.hostPath = span{2.2, 2.9, 3.5}, "a Thunderbolt or USB4 tunnel, 32 Gb/s of PCIe"
	case confidential.MatchString(low):
		m.host, m.hostPath = span{3, 6, 12}, "confidential computing: all copies are encrypted by the CPU and go through bounce buffers; OpenSSL 3.1 and later is about twice as fast at it"
	case power9.MatchString(low):
		m.host, m.hostPath = span{30, 65, 75}, "NVLink to the CPU (POWER9), 75 GB/s"
	}
	if m.gpu == nil && m.NICs == 0 && len(strings.Fields(text)) < 3 && !anyMachine.MatchString(low) {
		return nil, fmt.Errorf("%q names no GPU and no NIC that is known; write a platform such as hgx-h100-ndr400 or p5.48xlarge, or GPUs and NICs such as \"8 x H100, 8 x 400G RoCE\"", text)
	}
	return m, nil
}

// counted writes numbers that are words as digits, and counts of what has a rate with an x: "four 200 Gb/s NICs" is
// "4 x 200 gb/s nics".
func counted(low string) string {
	low = numberWord.ReplaceAllStringFunc(low, func(w string) string { return numberWords[w] })
	return countOfRate.ReplaceAllString(low, "$1$2 x $3")
}

var (
	numberWords = map[string]string{"two": "2", "dual": "2", "three": "3", "four": "4", "six": "6", "eight": "8", "ten": "10", "twelve": "12", "sixteen": "16"}
	numberWord  = regexp.MustCompile(`\b(?:two|dual|three|four|six|eight|ten|twelve|sixteen)\b`)
	countOfRate = regexp.MustCompile(`(^|[\s,;(])(\d{1,2})[ -]((?:25|40|50|56|100|200|400|800)[ -]?(?:gb/s|gbps|gbit|gbe|g)\b)`)
)

// perNode returns how many GPUs a node has, where a text counts so many: "64 x H100 (8 nodes of 8)".
func perNode(low, count string) int {
	n, _ := strconv.Atoi(count)
	if m := nodesOf.FindStringSubmatch(low); m != nil && !eachNode.MatchString(m[0]) {
		if each, _ := strconv.Atoi(m[2]); each > 0 {
			return each
		}
		if nodes, _ := strconv.Atoi(m[1]); nodes > 1 && n > 8 && n%nodes == 0 {
			return n / nodes
		}
	}
	return n
}

// ofInstances counts instances: "2 x AWS p4d.24xlarge".
var ofInstances = regexp.MustCompile(`^\s*(\d+)\s*[x×*]\s`)

var (
	joined        = regexp.MustCompile(`\bnv(\d{1,2})\b|\b(\d{1,2}) nvlinks?\b`)
	acrossDomains = regexp.MustCompile(`across nvlink domains|different (?:nvlink )?domains|nccl_mnnvl_enable=0|(?:no|without) mnnvl`)

	thunderbolt  = regexp.MustCompile(`thunderbolt|\begpu\b|\busb ?4\b|\btb[34]\b`)
	confidential = regexp.MustCompile(`confidential|\bsev-snp\b|\btdx\b|\bcc[ -]mode\b`)
	bridged      = regexp.MustCompile(`nvlink bridges?|bridged|\bnvl\b`)
	anyMachine   = regexp.MustCompile(`^(?:an? |one |my )?(?:laptop|notebook|desktop|workstation)$`)
	power9       = regexp.MustCompile(`power ?9|ac922|marconi100|\bsummit\b|\bsierra\b`)
)

// eachNode is what stands before "node" where no nodes are counted: "200 a node".
var eachNode = regexp.MustCompile(`\b(?:a|per|each|every|one)\b`)

// dies of an MI250X are GPUs.
var dies = regexp.MustCompile(`(\d+) gcds?\b`)

var nodesOf = regexp.MustCompile(`(\d+)[ -]+(?:[a-z-]+ ){0,2}(?:nodes?|vms?|hosts?|servers?|machines?|trays?|pods?|workers?)\b(?: of (\d+))?`)

func (m *Machine) setGPU(g *gpu) {
	m.gpu, m.GPU = g, g.Name
	m.PerNode = g.GPUs
	if m.NICs == 0 && g.NICs > 0 {
		m.NICs, m.Gbit, m.Kind = g.NICs, g.Gbit, g.Kind
	}
}

// fromDB takes what the hardware database has of a platform.
func (m *Machine) fromDB(db *platform.DB, key string) {
	p := db.Platforms[key]
	if g := db.GPUs[p.GPU]; g != nil {
		if found := findGPU(g.Name); found != nil {
			m.setGPU(found)
		} else if derived := reachOf(g); derived != nil {
			m.setGPU(derived)
		}
	}
	m.Name, m.key = p.Name, key
	m.PerNode = cmp.Or(p.GPUsPerNode.Max(), m.PerNode)
	if total, _ := p.NICs.Gbit(); total > 0 {
		m.Kind = strings.TrimSpace(strings.SplitN(p.NICs.Kind, ";", 2)[0])
		m.NICs, m.Gbit = 1, total
		if each := p.NICs.GbitEach.Value; each > 0 {
			m.NICs, m.Gbit = int(total/each+0.5), each
		}
	}
}

// fastest returns a machine whose NICs are not known with those of the fastest platform that has its GPU; nil if there is
// none.
func (m *Machine) fastest(db *platform.DB) *Machine {
	if db == nil || m == nil || m.gpu == nil || m.wire() > 0 {
		return nil
	}
	var best *Machine
	for _, key := range slices.Sorted(maps.Keys(db.Platforms)) {
		p := &Machine{}
		p.fromDB(db, key)
		if p.gpu == m.gpu && p.wire() > 0 && (best == nil || p.wire() > best.wire()) {
			best = p
		}
	}
	if best == nil {
		return nil
	}
	fast := *m
	fast.NICs, fast.Gbit, fast.Kind, fast.From = best.NICs, best.Gbit, "", best.Name
	return &fast
}

// parseNICs reads NICs in lower-case text: a rate, how many of them, and of what kind.
func (m *Machine) parseNICs(low string) {
	best := 0
	for _, at := range nicRate.FindAllStringSubmatchIndex(low, -1) {
		group := func(i int) string {
			if at[2*i] < 0 {
				return ""
			}
			return low[at[2*i]:at[2*i+1]]
		}
		gen, rate, unit := group(1), 0.0, group(3)
		if rate, _ = strconv.ParseFloat(group(2), 64); rate == 0 {
			rate = infiniBand[gen]
		}
		left, right := low[max(0, at[0]-40):at[0]], low[at[1]:min(len(low), at[1]+28)]
		left = left[strings.LastIndexAny(left, ",;(+")+1:]
		if i := strings.LastIndex(left, " and "); i >= 0 {
			left = left[i:]
		}
		if i := strings.IndexAny(right, ",;)+"); i >= 0 {
			right = right[:i]
		}
		right, _, _ = strings.Cut(right, " and ")
		if !slices.Contains(rates, rate) || ofMemory.MatchString(left) || gen == "" && unit == "" {
			continue
		}
		score := 1
		count := 1
		if c := countBefore.FindStringSubmatch(left); c != nil {
			count, _ = strconv.Atoi(c[1])
			score += 2
		} else if c := countNICs.FindStringSubmatch(left); c != nil {
			count, _ = strconv.Atoi(c[1])
			score += 2
		}
		if gen != "" || nicWord.MatchString(left+" "+right) {
			score += 4
		}
		if score > best {
			best = score
			m.NICs, m.Gbit, m.Kind = count, rate, ""
			if gen != "" {
				m.Kind = "InfiniBand"
			}
		}
	}
	for _, k := range nicKinds {
		if strings.Contains(low, k.word) {
			m.Kind = k.kind
			break
		}
	}
	if m.Kind == "Slingshot" && m.NICs == 0 {
		m.NICs, m.Gbit = 4, 200
	}
}

var (
	nicRate     = regexp.MustCompile(`\b(?:(xdr|ndr|hdr|edr|fdr)[ -]?)?(\d{1,4})? ?(gb/s|gbps|gbit/s|gbit|gbe|g)?\b`)
	countBefore = regexp.MustCompile(`^.*?(?:.*\D)?(\d+)\s*(?:[x×*]|nics? of|ports? of|rails? of)\s*(?:[a-z0-9./-]+\s+){0,3}$`)
	countNICs   = regexp.MustCompile(`(?:^|[\s,;(])(\d{1,2})\s+(?:(?:nvidia|mellanox|\d-port|single-port)\s+)*(?:connectx|cx-?\d|mellanox|mlx5|bluefield|nics?|hcas?|ports?|rails?|infiniband|ib|roce|efa|ndr|hdr|edr)\b[a-z0-9 ./-]*$`)
	nicWord     = regexp.MustCompile(`\b(?:connectx|cx-?\d|mellanox|nics?|ports?|rails?|hca|infiniband|ib|roce|efa|ena|ethernet|tcp\w*|gbe|rdma|pollara|thor|slingshot|network\w*|broadcom|bond)\b`)
	ofMemory    = regexp.MustCompile(`(?:gpu|sxm\d?|pcie|nvl|hbm\w*|memory|[abhvlt]\d{2,3}\w?)[ -]*$`)
	rates       = []float64{1, 2.5, 5, 10, 20, 25, 40, 50, 56, 100, 200, 400, 800, 1600, 3200}
)
