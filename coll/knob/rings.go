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

// RingsFor returns the rings of NCCL_RINGS that have as many ranks as the communicator, and the
// number of other rings, which are left out. A ring of the right length that is not an order of
// the ranks 0 … ranks-1 is an error.
func (k *Knobs) RingsFor(ranks int) (rings [][]int, leftOut int, err error) {
	for i, ring := range k.Rings {
		if len(ring) != ranks {
			leftOut++
			continue
		}
		seen := make([]bool, ranks)
		for _, r := range ring {
			if r >= ranks {
				return nil, 0, fmt.Errorf("NCCL_RINGS: ring %d names rank %d; the communicator's last is %d", i, r, ranks-1)
			}
			if seen[r] {
				return nil, 0, fmt.Errorf("NCCL_RINGS: ring %d names rank %d twice; each rank stands in it once", i, r)
			}
			seen[r] = true
		}
		rings = append(rings, ring)
	}
	return rings, leftOut, nil
}
