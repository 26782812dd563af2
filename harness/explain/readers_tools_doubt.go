package explain

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// doubt adds what may be a fault, and does not suffice to tell.
func (b *block) doubt(i int, format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	b.fault("tool.doubt", text, i, map[string]string{"what": text})
}

// tooHot is a temperature in C near which GPUs become slower.
const tooHot = 88

// hot doubts a GPU that is near its limit of temperature.
func (b *block) hot(i int, gpu string, degrees float64) {
	if degrees >= tooHot {
		b.doubt(i, "GPU %s is at %s C, near the temperature at which it becomes slower", gpu, number(degrees))
	}
}

// differ doubts devices of which one has another value than most.
func (b *block) differ(what string, names, values []string, lines []int) {
	common, others := odd(values)
	for _, i := range others {
		b.doubt(lines[i], "%s: %s is %s, and %s of the others", names[i], what, values[i], common)
	}
}

// slower doubts links that are slower than most; rates end in a number of Gb/s.
func (b *block) slower(what string, names, values []string, lines []int) {
	rate := func(s string) float64 {
		all := compiled(`[\d.]+`).FindAllString(s, -1)
		if len(all) == 0 {
			return 0
		}
		v, _ := strconv.ParseFloat(all[len(all)-1], 64)
		return v
	}
	common, others := odd(values)
	for _, i := range others {
		if rate(values[i]) < rate(common) {
			b.doubt(lines[i], "%s: %s is %s, and %s of the others", names[i], what, values[i], common)
		}
	}
}

// lacksGPU says whether so many GPUs of a board are fewer than it has.
func lacksGPU(n int, model string) bool {
	return (n == 3 || n > 4 && n < 8) && compiled(`HBM3|H200|H100 80GB|H100 SXM|A100-SXM|B200|B300|H800|H20`).MatchString(model)
}

// missing doubts a number of GPUs that boards do not have.
func (b *block) missing(names []string) {
	if n := len(names); n > 0 && lacksGPU(n, names[0]) {
		b.doubt(0, "%d %s are listed, and boards with this GPU have 4 or 8: one is missing, or this is a part of a machine", n, names[0])
	}
}

// csvDoubts looks for values of a query that are no values, and for GPUs that are hot or slow.
func (b *block) csvDoubts(columns []string, rows [][]string) {
	for i, c := range columns {
		var none, some []int
		for r, f := range rows {
			switch v, ok := value(f[i]); {
			case compiled(`(?i)err|lost|reset`).MatchString(f[i]) && c != "gpu_recovery_action":
				b.doubt(r+1, "%s of GPU %d is %s", c, r, f[i])
			case compiled(`^\[?N/A\]?$`).MatchString(f[i]):
				none = append(none, r)
			default:
				if some = append(some, r); ok && c == "temperature.gpu" {
					b.hot(r+1, f[0], v)
				}
			}
		}
		if len(none)*2 < len(some) {
			for _, r := range none {
				b.doubt(r+1, "%s of GPU %d is N/A, and the others have a value", c, r)
			}
		}
	}
	if n, i := slices.Index(columns, "name"), slices.Index(columns, "index"); n >= 0 && i >= 0 {
		var names []string
		seen := map[string]bool{}
		for _, f := range rows {
			if !seen[f[i]] { // a query that repeats
				seen[f[i]], names = true, append(names, f[n])
			}
		}
		b.missing(names)
	}
	sm, busy := slices.Index(columns, "clocks.sm"), slices.Index(columns, "utilization.gpu")
	if sm < 0 || busy < 0 {
		return
	}
	var gpus, clocks []string
	var lines []int
	for r, f := range rows {
		if n, _ := value(f[busy]); n < 80 {
			return
		}
		gpus, clocks, lines = append(gpus, f[0]), append(clocks, strings.TrimSuffix(f[sm], " MHz")), append(lines, r+1)
	}
	b.dmonClocks(gpus, clocks, lines)
}

// readDCGMDmon reads dcgmi dmon: fields that count errors, and temperatures.
func readDCGMDmon(b *block) string {
	columns := strings.Fields(b.lines[0])[1:]
	for i, l := range b.lines[1:] {
		f := strings.Fields(l)
		for c, name := range columns {
			if at := len(f) - len(columns) + c; at > 0 {
				n, ok := value(f[at])
				switch {
				case ok && n > 0 && compiled(`XID|DBE|DBVT|DBEVT|EDV|UNC|RPF|RMF`).MatchString(name):
					b.doubt(i+1, "%s %s has %s %s, which counts or names errors", f[0], f[1], name, f[at])
				case name == "TMPTR":
					b.hot(i+1, f[1], n)
				}
			}
		}
	}
	return "dcgmi dmon lists the fields " + strings.Join(columns, ", ") + ": figures of a moment, to be compared between GPUs"
}
