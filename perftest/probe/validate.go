package probe

import (
	"fmt"
	"slices"
	"time"
)

// A FlagError is an option that is invalid by itself or in combination with others. The user can
// correct it.
type FlagError struct {
	Flag string // as typed: "-D"
	Text string // what is wrong, and what to do
}

func (e *FlagError) Error() string { return e.Flag + ": " + e.Text }

func flagErrorf(flag, format string, a ...any) error {
	return &FlagError{flag, fmt.Sprintf(format, a...)}
}

// A rule is a condition that no test may meet.
type rule struct {
	bad  bool
	flag string
	text string
}

// Check returns an error for a test that cannot be run. Its errors are *FlagError.
func (c *Config) Check() error {
	for _, rules := range []func() []rule{c.ranges, c.kinds, c.lengths, c.batches, c.memory, c.reports} {
		for _, r := range rules() { // each group relies on those before
			if r.bad {
				return &FlagError{r.flag, r.text}
			}
		}
	}
	return nil
}

func outside[T int | uint64](v, least, most T) bool { return v < least || v > most }

// between is the text for a number out of its range.
func between(what string, least, most any) string {
	return fmt.Sprintf("%s is from %v to %v", what, least, most)
}

// ranges checks each number by itself. 0 selects a default if there is one.
func (c *Config) ranges() []rule {
	mtu := c.MTU
	return []rule{
		{outside(c.Port, 0, 65535) || c.Port == 0 && (c.Host != "" || c.ControlsByCM()), "-p", between("a TCP port", 1, 65535)},
		{outside(c.IBPort, 1, 255), "-i", between("a device's port", 1, 255)},
		{mtu != 0 && mtu != 256 && mtu != 512 && mtu != 1024 && mtu != 2048 && mtu != 4096, "-m", "an MTU is 256, 512, 1024, 2048 or 4096 bytes"},
		{outside(c.GIDIndex, -1, maxGIDIndex), "-x", between("a GID's index", 0, maxGIDIndex)},
		{outside(c.SL, 0, 15), "-S", between("a service level", 0, 15)},
		{outside(c.TClass, 0, 255), "--tclass", between("a traffic class", 0, 255)},
		{outside(c.PKeyIndex, 0, 65535), "--pkey_index", between("a partition key's index", 0, 65535)},
		{outside(c.DLID, 0, 65535), "--dlid", between("a LID", 1, 65535)},
		{outside(c.QPs, 1, maxQPs), "-q", between("the number of QPs", 1, maxQPs)},
		{outside(c.TxDepth, 0, maxTxDepth), "-t", between("the send queue's depth", 1, maxTxDepth)},
		{outside(c.RxDepth, 0, maxRxDepth), "-r", between("the receive queue's depth", 1, maxRxDepth)},
		{outside(c.CQModeration, 0, maxCQMod), "-Q", between("CQ moderation", 1, maxCQMod)},
		{outside(c.PostList, 1, maxTxDepth), "-l", between("the length of a list of sends", 1, maxTxDepth)},
		{outside(c.RecvList, 1, maxRxDepth), "--recv_post_list", between("the length of a list of receives", 1, maxRxDepth)},
		{slices.ContainsFunc(c.FlowLabels, func(l uint32) bool { return l > maxFlowLabel }), "--flow_label", between("a flow label", 0, maxFlowLabel)},
		{outside(c.Inline, -1, maxInline), "-I", between("the inline size", 0, maxInline)},
		{outside(c.OutReads, 0, 65535), "-o", between("the number of reads in flight", 1, 65535)},
		{outside(c.AckTimeout, 0, 31), "-u", between("the timeout's exponent", 0, 31)},
		{outside(c.Vector, -1, 2048), "-X", between("a completion vector", 0, 2048)},
		{c.Size > maxSize, "-s", between("a message's size", 1, maxSize)},
		{c.Iterations != 0 && outside(c.Iterations, minIterations, maxIterations), "-n", between("the number of iterations", minIterations, maxIterations)},
		{c.Duration < 0 || c.Duration > 365*24*time.Hour, "-D", "a duration is at least one second and at most a year"},
		{c.Margin < -1, "-f", "a margin is a number of seconds, 0 or more"},
		{c.LatencyGap < 0, "--latency_gap", "a pause is a number of microseconds, 0 or more"},
		{c.WaitDestroy < 0, "--wait_destroy", "a pause is a number of seconds, 0 or more"},
		{c.Wait < 0 || c.Timeout < 0, "--wait, --timeout", "a time is a number of seconds, 0 or more"},
		{c.LimitBW < 0 || c.LimitRate < 0, "-w, -y", "a limit is a number above 0"},
		{outside(c.TOS, -1, 255), "-T", between("a type of service", 0, 255)},
		{outside(c.Retries, 0, 7), "--retry_count", between("the number of retries", 0, 7)},
		{c.GPU < -1, "--use_cuda", "a GPU's index is 0 or more"},
		{outside(c.PollBatch, 1, maxPollBatch), "--cqe_poll", between("the number of completions taken at a time", 1, maxPollBatch)},
		{c.NUMANode < -1, "--numa_node", "a node's number is 0 or more"},
		{c.Rate < 0, "--rate_limit", "a rate is a number above 0"},
		{c.Burst < 0, "--burst_size", "a burst is a number of messages, 0 or more"},
	}
}

// kinds checks for options that belong to other tests.
func (c *Config) kinds() []rule {
	latency, oneSided := c.Measure == Latency, c.Operation == Read || c.Operation == Atomic
	return []rule{
		{c.SRQ && c.Operation != Send, "--use-srq", "only sends are received: use send_bw or send_lat"},
		{c.SRQ && c.QPs > c.ReceiveDepth(), "--use-srq", fmt.Sprintf("%d receives are not one for each of %d QPs: give a larger -r", c.ReceiveDepth(), c.QPs)},
		{c.RecvList > 1 && (!c.Receives() || latency), "--recv_post_list", "this is for send_bw, and for write_bw --write_with_imm"},
		{c.Immediate && oneSided, "--write_with_imm, --send_with_imm", "only writes and sends carry immediate data"},
		{c.Connection == UD && c.Operation != Send, "-c", "UD carries sends only: use send_bw or send_lat, or -c RC"},
		{c.Connection == UC && oneSided, "-c", "UC carries no reads and atomics: use -c RC"},
		{c.Operation == Atomic && c.Size != 0 && c.Size != 8, "-s", "atomics have 8 bytes: leave -s out"},
		{c.Operation == Atomic && c.All, "-a", "atomics have 8 bytes only: leave -a out"},
		{c.Events && c.Receives() && c.Bidirectional, "-e", "this does not go with -b: one queue's events would keep the other one waiting"},
		{latency && c.QPs > 1, "-q", "a latency test has one QP: leave -q out"},
		{latency && c.Bidirectional, "-b", "a latency test goes both ways by itself: leave -b out"},
		{latency && c.PostList > 1, "-l", "a latency test has one message in flight: leave -l out"},
		{latency && c.NoPeak, "-N", "a latency test has no peak: leave -N out"},
		{latency && c.Reversed, "--reversed", "a latency test goes both ways: leave --reversed out"},
		{latency && c.Endless, "--run_infinitely", "this is for bandwidth tests: give a long -D"},
		{latency && (c.LimitBW > 0 || c.LimitRate > 0), "-w, -y", "limits are for bandwidth tests"},
		{latency && c.ReportBoth, "--report-both", "this is for bandwidth tests"},
		{!latency && (c.Sorted || c.Unsorted), "-H, -U", "these are for latency tests"},
		{!latency && c.Histogram, "--histogram", "this is for latency tests"},
		{!latency && c.LatencyGap > 0, "--latency_gap", "this is for latency tests"},
		{c.CM && c.Connection == UC, "-c", "rdma_cm connects no UC: use -c RC, or leave -R out"},
		{c.TOS >= 0 && !c.CM, "-T", "this is for queue pairs that rdma_cm connects: add -R, or use --tclass"},
		{c.Retries != defaultRetries && !c.CM, "--retry_count", "this is for queue pairs that rdma_cm connects: add -R"},
		{c.Inline > 0 && oneSided, "-I", "reads and atomics have nothing to put inline: leave -I out"},
		{c.OutReads > 0 && !oneSided, "-o", "only reads and atomics have reads in flight: leave -o out"},
		{c.Events && c.Operation == Write && !c.Immediate && !latency, "-e", "a write's receiver has no events: leave -e out, or use send_bw"},
		{c.Events && c.Operation == Write && !c.Immediate, "-e", "write_lat watches memory, which has no events: leave -e out, or use send_lat"},
		{c.Vector >= 0 && !c.Events, "-X", "a completion vector is for events: add -e"},
		{c.WarmUp && (latency || c.Receives()), "--perform_warm_up", "this is for write_bw, read_bw and atomic_bw, without immediate data"},
		{!latency && c.Cycles, "-C", "this is for latency tests"},
		{latency && c.EachMR, "--mr_per_qp", "a latency test has one QP: leave --mr_per_qp out"},
		{latency && c.Rate > 0, "--rate_limit", "a latency test has one message in flight: --latency_gap is the pause between them"},
		{c.ReportBoth && !c.Bidirectional, "--report-both", "there is one direction only: add -b"},
		{c.Reversed && c.Bidirectional, "--reversed", "both sides send with -b: leave one of them out"},
	}
}

// lengths checks the options for the length of a test.
func (c *Config) lengths() []rule {
	timed := c.Duration > 0
	before, sampled := c.Window()
	return []rule{
		{c.Endless && c.All, "--run_infinitely", "one size never ends: leave -a out"},
		{c.Endless && c.Events, "--run_infinitely", "this does not go with events: leave -e out"},
		{c.Endless && (c.Receives() || c.Bidirectional), "--run_infinitely", "this is for tests in one direction, and not for messages that are received: give a long -D"},
		{c.Endless && c.Rate > 0, "--run_infinitely", "this does not go with --rate_limit: give a long -D"},
		{timed && c.All, "-D", "a duration is for one size: leave -a out and give -s"},
		{timed && c.Events, "-D", "a duration does not go with events: leave -e out"},
		{timed && !c.Endless && sampled <= 0, "-D", fmt.Sprintf("%v with a margin (-f) of %v before and behind leaves nothing to measure: the duration must be more than twice the margin", c.Duration, before)},
	}
}

// Remarks are notes about options that have no effect in combination with others, and that perftest
// ignores as well.
func (c *Config) Remarks() []string {
	timed := c.Duration > 0
	out := append([]string(nil), c.Notes...)
	for _, r := range []rule{
		{timed && c.Iterations > 0, "-n", "does nothing with -D"},
		{c.Endless && c.Iterations > 0, "-n", "does nothing with --run_infinitely"},
		{!timed && c.Margin >= 0, "-f", "does nothing without -D"},
		{!timed && c.CPUUtil, "--cpu_util", "does nothing without -D"},
		{timed && (c.Sorted || c.Unsorted), "-H, -U", "do nothing with -D, which keeps no single latencies: --histogram has their distribution"},
		{c.Measure == Latency && c.TxDepth > 1, "-t", "does nothing in a latency test, which has one message in flight"},
		{c.Measure == Latency && c.CQModeration > 1, "-Q", "does nothing in a latency test"},
		{c.Measure == Latency && c.Gbits, "--report_gbits", "does nothing in a latency test"},
		{c.CM && (c.MTU > 0 || c.SL > 0 || c.TClass > 0 || c.PKeyIndex > 0 || c.DLID > 0 || len(c.FlowLabels) > 0), "-m, -S, --tclass, --pkey_index, --dlid, --flow_label", "do nothing with -R: rdma_cm finds the path; -T is the type of service"},
		{c.RxDepth > 0 && !c.Receives(), "-r", "does nothing where nothing is received"},
	} {
		if r.bad {
			out = append(out, r.flag+" "+r.text)
		}
	}
	return out
}

// batches checks lists of sends and moderated completions.
func (c *Config) batches() []rule {
	n, l := c.Iters(), uint64(c.PostList)
	return []rule{
		{n > 0 && n%l != 0, "-l", fmt.Sprintf("-n %d is not a multiple of -l %d: give a multiple", n, l)},
		{n > 0 && n%uint64(c.RecvList) != 0, "--recv_post_list", fmt.Sprintf("-n %d is not a multiple of --recv_post_list %d: give a multiple", n, c.RecvList)},
		{c.RecvList > 1 && c.RecvList > c.eachReceives(), "--recv_post_list", fmt.Sprintf("%d is longer than a QP's receives (%d): give a larger -r or a shorter list", c.RecvList, c.eachReceives())},
		{c.PostList > c.SendDepth(), "-l", fmt.Sprintf("-l %d is longer than the send queue (%d): give a larger -t or a shorter list", l, c.SendDepth())},
		{c.Rate > 0 && c.RateType != "SW", "--rate_limit", "without --rate_limit_type=SW the NIC limits the rate (ibv_modify_qp_rate_limit), which is not supported: add --rate_limit_type=SW on this side"},
		{c.RateType != "" && c.Rate == 0, "--rate_limit_type", "this is about a rate: add --rate_limit"},
		{c.Burst > 0 && c.Rate == 0, "--burst_size", "this is about a rate: add --rate_limit"},
		{c.Rate > 0 && c.burstGap(c.MessageSize(0)) > time.Second, "--rate_limit", "a burst of this size takes more than a second at this rate: give a smaller --burst_size"},
		{c.PostList > 1 && c.CQModeration > 0 && c.PostList%c.CQModeration != 0, "-l", fmt.Sprintf("-l %d is not a multiple of -Q %d: leave -Q out", l, c.CQModeration)},
	}
}

// memory checks the location of the data.
func (c *Config) memory() []rule {
	return []rule{
		{c.HugePages && c.File != "", "--use_hugepages", "this and --mmap both say where the data lies: leave one out"},
		{c.FileOffset > 0 && c.File == "", "--mmap-offset", "this is about a file: add --mmap"},
		{c.FileOffset%4096 != 0, "--mmap-offset", "a file is mapped from the beginning of a page: give a multiple of 4096"},
		{c.OnGPU() && c.CM && c.Connection == UD, "--use_cuda", "with -R the processor reads the first datagram: use -c RC, or leave -R out"},
		{c.OnGPU() && (c.HugePages || c.File != ""), "--use_cuda", "the data lies in a GPU's memory: leave --mmap and --use_hugepages out"},
		{c.GPU >= 0 && c.GPUBusID != "", "--use_cuda_bus_id", "this and --use_cuda both say which GPU: leave one out"},
		{c.DMABuf && !c.OnGPU(), "--use_cuda_dmabuf", "this is about a GPU's memory: add --use_cuda"},
		{c.OnGPU() && c.Operation == Write && c.Measure == Latency && !c.Immediate, "--use_cuda", "the processor cannot watch a GPU's memory for a write: add --write_with_imm, or use read_lat or send_lat"},
		{c.OnGPU() && c.EachMR, "--mr_per_qp", "a GPU's memory is registered as one region: leave --mr_per_qp out"},
		{c.OnGPU() && c.OnDemand, "--odp", "a GPU's memory has no on-demand paging: leave --odp out"},
		{c.Payload != "" && c.OnGPU(), "--payload_file_path", "this fills host memory: leave --use_cuda out"},
		{c.Payload != "" && c.Operation == Write && c.Measure == Latency && !c.Immediate, "--payload_file_path", "write_lat watches memory for its own counters: add --write_with_imm, or use send_lat"},
		{len(c.Cores) > 0 && c.NUMANode >= 0, "--numa_node", "this and --pin_cores both say where the measurement runs: leave one out"},
		{c.OnGPU() && c.Operation == Atomic, "--use_cuda", "atomics are measured on host memory"},
		{c.OnGPU() && c.Inline > 0, "-I", "a GPU's memory is never put inline: leave -I out"},
	}
}

// reports checks the options for the output.
func (c *Config) reports() []rule {
	latency := c.Measure == Latency
	f := c.Format
	return []rule{
		{!slices.Contains([]string{"", "bandwidth", "message_rate", "latency", "json"}, f), "--output", fmt.Sprintf("%q; want bandwidth, message_rate, latency or json", f)},
		{latency && (f == "bandwidth" || f == "message_rate"), "--output", "a latency test gives latency or json"},
		{!latency && f == "latency", "--output", "a bandwidth test gives bandwidth, message_rate or json"},
		{c.ForceLink != "" && c.ForceLink != "IB" && c.ForceLink != "Ethernet", "--force-link", "a link is IB or Ethernet"},
		{c.IPv6TCP && c.Source != "" && !isIPv6(c.Source), "--bind_source_ip", "with --ipv6-addr this is an IPv6 address"},
	}
}

func isIPv6(s string) bool {
	for i := range len(s) {
		if s[i] == ':' {
			return true
		}
	}
	return false
}
