package explain

import (
	"fmt"
	"strings"
)

// groups are the files of rules, with their headings in the document.
var groups = []struct{ file, heading string }{
	{"network", "Networks: interfaces, TCP, plugins, clouds"},
	{"rdma", "RDMA: InfiniBand, RoCE, GPUDirect"},
	{"transports", "Transports: libfabric, UCX, plugins, NVSHMEM"},
	{"counters", "Counters of ports"},
	{"fabric-tools", "Tools of fabrics and adapters"},
	{"container", "Containers, drivers, libraries, limits"},
	{"nvlink", "NVLink, NVSwitch, IMEX"},
	{"driver", "Drivers: installation, modules, versions, CUDA errors"},
	{"gpu", "GPUs and adapters: kernel log, nvidia-smi"},
	{"dcgm", "DCGM"},
	{"nvrm", "NVIDIA's kernel module"},
	{"rocm", "ROCm"},
	{"amd", "AMD GPUs: kernel log"},
	{"host", "Hosts: kernel, memory, limits, services"},
	{"kernel", "Kernel log: PCIe, memory, storage"},
	{"nics", "Adapters: kernel log"},
	{"outputs", "Outputs of tools: what is right, and what differs"},
	{"hang", "Hangs: ranks that wait"},
	{"usage", "How NCCL is used, and topologies"},
	{"nccl", "Messages of NCCL, RCCL, nccl-tests"},
	{"frameworks", "Frameworks: PyTorch, Ray, DeepSpeed"},
	{"jax", "JAX, XLA, TensorFlow"},
	{"serving", "Serving: vLLM, SGLang, TensorRT-LLM"},
	{"launch", "Launchers"},
	{"mpi", "MPI"},
	{"slurm", "Slurm, pyxis, enroot"},
	{"kubernetes", "Kubernetes"},
}

// Problems returns the rules as pages in Markdown, by the name of their group: for each cause a line that shows it, what to do,
// and who says so; and the list of the pages.
func (s *Set) Problems(note string) (list string, pages map[string]string) {
	var l strings.Builder
	pages = map[string]string{}
	for _, g := range groups {
		var b strings.Builder
		fmt.Fprintf(&b, "# %s\n\n%s\n[All problems](../problems.md) · [harness explain](../explain.md)\n", g.heading, note)
		n := 0
		for _, r := range s.Rules {
			if r.file == "rules/"+g.file+".yaml" {
				r.problem(&b)
				n++
			}
		}
		pages[g.file] = b.String()
		fmt.Fprintf(&l, "| [%s](problems/%s.md) | %d |\n", g.heading, g.file, n)
	}
	return l.String(), pages
}

// maxExample is how many lines of a text that shows a cause the document has.
const maxExample = 5

func (r *Rule) problem(b *strings.Builder) {
	fmt.Fprintf(b, "\n## %s\n```text\n", r.ID)
	lines := strings.Split(strings.TrimRight(r.Match[0], "\n"), "\n")
	for _, l := range lines[:min(len(lines), maxExample)] {
		b.WriteString(strings.TrimRight(l, " ") + "\n")
	}
	b.WriteString("```\n")
	sure := string(r.Verdict)
	if r.Verdict == Fault && r.Sure != Certain {
		sure += ", " + string(r.Sure)
	}
	fmt.Fprintf(b, "**%s**: %s\n\n", sure, plain(r.Cause))
	for _, list := range []struct {
		head  string
		texts []string
	}{{"", r.Remedy}, {"verify: ", []string{r.Verify}}, {"ask for: ", r.Ask}} {
		for _, t := range list.texts {
			if t != "" {
				fmt.Fprintf(b, "- %s%s\n", list.head, plain(t))
			}
		}
	}
	for i, u := range r.Source {
		if i == 0 {
			b.WriteString("\nSource:")
		}
		fmt.Fprintf(b, " <%s>", u)
	}
	b.WriteString("\n")
}

// plain returns a text of a rule for the document: names in place of what a log would give.
func plain(text string) string {
	text = strings.NewReplacer("[[", "", "]]", "", "<", "&lt;", ">", "&gt;").Replace(text)
	return placeholder.ReplaceAllStringFunc(text, func(name string) string {
		if name == "{medium}" {
			return name
		}
		return "*" + name[1:len(name)-1] + "*"
	})
}
