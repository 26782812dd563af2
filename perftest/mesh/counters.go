package mesh

import (
	"fmt"
	"slices"
	"strings"

	"github.com/assay-hpc/assay/internal/host/sysfs"
	"github.com/assay-hpc/assay/internal/result"
)

// A meaning is the verdict and the explanation for a counter that increased.
type meaning struct {
	verdict result.Verdict // Pass: shown, but not a problem
	text    string
}

// meanings are the watched counters, by the kernel's names. Counters with Fail count events that no
// healthy link has. Counters with Warn count events that cost time but may be a neighbour's fault.
var meanings = map[string]meaning{
	"link_downed":                     {result.Fail, "the link went down"},
	"link_error_recovery":             {result.Fail, "the link had to recover: cable, transceiver or switch port"},
	"symbol_error":                    {result.Warn, "bit errors on the link: cable or transceiver"},
	"port_rcv_errors":                 {result.Fail, "damaged packets arrived: cable, transceiver or the other end's port"},
	"port_rcv_remote_physical_errors": {result.Warn, "packets arrived that were damaged on another link"},
	"port_rcv_switch_relay_errors":    {result.Warn, "the switch could not pass packets on"},
	"local_link_integrity_errors":     {result.Fail, "too many errors on the link"},
	"excessive_buffer_overrun_errors": {result.Fail, "buffers overran"},
	"port_xmit_discards":              {result.Warn, "packets were thrown away before they were sent: congestion, or a link that was down"},
	"VL15_dropped":                    {result.Pass, "management packets were dropped"},
	"port_xmit_wait":                  {result.Pass, "ticks in which there was data, and no credit to send it"},

	"out_of_sequence":                {result.Warn, "packets arrived out of order: loss, or adaptive routing"},
	"packet_seq_err":                 {result.Warn, "the peer asked for packets again: loss"},
	"local_ack_timeout_err":          {result.Warn, "acknowledgements did not arrive in time: loss"},
	"rnr_nak_retry_err":              {result.Warn, "the receiver was not ready"},
	"out_of_buffer":                  {result.Warn, "no receive was posted for messages that arrived"},
	"implied_nak_seq_err":            {result.Warn, "reads had to be repeated: loss"},
	"duplicate_request":              {result.Pass, "requests arrived twice"},
	"rx_icrc_encapsulated":           {result.Warn, "packets with a wrong checksum arrived"},
	"roce_adp_retrans":               {result.Warn, "packets were sent again: loss"},
	"roce_slow_restart":              {result.Warn, "sending slowed down after loss"},
	"req_transport_retries_exceeded": {result.Fail, "a queue pair gave up"},

	// Soft RoCE's.
	"out_of_seq_request":     {result.Warn, "requests arrived out of order: loss"},
	"rcvd_seq_err":           {result.Warn, "the peer asked for packets again: loss"},
	"completer_retry_err":    {result.Pass, "requests were sent again"},
	"retry_exceeded_err":     {result.Fail, "a queue pair gave up"},
	"retry_rnr_exceeded_err": {result.Fail, "a queue pair gave up: the receiver was not ready"},
	"send_rnr_err":           {result.Pass, "this receiver was not ready"},

	"np_cnp_sent":                {result.Pass, "congestion notifications sent: marked packets arrived here"},
	"rp_cnp_handled":             {result.Pass, "congestion notifications obeyed: this sender slowed down"},
	"rp_cnp_ignored":             {result.Pass, "congestion notifications ignored"},
	"np_ecn_marked_roce_packets": {result.Pass, "packets arrived that a switch had marked for congestion"},
}

// watched returns a counter's meaning. Only some devices report pause frames (PFC) in sysfs, each
// under its own names.
func watched(name string) (m meaning, ok bool) {
	if m, ok = meanings[name]; ok {
		return m, true
	}
	if strings.Contains(name, "pause") || strings.Contains(name, "pfc") {
		return meaning{result.Pass, "pause frames (PFC)"}, true
	}
	return m, false
}

// increases returns how much the watched counters increased. A counter that decreased was reset
// meanwhile, and counts from 0.
func increases(before, after map[string]uint64) map[string]uint64 {
	out := map[string]uint64{}
	for name, v := range after {
		old, was := before[name]
		if _, ok := watched(name); !ok || !was || v == old {
			continue
		}
		if v > old {
			out[name] = v - old
		} else if v > 0 {
			out[name] = v
		}
	}
	return out
}

// A localPort is a port as its own host sees it.
type localPort struct {
	Device   string
	Port     int
	LinkType string
	Hardware bool
	Link     link
}

// localPorts are a host's ports, in the order of the devices' names.
func localPorts(tree sysfs.FS) ([]localPort, error) {
	devices, err := tree.RDMADevices()
	if err != nil {
		return nil, err
	}
	var out []localPort
	for _, d := range devices {
		for _, p := range d.Ports {
			out = append(out, localPort{
				Device: d.Name, Port: p.Number, LinkType: p.LinkLayer, Hardware: d.OnPCI,
				Link: link{State: p.State, Phys: p.PhysState, Gbit: p.Rate.Gbit, Lanes: p.Rate.Lanes, Speed: p.Rate.Name},
			})
		}
	}
	return out, nil
}

// choose returns the requested ports. No names and number 0 select all; a name that does not exist
// is an error.
func choose(all []localPort, devices []string, number int) ([]localPort, error) {
	var out []localPort
	for _, name := range devices {
		if !slices.ContainsFunc(all, func(p localPort) bool { return p.Device == name }) {
			var names []string
			for _, p := range all {
				names = append(names, p.Device)
			}
			return nil, fmt.Errorf("there is no RDMA device %q; there are %s", name, strings.Join(slices.Compact(names), ", "))
		}
	}
	for _, p := range all {
		if (len(devices) == 0 || slices.Contains(devices, p.Device)) && (number == 0 || p.Port == number) {
			out = append(out, p)
		}
	}
	return out, nil
}
