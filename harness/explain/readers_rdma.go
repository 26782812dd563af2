package explain

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

var (
	gidEntry = regexp.MustCompile(`GID\[ *(\d+)\]:\s*([0-9a-f:.]+)(.*)`)
	gidRow   = regexp.MustCompile(`^\S+\s+\d+\s+(\d+)\s+([0-9a-f:]+)\s+(.*)`)
)

// readGIDs reads ibv_devinfo -v and show_gids, and finds the GID that NCCL_IB_GID_INDEX names.
func readGIDs(in *input, hits []hit) {
	used := in.values("env.NCCL_IB_GID_INDEX")
	better := ""
	for _, pass := range []bool{false, true} {
		for _, h := range hits {
			l := in.lineAt(h.at)
			m := gidEntry.FindStringSubmatch(l)
			if m == nil {
				m = gidRow.FindStringSubmatch(l)
			}
			switch {
			case m == nil:
			case !pass && better == "" && strings.Contains(m[3], "v2") && (strings.Contains(m[2], "ffff:") && !strings.HasPrefix(m[2], "fe80")):
				better = m[1]
			case pass && slices.Contains(used, m[1]):
				more := map[string]string{"gid": m[2]}
				if better != "" {
					more["better"] = better
				}
				in.add("gid.in-use", m[2], more, h.at)
			}
		}
	}
}

var linkUp = regexp.MustCompile(`mlx5_core \S+ (\S+): Link up`)

// readFlaps counts how often links came up.
func readFlaps(in *input, hits []hit) {
	count, last := map[string]int{}, map[string]place{}
	for _, h := range hits {
		if m := linkUp.FindStringSubmatch(in.lineAt(h.at)); m != nil {
			count[m[1]]++
			last[m[1]] = h.at
		}
	}
	for _, dev := range slices.Sorted(maps.Keys(count)) {
		if n := count[dev]; n > 2 {
			in.add("link.flaps", strconv.Itoa(n), map[string]string{"dev": dev, "count": strconv.Itoa(n)}, last[dev])
		}
	}
}

// noLID matches a LID that no subnet manager has given.
var noLID = regexp.MustCompile(`^(?:0|0x0+|65535|0xffff)$`)

// addPort adds the fact of a port, and another if it is active on InfiniBand and has no LID.
func (in *input) addPort(value string, more map[string]string, at place) {
	in.add("port", value, more, at)
	if strings.HasPrefix(value, "Active ") && strings.HasSuffix(value, " InfiniBand") && noLID.MatchString(more["lid"]) {
		in.add("port.nolid", more["lid"], more, at)
	}
}

// readPorts reads ibstat and ibv_devinfo.
func readPorts(in *input, hits []hit) {
	end := place{file: -1}
	for _, h := range hits {
		if h.at.before(end) {
			continue // a port of the device before
		}
		device, port := "a port", ""
		headless := !strings.Contains(in.lineAt(h.at), "CA '") && !strings.Contains(in.lineAt(h.at), "hca_id")
		values := map[string]string{}
		begin := h.at
		flush := func() {
			if port != "" && values["state"] != "" {
				in.addPort(fmt.Sprintf("%s %s %s %s", values["state"], values["physical"], values["rate"], values["layer"]), map[string]string{
					"device": device, "rate": values["rate"], "lid": values["lid"], "sm": values["sm"], "type": values["type"],
				}, begin)
			}
			port = ""
			for _, k := range []string{"state", "physical", "rate", "layer", "lid", "sm"} {
				delete(values, k)
			}
		}
		first := true
		in.from(h.at, func(at place, l string) bool {
			end = place{at.file, at.offset}
			key, value, ok := strings.Cut(strings.TrimSpace(l), ":")
			value = strings.TrimSpace(value)
			switch {
			case strings.HasPrefix(strings.TrimSpace(l), "CA '") || key == "hca_id":
				if !first {
					return false
				}
				first = false
				device = strings.Trim(strings.TrimSpace(strings.TrimPrefix(strings.TrimSpace(l), "CA")), "'")
				if key == "hca_id" {
					device = value
				}
			case !ok:
				return strings.TrimSpace(l) == ""
			case key == "Port GUID":
			case strings.HasPrefix(key, "Port ") || key == "port":
				flush()
				port, begin = l, at
				if named := strings.ToLower(key); headless {
					device = named
				}
			case key == "CA type" || key == "vendor_part_id":
				values["type"] = value
			case key == "State" || key == "state":
				values["state"] = stateName(value)
				begin = at
			case key == "Physical state" || key == "phys_state":
				values["physical"] = strings.Fields(value + " -")[0]
			case key == "Rate" || key == "active_speed":
				values["rate"] = strings.Fields(value + " -")[0]
			case key == "Link layer" || key == "link_layer":
				values["layer"] = value
			case key == "Base lid" || key == "port_lid":
				values["lid"] = value
			case key == "SM lid" || key == "sm_lid":
				values["sm"] = value
			}
			return true
		})
		flush()
	}
	best := map[string]float64{}
	for _, f := range in.facts["port"] {
		if rate, _ := strconv.ParseFloat(f.more["rate"], 64); strings.Contains(f.value, " LinkUp ") {
			best[f.more["type"]] = max(best[f.more["type"]], rate)
		}
	}
	for _, f := range in.facts["port"] {
		if rate, _ := strconv.ParseFloat(f.more["rate"], 64); strings.HasPrefix(f.value, "Active LinkUp ") && rate > 0 && rate < best[f.more["type"]] {
			more := maps.Clone(f.more)
			more["best"] = strconv.FormatFloat(best[f.more["type"]], 'f', -1, 64)
			in.add("port.slow", f.more["rate"], more, f.at)
		}
	}
}

var rdmaLink = regexp.MustCompile(`(?:link|\d+/\d+:) (\S+)/\d+:? (.*)\bstate (\S+) physical_state (\S+)`)

// readRDMALinks reads iproute2's rdma link.
func readRDMALinks(in *input, hits []hit) {
	up := ""
	var down []fact
	for _, h := range hits {
		m := rdmaLink.FindStringSubmatch(in.lineAt(h.at))
		if m == nil {
			continue
		}
		layer := "Ethernet"
		if strings.Contains(m[2], "lid ") {
			layer = "InfiniBand"
		}
		physical := strings.ToUpper(m[4][:1]) + strings.ToLower(m[4][1:])
		if physical == "Link_up" {
			physical = "LinkUp"
		}
		more := map[string]string{"device": m[1]}
		if lid := compiled(`\blid (\d+)`).FindStringSubmatch(m[2]); lid != nil {
			more["lid"] = lid[1]
		}
		in.addPort(fmt.Sprintf("%s %s - %s", stateName(m[3]), physical, layer), more, h.at)
		switch m[3] {
		case "ACTIVE":
			up = cmpText(up, m[1])
		case "DOWN":
			down = append(down, fact{value: m[1], more: map[string]string{"down": m[1], "physical": m[4]}, at: h.at})
		}
	}
	for _, f := range down {
		if up != "" {
			f.more["up"] = up
			in.add("port.beside", f.value, f.more, f.at)
		}
	}
}

// stateName makes ibstat's name of ibv_devinfo's "PORT_ACTIVE (4)" and of rdma link's "ACTIVE".
func stateName(s string) string {
	name, _, _ := strings.Cut(strings.TrimPrefix(s, "PORT_"), " ")
	switch name {
	case "INIT":
		return "Initializing"
	case "ACTIVE", "DOWN", "ARMED":
		return name[:1] + strings.ToLower(name[1:])
	}
	return name
}
