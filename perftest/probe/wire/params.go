package wire

import (
	"context"
	"encoding/binary"
	"fmt"
)

// Enumerations of the parameter block.
const (
	MethodOneSize = 0
	MethodAll     = 1 // -a
	MethodForever = 2 // --run_infinitely

	ConnRC = 0
	ConnUC = 1
	ConnUD = 2

	VerbSend     = 0
	VerbSendImm  = 1
	VerbWrite    = 2
	VerbWriteImm = 3
	VerbRead     = 4
	VerbAtomic   = 5

	TestLatency   = 0
	TestBandwidth = 1

	ModeIterations = 0
	ModeDuration   = 1

	FormatGigabits = 0 // Gb/s
	FormatMiB      = 1 // MiB/s
)

// Params is the parameter block, with which releases from 26.01.5 on compare
// what they were asked for. Every field but MaxReads and Compression must be
// the same on both sides.
type Params struct {
	Method      int    // one of the constants above, as are the next six
	Connection  int    //
	Verb        int    //
	Test        int    //
	Atomic      int    // 0 unless an atomic test: 1 is fetch and add
	Mode        int    //
	Format      int    //
	Size        uint64 // bytes; 8 MiB with -a
	Iterations  uint64 // 0 with -D
	AES         int    // --aes_xts
	QPs         int    // on the wire
	Duration    int    // seconds; 5 unless -D says otherwise
	ControlCM   int    // 1 with -z and -R
	WriteImm    int    // --write_with_imm
	NoReorder   int    // --no_enhanced_reorder
	SigOffload  int    // --sig_offload
	Validation  int    // --data_validation
	MaxReads    int32  // of the device: the receiver lowers its own outstanding reads to it, so it must not be 0
	Compression uint64 // mlx5dv's comp_mask; 0 for other devices
}

// paramsBytes is the block's size.
const paramsBytes = 320

// Offsets behind the eight enumerations.
const (
	paramsSize       = 32
	paramsIterations = 40
	paramsInts       = 48
	paramsMaxReads   = 224
	paramsMask       = 312
)

// ints are the fields that are 32-bit integers, with the flags that set them.
func (p *Params) ints() []paramsField {
	return []paramsField{
		{0, &p.Method, "the sizes (-a, --run_infinitely)"}, {4, &p.Connection, "the connection type (-c)"}, {8, &p.Verb, "the verb (another test was started)"},
		{12, &p.Test, "latency or bandwidth (another test was started)"}, {16, &p.Atomic, "the atomic operation (-A)"}, {20, &p.Mode, "iterations or duration (-D)"},
		{24, &p.Format, "the report's unit (--report_gbits)"}, {paramsInts, &p.AES, "encryption (--aes_xts)"}, {52, &p.QPs, "the number of QPs (-q)"},
		{56, &p.Duration, "the duration in seconds (-D)"}, {60, &p.ControlCM, "the control channel (-z, -R)"}, {64, &p.WriteImm, "writes with immediate data (--write_with_imm)"},
		{68, &p.NoReorder, "reordering (--no_enhanced_reorder)"}, {72, &p.SigOffload, "signature offload (--sig_offload)"}, {76, &p.Validation, "data validation (--data_validation)"},
	}
}

type paramsField struct {
	at    int
	value *int
	name  string
}

// Marshal returns the block of a peer with a byte order of little-endian,
// which all machines that this runs on have.
func (p Params) Marshal() []byte {
	b := make([]byte, paramsBytes)
	for _, f := range p.ints() {
		binary.BigEndian.PutUint32(b[f.at:], uint32(*f.value))
	}
	binary.BigEndian.PutUint64(b[paramsSize:], p.Size)
	binary.BigEndian.PutUint64(b[paramsIterations:], p.Iterations)
	binary.LittleEndian.PutUint32(b[paramsMaxReads:], uint32(p.MaxReads))
	binary.BigEndian.PutUint64(b[paramsMask:], p.Compression)
	return b
}

// parseParams reads a block. Of the device's attributes only MaxReads is kept.
func parseParams(b []byte) (Params, error) {
	if len(b) != paramsBytes {
		return Params{}, fmt.Errorf("the parameter block has %d bytes, not %d", paramsBytes, len(b))
	}
	if !paramsPrefix(b) {
		return Params{}, fmt.Errorf("this is no parameter block: %s", printable(b[:paramsSize]))
	}
	var p Params
	for _, f := range p.ints() {
		*f.value = int(int32(binary.BigEndian.Uint32(b[f.at:])))
	}
	p.Size = binary.BigEndian.Uint64(b[paramsSize:])
	p.Iterations = binary.BigEndian.Uint64(b[paramsIterations:])
	p.MaxReads = int32(binary.LittleEndian.Uint32(b[paramsMaxReads:]))
	p.Compression = binary.BigEndian.Uint64(b[paramsMask:])
	return p, nil
}

// Compare names the first field in which two sides differ, as its flag; nil if
// they agree. Sizes come before everything that follows from them.
func (p Params) Compare(peer Params) error {
	mine, theirs := p.ints(), peer.ints()
	differs := func(name string, local, remote any) error {
		return fmt.Errorf("%w: %s is %v here and %v at the peer", ErrMismatch, name, local, remote)
	}
	for i, f := range mine {
		if f.at == paramsInts && p.Size != peer.Size {
			return differs("the message size (-s)", p.Size, peer.Size)
		}
		if f.at == paramsInts && p.Iterations != peer.Iterations {
			return differs("the number of iterations (-n)", p.Iterations, peer.Iterations)
		}
		if *f.value != *theirs[i].value {
			return differs(f.name, paramsWord(f.at, *f.value), paramsWord(f.at, *theirs[i].value))
		}
	}
	return nil
}

// paramsWord is a value in words, where it has one.
func paramsWord(at, v int) any {
	words := map[int][]string{
		0: {"one size", "all sizes", "endless"}, 4: {"RC", "UC", "UD", "raw Ethernet", "XRC", "DC", "SRD"},
		8:  {"send", "send with immediate", "write", "write with immediate", "read", "atomic"},
		12: {"latency", "bandwidth"}, 20: {"iterations", "duration"}, 24: {"Gb/s", "MiB/s"},
	}[at]
	if v >= 0 && v < len(words) {
		return words[v]
	}
	return v
}

// SwapParams exchanges blocks, where NeedsParams says so, and compares them;
// the peer does the same and ends if there is a difference.
func (c *Conn) SwapParams(ctx context.Context, mine Params) (Params, error) {
	const what = "the parameter block"
	b, err := c.swap(ctx, what, mine.Marshal())
	if err != nil {
		return Params{}, err
	}
	theirs, err := parseParams(b)
	if err != nil {
		return Params{}, c.mismatch(what, b, err)
	}
	if err := mine.Compare(theirs); err != nil {
		return theirs, c.fail(fmt.Errorf("%s: %s: %w", c.Peer(), what, err))
	}
	return theirs, nil
}
