package fabric

import (
	"math"

	"github.com/assay-hpc/assay/harness/hunt"
)

// Counts are the changes of an RDMA port's counters during a part of a measurement; 0 also if the port
// does not count something. Not all devices count packets: an event is one packet at least.
type Counts struct {
	Sent    uint64 `json:"sent,omitempty"`    // packets
	Resent  uint64 `json:"resent,omitempty"`  // what this end sent or requested again
	Gaps    uint64 `json:"gaps,omitempty"`    // packets that arrived here before an earlier one
	Repeats uint64 `json:"repeats,omitempty"` // requests that had arrived here already
	Damaged uint64 `json:"damaged,omitempty"` // packets that arrived here damaged
	Downs   uint64 `json:"downs,omitempty"`   // how often the link went down, or had to recover
}

// Ends is what the counters of one end say of a measurement.
type Ends struct {
	Small Counts `json:"small"` // of small reads, by the first machine
	Large Counts `json:"large"` // of writes, in both directions
}

// changes returns what happened between two readings of a port's counters. The names are those of
// mlx5, soft RoCE and bnxt_re in the kernel (counters.c, rxe_hw_counters.c and hw_counters.c of each),
// and of the ports' standard counters. Of several that may count the same, the largest counts.
func changes(before, after map[string]uint64) Counts {
	most := func(names ...string) (n uint64) {
		for _, name := range names {
			if was, known := before[name]; known && after[name] > was {
				n = max(n, after[name]-was)
			}
		}
		return n
	}
	return Counts{
		Sent: most("port_xmit_packets", "sent_pkts", "tx_pkts"),
		Resent: most("packet_seq_err", "implied_nak_seq_err", "local_ack_timeout_err", "roce_adp_retrans",
			"rcvd_seq_err", "completer_retry_err", "seq_err_naks_rcvd", "to_retransmits", "missing_resp"),
		Gaps:    most("out_of_sequence", "out_of_seq_request", "oos_drop_count"),
		Repeats: most("duplicate_request", "dup_req"),
		Damaged: most("port_rcv_errors", "rx_icrc_encapsulated"),
		Downs:   most("link_downed", "link_error_recovery"),
	}
}

// resentShare is the share of packets that had to be sent again.
func (c Counts) resentShare() float64 {
	if c.Sent == 0 {
		return 0
	}
	return min(1, float64(c.Resent)/float64(c.Sent))
}

// written is what became of the packets of writes from one end to the other.
func written(from, to Counts) hunt.Packets {
	p := hunt.Packets{Sent: clamped(from.Sent), Lost: clamped(max(from.Resent, to.Damaged))}
	switch {
	case p.Lost > 0: // what is sent again arrives late, and twice
	case from.Sent == 0: // and if it was, it is not known
		p.Lost = clamped(to.Gaps)
	default:
		p.Swapped, p.Twice = clamped(to.Gaps), clamped(to.Repeats)
	}
	return p
}

// asked is what became of the packets of reads, one at a time, and of their answers. One that was
// repeated had arrived if the other end saw it twice: its answer was lost.
func asked(from, to Counts) (there, back hunt.Packets) {
	answers := min(from.Resent, to.Repeats)
	there.Lost, back.Lost = clamped(max(from.Resent-answers, to.Damaged)), clamped(max(answers, from.Damaged))
	if from.Resent == 0 {
		there.Twice = clamped(to.Repeats)
	}
	return there, back
}

// addCounted adds what the counters of both ends say of a pair's measurement; held is how many reads were
// held up.
func addCounted(ends [2]Ends, held int, there, back *hunt.Packets) {
	add := func(to *hunt.Packets, p hunt.Packets) {
		to.Sent, to.Lost, to.Twice, to.Swapped = to.Sent+p.Sent, to.Lost+p.Lost, to.Twice+p.Twice, to.Swapped+p.Swapped
		to.InRow = max(to.InRow, p.InRow)
	}
	a, b := asked(ends[0].Small, ends[1].Small)
	for _, p := range []*hunt.Packets{&a, &b} {
		p.InRow = p.Lost / max(held, 1) // of one read
		for _, e := range ends {
			if e.Small.Downs+e.Large.Downs > 0 {
				p.InRow = interruption
			}
		}
	}
	add(there, a)
	add(back, b)
	add(there, written(ends[0].Large, ends[1].Large))
	add(back, written(ends[1].Large, ends[0].Large))
}

// interruption is a number of packets lost in a row that is one.
const interruption = 3

// clamped converts what another machine counted.
func clamped(n uint64) int { return int(min(n, math.MaxInt32)) }
