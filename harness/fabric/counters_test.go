package fabric

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/assay-hpc/assay/harness/hunt"
	"github.com/assay-hpc/assay/internal/host/sysfs"
	"github.com/assay-hpc/assay/internal/host/sysfs/sysfstest"
	"github.com/assay-hpc/assay/perftest/tcp"
)

// hwCounters is a port's counters as devices have them: the names of a ConnectX-7 (Linux 6.8), of soft
// RoCE (6.1), and of a Broadcom NIC (6.12), at values from which some differ.
var hwCounters = map[string][]string{
	"mlx5": {"counters/link_downed", "counters/link_error_recovery", "counters/port_rcv_errors", "counters/port_xmit_packets", "counters/port_xmit_wait",
		"hw_counters/duplicate_request", "hw_counters/implied_nak_seq_err", "hw_counters/local_ack_timeout_err", "hw_counters/np_cnp_sent",
		"hw_counters/out_of_buffer", "hw_counters/out_of_sequence", "hw_counters/packet_seq_err", "hw_counters/req_cqe_error",
		"hw_counters/rnr_nak_retry_err", "hw_counters/roce_adp_retrans", "hw_counters/roce_adp_retrans_to", "hw_counters/roce_slow_restart",
		"hw_counters/rp_cnp_handled", "hw_counters/rx_icrc_encapsulated", "hw_counters/rx_write_requests"},
	"rxe": {"hw_counters/ack_deferred", "hw_counters/completer_retry_err", "hw_counters/duplicate_request", "hw_counters/link_downed",
		"hw_counters/out_of_seq_request", "hw_counters/rcvd_pkts", "hw_counters/rcvd_rnr_err", "hw_counters/rcvd_seq_err",
		"hw_counters/retry_exceeded_err", "hw_counters/sent_pkts"},
	"bnxt_re": {"hw_counters/dup_req", "hw_counters/missing_resp", "hw_counters/oos_drop_count", "hw_counters/rnr_naks_rcvd",
		"hw_counters/seq_err_naks_rcvd", "hw_counters/to_retransmits", "hw_counters/tx_pkts", "hw_counters/rx_out_of_buffer"},
}

// tree is a device's counters in a tree of /sys; with plus, some are higher.
func tree(t *testing.T, device string, plus map[string]uint64) sysfs.FS {
	var b strings.Builder
	fmt.Fprintf(&b, "-- sys/class/infiniband/%s/ports/1/hw_counters/lifespan --\n10\n", device)
	for i, name := range hwCounters[device] {
		_, short, _ := strings.Cut(name, "/")
		fmt.Fprintf(&b, "-- sys/class/infiniband/%s/ports/1/%s --\n%d\n", device, name, uint64(1000*i)+plus[short])
		delete(plus, short)
	}
	for name := range plus {
		t.Errorf("%s has no counter %s", device, name)
	}
	return sysfstest.Tree(t, []byte(b.String()))
}

// TestCounters: what two readings of a port's counters say.
func TestCounters(t *testing.T) {
	for name, tt := range map[string]struct {
		device string
		plus   map[string]uint64
		want   Counts
	}{
		"nothing":               {"mlx5", nil, Counts{}},
		"sent":                  {"mlx5", map[string]uint64{"port_xmit_packets": 6e6}, Counts{Sent: 6e6}},
		"the peer missed one":   {"mlx5", map[string]uint64{"packet_seq_err": 1}, Counts{Resent: 1}},
		"no acknowledgement":    {"mlx5", map[string]uint64{"local_ack_timeout_err": 2, "roce_adp_retrans": 5, "roce_adp_retrans_to": 1}, Counts{Resent: 5}},
		"no answer to a read":   {"mlx5", map[string]uint64{"implied_nak_seq_err": 1}, Counts{Resent: 1}},
		"one was missed":        {"mlx5", map[string]uint64{"out_of_sequence": 3}, Counts{Gaps: 3}},
		"twice":                 {"mlx5", map[string]uint64{"duplicate_request": 4}, Counts{Repeats: 4}},
		"damaged":               {"mlx5", map[string]uint64{"rx_icrc_encapsulated": 1, "port_rcv_errors": 2}, Counts{Damaged: 2}},
		"down":                  {"mlx5", map[string]uint64{"link_downed": 1}, Counts{Downs: 1}},
		"recovered":             {"mlx5", map[string]uint64{"link_error_recovery": 1}, Counts{Downs: 1}},
		"no loss":               {"mlx5", map[string]uint64{"rnr_nak_retry_err": 3, "out_of_buffer": 3, "rp_cnp_handled": 9, "np_cnp_sent": 9, "port_xmit_wait": 1e6, "roce_slow_restart": 1}, Counts{}},
		"soft RoCE lost":        {"rxe", map[string]uint64{"sent_pkts": 900, "rcvd_seq_err": 2, "completer_retry_err": 3}, Counts{Sent: 900, Resent: 3}},
		"soft RoCE missed":      {"rxe", map[string]uint64{"out_of_seq_request": 2, "duplicate_request": 1, "link_downed": 1}, Counts{Gaps: 2, Repeats: 1, Downs: 1}},
		"Broadcom's lost":       {"bnxt_re", map[string]uint64{"tx_pkts": 100, "to_retransmits": 1, "seq_err_naks_rcvd": 2}, Counts{Sent: 100, Resent: 2}},
		"Broadcom's missed one": {"bnxt_re", map[string]uint64{"oos_drop_count": 1, "dup_req": 2, "rnr_naks_rcvd": 5}, Counts{Gaps: 1, Repeats: 2}},
	} {
		t.Run(name, func(t *testing.T) {
			port := rdmaPort{device: tt.device, number: 1}
			before := (&rdmaProber{tree: tree(t, tt.device, nil)}).counters(port)
			after := (&rdmaProber{tree: tree(t, tt.device, tt.plus)}).counters(port)
			if got := changes(before, after); got != tt.want {
				t.Errorf("%+v, want %+v", got, tt.want)
			}
			if got := changes(after, before); got != (Counts{}) {
				t.Errorf("counters that were reset: %+v", got)
			}
			if got := changes(nil, after); got != (Counts{}) {
				t.Errorf("counters that could not be read before: %+v", got)
			}
		})
	}
}

// TestAddCounted: what the counters of both ends say together.
func TestAddCounted(t *testing.T) {
	type packets = hunt.Packets
	for name, tt := range map[string]struct {
		ends        [2]Ends
		held        int
		there, back packets
	}{
		"nothing": {},
		"writes": {[2]Ends{{Large: Counts{Sent: 1000}}, {Large: Counts{Sent: 900}}}, 0,
			packets{Sent: 1000}, packets{Sent: 900}},
		"a write is lost": {[2]Ends{{Large: Counts{Sent: 1000, Resent: 2}}, {Large: Counts{Sent: 900, Gaps: 2, Repeats: 5}}}, 0,
			packets{Sent: 1000, Lost: 2}, packets{Sent: 900}},
		"writes back are lost": {[2]Ends{{Large: Counts{Sent: 1000, Gaps: 1}}, {Large: Counts{Sent: 900, Resent: 1}}}, 0,
			packets{Sent: 1000}, packets{Sent: 900, Lost: 1}},
		"reordered": {[2]Ends{{Large: Counts{Sent: 1000}}, {Large: Counts{Sent: 900, Gaps: 7}}}, 0,
			packets{Sent: 1000, Swapped: 7}, packets{Sent: 900}},
		"gaps, and what the sender knows is not known": {[2]Ends{{}, {Large: Counts{Sent: 900, Gaps: 7}}}, 0,
			packets{Lost: 7}, packets{Sent: 900}},
		"duplicated": {[2]Ends{{Large: Counts{Sent: 1000, Repeats: 3}}, {Large: Counts{Sent: 900}}}, 0,
			packets{Sent: 1000}, packets{Sent: 900, Twice: 3}},
		"damaged": {[2]Ends{{Large: Counts{Sent: 1000}}, {Large: Counts{Sent: 900, Damaged: 3}}}, 0,
			packets{Sent: 1000, Lost: 3}, packets{Sent: 900}},
		"a read is lost": {[2]Ends{{Small: Counts{Resent: 1}}, {}}, 1,
			packets{Lost: 1, InRow: 1}, packets{}},
		"an answer is lost": {[2]Ends{{Small: Counts{Resent: 1}}, {Small: Counts{Repeats: 1}}}, 1,
			packets{}, packets{Lost: 1, InRow: 1}},
		"three reads are lost": {[2]Ends{{Small: Counts{Resent: 3}}, {}}, 3,
			packets{Lost: 3, InRow: 1}, packets{}},
		"a read is lost three times": {[2]Ends{{Small: Counts{Resent: 3}}, {}}, 1,
			packets{Lost: 3, InRow: 3}, packets{}},
		"a link goes down": {[2]Ends{{}, {Large: Counts{Downs: 1}}}, 0,
			packets{InRow: interruption}, packets{InRow: interruption}},
	} {
		t.Run(name, func(t *testing.T) {
			var there, back packets
			addCounted(tt.ends, tt.held, &there, &back)
			if there != tt.there || back != tt.back {
				t.Errorf("%+v and %+v, want %+v and %+v", there, back, tt.there, tt.back)
			}
		})
	}
}

func TestTrips(t *testing.T) {
	const pause = 333 * time.Microsecond
	var samples []float64
	for i := range 299 {
		samples = append(samples, float64(pause)+3000+float64(i)) // ns
	}
	samples[7], samples[8], samples[9] = float64(pause)+20e6, float64(pause)+50e3, float64(pause)+900e3
	want := Trips{Count: 299, Median: 3152, Tail: 50000, Late: 20e6 - 3000, Held: 1}
	if got := trips(samples, pause); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
	if got := trips(nil, pause); !got.Broken {
		t.Errorf("without a sample: %+v", got)
	}
	if p := (Trips{Broken: true}).packets(); p.InRow < 3 || p.Sent != 0 {
		t.Errorf("a connection that broke: %+v", p)
	}
}

// TestPackets: pings of which none was heard of say nothing but that.
func TestPackets(t *testing.T) {
	for name, tt := range map[string]struct {
		of   tcp.Packets
		want hunt.Packets
	}{
		"all":            {tcp.Packets{Sent: 100, Late: time.Millisecond}, hunt.Packets{Sent: 100, Late: time.Millisecond}},
		"three lost":     {tcp.Packets{Sent: 100, Lost: 3, Outage: 4 * time.Millisecond}, hunt.Packets{Sent: 100, Lost: 3, InRow: 3}},
		"none":           {tcp.Packets{Sent: 100, Lost: 100, Outage: 101 * time.Millisecond}, hunt.Packets{Silent: true}},
		"none to answer": {tcp.Packets{}, hunt.Packets{}},
	} {
		if got := packets(tt.of, tcp.PingOptions{}); got != tt.want {
			t.Errorf("%s: %+v, want %+v", name, got, tt.want)
		}
	}
}
