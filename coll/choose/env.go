// Package choose decides how operations are done. Everything that affects a choice is in one
// value, the Env, which the ranks of a communicator have agreed on: the same Env gives the
// same choice on every rank.
package choose

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"math/bits"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/assay-hpc/assay/coll/host"
	"github.com/assay-hpc/assay/coll/knob"
	"github.com/assay-hpc/assay/coll/schedule"
	"github.com/assay-hpc/assay/coll/transport/shm"
	"github.com/assay-hpc/assay/coll/transport/slots"
	"github.com/assay-hpc/assay/internal/infile"
	"github.com/assay-hpc/assay/internal/version"
)

// An Env is what the ranks of a communicator have agreed on. How an operation is done depends
// only on the Env and on the operation: ranks that chose differently would wait for messages
// that are never sent. So code that reads the environment, a file or the machine and affects a
// choice must store its findings here before the ranks compare them.
type Env struct {
	// Settings that must be the same on all ranks, otherwise there is no communicator.
	Algo, Proto         knob.Filter // NCCL_ALGO, NCCL_PROTO
	Rings               [][]int     // NCCL_RINGS, those for this number of ranks
	MinChannels         int         // 0: not set
	MaxChannels         int         // 0: not set
	CTAPolicy           string      // NCCL_CTA_POLICY
	SameBits            bool        // ASSAY_SAME_BITS: only algorithms for which schedule.InOrder is true
	Verify              knob.Verify // ASSAY_CHECK
	BuffSize            int64       // NCCL_BUFFSIZE
	Threads             int         // NCCL_NTHREADS; 0: not set
	SingleRingThreshold int64       // knob.Auto: not set
	LLThreshold         int64       // knob.Auto: not set
	P2P                 bool        // NCCL_P2P_DISABLE and NCCL_P2P_LEVEL
	SHMDisable          bool        // NCCL_SHM_DISABLE
	CollNetEnable       bool        // NCCL_COLLNET_ENABLE
	CollNetThreshold    int         // NCCL_COLLNET_NODE_THRESHOLD
	GPUAlgo             string      // ASSAY_GPU_ALGO
	Tuning              Measured    // ASSAY_TUNING
	Version             string      // of assay
	Device              string      // whether ranks have devices

	// The merged findings of all ranks.
	Hosts     [][]int   // the ranks of each host, in the order of their lowest ranks
	Cores     int       // that the ranks of a host may use, on the host with the fewest; 0: not known
	Unchecked bool      // some rank has NCCL_CHECKS_DISABLE
	Slot      int       // largest message of any connection, in bytes
	NetCost   Transport // between hosts, if a network is used
}

// Measured are the tables of a file. Two are equal if the files have the same bytes, wherever
// the files are.
type Measured struct {
	*Tables        // nil: no file was named
	sum     string // SHA-256 of the file, or why it cannot be read
	file    string
}

// maxTables is the largest file of measurements that is read, in bytes.
const maxTables = 16 << 20

// readTuning reads the file of ASSAY_TUNING, once for all its uses.
func readTuning(file string) (m Measured, err error) {
	if file == "" {
		return m, nil
	}
	m.file = file
	b, err := infile.Read(file, maxTables)
	if err == nil {
		m.sum = hex.EncodeToString(sumOf(b))
		m.Tables, err = ParseTables(b)
	}
	if err != nil {
		m.sum = err.Error()
		return m, fmt.Errorf("ASSAY_TUNING=%s: %w; measure anew or unset it", knob.Quote(file), err)
	}
	return m, nil
}

// FewCTAs reports whether kernels are to leave multiprocessors to others.
func (e *Env) FewCTAs() bool { return e.CTAPolicy == Efficiency || e.ZeroCTAs() }

// ZeroCTAs reports whether copy engines are to do what they can.
func (e *Env) ZeroCTAs() bool { return e.CTAPolicy == Zero }

// Values of NCCL_CTA_POLICY; there is also DEFAULT.
const (
	Efficiency = "EFFICIENCY"
	Zero       = "ZERO"
)

func sumOf(b []byte) []byte { s := sha256.Sum256(b); return s[:] }

// New returns the Env of this rank's settings. device says in words whether the rank has a
// device. After an error the Env can still be compared with those of other ranks.
func New(k *knob.Knobs, rings [][]int, device string) (e Env, err error) {
	e = Env{
		Algo: k.Algo, Proto: k.Proto, Rings: rings, MinChannels: k.MinChannels, MaxChannels: k.MaxChannels, CTAPolicy: k.CTAPolicy, SameBits: k.SameBits, Verify: k.Verify, BuffSize: k.BuffSize,
		Threads: k.Threads, SingleRingThreshold: k.SingleRingThreshold, LLThreshold: k.LLThreshold, P2P: k.P2P(), SHMDisable: k.SHMDisable,
		CollNetEnable: k.CollNetEnable, CollNetThreshold: k.CollNetThreshold, GPUAlgo: k.GPUAlgo, Version: release(), Device: device,
	}
	e.Tuning, err = readTuning(k.Tuning)
	return e, err
}

var release = sync.OnceValue(func() string { return version.Get().Version })

// A Term is a setting of an Env, as ranks compare it.
type Term struct {
	Name  string `json:"name"`
	Value string `json:"value"` // for humans
	Key   string `json:"key"`   // the same if the setting is the same
}

// Terms returns all settings that must be the same.
func (e *Env) Terms() []Term {
	set := func(is bool, v any) string {
		if !is {
			return "not set"
		}
		return fmt.Sprint(v)
	}
	flag := func(b bool) string {
		if b {
			return "1"
		}
		return "0"
	}
	file := "not set"
	if e.Tuning.file != "" {
		file = fmt.Sprintf("%s (SHA-256 %.12s)", e.Tuning.file, e.Tuning.sum)
		if e.Tuning.Tables == nil {
			file = e.Tuning.sum
		}
	}
	all := []Term{
		{Name: "NCCL_ALGO", Value: set(e.Algo.String() != "", e.Algo), Key: strings.ToLower(e.Algo.String())},
		{Name: "NCCL_PROTO", Value: set(e.Proto.String() != "", e.Proto), Key: strings.ToLower(e.Proto.String())},
		{Name: "NCCL_RINGS", Value: set(len(e.Rings) > 0, e.Rings)},
		{Name: "NCCL_MIN_CTAS or an older name of it", Value: set(e.MinChannels > 0, e.MinChannels)},
		{Name: "NCCL_MAX_CTAS or an older name of it", Value: set(e.MaxChannels > 0, e.MaxChannels)},
		{Name: "NCCL_CTA_POLICY", Value: e.CTAPolicy},
		{Name: "ASSAY_SAME_BITS", Value: flag(e.SameBits)},
		{Name: "ASSAY_CHECK", Value: e.Verify.String()},
		{Name: "NCCL_BUFFSIZE", Value: fmt.Sprint(e.BuffSize)},
		{Name: "NCCL_NTHREADS", Value: set(e.Threads > 0, e.Threads)},
		{Name: "NCCL_SINGLE_RING_THRESHOLD", Value: set(e.SingleRingThreshold >= 0, e.SingleRingThreshold)},
		{Name: "NCCL_LL_THRESHOLD", Value: set(e.LLThreshold >= 0, e.LLThreshold)},
		{Name: "NCCL_P2P_DISABLE or NCCL_P2P_LEVEL", Value: map[bool]string{true: "peer access allowed", false: "peer access not allowed"}[e.P2P]},
		{Name: "NCCL_SHM_DISABLE", Value: flag(e.SHMDisable)},
		{Name: "NCCL_COLLNET_ENABLE", Value: flag(e.CollNetEnable)},
		{Name: "NCCL_COLLNET_NODE_THRESHOLD", Value: fmt.Sprint(e.CollNetThreshold)},
		{Name: "ASSAY_GPU_ALGO", Value: set(e.GPUAlgo != "", e.GPUAlgo)},
		{Name: "ASSAY_TUNING", Value: file, Key: e.Tuning.sum},
		{Name: "the version of assay", Value: e.Version},
		{Name: "devices", Value: e.Device},
	}
	for i := range all {
		all[i].Key = hex.EncodeToString(sumOf([]byte(cmp.Or(all[i].Key, all[i].Value)))[:8])
		all[i].Value = knob.Quote(all[i].Value)
	}
	return all
}

// Sum returns the same value on ranks with the same settings.
func (e *Env) Sum() [sha256.Size]byte {
	h := sha256.New()
	for _, t := range e.Terms() {
		fmt.Fprintln(h, t.Name, t.Key)
	}
	return [sha256.Size]byte(h.Sum(nil))
}

// Differ returns an error that names the settings in which two ranks differ.
func Differ(a int, of []Term, b int, from []Term) error {
	var all []string
	for i, t := range of {
		if i < len(from) && from[i].Name == t.Name && from[i].Key != t.Key {
			all = append(all, fmt.Sprintf("%s: rank %d has %s, rank %d has %s", t.Name, a, t.Value, b, from[i].Value))
		}
	}
	if len(all) == 0 {
		return fmt.Errorf("ranks %d and %d have different versions of assay; run one on all ranks", a, b)
	}
	return fmt.Errorf("the ranks differ in %s; give all of them the same (mpirun hands a variable on with -x NAME)", strings.Join(all, "; "))
}

// Found is what a rank has found on its machine, and tells the other ranks.
type Found struct {
	Process   uint32     // the same for ranks of one process; a PID may be another process's, too, in its namespace
	Host      uint64     // the same for ranks of one host
	CPUs      [16]uint64 // which CPUs of the host the rank may use
	Procs     uint32     // how many of these its process uses at once
	Unchecked bool       // NCCL_CHECKS_DISABLE
}

// Find returns what this rank has found, except its host.
func Find(unchecked bool) Found {
	return Found{Process: process, CPUs: affinity(), Procs: uint32(runtime.GOMAXPROCS(0)), Unchecked: unchecked}
}

var process = rand.Uint32()

// Merge stores the merged findings of all ranks in the Env.
func (e *Env) Merge(all []Found) {
	e.Hosts = groups(all)
	for i, g := range e.Hosts {
		if n := Processors(all, g); i == 0 || n < e.Cores {
			e.Cores = n
		}
	}
	e.Unchecked = slices.ContainsFunc(all, func(f Found) bool { return f.Unchecked })
	e.Slot = e.slot()
}

// groups returns the ranks of each host, in the order of their lowest ranks.
func groups(all []Found) [][]int {
	at := map[uint64]int{}
	var g [][]int
	for r, f := range all {
		i, ok := at[f.Host]
		if !ok {
			i = len(g)
			at[f.Host] = i
			g = append(g, nil)
		}
		g[i] = append(g[i], r)
	}
	return g
}

// Processors returns how many CPUs the ranks of a host may use: those that any of them may
// use, but not more than their processes use at once.
func Processors(all []Found, host []int) int {
	var union [16]uint64
	atOnce := map[uint32]int{} // by process
	for _, r := range host {
		for i, w := range all[r].CPUs {
			union[i] |= w
		}
		atOnce[all[r].Process] = int(all[r].Procs)
	}
	n, may := 0, 0
	for _, procs := range atOnce {
		n += procs
	}
	for _, w := range union {
		may += bits.OnesCount64(w)
	}
	return min(n, may)
}

// affinity returns the set of CPUs that this process may use.
func affinity() (mask [16]uint64) {
	var set unix.CPUSet
	if unix.SchedGetaffinity(0, &set) != nil {
		return mask
	}
	for i, word := range set {
		mask[i] = uint64(word)
	}
	return mask
}

// Network reports whether some ranks cannot reach one another through shared memory.
func (e *Env) Network() bool { return len(e.Hosts) > 1 || e.SHMDisable }

// Channels returns how many channels the tuner may use. One goroutine drives all channels of a
// rank, so more channels only help if they are additional streams of a network.
func (e *Env) Channels() int {
	n := 1
	if e.Network() {
		n = 4
	}
	if e.MaxChannels > 0 {
		n = min(n, e.MaxChannels)
	}
	return max(n, e.MinChannels, len(e.Rings))
}

// slot returns the size of the largest message. Among ranks of one host it is small enough for
// a second-level cache; networks need larger messages. It exceeds NCCL_BUFFSIZE if there are
// so many ranks that a message could not hold an element of each of its blocks.
func (e *Env) slot() int {
	n := shm.DefaultSlot
	switch {
	case e.BuffSize != DefaultBuffSize:
		n = int(min(max(e.BuffSize/slots.N, 4096), 64<<20))
	case e.Network():
		n = DefaultBuffSize / slots.N
	}
	ranks := 0
	for _, h := range e.Hosts {
		ranks += len(h)
	}
	least := host.Slot(schedule.Widest(schedule.Options{Ranks: ranks, Groups: e.Hosts}))
	return max(n/64*64, (least+63)/64*64)
}

// DefaultBuffSize is the value of NCCL_BUFFSIZE if it is not set.
const DefaultBuffSize = 4 << 20
