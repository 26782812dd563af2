package knob

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/assay-hpc/assay/internal/golden"
)

// guideNames are the variables in section 5.4 of the guide of NCCL 2.3.5.
const guideNames = `NCCL_BUFFSIZE NCCL_CHECKS_DISABLE NCCL_CHECK_POINTERS NCCL_DEBUG NCCL_DEBUG_FILE NCCL_DEBUG_SUBSYS
	NCCL_IB_CUDA_SUPPORT NCCL_IB_DISABLE NCCL_IB_GDR_LEVEL NCCL_IB_GID_INDEX NCCL_IB_HCA NCCL_IB_RETRY_CNT NCCL_IB_SL
	NCCL_IB_TC NCCL_IB_TIMEOUT NCCL_LAUNCH_MODE NCCL_LL_THRESHOLD NCCL_MAX_NRINGS NCCL_MIN_NRINGS NCCL_NET_GDR_READ
	NCCL_NTHREADS NCCL_P2P_DISABLE NCCL_P2P_LEVEL NCCL_RINGS NCCL_SHM_DISABLE NCCL_SINGLE_RING_THRESHOLD NCCL_SOCKET_IFNAME`

func TestTable(t *testing.T) {
	var inGuide []string
	seen := map[string]bool{}
	for _, k := range table() {
		if seen[k.Name] {
			t.Errorf("%s stands in the table twice", k.Name)
		}
		seen[k.Name] = true
		if k.Default == "" || k.Effect == "" || k.Values() == "" || k.kind.set == nil {
			t.Errorf("%s: the row is not complete", k.Name)
		}
		if k.Guide {
			inGuide = append(inGuide, k.Name)
		}
	}
	if want := strings.Fields(guideNames); !slices.Equal(inGuide, want) {
		t.Errorf("of the guide: %v; want %v", inGuide, want)
	}
}

// TestNewerAreKnown: a sample of what later releases read gives no warning of
// an unknown name.
func TestNewerAreKnown(t *testing.T) {
	for _, name := range []string{"NVLS_ENABLE", "CUMEM_ENABLE", "TUNER_PLUGIN", "IB_ECE_ENABLE", "CROSS_NIC", "RAS_ENABLE", "COMM_BLOCKING", "MNNVL_ENABLE", "DEBUG_TIMESTAMP_FORMAT", "CHECK_MODE", "PARAM_DUMP_ALL", "GRAPH_FILE", "IB_DATA_DIRECT", "GIN_TYPE"} {
		_, warnings, err := Load([]string{"NCCL_" + name + "=1"}, noFiles)
		if err != nil || len(warnings) != 1 || !strings.Contains(warnings[0].Message, "has no effect here: ") {
			t.Errorf("NCCL_%s: %v, %v; want one line that says it has no effect", name, warnings, err)
		}
	}
}

const (
	begin = "<!-- generated from the table in coll/knob; go test ./coll/knob -args -update -->\n"
	end   = "<!-- end of what is generated -->\n"
)

// TestDocumentation: docs/knobs.md has the table of the code.
func TestDocumentation(t *testing.T) {
	golden.Part(t, "../../docs/knobs.md", begin, end, markdown())
}

// markdown renders the table: a row for each variable that is read, and then
// those whose values are not looked at, by reason.
func markdown() string {
	var b strings.Builder
	for _, part := range []struct {
		title string
		in    func(Knob) bool
	}{
		{"In the guide of NCCL 2.3.5", func(k Knob) bool { return k.Guide }},
		{"Newer, and ours", func(k Knob) bool { return !k.Guide && k.Values() != anything.values }},
	} {
		fmt.Fprintf(&b, "\n### %s\n| variable | since | values | default | here | what it does here |\n|---|---|---|---|---|---|\n", part.title)
		for _, k := range table() {
			if part.in(k) {
				fmt.Fprintf(&b, "| `%s` | %s | %s | %s | %s | %s |\n", k.Name, k.Since, cell(k.Values()), k.Default, []string{"honoured", "accepted"}[k.Status], cell(k.Effect))
			}
		}
	}
	b.WriteString("\n### Newer, accepted without effect on host memory\n| why | variables |\n|---|---|\n")
	for _, g := range withoutEffect {
		fmt.Fprintf(&b, "| %s | `NCCL_%s` |\n", g.why, strings.Join(strings.Fields(g.names), "` `NCCL_"))
	}
	b.WriteByte('\n')
	return b.String()
}

func cell(s string) string { return strings.ReplaceAll(s, "|", `\|`) }
