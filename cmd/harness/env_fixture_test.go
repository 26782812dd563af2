package main

import (
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"net/netip"
	"os"
	"path"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

// A fixture is a node as a file of testdata/env describes it, one thing a line
// (add has them all), laid out as the /sys, /proc, /dev, /etc and /opt that such
// a node has. Lines that begin with # say what the node is and where that is
// from.
type fixture struct {
	t     *testing.T
	lines []string
	runs  []fixtureRun
	env   []string
}

// A fixtureRun is what is asked of the node, with what differs for it: lines to
// add, and paths that are not there.
type fixtureRun struct {
	name           string
	flags          []string
	lines, without []string
}

func readFixture(t *testing.T, file string) *fixture {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	f := &fixture{t: t}
	for line := range strings.Lines(string(text)) {
		indented := strings.HasPrefix(line, "  ")
		what, rest, _ := strings.Cut(strings.TrimSpace(line), " ")
		switch {
		case what == "" || what[0] == '#':
		case indented && what == "without":
			r := &f.runs[len(f.runs)-1]
			r.without = append(r.without, rest)
		case indented:
			r := &f.runs[len(f.runs)-1]
			r.lines = append(r.lines, strings.TrimSpace(line))
		case what == "run":
			fields := strings.Fields(rest)
			f.runs = append(f.runs, fixtureRun{name: fields[0], flags: fields[1:]})
		case what == "env":
			f.env = append(f.env, rest)
		default:
			f.lines = append(f.lines, strings.TrimSpace(line))
		}
	}
	if !strings.Contains(string(text), "# Source") {
		t.Errorf("%s names no source", file)
	}
	return f
}

// A tree is a fixture on the disk.
type tree struct {
	t       *testing.T
	root    string
	device  map[string]string // of interfaces and RDMA devices: where in /sys
	ports   map[string]int    // of a host bridge or switch: how many below it
	gpus    []string          // addresses, as are
	cards   []string          // those of RDMA devices
	index   int
	mounts  string
	routes  [2]string
	addrs   string
	modules string
}

func (f *fixture) layOut(run fixtureRun) string {
	tr := &tree{t: f.t, root: f.t.TempDir(), device: map[string]string{}, ports: map[string]int{}}
	for _, line := range append(f.lines[:len(f.lines):len(f.lines)], run.lines...) {
		tr.add(line)
	}
	tr.write("/proc/net/route", "Iface\tDestination\tGateway \tFlags\tRefCnt\tUse\tMetric\tMask\t\tMTU\tWindow\tIRTT\n"+tr.routes[0])
	tr.write("/proc/net/ipv6_route", tr.routes[1])
	tr.write("/proc/net/if_inet6", tr.addrs)
	tr.write("/proc/modules", tr.modules)
	tr.write("/proc/self/mounts", tr.mounts)
	tr.write("/proc/sys/kernel/hostname", "node1\n")
	tr.write("/proc/sys/kernel/random/boot_id", "0\n")
	for _, name := range run.without {
		if err := os.RemoveAll(tr.root + name); err != nil {
			f.t.Fatal(err)
		}
	}
	return tr.root
}

func (tr *tree) write(name, text string) {
	tr.t.Helper()
	file := tr.root + name
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		tr.t.Fatal(err)
	}
	if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
		tr.t.Fatal(err)
	}
}

func (tr *tree) link(name, to string) {
	tr.t.Helper()
	if err := os.MkdirAll(filepath.Dir(tr.root+name), 0o755); err != nil {
		tr.t.Fatal(err)
	}
	if err := os.Symlink(to, tr.root+name); err != nil {
		tr.t.Fatal(err)
	}
}

// add lays out one line: words, and key=value pairs.
func (tr *tree) add(line string) {
	tr.t.Helper()
	fields := strings.Fields(line)
	arg := map[string]string{}
	for _, f := range fields[1:] {
		if k, v, ok := strings.Cut(f, "="); ok {
			arg[k] = strings.ReplaceAll(v, `\x20`, " ")
		}
	}
	word := func(i int) string {
		if i >= len(fields) {
			tr.t.Fatalf("%q: word %d is missing", line, i)
		}
		return fields[i]
	}
	switch fields[0] {
	case "dmi":
		for k, v := range arg {
			tr.write("/sys/class/dmi/id/"+k, v+"\n")
		}
	case "cpus":
		tr.cpus(word(1), word(2), word(3))
	case "gpu":
		tr.gpus = append(tr.gpus, word(1))
		tr.pci(word(1), "0x030200", "0x10de", arg)
	case "rdma":
		tr.rdma(word(1), word(2), arg)
	case "gids":
		tr.gids(word(1), word(2), word(3))
	case "net":
		tr.netdev(word(1), arg)
	case "master":
		tr.link("/sys/class/net/"+word(1)+"/master", "/sys/class/net/"+word(2))
	case "addr":
		p := netip.MustParsePrefix(word(2))
		b := p.Addr().As16()
		tr.addrs += fmt.Sprintf("%s 02 %02x 00 80 %s\n", hex.EncodeToString(b[:]), p.Bits(), word(1))
	case "route":
		tr.route(fields[1:])
	case "module":
		tr.modules += word(1) + " 16384 0 - Live 0x0\n"
	case "driver":
		text := "NVRM version: NVIDIA UNIX x86_64 Kernel Module  580.95"
		if word(1) == "open" {
			text = "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.95"
		}
		tr.write("/proc/driver/nvidia/version", text+"\n")
	case "dev":
		tr.write("/dev/"+word(1), "")
	case "file":
		_, text, _ := strings.Cut(line, word(1)+" ")
		tr.write(word(1), strings.ReplaceAll(strings.TrimPrefix(text, "-"), `\n`, "\n"))
	case "link":
		tr.link(word(1), word(2))
	case "topofile":
		tr.write(word(1), tr.topology())
	case "limit":
		tr.write("/proc/self/limits", "Limit                     Soft Limit           Hard Limit           Units     \n"+
			"Max locked memory         "+word(2)+"  "+word(2)+"  bytes\n")
	case "shm":
		tr.mounts += "shm /dev/shm tmpfs rw,nosuid,size=" + word(1) + " 0 0\n"
	case "pids":
		tr.write("/sys/fs/cgroup/pids.max", word(1)+"\n")
	default:
		tr.t.Fatalf("%q: what is that?", line)
	}
}

func (tr *tree) cpus(vendor, nodes, each string) {
	n, _ := strconv.Atoi(nodes)
	per, _ := strconv.Atoi(each)
	tr.write("/sys/devices/system/cpu/online", fmt.Sprintf("0-%d\n", n*per-1))
	if vendor == "ARM" {
		tr.write("/proc/cpuinfo", "processor\t: 0\nCPU implementer\t: 0x41\nCPU part\t: 0xd4f\n")
	} else {
		tr.write("/proc/cpuinfo", "processor\t: 0\nvendor_id\t: "+vendor+"\n")
	}
	for i := range n {
		tr.write(fmt.Sprintf("/sys/devices/system/node/node%d/cpulist", i), fmt.Sprintf("%d-%d\n", i*per, (i+1)*per-1))
		tr.write(fmt.Sprintf("/sys/devices/system/node/node%d/distance", i), strings.Repeat("10 ", n)+"\n")
	}
}

// pci lays out a function below arg's at: a host bridge, and then p for a root
// port or the bus of a switch, from outside to inside. It returns the
// function's directory.
func (tr *tree) pci(bus, class, vendor string, arg map[string]string) string {
	host, rest, _ := strings.Cut(arg["at"], "/")
	domain, hostBus, _ := strings.Cut(host, ":")
	dir := "/sys/devices/pci" + domain + ":" + hostBus
	// Functions of one card hang on one port, all others on ports of their own.
	port := func(above, bus string) string {
		card := above + " " + arg["at"] + " " + strings.TrimRight(path.Base(arg["bus"]), "01234567")
		if n, ok := tr.ports[card]; ok {
			return fmt.Sprintf("%s:%s:%02x.0", domain, bus, n)
		}
		tr.ports[above]++
		tr.ports[card] = tr.ports[above]
		return fmt.Sprintf("%s:%s:%02x.0", domain, bus, tr.ports[above])
	}
	if arg["bus"] = bus; rest != "" {
		switches := strings.Split(rest, "/")
		if switches[0] == "p" {
			dir += "/" + port(dir, hostBus)
			switches = nil
		} else {
			dir += fmt.Sprintf("/%s:%s:01.0", domain, hostBus) // the root port above the switches
		}
		for i, s := range switches {
			dir += fmt.Sprintf("/%s:%s:00.0", domain, s)
			n, _ := strconv.ParseUint(s, 16, 8)
			inner := fmt.Sprintf("%02x", n+1)
			if i+1 < len(switches) {
				dir += fmt.Sprintf("/%s:%s:1f.0", domain, inner)
			} else {
				dir += "/" + port(dir, inner)
			}
		}
	}
	dir += "/" + bus
	for name, text := range map[string]string{"class": class, "vendor": vendor, "device": "0x" + arg["device"], "numa_node": arg["numa"]} {
		tr.write(dir+"/"+name, text+"\n")
	}
	if _, err := os.Lstat(tr.root + "/sys/bus/pci/devices/" + bus); err != nil {
		tr.link("/sys/bus/pci/devices/"+bus, dir)
	}
	return dir
}

func (tr *tree) rdma(name, bus string, arg map[string]string) {
	vendor := "0x15b3"
	if arg["vendor"] != "" {
		vendor = "0x" + arg["vendor"]
	}
	class := map[string]string{"InfiniBand": "0x020700"}[arg["layer"]]
	if class == "" {
		class = "0x020000"
	}
	tr.cards = append(tr.cards, bus)
	dir := tr.pci(bus, class, vendor, arg)
	tr.device[name] = dir
	own := "/sys/class/infiniband/" + name
	tr.link(own+"/device", dir)
	tr.write(own+"/node_type", "1: CA\n")
	state := "4: ACTIVE"
	if arg["state"] == "DOWN" {
		state = "1: DOWN"
	}
	rate, gen, ok := strings.Cut(arg["rate"], ",")
	if rate += " Gb/sec"; ok {
		rate += " (4X " + gen + ")"
	}
	for file, text := range map[string]string{"state": state, "link_layer": arg["layer"], "rate": rate} {
		tr.write(own+"/ports/1/"+file, text+"\n")
	}
	if n := arg["net"]; n != "" {
		tr.device[n] = dir
		tr.write(dir+"/net/"+n+"/ifindex", "0\n")
		tr.netdev(n, map[string]string{"type": map[string]string{"InfiniBand": "32"}[arg["layer"]]})
	}
}

// gids fills a port's table as mlx5 does for one IPv4 address: link-local and
// it, each for RoCE v1 and v2.
func (tr *tree) gids(name, ip, netdev string) {
	b := netip.MustParseAddr(ip).As4()
	four := fmt.Sprintf("0000:0000:0000:0000:0000:ffff:%02x%02x:%02x%02x", b[0], b[1], b[2], b[3])
	local := fmt.Sprintf("fe80:0000:0000:0000:0000:00ff:fe%02x:%02x%02x", b[1], b[2], b[3])
	dir := "/sys/class/infiniband/" + name + "/ports/1/"
	for i, gid := range []string{local, local, four, four} {
		tr.write(fmt.Sprintf("%sgids/%d", dir, i), gid+"\n")
		tr.write(fmt.Sprintf("%sgid_attrs/types/%d", dir, i), []string{"IB/RoCE v1\n", "RoCE v2\n"}[i%2])
		tr.write(fmt.Sprintf("%sgid_attrs/ndevs/%d", dir, i), netdev+"\n")
	}
}

func (tr *tree) netdev(name string, arg map[string]string) {
	own := "/sys/class/net/" + name
	kind, state := "1", "up"
	if arg["type"] != "" {
		kind = arg["type"]
	}
	if name == "lo" {
		kind, state = "772", "unknown"
	}
	if arg["state"] != "" {
		state = arg["state"]
	}
	tr.index++
	for file, text := range map[string]string{"type": kind, "operstate": state, "ifindex": strconv.Itoa(tr.index), "mtu": "1500"} {
		tr.write(own+"/"+file, text+"\n")
	}
	uevent := "INTERFACE=" + name + "\n"
	if arg["kind"] != "" {
		uevent = "DEVTYPE=" + arg["kind"] + "\n" + uevent
	}
	tr.write(own+"/uevent", uevent)
	if bus := arg["pci"]; bus != "" {
		arg["at"], arg["device"], arg["numa"] = bus[:4]+":"+bus[5:7], "1533", "0"
		tr.device[name] = tr.pci(bus, "0x020000", "0x8086", arg)
	}
	if dir := tr.device[name]; dir != "" {
		tr.link(own+"/device", dir)
	}
	if arg["master"] != "" {
		tr.link(own+"/master", "/sys/class/net/"+arg["master"])
	}
	for lower := range strings.SplitSeq(arg["lower"], ",") {
		if lower != "" {
			tr.link(own+"/lower_"+lower, "/sys/class/net/"+lower)
		}
	}
}

// route adds a line of the kernel's table: to, gateway or -, interface, metric.
func (tr *tree) route(f []string) {
	to := netip.MustParsePrefix(f[0])
	metric, flags := 0, 1
	if len(f) > 3 {
		metric, _ = strconv.Atoi(f[3])
	}
	gateway := netip.IPv4Unspecified()
	if to.Addr().Is6() {
		gateway = netip.IPv6Unspecified()
	}
	if f[1] != "-" {
		gateway, flags = netip.MustParseAddr(f[1]), 3
	}
	if to.Addr().Is6() {
		dst, via := to.Addr().As16(), gateway.As16()
		tr.routes[1] += fmt.Sprintf("%x %02x %032x 00 %x %08x 00000000 00000000 %08x %8s\n", dst[:], to.Bits(), 0, via[:], metric, flags, f[2])
		return
	}
	le := func(a netip.Addr) uint32 { b := a.As4(); return binary.LittleEndian.Uint32(b[:]) }
	var mask [4]byte
	binary.BigEndian.PutUint32(mask[:], ^uint32(0)<<(32-to.Bits()))
	tr.routes[0] += fmt.Sprintf("%s\t%08X\t%08X\t%04X\t0\t0\t%d\t%08X\t0\t0\t0\n", f[2], le(to.Addr()), le(gateway), flags, metric, binary.LittleEndian.Uint32(mask[:]))
}

// topology is a cloud's file: each GPU below a switch with a card, in order.
func (tr *tree) topology() string {
	var b strings.Builder
	b.WriteString("<system version=\"1\">\n")
	for half := range 2 {
		fmt.Fprintf(&b, "<cpu numaid=\"%d\" affinity=\"ff\" arch=\"x86_64\" vendor=\"GenuineIntel\" familyid=\"6\" modelid=\"143\">\n", half)
		for i := half * len(tr.gpus) / 2; i < (half+1)*len(tr.gpus)/2; i++ {
			fmt.Fprintf(&b, "<pci busid=\"ffff:ff:%02x.0\" class=\"0x060400\" link_speed=\"32.0 GT/s PCIe\" link_width=\"16\">\n", i+1)
			fmt.Fprintf(&b, "<pci busid=%q class=\"0x030200\" link_speed=\"32.0 GT/s PCIe\" link_width=\"16\"/>\n", tr.gpus[i])
			fmt.Fprintf(&b, "<pci busid=%q class=\"0x020700\" link_speed=\"32.0 GT/s PCIe\" link_width=\"16\"/>\n</pci>\n", tr.cards[i])
		}
		b.WriteString("</cpu>\n")
	}
	b.WriteString("</system>\n")
	return b.String()
}
