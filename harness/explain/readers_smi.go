package explain

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
)

var cell = regexp.MustCompile(`^(?:X|NV\d+|PIX|PXB|PHB|NODE|SYS|SOC)$`)

// readMatrix reads nvidia-smi topo -m.
func readMatrix(in *input, hits []hit) {
	end := place{file: -1}
	for _, h := range hits {
		if h.at.before(end) {
			continue // the first row of a matrix with its head
		}
		columns := in.headless(h.at)
		in.from(h.at, func(at place, l string) bool {
			end = place{at.file, at.offset + 1}
			f := strings.Fields(l)
			if columns == nil {
				for _, name := range f {
					if strings.HasPrefix(name, "GPU") || strings.HasPrefix(name, "NIC") || strings.HasPrefix(name, "mlx") {
						columns = append(columns, name)
					}
				}
				return len(columns) > 1
			}
			if len(f) == 0 || !slices.Contains(columns, f[0]) {
				return len(f) == 0 && len(l) > 0
			}
			for i, name := range columns[:min(len(columns), len(f)-1)] {
				kind := f[i+1]
				if !cell.MatchString(kind) || !strings.HasPrefix(f[0], "GPU") || kind == "X" {
					continue
				}
				more := map[string]string{"a": f[0], "b": name}
				if strings.HasPrefix(name, "GPU") {
					in.add("topo.gpu-gpu", kind, more, at)
				} else {
					in.add("topo.gpu-nic", kind, more, at)
				}
			}
			return true
		})
	}
}

// headless returns the columns of a matrix whose head was not copied: GPUs, one for each row.
func (in *input) headless(at place) (columns []string) {
	in.from(at, func(_ place, l string) bool {
		f := strings.Fields(l)
		if len(f) < 2 || !strings.HasPrefix(f[0], "GPU") || len(columns) == 0 && f[1] != "X" {
			return false
		}
		columns = append(columns, f[0])
		return true
	})
	return columns
}

var (
	smiGPU   = regexp.MustCompile(`^\s*GPU (\d+): (.*?)(?: \(UUID|$)`)
	smiLink  = regexp.MustCompile(`^\s*Link (\d+): (.*)$`)
	smiValue = regexp.MustCompile(`[0-9.]+`)
)

// readLinks reads nvidia-smi nvlink -s.
func readLinks(in *input, hits []hit) {
	for _, h := range hits {
		m := smiGPU.FindStringSubmatch(in.lineAt(h.at))
		if m == nil {
			continue
		}
		links, first := 0, true
		in.from(h.at, func(at place, l string) bool {
			if first {
				first = false
				return true
			}
			f := smiLink.FindStringSubmatch(l)
			if f == nil {
				return false
			}
			links++
			more := map[string]string{"gpu": m[1], "model": m[2], "link": f[1]}
			if strings.Contains(f[2], "inactive") {
				in.add("nvlink.inactive", f[1], more, at)
			} else if strings.Contains(f[2], "/s") || strings.Contains(f[2], "active") { // no counter
				in.add("nvlink.active", f[1], more, at)
			}
			return true
		})
	}
	inactive := map[string][]string{}
	for _, f := range in.facts["nvlink.active"] {
		inactive[f.more["gpu"]] = nil
	}
	for _, f := range in.facts["nvlink.inactive"] {
		inactive[f.more["gpu"]] = append(inactive[f.more["gpu"]], f.value)
	}
	first := []string(nil)
	for i, gpu := range slices.Sorted(maps.Keys(inactive)) {
		if i == 0 {
			first = inactive[gpu]
		} else if !slices.Equal(first, inactive[gpu]) {
			return
		}
	}
	if len(inactive) > 1 && len(first) > 0 {
		in.add("nvlink.alike", strings.Join(first, " "), nil, in.facts["nvlink.inactive"][0].at)
	}
}

// readFabric reads the fabric's state in nvidia-smi -q.
func readFabric(in *input, hits []hit) {
	for _, h := range hits {
		state, n := "", 0
		in.from(h.at, func(at place, l string) bool {
			key, value, _ := strings.Cut(l, ":")
			switch strings.TrimSpace(key) {
			case "State":
				state = strings.TrimSpace(value)
			case "Status":
				in.add("fabric", state+": "+strings.TrimSpace(value), nil, at)
				return false
			}
			n++
			return n < 4
		})
	}
}

// readQuery reads nvidia-smi -q.
func readQuery(in *input, hits []hit) {
	at, gpu := hits[0].at, ""
	values, under := map[string]string{}, ""
	begin := at
	flush := func() {
		if gpu != "" && values["Current generation"] != "" {
			number := func(k string) string { return smiValue.FindString(values[k]) }
			in.add("smi.pcie", fmt.Sprintf("%s of %s, %s of %s, %s, %s %%", number("Current generation"), number("Max generation"),
				number("Current width"), number("Max width"), values["Performance State"], number("Gpu")), map[string]string{
				"gpu": gpu, "generation": number("Current generation"), "width": number("Current width"),
				"maxgen": number("Max generation"), "maxwidth": number("Max width"), "state": values["Performance State"],
			}, begin)
		}
		values, under = map[string]string{}, ""
	}
	in.from(at, func(at place, l string) bool {
		if rest, ok := strings.CutPrefix(l, "GPU "); ok && strings.Count(rest, ":") >= 2 {
			flush()
			gpu = strings.TrimSpace(rest)
			return true
		}
		key, value, ok := strings.Cut(l, " : ")
		key, value = strings.TrimSpace(key), strings.TrimSpace(value)
		switch {
		case !ok && (key == "PCIe Generation" || key == "Link Width" || key == "Utilization"):
			under = key
		case !ok && key != "":
			under = ""
		case under == "PCIe Generation" && (key == "Max" || key == "Current"):
			values[key+" generation"] = value
			if key == "Current" {
				begin = at
			}
		case under == "Link Width" && (key == "Max" || key == "Current"):
			values[key+" width"] = value
		case under == "Utilization" && (key == "Gpu" || key == "GPU"):
			values["Gpu"] = value
		case key == "Performance State":
			values[key] = value
		}
		return true
	})
	flush()
}
