package probe

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"
)

// A flag is one of perftest's flags, or of our own.
type flag struct {
	group string
	short byte // 0: none
	long  string
	arg   string // name of the value in the usage; empty: takes none
	help  string
	only  func(Tool) bool // tools that have the flag; nil: all
	set   func(c *Config, v string) error
}

// offered reports whether a tool's usage contains the flag. Other tools parse the flag,
// too, and Config.Check or Config.Remarks reports it.
func (f flag) offered(t Tool) bool { return f.only == nil || f.only(t) }

// Conditions for flag.only.
func isBW(t Tool) bool      { return t.Measure == Bandwidth }
func isLat(t Tool) bool     { return t.Measure == Latency }
func isSend(t Tool) bool    { return t.Operation == Send }
func isWrite(t Tool) bool   { return t.Operation == Write }
func receiving(t Tool) bool { return isSend(t) || isWrite(t) }
func isAtomic(t Tool) bool  { return t.Operation == Atomic }
func notAtomic(t Tool) bool { return t.Operation != Atomic }
func initiates(t Tool) bool { return t.Operation == Read || t.Operation == Atomic }
func carries(t Tool) bool   { return !initiates(t) }
func warmable(t Tool) bool  { return isBW(t) && !isSend(t) }
func takesGPU(t Tool) bool  { return !isAtomic(t) }

const (
	groupTest    = "What is measured:"
	groupNet     = "The way through the network:"
	groupQP      = "Queue pairs:"
	groupControl = "The control connection:"
	groupOut     = "What is reported:"
	groupMore    = "More:"
)

// whole parses an integer into a field. perftest accepts decimal numbers only.
func whole(p func(*Config) *int, least int) func(*Config, string) error {
	return func(c *Config, v string) error {
		n, err := strconv.Atoi(v)
		if err != nil || n < least || n > math.MaxInt32 {
			return fmt.Errorf("%q is no whole number from %d on", v, least)
		}
		*p(c) = n
		return nil
	}
}

// based is whole for fields that perftest parses in any base.
func based(p func(*Config) *int) func(*Config, string) error {
	return func(c *Config, v string) error {
		n, err := strconv.ParseInt(v, 0, 32)
		if err != nil || n < 0 {
			return fmt.Errorf("%q is no whole number such as 10 or 0x0a", v)
		}
		*p(c) = int(n)
		return nil
	}
}

// yes sets a field to true.
func yes(p func(*Config) *bool) func(*Config, string) error {
	return func(c *Config, _ string) error { *p(c) = true; return nil }
}

// textSetter stores the value as it is.
func textSetter(p func(*Config) *string) func(*Config, string) error {
	return func(c *Config, v string) error {
		if v == "" {
			return fmt.Errorf("the value is empty")
		}
		*p(c) = v
		return nil
	}
}

// duration parses a whole number of a unit.
func duration(p func(*Config) *time.Duration, unit time.Duration, least int64) func(*Config, string) error {
	return func(c *Config, v string) error {
		n, err := strconv.ParseInt(v, 10, 64)
		if err != nil || n < least || n > int64(math.MaxInt64/unit) {
			return fmt.Errorf("%q is no whole number from %d on", v, least)
		}
		*p(c) = time.Duration(n) * unit
		return nil
	}
}

// decimal parses a positive number.
func decimal(p func(*Config) *float64) func(*Config, string) error {
	return func(c *Config, v string) error {
		f, err := strconv.ParseFloat(v, 64)
		if err != nil || !(f > 0) || math.IsInf(f, 0) {
			return fmt.Errorf("%q is not a number above 0", v)
		}
		*p(c) = f
		return nil
	}
}

// nothing accepts a flag that has no effect, except for a note.
func nothing(note string) func(*Config, string) error {
	return func(c *Config, _ string) error {
		if note != "" {
			c.Notes = append(c.Notes, note)
		}
		return nil
	}
}

// setSize parses 65536, 64K, 8M or 1G. The letters are powers of 1024.
func setSize(c *Config, v string) error {
	digits, shift := v, 0
	if v != "" {
		if i := strings.IndexByte("KMG", v[len(v)-1]&^0x20); i >= 0 {
			digits, shift = v[:len(v)-1], 10*(i+1)
		}
	}
	n, err := strconv.ParseUint(digits, 10, 31)
	if err != nil || n < 1 || n > math.MaxInt32>>shift {
		return fmt.Errorf("%q is not a size such as 65536, 64K or 8M, from 1 to %d bytes", v, math.MaxInt32)
	}
	c.Size = n << shift
	return nil
}

func setIterations(c *Config, v string) error {
	n, err := strconv.ParseUint(v, 10, 63)
	if err != nil || n < 1 {
		return fmt.Errorf("%q is not a number of iterations, which is at least 5", v)
	}
	c.Iterations = n
	return nil
}

// setFlowLabels parses numbers of any base.
func setFlowLabels(c *Config, v string) error {
	c.FlowLabels = nil
	for word := range strings.SplitSeq(v, ",") {
		n, err := strconv.ParseUint(word, 0, 32)
		if err != nil {
			return fmt.Errorf("%q is no flow label such as 7 or 0x12345", word)
		}
		c.FlowLabels = append(c.FlowLabels, uint32(n))
	}
	return nil
}

func setFileOffset(c *Config, v string) (err error) {
	if c.FileOffset, err = strconv.ParseUint(v, 0, 62); err != nil {
		return fmt.Errorf("%q is not a number of bytes such as 4096 or 0x1000", v)
	}
	return nil
}

func setConnection(c *Config, v string) error {
	for _, k := range []Connection{RC, UC, UD} {
		if k.String() == strings.ToUpper(v) {
			c.Connection = k
			return nil
		}
	}
	if slices.Contains([]string{"XRC", "DC", "SRD", "RawEth"}, v) {
		return fmt.Errorf("not supported: %s connections; there are RC, UC and UD", v)
	}
	return fmt.Errorf("%q; want RC, UC or UD", v)
}

func setAtomic(c *Config, v string) error {
	if v != "CMP_AND_SWAP" && v != "FETCH_AND_ADD" {
		return fmt.Errorf("%q; want CMP_AND_SWAP or FETCH_AND_ADD", v)
	}
	c.CompareAndSwap = v == "CMP_AND_SWAP"
	return nil
}

func setFormat(c *Config, v string) error {
	c.Format = v
	if v == "" {
		return fmt.Errorf("it is bandwidth, message_rate, latency or json")
	}
	return nil // Check knows which formats fit the test
}

func setLink(c *Config, v string) error {
	switch strings.ToUpper(v) {
	case "IB", "INFINIBAND":
		c.ForceLink = "IB"
	case "ETHERNET":
		c.ForceLink = "Ethernet"
	default:
		return fmt.Errorf("%q is neither IB nor Ethernet", v)
	}
	return nil
}

func setCounters(c *Config, v string) error {
	for name := range strings.SplitSeq(v, ",") {
		dir, file, ok := strings.Cut(name, "/")
		if !ok || dir != "counters" && dir != "hw_counters" || file == "" || strings.Contains(file, "/") {
			return fmt.Errorf("%q is not a counter such as counters/port_xmit_data or hw_counters/out_of_buffer", name)
		}
		c.Counters = append(c.Counters, name)
	}
	return nil
}

// setSeconds parses -D, which is also the interval of --run_infinitely.
var setSeconds = duration(func(c *Config) *time.Duration { return &c.Duration }, time.Second, 1)

// setCores parses 0-3,8: what the kernel writes as a list of processors.
func setCores(c *Config, v string) (err error) {
	c.Cores, err = coreList(v)
	return err
}

// maxCore is the largest number in the kernel's sets.
const maxCore = 1023

func coreList(v string) (out []int, err error) {
	for part := range strings.SplitSeq(v, ",") {
		first, last, ok := strings.Cut(strings.TrimSpace(part), "-")
		if !ok {
			last = first
		}
		from, err := strconv.Atoi(first)
		if err != nil {
			return nil, fmt.Errorf("%q is no list of processors such as 0, 0-3 or 0-3,8", v)
		}
		to, err := strconv.Atoi(last)
		if err != nil || from < 0 || to < from || to > maxCore {
			return nil, fmt.Errorf("%q is no list of processors such as 0, 0-3 or 0-3,8, up to %d", v, maxCore)
		}
		for n := from; n <= to; n++ {
			if !slices.Contains(out, n) {
				out = append(out, n)
			}
		}
	}
	return out, nil
}

func setRateUnit(c *Config, v string) error {
	if !slices.Contains([]string{"g", "M", "p"}, v) {
		return fmt.Errorf("%q; want g for Gb/s, M for MiB/s, or p for messages a second", v)
	}
	c.RateUnit = v
	return nil
}

func setRateType(c *Config, v string) error {
	switch v {
	case "SW":
	case "HW", "PP":
		return fmt.Errorf("not supported: limits by the NIC (%s, ibv_modify_qp_rate_limit and raw Ethernet's pacing); SW is there", v)
	default:
		return fmt.Errorf("%q; want SW", v)
	}
	c.RateType = v
	return nil
}
