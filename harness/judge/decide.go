package judge

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/assay-hpc/assay/coll/knob"
	"github.com/assay-hpc/assay/harness/explain"
	"github.com/assay-hpc/assay/internal/words"
)

// decide gives the verdict of a table whose rows are judged, and the causes.
func (j *Judgement) decide(in *input, t *Table, m *Machine) {
	r := j.Reference
	top := j.top()
	if top == nil { // all sizes are too small
		j.allSmall(t, r)
		return
	}
	got := top.best()
	where := fmt.Sprintf("%s GB/s at %s", exact(got), top.What)
	reach := fmt.Sprintf("where %s to %s is right (typical %s at large sizes)", figure(top.Low), figure(top.High), figure(r.Typical))
	if over := j.impossible(); over != nil {
		j.Verdict = Impossible
		j.Summary = fmt.Sprintf("%s GB/s at %s is more than %s carries (%s): the platform is another one, or the figure is no busbw", figure(over.best()), over.What, r.Path, figure(over.High))
		j.Ask = append(j.Ask, "the platform: nvidia-smi -L, nvidia-smi topo -m, and the NICs' rates (ibstat, or ethtool)", "the command line, and the whole table")
		return
	}
	low := j.low()
	far := slices.DeleteFunc(slices.Clone(low), func(d Judged) bool { return d.best() > 0.88*d.Low })
	switch {
	case top.Verdict == Low:
		j.Verdict = Slow
		j.Summary = where + ", " + reach
		if t.shared {
			j.Causes = append(j.Causes, Cause{
				Text:   "ranks share one GPU: the list of devices has the same host and address twice, so data goes from a GPU to itself, by shared memory or a socket, and no link is measured",
				Remedy: []string{"a GPU for each rank: CUDA_VISIBLE_DEVICES by local rank, or -g 1 with as many ranks a node as it has GPUs"},
				Decide: "the list \"Rank ... device N [BUS]\" above the table",
				Source: []string{"https://github.com/NVIDIA/nccl-tests#arguments"},
			})
			break
		}
		j.slow(in, t, m, top, got)
	case j.collapse() != nil:
		j.Verdict = Slow
		j.Summary = where + " is right, and other sizes collapse: " + j.collapseText()
		j.loss(in, m)
	case len(far) >= 2 && len(low)*3 >= j.judged():
		j.Verdict = Slow
		j.Summary = fmt.Sprintf("%s is right, and %s are low: latency, and not the links", where, names(far))
		j.late(in, t, m)
	default:
		j.Verdict = OK
		j.Summary = where + ", " + reach
		if len(far) > 0 {
			j.Notes = append(j.Notes, fmt.Sprintf("%s alone lower: NCCL changes its algorithm or protocol there (NCCL_DEBUG=INFO NCCL_DEBUG_SUBSYS=TUNING says which), or something else ran; measure it again", names(far)))
		}
	}
	j.remarks(in, t, m, top, got)
}

func (d *Judged) best() float64 { return max(d.Measured, d.InPlace) }

// top returns the largest size that can be judged.
func (j *Judgement) top() *Judged {
	for i := len(j.Rows) - 1; i >= 0; i-- {
		if v := j.Rows[i].Verdict; v != Small {
			if v == Low && j.Reference.small(j.Rows[i].Bytes) {
				continue
			}
			return &j.Rows[i]
		}
	}
	return nil
}

func (j *Judgement) judged() (n int) {
	for _, r := range j.Rows {
		if r.Verdict != Small {
			n++
		}
	}
	return n
}

func (j *Judgement) impossible() *Judged {
	for i := len(j.Rows) - 1; i >= 0; i-- {
		if j.Rows[i].Verdict == Impossible {
			return &j.Rows[i]
		}
	}
	return nil
}

func (j *Judgement) low() (out []Judged) {
	for _, r := range j.Rows {
		if r.Verdict == Low {
			out = append(out, r)
		}
	}
	return out
}

func names(rows []Judged) string {
	var out []string
	for _, r := range rows {
		out = append(out, r.What)
	}
	return list(out, 4)
}

// list joins texts, the first few of many.
func list(all []string, most int) string {
	if len(all) > most+1 {
		return strings.Join(all[:most], ", ") + fmt.Sprintf(" and %d more", len(all)-most)
	}
	if n := len(all); n > 1 {
		return strings.Join(all[:n-1], ", ") + " and " + all[n-1]
	}
	return strings.Join(all, "")
}

// allSmall is for a table that ends before bandwidth shows.
func (j *Judgement) allSmall(t *Table, r *Reference) {
	last := &j.Rows[len(j.Rows)-1]
	if r := t.stall(); r != nil {
		j.Verdict = Slow
		j.Summary = fmt.Sprintf("the run stalls at %s: an operation takes %.3g ms there, %s GB/s, where the size before is far faster", sizeText(r.Bytes), r.best().Microseconds/1e3, figure(r.best().BusBW))
		j.Causes = append(j.Causes, Cause{
			Text:   "from this size on another protocol or algorithm is used, and what it needs does not work here: a rendezvous over the network (flow control, lost packets, retries), registration of GPU memory for each operation, or a path through the host",
			Remedy: []string{"the same sizes with NCCL_PROTO=LL, then Simple, and NCCL_ALGO=Ring, then Tree: which of them stalls; between nodes the plugin's and the NIC's counters before and after"},
			Decide: "NCCL_DEBUG=INFO NCCL_DEBUG_SUBSYS=INIT,NET,TUNING",
			Source: []string{"https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/troubleshooting.html"},
		})
		return
	}
	low := j.low()
	if len(low)*2 > len(j.Rows) && last.Verdict == Low {
		j.Verdict = Slow
		j.Summary = fmt.Sprintf("latency: at %s the run has %s GB/s, where %s or more is right; sizes are too small to say anything of bandwidth", last.What, figure(last.best()), figure(last.Low))
		row := t.Rows[len(t.Rows)-1].best()
		j.Causes = append(j.Causes, Cause{
			Text:   fmt.Sprintf("an operation takes %.0f us", row.Microseconds),
			Remedy: []string{"look at what every operation pays: one rank a launcher instead of -g 8, CPUs bound beside their GPU, C-states and power saving off, no debugger or profiler; between nodes sockets instead of RDMA"},
			Decide: "NCCL_DEBUG=INFO (Using network ..., and the channels' via ...)",
			Source: []string{"https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/troubleshooting.html"},
		})
		return
	}
	j.Verdict = OK
	j.Summary = fmt.Sprintf("nothing wrong as far as sizes up to %s show: latency decides there, and says nothing of the links; run to 8 GiB or more (-e 8G) for a bandwidth to compare with %s", last.What, figure(r.Typical))
}

// slow adds the causes of a low plateau.
func (j *Judgement) slow(in *input, t *Table, m *Machine, top *Judged, got float64) {
	r := j.Reference
	j.fromVariables(in, r, got)
	switch {
	case slices.ContainsFunc(j.Causes, func(c Cause) bool { return weak(c) == 0 }) && !r.between:
		// what is set explains it
	case j.collapse() != nil:
		j.loss(in, m)
	case r.between:
		j.slowNetwork(in, t, m, got)
	default:
		j.slowNode(in, t, m, got)
	}
	j.fromLog(in)
	if len(j.Causes) == 0 && len(j.Ask) == 0 {
		j.Causes = append(j.Causes, Cause{Text: "the table alone does not say"})
	}
	j.Causes = j.Causes[:min(len(j.Causes), 4)]
}

// fromVariables adds variables that are set and make it slower.
func (j *Judgement) fromVariables(in *input, r *Reference, got float64) {
	first := -1
	for _, s := range knob.Slowers {
		v, ok := in.set(s.Name)
		if s.Name == "NCCL_NVLS_ENABLE" && r.ring == 0 { // nothing would come of it here
			continue
		}
		if !ok || !s.May(v.value) || (r.between && !s.Between) || (!r.between && !s.Inside) {
			continue
		}
		shown := fmt.Sprintf("line %d: %s=%s", v.line, v.name, v.value)
		if v.line == 0 {
			shown = "--platform: " + v.name + "=" + v.value
		}
		text := fmt.Sprintf("%s=%s: %s", v.name, v.value, s.Effect)
		if s.Name == "NCCL_NVLS_ENABLE" && r.ring > 0 && approximately(got, r.ring, 0.06) {
			first = len(j.Causes)
			text += fmt.Sprintf(". %s is what a ring reaches (%.0f), and healthy as that; with the reduction in the switch it would be about %.0f", figure(got), r.ring, r.Typical)
		}
		j.Causes = append(j.Causes, Cause{
			Text: text, Shown: []string{shown}, Remedy: []string{s.Name + ": " + s.Advice}, Decide: "the same run without " + s.Name,
			Source: []string{"https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/env.html"},
		})
	}
	if first < 0 && len(j.Causes) > 1 { // the weakest of several
		slices.SortStableFunc(j.Causes, func(a, b Cause) int { return cmp.Compare(weak(a), weak(b)) })
	}
}

func weak(c Cause) int {
	if strings.HasPrefix(c.Text, "NCCL_NVLS_ENABLE") || strings.HasPrefix(c.Text, "NCCL_IB_HCA") {
		return 1
	}
	return 0
}

func approximately(a, b, by float64) bool { return a > b*(1-by) && a < b*(1+by) }

// least returns the shortest time of small sizes; 0 if there are none.
func (t *Table) least() float64 {
	least := 0.0
	for _, r := range t.Rows {
		if b := r.best(); r.Bytes <= 64<<10 && r.Bytes > 0 && b != nil && (least == 0 || b.Microseconds < least) {
			least = b.Microseconds
		}
	}
	return least
}

// fromLog adds what harness explain finds in the same text.
func (j *Judgement) fromLog(in *input) {
	for _, c := range in.log {
		if c.Verdict == explain.Note {
			if c.ID != "busbw-average" && c.ID != "settings-that-slow" && len(j.Notes) < 4 {
				j.Notes = append(j.Notes, c.Cause)
			}
			continue
		}
		var shown []string
		for _, l := range c.Lines[:min(len(c.Lines), 2)] {
			shown = append(shown, fmt.Sprintf("line %d: %s", l.Number, l.Text))
		}
		cause := Cause{Text: c.Cause, Shown: shown, Remedy: c.Remedy, Decide: c.Verify, Source: c.Source}
		if slices.ContainsFunc(j.Causes, func(o Cause) bool { return sameVariable(o.Text, cause.Text) }) {
			continue
		}
		j.Causes = append(j.Causes, cause)
	}
}

// sameVariable says whether two texts are about the same variable.
func sameVariable(a, b string) bool {
	name, _, ok := strings.Cut(a, "=")
	return ok && strings.HasPrefix(name, "NCCL_") && strings.Contains(b, name)
}

// slowNode adds the causes of a low plateau within a node.
func (j *Judgement) slowNode(in *input, t *Table, m *Machine, got float64) {
	r, g := j.Reference, m.gpu
	if least := t.least(); least > 100+10*float64(r.group) {
		j.Causes = append(j.Causes, Cause{
			Text:   fmt.Sprintf("another program uses a GPU, or the host is busy: even the smallest sizes take %.0f us, and large ones are slow, too", least),
			Remedy: []string{"nvidia-smi (programs on each GPU, and their load); end them, or drain the node before measuring"},
			Decide: "nvidia-smi pmon -c 5 while nothing should be there",
			Source: []string{"measured on 2 x H200: 18 us alone, 253 us beside a program that multiplies matrices on one of them"},
		})
	}
	source := []string{"https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/troubleshooting.html"}
	switch {
	case r.ring > 0 && approximately(got, r.ring, 0.07):
		if _, ok := in.set("NCCL_NVLS_ENABLE"); ok {
			return
		}
		j.Causes = append(j.Causes, Cause{
			Text:   fmt.Sprintf("%s is a ring's speed (%.0f): the reduction in the switch (NVLS) is not used", figure(got), r.ring),
			Remedy: []string{"systemctl status nvidia-fabricmanager, and nvidia-smi -q -i 0 | grep -A3 Fabric: State must be Completed, Status Success", "NCCL 2.17 or later, a container that sees all GPUs of the node, no MIG; NCCL_ALGO and NCCL_NVLS_ENABLE not set"},
			Decide: "NCCL_DEBUG=INFO: \"NVLS multicast support is available\" and \"N nvls channels\" with N above 0",
			Source: []string{"NVIDIA/nccl-tests#212"},
		})
	case g.Slots:
		j.Causes = append(j.Causes, Cause{
			Text:   fmt.Sprintf("data goes through host memory instead of from GPU to GPU over PCIe (%s of %g GB/s of a slot)", figure(got), g.PCIe),
			Remedy: []string{"nvidia-smi topo -p2p r: what is not OK has no peer access (ACS or IOMMU on, a VM, a GeForce GPU)", "in a container --shm-size and --ipc=host; bind each rank to its GPU's NUMA node; on AMD CPUs NPS1 and IOMMU off or pass-through"},
			Decide: "NCCL_DEBUG=INFO: \"via P2P\" or \"via SHM\" on the channels; nvidia-smi topo -m",
			Source: source,
		})
	case g.PCIe > 0 && got < g.PCIe*0.9 && g.PCIe < 200:
		j.Causes = append(j.Causes, Cause{
			Text:   fmt.Sprintf("the GPUs do not use %s: %s is what PCIe or host memory carries (%g GB/s a slot), or a single channel (NCCL_MAX_NCHANNELS, NCCL_MAX_CTAS)", g.Link, figure(got), g.PCIe),
			Remedy: []string{"nvidia-smi nvlink -s: every link must have a speed; systemctl status nvidia-fabricmanager on machines with NVSwitch", "NCCL_P2P_DISABLE and NCCL_P2P_LEVEL not set; a container with all GPUs and --ipc=host"},
			Decide: "NCCL_DEBUG=INFO: \"via P2P/CUMEM\" or \"via SHM\" on the channels; nvidia-smi topo -m (NV18, NV12)",
			Source: source,
		})
	default:
		var cause []string
		if g.Uni > 0 && g.Switch.low == 0 || r.ring == 0 {
			cause = append(cause, fmt.Sprintf("a GPU with fewer links than the others: it limits all (%.0f %% of %s)", 100*got/r.Typical, figure(r.Typical)))
		} else {
			cause = append(cause, fmt.Sprintf("links that are down, a GPU at low clocks, or few channels: %.0f %% of what is right", 100*got/r.Typical))
		}
		j.Causes = append(j.Causes, Cause{
			Text:   cause[0],
			Remedy: []string{"nvidia-smi nvlink -s (links that are down), nvidia-smi -q -d CLOCK and nvidia-smi -q | grep -A12 'Clocks Event' (clocks, and why they are low), dmesg (Xid)", "the same run on pairs of GPUs (CUDA_VISIBLE_DEVICES=0,1 and so on) finds the one that is slow"},
			Decide: "nvidia-smi nvlink -s; NCCL_DEBUG=INFO (number of channels); harness health",
			Source: source,
		})
	}
}

// slowNetwork adds the causes of a low plateau between nodes.
func (j *Judgement) slowNetwork(in *input, t *Table, m *Machine, got float64) {
	r := j.Reference
	source := []string{"https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/troubleshooting.html"}
	if m.Kind == "TCP" || m.Kind == "Ethernet" && r.wire < 6 {
		text := fmt.Sprintf("TCP: sockets carry %s of the %s GB/s of the NIC (%s)", figure(got), figure(r.wire), m.nics())
		if _, line := in.find(socketed, "NET/Socket"); line > 0 {
			text += fmt.Sprintf("; line %d says that NCCL uses sockets", line)
		}
		j.Causes = append(j.Causes, Cause{
			Text:   text,
			Remedy: []string{"compare with iperf3 -P 8 --bidir between the same hosts: both directions are busy in a ring", "more sockets and threads: NCCL_SOCKET_NTHREADS=4 NCCL_NSOCKS_PERTHREAD=4, and no limit of channels (NCCL_MAX_NCHANNELS unset); MTU 9000", "if the NIC can do RDMA (ibv_devinfo lists it): why NCCL does not use it is in NCCL_DEBUG=INFO"},
			Decide: "iperf3 -P 8 --bidir: if it carries no more either, the network is the limit, else NCCL's sockets",
			Source: source,
		})
		return
	}
	part := got / r.wire
	if r.shared && part > 0.45 && part < 0.86 {
		j.Verdict = Undecidable
		j.Summary = fmt.Sprintf("%s GB/s over %s: about %s is right when the NIC shares a PCIe switch with a GPU and GPUDirect RDMA works, and about %s when data goes through the CPU (host memory); the table does not say which this machine can have", figure(got), m.nics(), figure(r.Typical), figure(r.wire*0.64))
		j.Ask = append(j.Ask, "nvidia-smi topo -m: is a GPU at PIX or PXB of the NIC, or are all at NODE or SYS?", "the lines with GDRDMA of an NCCL_DEBUG=INFO log; lsmod | grep peermem", "what else used the NIC at that time")
		j.Sources = append(j.Sources, "https://github.com/NVIDIA/nccl/issues/412 (one HDR NIC for eight GPUs: 24 with GPUDirect RDMA, 16 without)")
		return
	}
	if part < 0.03 || r.wire > 20 && got < 13 && got < r.wire*0.2 {
		j.Causes = append(j.Causes, tcpInstead(got, ", and the NICs carry "+figure(r.wire)))
	}
	if m.NICs > 1 {
		n := got / r.Typical * float64(m.NICs)
		text := fmt.Sprintf("not all NICs are used: %s is about what %.0f of %d carry", figure(got), n, m.NICs)
		j.Causes = append(j.Causes, Cause{
			Text:   text,
			Remedy: []string{"NCCL_IB_HCA must name all NICs of GPUs, and the container must have all of them; every port must be ACTIVE at its full rate (ibstat)"},
			Decide: "NCCL_DEBUG=INFO: \"NET/IB : Using [0]mlx5_0:1 ... [7]\" lists those that are used; ib_write_bw on each rail",
			Source: source,
		})
	}
	j.Causes = append(j.Causes, Cause{
		Text:   "data goes through host memory: GPUDirect RDMA (GDR) is not used, or PCIe sends it through the CPU (ACS, IOMMU)",
		Remedy: []string{"nvidia-peermem loaded or DMA-BUF available; NCCL_NET_GDR_LEVEL unset", "ACS off on the switches between GPU and NIC (lspci -vvv | grep ACSCtl), IOMMU off or pass-through"},
		Decide: "NCCL_DEBUG=INFO: channels \"via NET/IB/0/GDRDMA\"; ib_write_bw --use_cuda=0 on each rail against the same without it",
		Source: source,
	})
	if j.Reference.ring > 0 && approximately(got, j.Reference.ring, 0.06) {
		j.Causes = append([]Cause{{
			Text:   fmt.Sprintf("%s is a ring's speed (%.0f): NVLS and its tree between nodes (NVLSTree) are not used", figure(got), j.Reference.ring),
			Remedy: []string{"NCCL_NVLS_ENABLE and NCCL_ALGO unset; the fabric manager running on both nodes"},
			Decide: "NCCL_DEBUG=INFO: \"N nvls channels\" with N above 0 on all nodes",
			Source: []string{"NVIDIA/nccl-tests#212"},
		}}, j.Causes...)
	}
	j.Ask = append(j.Ask, "NCCL_DEBUG=INFO NCCL_DEBUG_SUBSYS=INIT,NET,GRAPH of rank 0 (are channels GDRDMA? how many NICs? NVLS?), the NCCL_ variables and /etc/nccl.conf", "ib_write_bw on each rail between the same nodes, and nvidia-smi topo -m")
}

func tcpInstead(got float64, more string) Cause {
	return Cause{
		Text:   fmt.Sprintf("TCP instead of RDMA (InfiniBand, RoCE, EFA): %s is what sockets over one interface carry%s", figure(got), more),
		Remedy: []string{"in the container: /dev/infiniband, IPC_LOCK and the verbs libraries (ibv_devices lists the NICs); EFA: the plugin aws-ofi-nccl and /opt/amazon/efa", "NCCL_IB_DISABLE and NCCL_NET unset, NCCL_IB_HCA right"},
		Decide: "NCCL_DEBUG=INFO: \"Using network Socket\" or \"Using network IB\"",
		Source: []string{"https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/troubleshooting.html"},
	}
}

// collapse returns the first size that is far below a smaller or equal one, either way.
func (j *Judgement) collapse() *Judged {
	most := 0.0
	for i := range j.Rows {
		d := &j.Rows[i]
		for _, v := range []float64{d.Measured, d.InPlace} {
			if v > 0 && most > 0.3*j.Reference.Low && v < most/4 && !j.Reference.small(d.Bytes) && j.Reference.between {
				return d
			}
		}
		most = max(most, d.best())
	}
	return nil
}

func (j *Judgement) collapseText() string {
	var out []string
	most := 0.0
	for _, d := range j.Rows {
		for _, v := range []float64{d.Measured, d.InPlace} {
			if v > 0 && v < most/4 {
				out = append(out, fmt.Sprintf("%s at %s", figure(v), d.What))
				break
			}
		}
		most = max(most, d.best())
	}
	return list(out, 3)
}

// loss is the cause of speed that collapses at random.
func (j *Judgement) loss(in *input, m *Machine) {
	if m.Kind == "EFA" || m.Kind == "TCPXO" {
		j.Causes = append(j.Causes, Cause{Text: "speed collapses at some sizes (" + j.collapseText() + "): something else uses the network, or a node stalls", Decide: "the same run again, and on other nodes"})
		return
	}
	c := Cause{
		Text:   "speed collapses at random (" + j.collapseText() + "), typical of packets that are lost: RoCE without flow control end to end",
		Remedy: []string{"make the fabric lossless on every switch and NIC: PFC (pause) on the traffic class that NCCL uses, ECN, trust mode (mlnx_qos, cma_roce_tos, NCCL_IB_TC); the switch's buffers"},
		Decide: "counters of the NIC before and after a run (/sys/class/infiniband/*/ports/1/hw_counters: out_of_sequence, packet_seq_err, local_ack_timeout_err; ethtool -S: rx_discards, pause frames): they grow where packets are dropped. If none grows it is something else",
		Source: []string{"https://github.com/NVIDIA/nccl/issues/378", "https://github.com/NVIDIA/nccl/issues/306"},
	}
	if m.Kind == "InfiniBand" {
		c.Text = "speed collapses at random (" + j.collapseText() + "): a bad cable or port on InfiniBand, or congestion"
		c.Remedy = []string{"ibdiagnet, perfquery -x on the path: symbol errors, link down counters; move a node to another leaf"}
	}
	j.Causes = append([]Cause{c}, j.Causes...)
}

// late is for a table that reaches its plateau late.
func (j *Judgement) late(in *input, t *Table, m *Machine) {
	r := j.Reference
	text := "latency of each step is high: CPUs far from GPUs and NICs, power saving, a busy host"
	if r.between {
		text += ", or a path with more hops or buffers than needed"
	}
	j.Causes = append(j.Causes, Cause{
		Text:   text,
		Remedy: []string{"bind each rank to the NUMA node of its GPU and NIC; C-states and power saving off; no other job on the node"},
		Decide: "harness coll all_reduce -b 8 -e 64K on one node, then two: which of them is slow; ib_write_lat between the NICs",
		Source: []string{"https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/troubleshooting.html"},
	})
	j.fromVariables(in, r, 0)
}

// remarks adds what is not the fault, and what the figures mean.
func (j *Judgement) remarks(in *input, t *Table, m *Machine, top *Judged, got float64) {
	r := j.Reference
	if r.tree && got > r.wire*0.995 {
		j.Notes = append(j.Notes, fmt.Sprintf("busbw %s above the NICs' %s GB/s is no mistake: on two nodes NCCL takes a tree (or NVLSTree), where algbw is what crosses the wire (%s). NCCL_ALGO=RING measures the network", figure(got), figure(r.wire), figure(got/r.factor)))
	}
	if last := j.Rows[len(j.Rows)-1]; last.Bytes < 1<<30 && j.Verdict != Slow {
		j.Notes = append(j.Notes, fmt.Sprintf("%s is too small to show the peak: run to 8 GiB or more (-e 8G) before comparing with %s", last.What, figure(r.Typical)))
	}
	if t.average > 0 && t.average < 0.9*got && len(j.Rows) > 3 {
		j.Notes = append(j.Notes, fmt.Sprintf("the average (%s) is over all sizes, small ones too: compare no average with a peak", figure(t.average)))
	}
	if t.Collective == "all_reduce" && r.factor > 1.2 && j.Verdict == OK {
		if row := t.Rows[len(t.Rows)-1].best(); row != nil && row.AlgBW > 0 && r.ring > 0 {
			j.Notes = append(j.Notes, fmt.Sprintf("algbw (%s) is no figure to compare with hardware: busbw is", figure(row.AlgBW)))
		}
	}
	if t.Guessed {
		j.Notes = append(j.Notes, "the text does not name the collective: "+t.Collective+" follows from the columns")
	}
	if t.MixedGPUs {
		j.Notes = append(j.Notes, "the ranks have GPUs of several models: the slowest decides")
	}
	if t.cut {
		j.Notes = append(j.Notes, "the table ends before its last size: the run stopped or was cut")
	}
	if m.Kind == "RoCE" && m.gpu != nil && m.gpu.Name == "GB10" {
		j.Notes = append(j.Notes, "MTU 9000 on both interfaces may add a little")
	}
	j.uneven(t)
}

// uneven compares in place with out of place.
func (j *Judgement) uneven(t *Table) {
	for i := len(j.Rows) - 1; i >= 0; i-- {
		d := j.Rows[i]
		if d.InPlace > 0 && d.Measured > 0 && d.Verdict != Small && (d.InPlace < d.Measured*0.8 || d.Measured < d.InPlace*0.8) && j.collapse() == nil {
			j.Notes = append(j.Notes, fmt.Sprintf("at %s out of place and in place differ (%s and %s): the run is noisy, or another job shares links", d.What, figure(d.Measured), figure(d.InPlace)))
			return
		}
	}
}

// understood says what was read of a table.
func (t *Table) understood(m *Machine) (out []string) {
	ranks := "ranks unknown"
	if t.Ranks > 0 {
		ranks = words.Count(t.Ranks, "rank")
		if t.Nodes > 0 {
			ranks += " on " + words.Count(t.Nodes, "node")
		}
		if t.listed < t.Ranks && t.listed > 0 {
			ranks += " (the list of ranks is abridged)"
		} else if t.listed == 0 {
			ranks += " (by busbw over algbw)"
		}
	}
	out = append(out, ranks)
	if t.PerProcess > 1 {
		out = append(out, fmt.Sprintf("nGpus %d", t.PerProcess))
	}
	switch {
	case t.GPU != "":
		out = append(out, t.GPU)
	case m != nil && m.gpu != nil:
		out = append(out, m.gpu.Name+" ("+m.From+")")
	default:
		out = append(out, "GPU unknown")
	}
	if m != nil && m.NICs > 0 && t.Nodes != 1 {
		out = append(out, m.nics()+" ("+m.From+")")
	}
	if t.Library != "" {
		out = append(out, "NCCL "+t.Library)
	}
	return out
}

// sizeText writes bytes as nccl-tests' users do.
func sizeText(n int64) string {
	units := []string{"B", "KiB", "MiB", "GiB", "TiB"}
	v, i := float64(n), 0
	for v >= 1024 && i < len(units)-1 {
		v, i = v/1024, i+1
	}
	s := fmt.Sprintf("%.1f", v)
	return strings.TrimSuffix(s, ".0") + " " + units[i]
}
