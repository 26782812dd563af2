package hang

import (
	"fmt"
	"strings"

	"github.com/assay-hpc/assay/coll/op"
)

// How verdicts describe operations, ranks and processes to people.

// at returns the operation that a rank is in, as far as it is known.
func (h head) at() place {
	if h.In != nil {
		return *h.In
	}
	return place{Call: h.Call, P2P: h.P2P, Peer: h.Peer}
}

// in describes the operation that a rank is in.
func (h head) in() string {
	if h.Graph || h.In == nil {
		return h.what()
	}
	return h.In.String() + h.In.ago()
}

// what describes a rank's last call.
func (h head) what() string {
	switch {
	case h.Graph:
		return inGraph
	case h.Call.Seq == 0 && h.P2P == 0:
		return ""
	case h.P2P > 0:
		return "Sends or Recvs"
	}
	return h.Call.String()
}

// last describes a rank's last call in a sentence for people.
func (h head) last() string {
	s := "it has called nothing yet"
	switch {
	case h.P2P > 0:
		s = fmt.Sprintf("its last call was of Sends or Recvs, %d s ago", h.Ago)
	case h.Call.Seq > 0:
		s = fmt.Sprintf("its last call was %s, %d s ago", h.Call, h.Ago)
	}
	if h.Else != "" {
		s += ", and since then " + h.Else
	}
	return s
}

// String formats a stall for people: "AllReduce of float32 with sum, 100 elements, operation
// #12".
func (s stall) String() string {
	if s.Seq == 0 {
		return "the communicator was made"
	}
	return fmt.Sprintf("%s, operation #%d", s.operation(), s.Seq)
}

// operation is String without the number.
func (s stall) operation() string {
	what := op.NameOf(s.Sign)
	if s.Count >= 0 {
		what += fmt.Sprintf(", %d elements", s.Count)
	}
	if c, _ := op.Signed(s.Sign); c.Rooted() && s.Root >= 0 {
		what += fmt.Sprintf(", root %d", s.Root)
	}
	return what
}

// mostNamed is how many ranks or reasons a verdict names.
const mostNamed = 4

func few(all []string, sep string) string {
	if n := len(all) - mostNamed; n > 0 {
		return fmt.Sprintf("%s and %d more", strings.Join(all[:mostNamed], sep), n)
	}
	return strings.Join(all, sep)
}

// list formats ranks for people.
func list(ranks []int) string {
	var all []string
	for _, r := range ranks {
		all = append(all, fmt.Sprint(r))
	}
	return few(all, ", ")
}
