package perf

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// A splitting is the value of NCCL_TESTS_SPLIT: the group of a process is its number, combined
// with a value.
type splitting struct {
	op    byte // '&', '|', '%', '/'; 0: no splitting
	value uint64
}

var splitOps = map[string]byte{"AND": '&', "&": '&', "OR": '|', "|": '|', "MOD": '%', "%": '%', "DIV": '/', "/": '/'}

// parseSplit reads an operator and a value, such as "MOD 8", "&0x7" or "%0b10".
func parseSplit(s string) (splitting, error) {
	s = strings.TrimSpace(s)
	cut := strings.IndexAny(s, "0123456789")
	if cut < 0 {
		cut = len(s)
	}
	op, ok := splitOps[strings.ToUpper(strings.TrimSpace(s[:cut]))]
	v, err := splitValue(s[cut:])
	if !ok || err != nil || v == 0 && (op == '%' || op == '/') {
		return splitting{}, fmt.Errorf("NCCL_TESTS_SPLIT is AND, OR, MOD or DIV (or &, |, %%, /) and a number, such as \"MOD 8\", not %q", s)
	}
	return splitting{op, v}, nil
}

// CheckSplit returns what is wrong with a value of NCCL_TESTS_SPLIT.
func CheckSplit(s string) error {
	_, err := parseSplit(s)
	return err
}

// splitValue reads a decimal number, or one after 0x or 0b.
func splitValue(s string) (uint64, error) {
	base := 10
	switch {
	case strings.HasPrefix(s, "0x"), strings.HasPrefix(s, "0X"):
		base, s = 16, s[2:]
	case strings.HasPrefix(s, "0b"), strings.HasPrefix(s, "0B"):
		base, s = 2, s[2:]
	}
	return strconv.ParseUint(s, base, 31)
}

// color returns the group of a process.
func (s splitting) color(process int) int {
	p := uint64(process)
	switch s.op {
	case '&':
		return int(p & s.value)
	case '|':
		return int(p | s.value)
	case '%':
		return int(p % s.value)
	case '/':
		return int(p / s.value)
	}
	return 0
}

// settings are the settings that the environment adds to the flags.
type settings struct {
	split splitting
	minBW float64 // GB/s; 0: not checked
	notes []string
}

func readSettings(environ []string) (settings, error) {
	var s settings
	get := func(name string) string {
		for _, e := range environ {
			if k, v, ok := strings.Cut(e, "="); ok && k == name {
				return v
			}
		}
		return ""
	}
	var err error
	if v := get("NCCL_TESTS_SPLIT"); v != "" {
		if s.split, err = parseSplit(v); err != nil {
			return s, err
		}
	} else if v := get("NCCL_TESTS_SPLIT_MASK"); v != "" {
		mask, err := strconv.ParseUint(strings.TrimPrefix(strings.ToLower(v), "0x"), 16, 31)
		if err != nil {
			return s, fmt.Errorf("NCCL_TESTS_SPLIT_MASK is a hexadecimal number, not %q", v)
		}
		s.split = splitting{'&', mask}
	}
	if v := get("NCCL_TESTS_MIN_BW"); v != "" {
		if s.minBW, err = strconv.ParseFloat(v, 64); err != nil || s.minBW < 0 || s.minBW != s.minBW {
			return s, fmt.Errorf("NCCL_TESTS_MIN_BW is a number of GB/s, not %q", v)
		}
	}
	if v := get("NCCL_TESTS_DEVICE"); v != "" {
		s.notes = append(s.notes, "NCCL_TESTS_DEVICE")
	}
	return s, nil
}

// reported are the prefixes of the variables that a report quotes: those that decide how a run
// went, and none with a user's secrets (nccl-tests quotes the whole environment).
var reported = []string{"NCCL_", "OMPI_COMM_WORLD_", "PMIX_RANK", "PMI_", "SLURM_JOB_ID", "SLURM_NTASKS", "SLURM_PROCID", "SLURM_NNODES", "MASTER_", "WORLD_SIZE", "RANK", "LOCAL_", "UCX_", "CUDA_VISIBLE_DEVICES", "GOMAXPROCS", "GOMEMLIMIT", "GOGC"}

func reportedEnviron(environ []string) []string {
	out := []string{}
	for _, e := range environ {
		if slices.ContainsFunc(reported, func(prefix string) bool { return strings.HasPrefix(e, prefix) }) {
			out = append(out, e)
		}
	}
	return out
}
