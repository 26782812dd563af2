package judge

import (
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// A matrix is copies between devices: what nvbandwidth, p2pBandwidthLatencyTest and bandwidthTest print.
type matrix struct {
	program string
	name    string // of the test
	kind    copyKind
	both    bool // directions at once
	cells   []cell
	line    int
	waived  bool
	// Of bandwidthTest: how many devices its figures are the sum of, and whether memory was pageable.
	devices  int
	pageable bool
	peers    bool    // GPUs have access to each other's memory, the program says
	sum      float64 // of its copies, where they are not listed; 0: they are
	copies   int     // how many a sum has
	wrong    int     // the line that says that copied data was wrong; 0: none
}

type copyKind int

const (
	otherCopy copyKind = iota
	toDevice
	fromDevice
	between
)

// A cell is one copy. from is -1 for the host.
type cell struct {
	from, to int
	gbps     float64
}

var (
	nvRunning  = regexp.MustCompile(`Running (\w+)\.`)
	nvDevice   = regexp.MustCompile(`^\s*Device:? (\d+)[:,] (.*?)(?: \([0-9a-fA-F:.]+\)|, pciBusID.*)?\s*$`)
	nvTitle    = regexp.MustCompile(`^memcpy (\w+) (CPU|GPU)\(row\) (<->|->|<-) (CPU|GPU)\(column\).*bandwidth \(GB/s\)`)
	nvSum      = regexp.MustCompile(`^\s*SUM (\w+)(?: ([0-9.]+))?`)
	nvWaived   = regexp.MustCompile(`^Waiv(?:ing|ed):? (\w+)`)
	nvPattern  = regexp.MustCompile(`Invalid value when checking the pattern`)
	p2pTitle   = regexp.MustCompile(`^\s*(Unidirectional|Bidirectional) P2P=(Enabled|Disabled).*Bandwidth.*\(GB/s\)`)
	p2pLatency = regexp.MustCompile(`Latency.*\(us\)`)
	bwSection  = regexp.MustCompile(`^\s*(Host to Device|Device to Host|Device to Device) Bandwidth(?:, (\d+) Device)?`)
	bwCSV      = regexp.MustCompile(`^bandwidthTest-(H2D|D2H|D2D)(-Pinned|-Paged)?, Bandwidth = ([0-9.]+) ([MG])B/s, .*Size = (\d+) bytes, NumDevsUsed = (\d+)`)
	bwUnit     = regexp.MustCompile(`Bandwidth\(([MG])B/s\)`)
	bwRow      = regexp.MustCompile(`^\s*(\d{3,})\s+([0-9.]+)\s*$`)
	pageable   = regexp.MustCompile(`(?i)pageable`)
)

// kindOf returns what a test of nvbandwidth copies.
func kindOf(name string) (k copyKind, both bool) {
	both = strings.Contains(name, "bidirectional")
	switch {
	case strings.Contains(name, "latency") || strings.Contains(name, "local") || strings.Contains(name, "multicast"):
		return otherCopy, both
	case strings.HasPrefix(name, "host_to_device"):
		return toDevice, both
	case strings.HasPrefix(name, "device_to_host"):
		return fromDevice, both
	case strings.HasPrefix(name, "device_to_device"):
		return between, both
	}
	return otherCopy, both
}

// readMatrices reads all programs' matrices, and the GPUs' names.
func (in *input) readMatrices() (all []*matrix, names map[int]string) {
	names = map[int]string{}
	var m *matrix
	var columns []int
	unit := 1.0
	skip, peers := false, false
	for _, x := range in.lines {
		l := x.text
		peers = peers || strings.Contains(l, " CAN Access Peer ")
		if m == nil && !strings.Contains(l, "Device") && !strings.Contains(l, "bandwidthTest-") && !strings.Contains(l, "memcpy") && !strings.Contains(l, "Waiv") && !strings.Contains(l, "pattern") && !strings.Contains(l, "Running ") && !strings.Contains(l, "P2P=") {
			continue
		}
		if d := nvDevice.FindStringSubmatch(l); d != nil {
			n, _ := strconv.Atoi(d[1])
			names[n] = strings.TrimSpace(d[2])
			continue
		}
		if t := nvRunning.FindStringSubmatch(l); t != nil {
			m = &matrix{program: "nvbandwidth", name: t[1], line: x.number}
			m.kind, m.both = kindOf(t[1])
			all, columns = append(all, m), nil
			continue
		}
		if t := p2pTitle.FindStringSubmatch(l); t != nil {
			m = &matrix{program: "p2pBandwidthLatencyTest", name: strings.ToLower(t[1]) + " P2P=" + t[2], kind: between, both: t[1] == "Bidirectional", line: x.number, peers: peers}
			if t[2] == "Disabled" {
				m.kind = otherCopy
			}
			all, columns = append(all, m), nil
			continue
		}
		if t := bwCSV.FindStringSubmatch(l); t != nil {
			v, _ := strconv.ParseFloat(t[3], 64)
			if t[4] == "M" {
				v /= 1e3
			}
			n, _ := strconv.Atoi(t[6])
			one := &matrix{program: "bandwidthTest", name: map[string]string{"H2D": "host to device", "D2H": "device to host", "D2D": "device to device"}[t[1]], line: x.number, devices: n}
			one.kind = map[string]copyKind{"H2D": toDevice, "D2H": fromDevice}[t[1]]
			if one.pageable = t[2] == "-Paged"; !one.pageable {
				one.cells = []cell{{-1, 0, v / float64(max(n, 1))}}
			}
			all = append(all, one)
			continue
		}
		if t := bwSection.FindStringSubmatch(l); t != nil {
			m = &matrix{program: "bandwidthTest", name: strings.ToLower(t[1]), line: x.number}
			m.devices, _ = strconv.Atoi(t[2])
			m.kind = map[string]copyKind{"Host to Device": toDevice, "Device to Host": fromDevice}[t[1]]
			all, columns, skip = append(all, m), nil, false
			continue
		}
		if w := nvWaived.FindStringSubmatch(l); w != nil {
			m = &matrix{program: "nvbandwidth", name: w[1], line: x.number, waived: true}
			all = append(all, m)
			continue
		}
		if nvPattern.MatchString(l) {
			if m == nil || m.program != "nvbandwidth" {
				m = &matrix{program: "nvbandwidth", name: "a copy", line: x.number}
				all = append(all, m)
			}
			m.wrong = x.number
			continue
		}
		if t := nvTitle.FindStringSubmatch(l); t != nil && (m == nil || len(m.cells) > 0 || m.program != "nvbandwidth") {
			m = &matrix{program: "nvbandwidth", line: x.number, name: titleName(t)}
			m.kind, m.both = kindOf(m.name)
			all, columns = append(all, m), nil
			continue
		}
		if t := nvSum.FindStringSubmatch(l); t != nil && m != nil && m.program == "nvbandwidth" {
			m.name = t[1]
			m.kind, m.both = kindOf(m.name)
		} else if t != nil && t[2] != "" && m == nil { // grep SUM
			one := &matrix{program: "nvbandwidth", name: t[1], line: x.number}
			one.kind, one.both = kindOf(one.name)
			one.sum, _ = strconv.ParseFloat(t[2], 64)
			all = append(all, one)
		}
		if p2pLatency.MatchString(l) || strings.HasPrefix(l, "SUM ") {
			if m != nil && m.program != "bandwidthTest" {
				m = nil
			}
			continue
		}
		if m == nil {
			continue
		}
		if m.program == "bandwidthTest" {
			if pageable.MatchString(l) {
				skip = true
			}
			if u := bwUnit.FindStringSubmatch(l); u != nil {
				unit = map[string]float64{"M": 1e-3, "G": 1}[u[1]]
			}
			if r := bwRow.FindStringSubmatch(l); r != nil && !skip {
				size, _ := strconv.ParseInt(r[1], 10, 64)
				v, _ := strconv.ParseFloat(r[2], 64)
				if size >= 1<<20 { // small sizes say nothing
					m.cells = append(m.cells, cell{-1, 0, v * unit / float64(max(m.devices, 1))})
				}
			} else if r != nil {
				m.pageable = true
			}
			continue
		}
		if strings.Contains(l, "Waived") || strings.Contains(l, "waived") {
			m.waived = true
		}
		columns = m.matrixLine(l, columns)
	}
	all = append(all, in.jsonMatrices(names)...)
	return slices.DeleteFunc(all, func(m *matrix) bool {
		return len(m.cells) == 0 && m.sum == 0 && !m.waived && m.wrong == 0 && !m.pageable
	}), names
}

// titleName makes nvbandwidth's name of a test from the title of its matrix.
func titleName(t []string) string {
	name := "device_to_device_memcpy_read_"
	both := t[3] == "<->"
	switch {
	case t[2] == "CPU" && both:
		name = "host_to_device_bidirectional_memcpy_"
	case t[2] == "CPU" && t[3] == "->":
		name = "host_to_device_memcpy_"
	case t[2] == "CPU":
		name = "device_to_host_memcpy_"
	case both:
		name = "device_to_device_bidirectional_memcpy_read_"
	case t[3] == "<-":
		name = "device_to_device_memcpy_write_"
	}
	return name + strings.ToLower(t[1])
}

// matrixLine reads a line of a matrix: the numbers of the columns, or a row.
func (m *matrix) matrixLine(l string, columns []int) []int {
	f := strings.Fields(strings.Replace(l, `D\D`, "", 1))
	if len(f) == 0 {
		return columns
	}
	if columns == nil || len(m.cells) == 0 {
		var head []int
		for _, s := range f {
			n, err := strconv.Atoi(s)
			if err != nil || n < 0 || n > 1023 {
				head = nil
				break
			}
			head = append(head, n)
		}
		if len(head) == len(f) {
			return head
		}
	}
	row, err := strconv.Atoi(f[0])
	if err != nil || len(f)-1 != len(columns) || len(columns) == 0 {
		return columns
	}
	for i, s := range f[1:] {
		v, err := strconv.ParseFloat(s, 64)
		if err != nil {
			continue // N/A
		}
		m.add(row, columns[i], v)
	}
	return columns
}

func (m *matrix) add(row, column int, v float64) {
	switch {
	case m.kind == between && row == column:
		return // a copy within one device
	case m.kind == toDevice:
		row = -1
	case m.kind == fromDevice:
		row, column = column, -1
	}
	m.cells = append(m.cells, cell{row, column, v})
}

// jsonMatrices reads nvbandwidth -j.
func (in *input) jsonMatrices(names map[int]string) (out []*matrix) {
	for _, doc := range in.docs {
		d := object(doc, "nvbandwidth")
		for i, v := range array(d["GPU Device list"]) {
			if m := nvDevice.FindStringSubmatch("Device " + text(v)); m != nil {
				names[i] = m[2]
			} else if s := text(v); s != "" {
				names[i] = s
			}
		}
		for _, v := range array(d["testcases"]) {
			t := object(v)
			m := &matrix{program: "nvbandwidth", name: text(t["name"]), line: 1, waived: strings.EqualFold(text(t["status"]), "Waived")}
			m.kind, m.both = kindOf(m.name)
			for r, row := range array(t["bandwidth_matrix"]) {
				for c, v := range array(row) {
					if n, ok := number(v); ok && n > 0 {
						m.add(r, c, n)
					}
				}
			}
			out = append(out, m)
		}
	}
	return out
}
