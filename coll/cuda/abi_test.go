package cuda

import (
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"unsafe"

	"github.com/assay-hpc/assay/coll/flip"
)

// The structures here are those of abi.h and stage.h: a C program prints where its fields
// lie.
func TestABI(t *testing.T) {
	gcc, err := exec.LookPath("gcc")
	if err != nil {
		t.Skip("no gcc")
	}
	var c commABI
	var a argsABI
	var r reportABI
	var n normABI
	var g ringABI
	var s stageABI
	var l stageListABI
	var k checkABI
	var f findingsABI
	var w checkWordsABI
	fields := []struct {
		name string
		at   uintptr
	}{
		{"Comm win", unsafe.Offsetof(c.win)}, {"Comm ll", unsafe.Offsetof(c.ll)}, {"Comm ll128", unsafe.Offsetof(c.ll128)},
		{"Comm chunks", unsafe.Offsetof(c.chunks)}, {"Comm ll_slot", unsafe.Offsetof(c.llSlot)},
		{"Comm ll128_slot", unsafe.Offsetof(c.ll128Slot)}, {"Comm chunk_slot", unsafe.Offsetof(c.chunk)},
		{"Comm depth", unsafe.Offsetof(c.depth)}, {"Comm rank", unsafe.Offsetof(c.rank)}, {"Comm ranks", unsafe.Offsetof(c.ranks)},
		{"Comm stop", unsafe.Offsetof(c.stop)}, {"Comm report", unsafe.Offsetof(c.report)}, {"Comm timeout", unsafe.Offsetof(c.timeout)},
		{"Args in", unsafe.Offsetof(a.in)}, {"Args out", unsafe.Offsetof(a.out)}, {"Args send", unsafe.Offsetof(a.send)},
		{"Args recv", unsafe.Offsetof(a.recv)}, {"Args to", unsafe.Offsetof(a.to)}, {"Args from", unsafe.Offsetof(a.from)},
		{"Args factor", unsafe.Offsetof(a.factor)}, {"Args scale", unsafe.Offsetof(a.scale)}, {"Args divisor", unsafe.Offsetof(a.divisor)},
		{"Args channels", unsafe.Offsetof(a.channels)}, {"Args chunk", unsafe.Offsetof(a.chunk)}, {"Args owners", unsafe.Offsetof(a.owners)},
		{"Args targets", unsafe.Offsetof(a.targets)}, {"Args root", unsafe.Offsetof(a.root)}, {"Args symmetric", unsafe.Offsetof(a.symmetric)},
		{"Args in_place", unsafe.Offsetof(a.inPlace)}, {"Args phased", unsafe.Offsetof(a.phased)},
		{"Args sign", unsafe.Offsetof(a.sign)}, {"Args row", unsafe.Offsetof(a.row)},
		{"Norm weight", unsafe.Offsetof(n.weight)}, {"Norm residual", unsafe.Offsetof(n.residual)}, {"Norm rows", unsafe.Offsetof(n.rows)},
		{"Norm row", unsafe.Offsetof(n.row)}, {"Norm eps", unsafe.Offsetof(n.eps)}, {"Norm split", unsafe.Offsetof(n.split)},
		{"Ring in_slots", unsafe.Offsetof(g.inSlots)}, {"Ring own", unsafe.Offsetof(g.own)}, {"Ring next", unsafe.Offsetof(g.next)},
		{"Ring prev", unsafe.Offsetof(g.prev)}, {"Ring before", unsafe.Offsetof(g.before)}, {"Ring segment", unsafe.Offsetof(g.segment)},
		{"Ring total", unsafe.Offsetof(g.total)}, {"Ring chunk", unsafe.Offsetof(g.chunk)}, {"Ring whole", unsafe.Offsetof(g.whole)},
		{"Ring tail", unsafe.Offsetof(g.tail)}, {"Ring base", unsafe.Offsetof(g.base)}, {"Ring after", unsafe.Offsetof(g.after)}, {"Ring first", unsafe.Offsetof(g.first)},
		{"Ring end", unsafe.Offsetof(g.end)}, {"Ring lag", unsafe.Offsetof(g.lag)}, {"Ring chunks", unsafe.Offsetof(g.chunks)},
		{"Ring steps", unsafe.Offsetof(g.steps)}, {"Ring reduces", unsafe.Offsetof(g.reduces)}, {"Ring position", unsafe.Offsetof(g.position)},
		{"Ring shift", unsafe.Offsetof(g.shift)}, {"Ring one_in", unsafe.Offsetof(g.oneIn)}, {"Ring one_out", unsafe.Offsetof(g.oneOut)},
		{"Ring keeps", unsafe.Offsetof(g.keeps)}, {"Ring behind", unsafe.Offsetof(g.behind)},
		{"Ring slots", unsafe.Offsetof(g.slots)}, {"Ring piece", unsafe.Offsetof(g.piece)}, {"Ring pieces", unsafe.Offsetof(g.pieces)}, {"Ring claim", unsafe.Offsetof(g.claim)},
		{"RingState arrived", ringArrived}, {"RingState go", ringGo},
		{"Stage lists", unsafe.Offsetof(s.lists)}, {"Stage number", unsafe.Offsetof(s.number)}, {"Stage shares", unsafe.Offsetof(s.shares)},
		{"StageList done", unsafe.Offsetof(l.done)}, {"StageList begun", unsafe.Offsetof(l.begun)},
		{"StageList stop", unsafe.Offsetof(l.stop)}, {"StageList copies", unsafe.Offsetof(l.copies)},
		{"Report who", unsafe.Offsetof(r.who)}, {"Report wanted", unsafe.Offsetof(r.wanted)}, {"Report found", unsafe.Offsetof(r.found)},
		{"Report taken", unsafe.Offsetof(r.taken)},
		{"CheckSpan at", unsafe.Offsetof(k.spans[0].at)}, {"Findings taken", unsafe.Offsetof(f.taken)}, {"CheckWords words", unsafe.Offsetof(w.words)},
		{"CheckSpan bytes", unsafe.Offsetof(k.spans[0].bytes)}, {"Check words", unsafe.Offsetof(k.words)}, {"Check partial", unsafe.Offsetof(k.partial)},
		{"Check arrived", unsafe.Offsetof(k.arrived)}, {"Check count", unsafe.Offsetof(k.count)},
		{"Findings number", unsafe.Offsetof(f.number)}, {"Findings count", unsafe.Offsetof(f.count)}, {"Findings words", unsafe.Offsetof(f.words)},
		{"CheckWords found", unsafe.Offsetof(w.found)}, {"CheckWords ranks", unsafe.Offsetof(w.ranks)}, {"CheckWords number", unsafe.Offsetof(w.number)},
		{"CheckWords classes", unsafe.Offsetof(w.classes)},
	}
	var program, want strings.Builder
	program.WriteString("#include <stddef.h>\n#include <stdio.h>\n#include \"abi.h\"\n#include \"stage.h\"\n#include \"check.h\"\nint main(void) {\n#define P(s, n) printf(s \" %zu\\n\", (size_t)(n));\n")
	for _, f := range fields {
		of, m, _ := strings.Cut(f.name, " ")
		fmt.Fprintf(&program, "P(%q, offsetof(struct %s, %s))\n", f.name, of, m)
		fmt.Fprintf(&want, "%s %d\n", f.name, f.at)
	}
	for _, v := range []struct {
		c string
		n uintptr
	}{
		{"sizeof(struct Comm)", unsafe.Sizeof(c)}, {"sizeof(struct Args)", unsafe.Sizeof(a)}, {"sizeof(struct Report)", unsafe.Sizeof(r)},
		{"sizeof(struct Norm)", unsafe.Sizeof(n)}, {"sizeof(struct Ring)", unsafe.Sizeof(g)}, {"sizeof(struct RingState)", ringState},
		{"sizeof(struct Stage)", unsafe.Sizeof(s)}, {"sizeof(struct StageList)", unsafe.Sizeof(l)}, {"LISTED", listed}, {"SHARES", mostShares}, {"(size_t)STAGE_END", stageEnd},
		{"RING_ROUNDS", 2 * mostRingSlots},
		{"sizeof(struct Check)", unsafe.Sizeof(k)}, {"sizeof(struct Findings)", unsafe.Sizeof(f)}, {"sizeof(struct CheckWords)", unsafe.Sizeof(w)},
		{"CHECK_SPANS", checkSpans}, {"CHECK_WORDS", flip.Slots}, {"CHECK_BLOCKS", checkBlocks},
		{"sizeof(struct Channel)", channelBytes}, {"sizeof(struct Label)", labelBytes}, {"MAX_RANKS", maxRanks}, {"PACKET_CHANNELS", packetChannels},
		{"CHUNK_CHANNELS", chunkChannels}, {"PACKET_SLOTS", packetSlots}, {"RESULT_CHANNEL", resultChannel},
	} {
		fmt.Fprintf(&program, "P(%q, %s)\n", v.c, v.c)
		fmt.Fprintf(&want, "%s %d\n", v.c, v.n)
	}
	program.WriteString("return 0; }\n")
	exe := filepath.Join(t.TempDir(), "abi")
	build := exec.Command(gcc, "-x", "c", "-I", "kernels", "-o", exe, "-")
	build.Stdin = strings.NewReader(program.String())
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	got, err := exec.Command(exe).Output()
	if err != nil {
		t.Fatal(err)
	}
	if string(got) != want.String() {
		t.Errorf("abi.h has\n%s; Go has\n%s", got, &want)
	}
}
