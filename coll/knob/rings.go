package knob

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
)

var ringLists = kind{`ranks with anything but digits and | between them, rings with | between them: "0 1 2 3 | 3 2 1 0"`, func(k *Knobs, s string) (err error) {
	k.Rings, err = parseRings(s)
	return err
}}

// maxRank bounds what a rank in NCCL_RINGS may be: more than any job has.
const maxRank = 1 << 24

// parseRings parses NCCL_RINGS. An empty ring, as after a trailing |, is ignored.
func parseRings(s string) ([][]int, error) {
	var rings [][]int
	for part := range strings.SplitSeq(s, "|") {
		var ring []int
		digits := strings.FieldsFunc(part, func(r rune) bool { return r < '0' || r > '9' })
		for _, d := range digits {
			rank, err := strconv.Atoi(d)
			if err != nil || rank > maxRank {
				return nil, fmt.Errorf("rank %s is out of range", d)
			}
			ring = append(ring, rank)
		}
		if ring != nil {
			rings = append(rings, ring)
		}
	}
	if rings == nil {
		return nil, errors.New("it names no rank")
	}
	return rings, nil
}

// RingsFor returns the rings of NCCL_RINGS that are orders of the communicator's ranks, and the number
// of the others, which are left out.
func (k *Knobs) RingsFor(ranks int) (rings [][]int, leftOut int) {
	for _, ring := range k.Rings {
		if isOrder(ring, ranks) {
			rings = append(rings, ring)
		} else {
			leftOut++
		}
	}
	return rings, leftOut
}

// isOrder reports whether each of the ranks stands in a ring once.
func isOrder(ring []int, ranks int) bool {
	seen := make([]bool, ranks)
	for _, r := range ring {
		if r >= ranks || seen[r] {
			return false
		}
		seen[r] = true
	}
	return len(ring) == ranks
}
