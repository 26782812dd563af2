package health

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/assay-hpc/assay/internal/host/nvml"
	"github.com/assay-hpc/assay/internal/host/sysfs"
)

// linkChecks check NVLink and the fabric of NVSwitches.
var linkChecks = []check{
	{
		id: "gpu/nvlink/links", title: "all NVLinks are up", want: "all that the model has", gpu: of(nvlinks, checkLinks), uses: usesDevices,
		remedy: "reset all GPUs together, look at the fabric manager; reseat or replace the GPU if links stay down",
	},
	{
		id: "gpu/nvlink/speed", title: "all NVLinks have one speed", want: "one for all links of all GPUs", node: checkLinkSpeed,
		remedy: resetGPU,
	},
	{
		id: "gpu/nvlink/peer", title: "NVLinks lead where the platform has them lead", want: "all to the same kind", gpu: of(nvlinks, checkLinkPeer),
		remedy: "look at the fabric manager's log; have the cabling or the board looked at",
	},
	{
		id: "gpu/nvlink/p2p", title: "the GPU reaches every other one over NVLink", want: "OK to every GPU", gpu: checkP2P,
		remedy: "restart the fabric manager and reset all GPUs together",
	},
	{
		id: "gpu/nvlink/recovery", title: "no NVLink had to recover", want: "at most %s", remedy: resetGPU,
		gpu: counter("error recoveries of NVLinks since the driver was loaded", "nvlink_recovery"),
	},
	{
		id: "gpu/nvlink/recovery-failed", title: "no NVLink failed to recover", want: "at most %s", remedy: resetGPU,
		gpu: counter("failed recoveries of NVLinks since the driver was loaded", "nvlink_recovery_failed"),
	},
	{
		id: "gpu/nvlink/crc", title: "NVLink CRC errors are few", want: "at most %s", remedy: resetGPU,
		gpu: rate("NVLink CRC errors a second", 1, "nvlink_crc_flit", "nvlink_crc_data"),
	},
	{
		id: "gpu/nvlink/errors", title: "NVLink error counters stand still", want: "growth of at most %s", remedy: "watch them under load (harness bandwidth); reset the GPU if they keep growing",
		gpu: growth("NVLink errors", "nvlink_replay", "nvlink_symbol", "nvlink_receive", "nvlink_integrity"),
	},
	{
		id: "gpu/fabric/state", title: "the GPU is registered with its fabric", want: "completed, with success", gpu: checkFabric, uses: usesDevices,
		remedy: "look at the fabric manager (systemctl status nvidia-fabricmanager): it must run and be of the driver's version",
	},
	{
		id: "gpu/fabric/health", title: "the fabric is healthy", want: "no bit of the health mask, not unhealthy", gpu: checkFabricHealth, uses: usesDevices,
		remedy: "look at the fabric manager's log and at the NVSwitches; reset all GPUs together",
	},
	{
		id: "gpu/fabric/limited", title: "the fabric has no limits", want: "not limited", gpu: checkFabricLimited, uses: usesDevices,
		remedy: "look at the fabric manager's log: NVLinks or a switch may be turned off",
	},
	{
		id: "gpu/fabric/clique", title: "all GPUs are in one NVLink domain and clique", want: "one for all", node: checkClique,
		remedy: "look at the partitions of the NVLink domain, and at the IMEX daemon",
	},
	{
		id: "node/fabric-manager", title: "the fabric manager runs", want: "running", node: checkFabricManager, uses: usesDevices | usesSystem,
		remedy: "systemctl enable --now nvidia-fabricmanager, of the driver's version",
	},
	{
		id: "node/imex", title: "there is an IMEX channel", want: "a channel that this process sees", node: checkIMEX, uses: usesSystem,
		remedy: "start nvidia-imex on every node of the domain; give the container /dev/nvidia-caps-imex-channels",
	},
}

func nvlinks(g *gpuState) sysfs.Fact[[]nvml.Link] { return g.Links }

// toSwitch reports whether a GPU's links lead to NVSwitches.
func (g *gpuState) toSwitch() bool {
	return slices.ContainsFunc(g.Links.Value, func(l nvml.Link) bool { return l.Up && l.To == "switch" })
}

func (g *gpuState) linksUp() int {
	n := 0
	for _, l := range g.Links.Value {
		if l.Up {
			n++
		}
	}
	return n
}

// alone reports whether this is the only GPU and has no NVLinks, as in a virtual machine with one
// GPU of a board.
func (e *env) alone(g *gpuState) bool {
	return len(e.GPUs) == 1 && len(e.Node.Devices.Value.GPUs()) <= 1 && g.linksUp() == 0 && g.Fabric.Value.Cluster == ""
}

func checkLinks(e *env, g *gpuState, links []nvml.Link) outcome {
	up, want, source := g.linksUp(), len(links), "the links that the driver lists"
	m := e.model(g)
	switch {
	case e.alone(g):
		return skipped("no NVLink of the only GPU is up, and there is none to reach")
	case m != nil && m.NVLink != nil && m.NVLink.Links.Known():
		want, source = int(m.NVLink.Links.Value), "hardware database: "+m.Name+", "+m.NVLink.Links.Source
	case up == 0:
		return skipped("no NVLink is up, and the model is not known to have any")
	case !g.toSwitch():
		o := good(fmt.Sprint(up))
		o.want = "any: GPUs that a bridge may join"
		return o
	}
	o := good(fmt.Sprint(up))
	if up < want {
		var down []string
		for _, l := range links {
			if !l.Up {
				down = append(down, strconv.Itoa(l.Number))
			}
		}
		o = bad("%d of %d NVLinks are up; down: %s", up, want, joinWords(down))
	}
	o.want, o.source = fmt.Sprint(want), source
	return o
}

func checkLinkSpeed(e *env) []outcome {
	by := map[int][]string{}
	var missing error
	for i := range e.GPUs {
		g := &e.GPUs[i]
		if g.Err != nil || g.Links.Err != nil {
			missing = g.Links.Err
			if g.Err != nil {
				missing = fmt.Errorf("GPU %d: %w", g.Index, g.Err)
			}
			continue
		}
		for _, l := range g.Links.Value {
			if name := strconv.Itoa(g.Index); l.Up && l.Mbit > 0 && !slices.Contains(by[l.Mbit], name) {
				by[l.Mbit] = append(by[l.Mbit], name)
			}
		}
	}
	speeds := slices.Sorted(maps.Keys(by))
	switch {
	case len(e.GPUs) == 0:
		return node(e.noGPU())
	case len(speeds) > 1:
		var parts []string
		for _, s := range speeds {
			parts = append(parts, fmt.Sprintf("%d MB/s (GPU %s)", s, strings.Join(by[s], ", ")))
		}
		return node(bad("speeds of NVLinks: %s", strings.Join(parts, "; ")))
	case missing != nil:
		return node(without(missing))
	case len(speeds) == 0:
		return node(skipped("no NVLink is up, or the driver does not say how fast they are"))
	}
	return node(good(fmt.Sprintf("%d MB/s a link", speeds[0])))
}

func checkLinkPeer(e *env, _ *gpuState, links []nvml.Link) outcome {
	kinds := map[string]int{}
	for _, l := range links {
		if l.Up && l.To != "" {
			kinds[l.To]++
		}
	}
	var parts []string
	for _, k := range slices.Sorted(maps.Keys(kinds)) {
		parts = append(parts, fmt.Sprintf("%d to a %s", kinds[k], k))
	}
	o := good(strings.Join(parts, ", "))
	switch switches := e.Platform != nil && e.Platform.NVSwitch != nil; {
	case len(kinds) == 0:
		return skipped("no NVLink is up, or the driver does not say where they lead")
	case switches && kinds["switch"] == 0:
		o = bad("no NVLink leads to an NVSwitch")
	case kinds["switch"] > 0 && kinds["GPU"] > 0:
		o = bad("some NVLinks lead to an NVSwitch, some to a GPU")
	}
	return o
}

func checkP2P(_ *env, g *gpuState) outcome {
	switch {
	case g.Peers.Err != nil:
		return without(g.Peers.Err)
	case len(g.Peers.Value) == 0:
		return skipped("there is no other GPU")
	case !g.toSwitch():
		return skipped("the GPU has no NVLink to an NVSwitch, so that it need not reach all others")
	}
	var not []string
	for _, peer := range slices.Sorted(maps.Keys(g.Peers.Value)) {
		if s := g.Peers.Value[peer]; s != "OK" {
			not = append(not, fmt.Sprintf("GPU %d: %s", peer, s))
		}
	}
	if len(not) > 0 {
		return bad("not over NVLink to %s", joinWords(not))
	}
	return good(fmt.Sprintf("%d of %[1]d", len(g.Peers.Value)))
}

// counter makes a check of the sum of counters.
func counter(what string, names ...string) func(*env, *gpuState) outcome {
	return func(e *env, g *gpuState) outcome {
		if g.After.Err != nil {
			return without(g.After.Err)
		}
		var sum uint64
		has := false
		for _, n := range names {
			v, ok := g.After.Value[n]
			sum, has = sum+v, has || ok
		}
		if !has {
			return skipped("the GPU does not count them")
		}
		return e.atMost(float64(sum), fmt.Sprintf("%s: %d", what, sum))
	}
}

// growth makes a check of the increase of counters.
func growth(what string, names ...string) func(*env, *gpuState) outcome {
	return func(e *env, g *gpuState) outcome {
		sum, o, ok := e.grown(g, names)
		if !ok {
			return o
		}
		return e.atMost(float64(sum), fmt.Sprintf("%s within %v: %d", what, e.Window, sum))
	}
}

// rate makes a check of the increase of counters in the given number of seconds.
func rate(what string, seconds float64, names ...string) func(*env, *gpuState) outcome {
	return func(e *env, g *gpuState) outcome {
		sum, o, ok := e.grown(g, names)
		if !ok {
			return o
		}
		v := float64(sum) * seconds / e.Window.Seconds()
		return e.atMost(v, fmt.Sprintf("%s: %.4g, over %v", what, v, e.Window))
	}
}

// grown is the increase of counters. If ok is false, the outcome gives the reason why it is not
// known.
func (e *env) grown(g *gpuState, names []string) (sum uint64, o outcome, ok bool) {
	switch {
	case g.Before.Err != nil:
		return 0, without(g.Before.Err), false
	case g.After.Err != nil:
		return 0, without(g.After.Err), false
	case e.Window == 0:
		return 0, skipped("counters were read once (--window 0)"), false
	}
	for _, n := range names {
		v, has := g.Growth(n)
		sum, ok = sum+v, ok || has
	}
	return sum, skipped("the GPU does not count them"), ok
}

// fabric returns the outcome for a GPU that is not part of a fabric; nil if it is.
func (e *env) fabric(g *gpuState) *outcome {
	var o outcome
	switch {
	case g.Fabric.Err != nil:
		o = without(g.Fabric.Err)
	case g.Fabric.Value.State == 0:
		o = skipped("the GPU has no fabric to register with")
	case e.alone(g):
		o = skipped("no NVLink of the only GPU is up, and there is none to reach")
	case !g.toSwitch() && g.Fabric.Value.Cluster == "" && g.linksUp() > 0:
		o = skipped("the GPU has no NVLink to an NVSwitch")
	default:
		return nil
	}
	return &o
}

func checkFabric(e *env, g *gpuState) outcome {
	if o := e.fabric(g); o != nil {
		return *o
	}
	f := g.Fabric.Value
	states := map[int]string{1: "not started", 2: "in progress", 3: "completed"}
	value := states[f.State]
	switch {
	case f.State != 3:
		return bad("the registration is %s", value)
	case f.Status != "":
		return bad("the registration ended with: %s", f.Status)
	}
	return good(value)
}

// maskBits are the yes (1) or no (2) fields of the fabric's health mask, by their shift.
var maskBits = []struct {
	shift int
	name  string
	bad   uint32 // the value that means a fault
}{
	{0, "bandwidth is degraded", 1}, {2, "a route is being recovered", 1}, {4, "a route is unhealthy", 1}, {6, "an access timeout is being recovered", 1},
}

// wrongSetup are the values of the mask's 4-bit field at bit 8.
var wrongSetup = map[uint32]string{
	2: "wrong system GUID", 3: "wrong chassis serial number", 4: "no partition", 5: "too few NVLinks", 6: "incompatible GPU firmware", 7: "invalid location", 8: "invalid GPU state",
}

func checkFabricHealth(e *env, g *gpuState) outcome {
	if o := e.fabric(g); o != nil {
		return *o
	}
	f := g.Fabric.Value
	var wrong []string
	for _, b := range maskBits {
		if f.Health>>b.shift&3 == b.bad {
			wrong = append(wrong, b.name)
		}
	}
	if s := wrongSetup[f.Health>>8&15]; s != "" {
		wrong = append(wrong, "wrong setup: "+s)
	}
	switch {
	case len(wrong) > 0:
		return bad("%s", strings.Join(wrong, ", "))
	case f.Summary == 2:
		return bad("the driver calls the fabric unhealthy")
	case f.Health == 0 && f.Summary == 0:
		return skipped("the driver does not tell the fabric's health")
	}
	return good(fmt.Sprintf("mask %#x", f.Health))
}

func checkFabricLimited(e *env, g *gpuState) outcome {
	if o := e.fabric(g); o != nil {
		return *o
	}
	switch g.Fabric.Value.Summary {
	case 0:
		return skipped("the driver does not tell the fabric's health")
	case 3:
		return bad("the fabric has limited capacity")
	}
	return good("not limited")
}

func checkClique(e *env) []outcome {
	multi := slices.ContainsFunc(e.GPUs, func(g gpuState) bool { return g.Fabric.Value.Cluster != "" })
	if len(e.GPUs) > 0 && !multi {
		return node(skipped("no GPU is in an NVLink domain of several nodes"))
	}
	return e.same("NVLink domain and clique", func(g *gpuState) sysfs.Fact[string] {
		return fact(fmt.Sprintf("%s.%d", g.Fabric.Value.Cluster, g.Fabric.Value.Clique), g.Fabric.Err)
	})
}

func checkFabricManager(e *env) []outcome {
	s := e.Node.System.Value
	switch n := e.Node.Devices.Value.Switches(); {
	case n == 0:
		return node(skipped("there are no NVSwitches on this machine's PCI"))
	case s.runs("nv-fabricmanager"):
		return node(good("running"))
	case s.Container:
		return node(skipped("a container does not see the machine's processes; gpu/fabric/state says what comes of it"))
	case s.Processes.Err != nil:
		return node(without(s.Processes.Err))
	default:
		return node(bad("there are %d NVSwitches and no fabric manager", n))
	}
}

func checkIMEX(e *env) []outcome {
	s := e.Node.System.Value
	channels := s.count("nvidia-caps-imex-channels/channel")
	switch {
	case !slices.ContainsFunc(e.GPUs, func(g gpuState) bool { return g.Fabric.Value.Cluster != "" }):
		return node(skipped("no GPU is in an NVLink domain of several nodes"))
	case channels == 0:
		return node(bad("there is no channel in /dev/nvidia-caps-imex-channels, so that memory cannot be shared with other nodes"))
	}
	return node(good(fmt.Sprintf("%d channels", channels)))
}

// runs reports whether a program with the given name runs. The kernel stores only 15 bytes of a
// name.
func (s *systemState) runs(name string) bool {
	return slices.ContainsFunc(s.Processes.Value, func(p sysfs.Process) bool { return p.Name == name[:min(len(name), 15)] })
}
