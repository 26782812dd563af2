package health

import (
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/assay-hpc/assay/internal/host/nvml"
	"github.com/assay-hpc/assay/internal/host/sysfs"
)

// identityChecks check which GPUs there are, and which driver they use.
var identityChecks = []check{
	{
		id: "driver/nvml", title: "NVML can be asked", want: "it loads and starts", node: checkNVML, uses: usesDevices,
		remedy: "install the driver, or start the container with its libraries (--gpus all, capability utility)",
	},
	{
		id: "driver/version", title: "library and kernel module are of one driver", want: "the same version", node: checkDriverVersion, uses: usesDevices | usesSystem,
		remedy: "reboot, or reload the kernel modules after an update of the driver",
	},
	{
		id: "driver/cuda", title: "the driver is new enough for the image's CUDA", want: "the toolkit's major version, or a newer one", node: checkCUDA, uses: usesDevices | usesSystem,
		remedy: "update the driver, take an image of an older CUDA, or install its package cuda-compat",
	},
	{
		id: "driver/denylist", title: "no other driver has the GPUs", want: "no nouveau", node: checkDenylist, uses: usesDevices | usesSystem,
		remedy: "put nouveau on modprobe's blacklist, make the initramfs anew, reboot",
	},
	{
		id: "gpu/count", title: "all GPUs are there", want: "as many as PCI has", node: checkCount, uses: usesDevices | usesSystem,
		remedy: "look for the missing GPU in the kernel's log (Xid 79, failed probe); drain and reboot, then reseat",
	},
	{id: "gpu/answers", title: "the GPU answers the driver", want: "it answers", gpu: checkAnswers, remedy: reboot},
	{
		id: "gpu/platform", title: "the GPU is the platform's", want: "the platform's model", gpu: checkModel,
		remedy: "give the right --hardware, or have the node put right",
	},
	uniform("model", "name", func(g *gpuState) sysfs.Fact[string] { return g.Name }),
	uniform("vbios", "VBIOS", func(g *gpuState) sysfs.Fact[string] { return g.VBIOS }),
	uniform("inforom", "InfoROM image", func(g *gpuState) sysfs.Fact[string] { return g.InfoROM }),
	uniform("board", "board part number", func(g *gpuState) sysfs.Fact[string] { return g.Board }),
	uniform("gsp", "GSP firmware", func(g *gpuState) sysfs.Fact[string] { return g.GSP }),
	uniform("memory", "memory size", func(g *gpuState) sysfs.Fact[string] { return unitText(g.MemoryBytes, "B") }),
	uniform("clock", "highest SM clock", func(g *gpuState) sysfs.Fact[string] { return unitText(g.MaxClockMHz, "MHz") }),
	uniform("power", "power limit", func(g *gpuState) sysfs.Fact[string] {
		return fact(amount(g.Power.Value.Limit, "W"), g.Power.Err)
	}),
}

func unitText(f sysfs.Fact[uint64], unit string) sysfs.Fact[string] {
	return fact(fmt.Sprintf("%d %s", f.Value, unit), f.Err)
}

func checkNVML(e *env) []outcome {
	n := len(e.Node.Devices.Value.GPUs())
	switch err := e.Driver.Err; {
	case err == nil:
		return node(good(e.Driver.Value.Library))
	case n == 0 && absent(err):
		return node(skipped("there is no GPU on PCI; %v", err))
	case errors.Is(err, ErrElsewhere):
		return node(skipped("%v", err))
	case errors.Is(err, nvml.ErrNoLibrary):
		return node(bad("PCI has %d GPUs, and %v", n, err))
	default:
		return node(errored("%v", err))
	}
}

var driverVersion = regexp.MustCompile(`\b(\d{3,}\.\d+(?:\.\d+)?)\b`)

func checkDriverVersion(e *env) []outcome {
	if e.Driver.Err != nil {
		return node(e.noGPU())
	}
	proc := e.Node.System.Value.Driver
	if proc.Err != nil {
		return node(skipped("the kernel module does not say its version: %v", proc.Err))
	}
	m := driverVersion.FindStringSubmatch(proc.Value)
	if m == nil {
		return node(errored("/proc/driver/nvidia/version has no version: %.60q", proc.Value))
	}
	if v := e.Driver.Value.Version; v != m[1] {
		return node(bad("the library is of driver %s, the kernel module of %s", v, m[1]))
	}
	return node(good(m[1]))
}

func checkCUDA(e *env) []outcome {
	s := e.Node.System.Value
	switch {
	case e.Driver.Err != nil:
		return node(e.noGPU())
	case s.CUDA.Err != nil:
		return node(skipped("there is no CUDA toolkit here: neither CUDA_VERSION nor /usr/local/cuda/version.json"))
	}
	major, err := strconv.Atoi(strings.Split(s.CUDA.Value, ".")[0])
	if err != nil {
		return node(errored("%q is not a version of CUDA", s.CUDA.Value))
	}
	driver := e.Driver.Value.CUDA
	has := fmt.Sprintf("driver %d.%d, toolkit %s", driver/1000, driver%1000/10, s.CUDA.Value)
	switch {
	case major <= driver/1000:
		return node(good(has))
	case s.Compat:
		return node(good(has + ", with forward compatibility"))
	}
	return node(bad("the toolkit is of CUDA %d, the driver knows none newer than %d.%d", major, driver/1000, driver%1000/10))
}

func checkDenylist(e *env) []outcome {
	var taken []string
	for _, p := range e.Node.Devices.Value.GPUs() {
		if p.Driver == "nouveau" {
			taken = append(taken, p.BusID.String())
		}
	}
	switch s := e.Node.System.Value; {
	case len(taken) > 0:
		return node(bad("nouveau drives %s", strings.Join(taken, ", ")))
	case s.loaded("nouveau"):
		return node(bad("the module nouveau is loaded"))
	case len(e.Node.Devices.Value.GPUs()) == 0:
		return node(skipped("there is no GPU on PCI"))
	case s.Modules.Err != nil:
		return node(skipped("the loaded modules are not known: %v", s.Modules.Err))
	}
	return node(good("none"))
}

// checkCount compares the driver's number of GPUs with the expected number, otherwise with PCI.
// Without either it is the other checks that skip.
func checkCount(e *env) []outcome {
	d := &e.Node.Devices.Value
	pci, has := len(d.GPUs()), e.Driver.Value.GPUs
	want, from, source := pci, "as many as PCI has", ""
	switch {
	case e.expectedGPUs() >= 0:
		want, from, source = e.expectedGPUs(), fmt.Sprintf("%d", e.expectedGPUs()), "--gpus"
	case e.Platform != nil && e.Platform.GPUsPerNode.Max() > 0:
		want, source = e.Platform.GPUsPerNode.Max(), "hardware database: "+e.Platform.Name
		from = fmt.Sprint(want)
		if slices.Contains(e.Platform.GPUsPerNode, has) {
			want = has
		}
	}
	o := good(fmt.Sprint(has))
	switch {
	case e.Driver.Err != nil && source != "" && pci != want:
		o = bad("PCI has %d GPUs, not %d; the driver cannot be asked: %v", pci, want, e.Driver.Err)
	case errors.Is(e.Driver.Err, ErrElsewhere) && source != "":
		o = good(fmt.Sprintf("%d on PCI", pci))
	case e.Driver.Err != nil && source != "" && want > 0:
		o = errored("PCI has them, and they cannot be asked: %v", e.Driver.Err)
	case e.Driver.Err != nil && source == "":
		o = e.noGPU()
	case has == want && has == 0 && source == "":
		o = skipped("there is no GPU: neither PCI nor the driver has one")
	case has == want:
	case source == "" && has < pci && e.Node.System.Value.Container && e.Node.System.Value.count("nvidia") == has:
		o.Reason, o.want = fmt.Sprintf("%d of the machine's %d", has, pci), "those that the container was given"
		return node(o)
	case source == "" && pci == 0:
		o.want = "any: PCI is not to be seen here"
		return node(o)
	default:
		o = bad("the driver has %d GPUs, not %d; PCI has %d", has, want, pci)
	}
	o.want, o.source = from, source
	return node(o)
}

// expectedGPUs is the number of GPUs that the caller expects; -1: not given.
func (e *env) expectedGPUs() int {
	if e.Count == nil {
		return -1
	}
	return *e.Count
}

func checkAnswers(_ *env, g *gpuState) outcome {
	switch {
	case g.Err == nil:
		return good("yes")
	case errors.Is(g.Err, nvml.ErrLost), errors.Is(g.Err, nvml.ErrReset):
		o := bad("%v", g.Err)
		if errors.Is(g.Err, nvml.ErrReset) {
			o.remedy = resetGPU
		}
		return o
	}
	return without(g.Err)
}

func checkModel(e *env, g *gpuState) outcome {
	if e.Platform == nil {
		return skipped("no --hardware was given")
	}
	if e.Platform.GPU == "" {
		return skipped("the platform %s has GPUs of any kind", e.Platform.Name)
	}
	want := e.DB.GPUs[e.Platform.GPU]
	o := good(fmt.Sprintf("%s (%s)", g.Name.Value, g.ID))
	if !slices.Contains(want.PCIDeviceIDs, g.ID) {
		o = bad("it is device %s; %s has %s", g.ID, want.Name, strings.Join(want.PCIDeviceIDs, ", "))
	}
	o.want, o.source = want.Name, "hardware database: "+e.Platform.Name
	return o
}

// uniform makes a check that a property is the same on all GPUs.
func uniform(id, what string, get func(*gpuState) sysfs.Fact[string]) check {
	return check{
		id: "gpu/same/" + id, title: "all GPUs have the same " + what, want: "one for all", node: func(e *env) []outcome { return e.same(what, get) },
		remedy: "have the GPU that differs brought to the state of the others",
	}
}

func (e *env) same(what string, get func(*gpuState) sysfs.Fact[string]) []outcome {
	if len(e.GPUs) == 0 {
		return node(e.noGPU())
	}
	by := map[string][]string{}
	var missing error
	for i := range e.GPUs {
		g := &e.GPUs[i]
		f := get(g)
		switch {
		case g.Err != nil:
			missing = fmt.Errorf("GPU %d: %w", g.Index, g.Err)
		case f.Err != nil:
			missing = f.Err
		default:
			by[f.Value] = append(by[f.Value], fmt.Sprint(g.Index))
		}
	}
	values := slices.Sorted(maps.Keys(by))
	switch {
	case len(values) > 1:
		var parts []string
		for _, v := range values {
			parts = append(parts, fmt.Sprintf("%s (GPU %s)", v, strings.Join(by[v], ", ")))
		}
		return node(bad("%s: %s", what, strings.Join(parts, "; ")))
	case missing != nil:
		return node(without(missing))
	}
	return node(good(values[0]))
}
