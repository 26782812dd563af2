package explain

import (
	"strconv"
	"strings"
)

// Counters of received packets of an interface that count, from so many on: errors are bad frames, missed and overrun those
// for which the adapter or its ring had no room. Dropped are also packets that nobody wants (LLDP, a VLAN, a protocol that is
// not there), so that they count from a thousandth of all on.
const (
	fewErrors = 10
	fewDrops  = 1000
)

// received doubts counters of received packets, by ip's names, with how many packets there were.
func (b *block) received(name string, counts map[string]int, i int) {
	var bad []string
	for _, c := range []string{"errors", "crc", "frame", "missed", "overrun", "overruns", "fifo"} {
		if counts[c] >= fewErrors {
			bad = append(bad, c+" "+strconv.Itoa(counts[c]))
		}
	}
	if n := counts["dropped"]; n >= fewDrops && n >= counts["packets"]/1000 {
		bad = append(bad, "dropped "+strconv.Itoa(n))
	}
	if len(bad) > 0 && name != "lo" {
		text := strings.Join(bad, ", ")
		more := map[string]string{"interface": name, "counters": text}
		if n := counts["packets"]; n > 0 {
			more["packets"] = strconv.Itoa(n)
		}
		b.fault("ip.received", text, i, more)
	}
}

// ipCounters reads the table of ip -s at a line: a head, "RX: bytes packets errors …", and its numbers below.
func (b *block) ipCounters(name string, i int) {
	head := strings.Fields(b.lines[i])
	if len(head) < 4 || head[0] != "RX:" && (head[0] != "RX" || head[1] != "errors:") || i+1 >= len(b.lines) {
		return
	}
	columns := head[1:]
	if head[0] == "RX" {
		columns = head[2:]
	}
	values := strings.Fields(b.lines[i+1])
	if len(values) < len(columns) {
		return
	}
	counts := map[string]int{}
	for c, column := range columns {
		counts[column], _ = strconv.Atoi(strings.ReplaceAll(values[c], ",", ""))
	}
	b.received(name, counts, i+1)
}

// readIfconfig reads ifconfig.
func readIfconfig(b *block) string {
	name, packets, n := "", 0, 0
	for i, l := range b.lines {
		if m := compiled(`^([\w.@-]+): flags=`).FindStringSubmatch(l); m != nil {
			name, packets = m[1], 0
		}
		f := strings.Fields(l)
		if len(f) < 4 || f[0] != "RX" {
			continue
		}
		counts := map[string]int{"packets": packets}
		for c := 1; c+1 < len(f); c++ {
			if v, err := strconv.Atoi(f[c+1]); err == nil {
				counts[f[c]] = v
			}
		}
		if f[1] == "packets" {
			packets = counts["packets"]
			continue
		}
		n++
		b.received(name, counts, i)
	}
	if n == 0 {
		return ""
	}
	return "ifconfig shows " + plural(n, "interface", "interfaces") + " with no or few errors and drops"
}
