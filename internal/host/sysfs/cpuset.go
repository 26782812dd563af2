package sysfs

import (
	"fmt"
	"math/bits"
	"slices"
	"strconv"
	"strings"
)

// maxCPU limits the numbers in a CPUSet: kernels support at most 8,192 processors, and input to a
// parser must not determine how much memory it allocates.
const maxCPU = 1 << 14

// A CPUSet is a set of small numbers: processors, or NUMA nodes. The zero value is empty. Sets are
// values: only Add changes a set.
type CPUSet struct{ words []uint64 }

// NewCPUSet returns a set of numbers; numbers out of range are ignored.
func NewCPUSet(cpus ...int) CPUSet {
	var s CPUSet
	for _, c := range cpus {
		s.Add(c)
	}
	return s
}

// Add adds a number to the set. Numbers below 0 or from 16,384 are ignored.
func (s *CPUSet) Add(cpu int) {
	if cpu < 0 || cpu >= maxCPU {
		return
	}
	for len(s.words) <= cpu/64 {
		s.words = append(s.words[:len(s.words):len(s.words)], 0) // copies must not share the array
	}
	s.words[cpu/64] |= 1 << (cpu % 64)
}

// Has reports whether a number is in the set.
func (s CPUSet) Has(cpu int) bool {
	return cpu >= 0 && cpu/64 < len(s.words) && s.words[cpu/64]>>(cpu%64)&1 == 1
}

// Len returns the number of elements.
func (s CPUSet) Len() int {
	n := 0
	for _, w := range s.words {
		n += bits.OnesCount64(w)
	}
	return n
}

// List returns the numbers in ascending order.
func (s CPUSet) List() []int {
	var out []int
	for i, w := range s.words {
		for ; w != 0; w &= w - 1 {
			out = append(out, i*64+bits.TrailingZeros64(w))
		}
	}
	return out
}

// Intersect returns the numbers that are in both sets.
func (s CPUSet) Intersect(t CPUSet) CPUSet {
	var out CPUSet
	for _, c := range s.List() {
		if t.Has(c) {
			out.Add(c)
		}
	}
	return out
}

// Equal reports whether two sets contain the same numbers.
func (s CPUSet) Equal(t CPUSet) bool { return slices.Equal(s.List(), t.List()) }

// String returns the kernel's list form: 0-23,48-71.
func (s CPUSet) String() string {
	var b strings.Builder
	list := s.List()
	for i := 0; i < len(list); {
		j := i
		for j+1 < len(list) && list[j+1] == list[j]+1 {
			j++
		}
		if b.Len() > 0 {
			b.WriteByte(',')
		}
		b.WriteString(strconv.Itoa(list[i]))
		if j > i {
			fmt.Fprintf(&b, "-%d", list[j])
		}
		i = j + 1
	}
	return b.String()
}

// Mask returns the kernel's mask form, groups of 32 bits with the highest first: 0000ffff,ffffffff.
func (s CPUSet) Mask() string {
	var groups []string
	for _, w := range s.words {
		groups = append(groups, fmt.Sprintf("%08x", uint32(w)), fmt.Sprintf("%08x", uint32(w>>32)))
	}
	for len(groups) > 1 && groups[len(groups)-1] == "00000000" {
		groups = groups[:len(groups)-1]
	}
	if len(groups) == 0 {
		return "00000000"
	}
	slices.Reverse(groups)
	return strings.Join(groups, ",")
}

// MarshalText returns String.
func (s CPUSet) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// UnmarshalText calls ParseCPUList.
func (s *CPUSet) UnmarshalText(b []byte) (err error) {
	*s, err = ParseCPUList(string(b))
	return err
}

// ParseCPUList parses the list form of cpulist files. An empty text is the empty set, as for a NUMA
// node without processors.
func ParseCPUList(text string) (CPUSet, error) {
	var s CPUSet
	text = strings.TrimSpace(text)
	if text == "" {
		return s, nil
	}
	for part := range strings.SplitSeq(text, ",") {
		from, to, ok := strings.Cut(part, "-")
		if !ok {
			to = from
		}
		a, err1 := strconv.ParseUint(from, 10, 32)
		b, err2 := strconv.ParseUint(to, 10, 32)
		if err1 != nil || err2 != nil || b < a || b >= maxCPU {
			return CPUSet{}, fmt.Errorf("%.40q is not a list of processors such as 0-3,8", text)
		}
		for c := a; c <= b; c++ {
			s.Add(int(c))
		}
	}
	return s, nil
}

// ParseCPUMask parses the mask form of cpumap files.
func ParseCPUMask(text string) (CPUSet, error) {
	var s CPUSet
	groups := strings.Split(strings.TrimSpace(text), ",")
	if len(groups) > maxCPU/32 {
		return s, fmt.Errorf("a mask of %d groups; at most %d are read", len(groups), maxCPU/32)
	}
	for i, g := range groups {
		v, err := strconv.ParseUint(g, 16, 32)
		if err != nil {
			return CPUSet{}, fmt.Errorf("%.40q is not a mask of processors such as 0000ffff,ffffffff", text)
		}
		for base := (len(groups) - 1 - i) * 32; v != 0; v &= v - 1 {
			s.Add(base + bits.TrailingZeros64(v))
		}
	}
	return s, nil
}
