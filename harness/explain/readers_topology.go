package explain

import (
	"bytes"
	"encoding/xml"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// readTopology reads NCCL's topology files: each document of a text, and of each file.
func readTopology(in *input, hits []hit) {
	var all []machine
	end := place{file: -1}
	for i, h := range hits {
		if h.at.before(end) {
			continue // a part of the document before
		}
		end = place{h.at.file, len(in.files[h.at.file].Text)}
		for _, next := range hits[i+1:] {
			if next.at.file == h.at.file && strings.Contains(in.lineAt(next.at), "<system") {
				end = next.at
				break
			}
		}
		all = append(all, in.readDocument(h.at, end.offset))
	}
	in.compareMachines(all)
}

// readDocument reads one topology, to an offset.
func (in *input) readDocument(begin place, end int) machine {
	text := in.files[begin.file].Text[:end]
	links, m := nvlinks{}, machine{at: begin}
	dec := xml.NewDecoder(bytes.NewReader(text[begin.offset:]))
	var above []map[string]string
	for {
		at := place{begin.file, begin.offset + int(dec.InputOffset())}
		token, err := dec.Token()
		if err != nil {
			links.compare(in)
			return m
		}
		switch e := token.(type) {
		case xml.StartElement:
			a := map[string]string{"element": e.Name.Local}
			for _, attr := range e.Attr {
				a[attr.Name.Local] = attr.Value
			}
			for at.offset < len(text) && text[at.offset] != '<' {
				at.offset++
			}
			m.count(a)
			switch e.Name.Local {
			case "pci":
				in.topologyDevice(a, above, at)
			case "nvlink":
				for _, o := range slices.Backward(above) {
					if o["busid"] != "" {
						links.add(o["busid"], a["target"], a["count"], at)
						break
					}
				}
			}
			above = append(above, a)
		case xml.EndElement:
			if len(above) > 0 {
				above = above[:len(above)-1]
			}
			m.whole = m.whole || e.Name.Local == "system"
		}
	}
}

// A machine is what a topology has of each kind.
type machine struct {
	at                    place
	whole                 bool // it has an end
	gpus, nics, nets, nvl int
	links                 []string // PCIe links of GPUs
	models                []string
}

func (m *machine) count(a map[string]string) {
	switch {
	case a["element"] == "net":
		m.nets++
	case a["element"] == "nvlink":
		n, _ := strconv.Atoi(a["count"])
		m.nvl += n
	case a["element"] != "pci":
	case strings.HasPrefix(a["class"], "0x03"):
		m.gpus++
		m.links = append(m.links, strings.Fields(a["link_speed"] + " -")[0]+" GT/s x"+a["link_width"])
		m.models = append(m.models, a["device"])
	case strings.HasPrefix(a["class"], "0x02"):
		m.nics++
	}
}

// String says what the machine has.
func (m machine) String() string {
	return fmt.Sprintf("%s (PCIe %s; %d NVLinks), %d NICs with %d ports", plural(m.gpus, "GPU", "GPUs"), several(m.links), m.nvl, m.nics, m.nets)
}

// compareMachines adds the machines that differ from the first one with the same model of GPU.
func (in *input) compareMachines(all []machine) {
	for _, m := range all {
		if first := all[0]; m.whole && first.whole && m.gpus > 0 && first.gpus > 0 && m.models[0] == first.models[0] && m.String() != first.String() {
			in.add("xml.differ", m.String(), map[string]string{"first": first.String(), "other": m.String()}, m.at)
		}
	}
}

// nvlinks are how many links, or what bandwidth, lead from one GPU to another.
type nvlinks map[[2]string]fact

func (n nvlinks) add(from, to, count string, at place) {
	n[[2]string{from, to}] = fact{value: count, at: at}
}

// compare adds the pairs whose directions differ.
func (n nvlinks) compare(in *input) {
	for _, pair := range slices.SortedFunc(maps.Keys(n), func(a, b [2]string) int { return strings.Compare(a[0]+a[1], b[0]+b[1]) }) {
		there, back := n[pair], n[[2]string{pair[1], pair[0]}]
		if back.value != "" && back.value != there.value && pair[0] < pair[1] {
			in.add("nvlink.uneven", there.value+" "+back.value, map[string]string{"pair": fmt.Sprintf("%s to %s: %s, back: %s", pair[0], pair[1], there.value, back.value)}, there.at)
		}
	}
}

var (
	systemGPU  = regexp.MustCompile(`- GPU/([0-9a-fA-F-]+) \(\d+\)`)
	systemLink = regexp.MustCompile(`\+ NVL\[([0-9.]+)\] - GPU/([0-9a-fA-F-]+)\s*$`)
)

// readSystem reads the machine that NCCL prints with NCCL_DEBUG_SUBSYS=GRAPH.
func readSystem(in *input, hits []hit) {
	links := nvlinks{}
	for _, h := range hits[:1] {
		gpu, n := "", 0
		in.from(h.at, func(at place, l string) bool {
			if m := systemGPU.FindStringSubmatch(l); m != nil {
				gpu = m[1]
			} else if m := systemLink.FindStringSubmatch(l); m != nil && gpu != "" {
				links.add(gpu, m[2], m[1], at)
			}
			n++
			return n < 2000 && (n == 1 || !strings.Contains(l, "=====") && !strings.Contains(l, "=== System"))
		})
	}
	links.compare(in)
}

func (in *input) topologyDevice(a map[string]string, above []map[string]string, at place) {
	more := map[string]string{
		"bus": a["busid"], "vendor": a["vendor"], "device": a["device"],
		"speed": a["link_speed"], "width": a["link_width"],
	}
	maps.DeleteFunc(more, func(_, v string) bool { return v == "" })
	value := fmt.Sprintf("%s %s:%s %s x%s", a["class"], strings.TrimPrefix(a["vendor"], "0x"), strings.TrimPrefix(a["device"], "0x"), a["link_speed"], a["link_width"])
	switch {
	case strings.HasPrefix(a["class"], "0x0604"):
		in.add("xml.bridge", value, more, at)
	case strings.HasPrefix(a["class"], "0x03"):
		in.add("xml.gpu", value, more, at)
	case strings.HasPrefix(a["class"], "0x02"):
		in.add("xml.nic", value, more, at)
	}
}
