package explain

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

var ranges = regexp.MustCompile(`^(.*\[(?:C|mW|mV|mA|dBm|V|mA)[^\]]*\]) +: ([-\d.,]+).*\[(-?[\d.]+) ?\.\. ?(-?[\d.]+)\]`)

// readMlxlink reads mlxlink -d, -m, -c and -e.
func readMlxlink(b *block) string {
	v := b.fields(" : ")
	line := func(key string) int {
		return max(slices.IndexFunc(b.lines, func(l string) bool { return strings.HasPrefix(strings.TrimSpace(l), key) }), 0)
	}
	if v["State"] == "" {
		return ""
	}
	if code := v["Status Opcode"]; code != "" && code != "0" && code != "N/A" {
		b.fault("mlxlink.reason", v["Recommendation"], line("Recommendation"), map[string]string{"reason": cmpText(v["Recommendation"], "code "+code), "state": v["State"]})
	} else if v["State"] != "Active" {
		b.fault("mlxlink.state", v["State"], line("State"), map[string]string{"state": v["State"] + ", " + v["Physical state"]})
	}
	if v["State"] == "Active" {
		b.mlxlinkRate(v, line)
	}
	if ber, err := strconv.ParseFloat(v["Effective Physical BER"], 64); err == nil && ber > 1e-12 {
		b.fault("mlxlink.counters", v["Effective Physical BER"], line("Effective Physical BER"), map[string]string{"counter": "Effective Physical BER " + v["Effective Physical BER"]})
	}
	for i, l := range b.lines {
		if m := ranges.FindStringSubmatch(l); m != nil {
			b.mlxlinkRange(i, m)
		}
	}
	for _, key := range []string{"Link Down Counter", "Link Error Recovery Counter", "Effective Physical Errors", "Symbol Errors"} {
		if n, ok := value(v[key]); ok && (n > 5 || n > 0 && !strings.HasPrefix(key, "Link ")) {
			b.fault("mlxlink.counters", v[key], line(key), map[string]string{"counter": key + " " + v[key]})
		}
	}
	text := fmt.Sprintf("mlxlink: the link is %s at %s, %s, FEC %s", v["State"], v["Speed"], v["Width"], cmpText(v["FEC"], "?"))
	if v["Status Opcode"] == "0" {
		text += "; firmware says \"" + v["Recommendation"] + "\""
	}
	if ber := v["Effective Physical BER"]; ber != "" {
		text += "; effective BER " + ber + " (raw errors, which FEC corrects, are normal)"
	}
	return text
}

// mlxlinkRate compares speed, width and FEC of a link that is up with what the port and its cable can.
func (b *block) mlxlinkRate(v map[string]string, line func(string) int) {
	cable := fastest(cmpText(v["Supported Cable Speed (Ext.)"], v["Supported Cable Speed"]))
	port := fastest(cmpText(v["Enabled Link Speed (Ext.)"], v["Enabled Link Speed"]))
	speed, infiniband := v["Speed"], strings.HasPrefix(v["Speed"], "IB-")
	more := map[string]string{"speed": speed, "best": cable, "port": port}
	lanes, _ := strconv.Atoi(strings.TrimSuffix(v["Width"], "x"))
	switch {
	case slower(speed, port) && slower(speed, cable):
		if slower(port, cable) {
			more["best"] = port
		}
		b.fault("mlxlink.slow", speed, line("Speed"), more)
	case slower(speed, port) && cable == "":
		b.doubt(line("Speed"), "the link runs at %s, and the port can %s; mlxlink does not say what the cable can: it, or the other end, is slower or set so", speed, port)
	case slower(speed, port):
		b.in.add("mlxlink.cable", speed, more, b.at[line("Speed")])
	}
	if infiniband && lanes > 0 && lanes < 4 {
		b.fault("mlxlink.narrow", v["Width"], line("Width"), map[string]string{"speed": speed, "width": v["Width"]})
	}
	if strings.EqualFold(v["FEC"], "No FEC") && lanes > 0 && linkRate(speed)/map[bool]float64{true: 4, false: float64(lanes)}[infiniband] >= pam4 {
		b.fault("mlxlink.fec", speed, line("FEC"), map[string]string{"speed": speed, "width": v["Width"]})
	}
}

// pam4 is the least rate of a lane, in Gb/s, that is sent as PAM4, which is never without FEC.
const pam4 = 50

// fastest returns the fastest of the speeds that mlxlink lists in brackets; "" if there are none.
func fastest(list string) (best string) {
	_, list, _ = strings.Cut(list, "(")
	for s := range strings.SplitSeq(strings.TrimSuffix(strings.TrimSpace(list), ")"), ",") {
		if s = strings.TrimSpace(s); best == "" || slower(best, s) {
			best = s
		}
	}
	return best
}

// mlxlinkRange compares a module's temperature, voltage, currents and powers with the limits beside them.
func (b *block) mlxlinkRange(i int, m []string) {
	low, _ := strconv.ParseFloat(m[3], 64)
	high, _ := strconv.ParseFloat(m[4], 64)
	for _, text := range strings.Split(m[2], ",") {
		if f, err := strconv.ParseFloat(text, 64); err == nil && low < high && (f < low || f > high) {
			b.fault("mlxlink.module", m[2], i, map[string]string{"what": strings.TrimSpace(m[1]), "value": m[2], "limits": m[3] + " to " + m[4]})
			return
		}
	}
}

var linkSpeeds = map[string]float64{"SDR": 10, "DDR": 20, "QDR": 40, "FDR10": 40, "FDR": 56, "EDR": 100, "HDR": 200, "NDR": 400, "XDR": 800}

// slower says whether one speed, as mlxlink writes them, is below another.
func slower(a, b string) bool { return linkRate(a) > 0 && linkRate(a) < linkRate(b) }

// linkRate returns a speed, as mlxlink writes it, in Gb/s: that of all lanes, of InfiniBand of four.
func linkRate(s string) float64 {
	s = strings.TrimPrefix(strings.Fields(s + " -")[0], "IB-")
	if r, ok := linkSpeeds[s]; ok {
		return r
	}
	r, _ := value(s)
	return r
}
