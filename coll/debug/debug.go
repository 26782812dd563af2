// Package debug writes the log that NCCL_DEBUG turns on: what the collective engine does, in
// lines that people search and tools parse.
//
// A line is
//
//	host:pid:rank [n] NCCL INFO text
//
// where NCCL prints the thread's number this package prints the rank, and n is the rank's index
// on its host, where NCCL prints the device's. Until the rank is known, the pid is printed
// instead, as by NCCL's main thread. WARN lines have the same form: no source line, no blank line
// before them.
//
// Intended differences from NCCL: the log goes to standard error and not to standard output,
// because standard output is for results.
//
// A nil *Logger writes nothing, so that callers need not check for it. All methods may be called
// by several goroutines.
package debug

import (
	"fmt"
	"slices"
	"strings"

	"github.com/assay-hpc/assay/internal/words"
)

// A Level says how much is logged; each one includes those before it.
type Level uint8

// The levels of NCCL_DEBUG.
const (
	None    Level = iota // nothing
	Version              // one line with the version, at start
	Warn                 // what went wrong
	Info                 // what was chosen and done, by subsystem
	Trace                // every step
	numLevels
)

var levelNames = [numLevels]string{"NONE", "VERSION", "WARN", "INFO", "TRACE"}

// String is the level as NCCL_DEBUG spells it.
func (l Level) String() string {
	if l >= numLevels {
		return fmt.Sprintf("Level(%d)", uint8(l))
	}
	return levelNames[l]
}

// LevelNames lists the values of NCCL_DEBUG.
func LevelNames() []string { return levelNames[:] }

// ParseLevel parses the value of NCCL_DEBUG. Case does not matter. ABORT, which NCCL has between INFO
// and TRACE and logs nothing at, is INFO.
func ParseLevel(s string) (Level, error) {
	if strings.EqualFold(s, "ABORT") {
		return Info, nil
	}
	for i, name := range levelNames {
		if strings.EqualFold(s, name) {
			return Level(i), nil
		}
	}
	return None, fmt.Errorf("there is no level %q; choose one of %s", s, strings.Join(levelNames[:], ", "))
}

// Subsystems is a set of the parts of the engine that log.
type Subsystems uint32

// The subsystems of NCCL_DEBUG_SUBSYS.
const (
	Init Subsystems = 1 << iota
	Coll
	P2P
	SHM
	Net
	Graph
	Tuning
	Env
	Bootstrap
	Alloc
	Call
	Proxy
	NVLS
	Reg
	Profile
	RAS
	Destroy
	AllocHost
	endOfSubsystems

	All = endOfSubsystems - 1
)

// DefaultSubsystems are those that log when NCCL_DEBUG_SUBSYS is not set.
const DefaultSubsystems = Init | Bootstrap | Env

// subsystemNames are in the order of the bits.
var subsystemNames = []string{
	"INIT", "COLL", "P2P", "SHM", "NET", "GRAPH", "TUNING", "ENV", "BOOTSTRAP", "ALLOC", "CALL", "PROXY", "NVLS", "REG", "PROFILE", "RAS", "DESTROY", "ALLOC_HOST",
}

// SubsystemNames lists the names that NCCL_DEBUG_SUBSYS may contain.
func SubsystemNames() []string { return append(slices.Clone(subsystemNames), "ALL") }

// String is the set as NCCL_DEBUG_SUBSYS spells it; "" for the empty one.
func (s Subsystems) String() string {
	if s&All == All {
		return "ALL"
	}
	var names []string
	for i, name := range subsystemNames {
		if s&(1<<i) != 0 {
			names = append(names, name)
		}
	}
	return strings.Join(names, ",")
}

// ParseSubsystems parses the value of NCCL_DEBUG_SUBSYS: names separated by commas, in either
// case; empty ones count for nothing. A ^ before the first name selects all subsystems except those named; before other names
// it is allowed, and changes nothing.
func ParseSubsystems(s string) (Subsystems, error) {
	list, negate := strings.CutPrefix(s, "^")
	var set Subsystems
	for i, name := range strings.Split(list, ",") {
		if name = strings.TrimSpace(name); name == "" {
			continue
		}
		if rest, again := strings.CutPrefix(name, "^"); again {
			if !negate || i == 0 {
				return 0, fmt.Errorf("%q: ^ stands before the first name and negates the whole list", s)
			}
			name = rest
		}
		bits, err := subsystem(name)
		if err != nil {
			return 0, err
		}
		set |= bits
	}
	if negate {
		set = All &^ set
	}
	return set, nil
}

// subsystem returns the subsystem with the given name.
func subsystem(name string) (Subsystems, error) {
	if strings.EqualFold(name, "ALL") {
		return All, nil
	}
	for i, n := range subsystemNames {
		if strings.EqualFold(name, n) {
			return 1 << i, nil
		}
	}
	near := words.Nearest(strings.ToUpper(name), SubsystemNames())
	return 0, fmt.Errorf("there is no subsystem %q (did you mean %s?); known are %s", name, near, strings.Join(SubsystemNames(), ", "))
}
