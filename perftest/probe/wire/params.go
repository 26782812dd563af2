package wire

import (
	"cmp"
	"context"
	"encoding/binary"
	"fmt"
	"slices"
)

// Params is the parameter block, with which releases from 26.01.5 on compare their options. Every
// field except MaxReads and Compression must be the same on both sides. The words are those listed
// in fields; an empty one means the first.
type Params struct {
	Sizes       string // "one size", "all sizes" or "endless"
	Connection  string // "RC", "UC", "UD", …
	Verb        string // "send", "write", "read", "atomic", …
	Test        string // "latency" or "bandwidth"
	Atomic      int    // 0 unless an atomic test: 1 is fetch and add
	Mode        string // "iterations" or "duration"
	Format      string // of reports: "Gb/s" or "MiB/s"
	Size        uint64 // bytes; 8 MiB with -a
	Iterations  uint64 // 0 with -D
	AES         int    // --aes_xts
	QPs         int    // as sent
	Duration    int    // seconds; 5 without -D
	ControlCM   int    // 1 with -z and -R
	WriteImm    int    // --write_with_imm
	NoReorder   int    // --no_enhanced_reorder
	SigOffload  int    // --sig_offload
	Validation  int    // --data_validation
	MaxReads    int32  // of the device: the receiver lowers its own outstanding reads to it, so it must not be 0
	Compression uint64 // comp_mask of mlx5dv; 0 for other devices
}

// paramsBytes is the size of the block, plainParamsBytes that of a perftest without mlx5dv.
const (
	paramsBytes      = 320
	plainParamsBytes = paramsMask
)

// Offsets of the fields after the eight enumerations.
const (
	paramsSize       = 32
	paramsIterations = 40
	paramsInts       = 48
	paramsMaxReads   = 224
	paramsMask       = 312
)

// A paramsField is a field that is a 32-bit integer: a number, or an enumeration value with a word.
type paramsField struct {
	at    int
	name  string // with the flag that sets it
	value *int
	word  *string
	words []string
}

// fields returns these fields, in the order in which they are compared.
func (p *Params) fields() []paramsField {
	return []paramsField{
		{at: 0, name: "the sizes (-a, --run_infinitely)", word: &p.Sizes, words: []string{"one size", "all sizes", "endless"}},
		{at: 4, name: "the connection type (-c)", word: &p.Connection, words: []string{"RC", "UC", "UD", "raw Ethernet", "XRC", "DC", "SRD"}},
		{at: 8, name: "the verb (another test was started)", word: &p.Verb, words: []string{"send", "send with immediate", "write", "write with immediate", "read", "atomic"}},
		{at: 12, name: "latency or bandwidth (another test was started)", word: &p.Test, words: []string{"latency", "bandwidth"}},
		{at: 16, name: "the atomic operation (-A)", value: &p.Atomic},
		{at: 20, name: "iterations or duration (-D)", word: &p.Mode, words: []string{"iterations", "duration"}},
		{at: 24, name: "the report's unit (--report_gbits)", word: &p.Format, words: []string{"Gb/s", "MiB/s"}},
		{at: paramsInts, name: "encryption (--aes_xts)", value: &p.AES},
		{at: 52, name: "the number of QPs (-q)", value: &p.QPs},
		{at: 56, name: "the duration in seconds (-D)", value: &p.Duration},
		{at: 60, name: "the control channel (-z, -R)", value: &p.ControlCM},
		{at: 64, name: "writes with immediate data (--write_with_imm)", value: &p.WriteImm},
		{at: 68, name: "reordering (--no_enhanced_reorder)", value: &p.NoReorder},
		{at: 72, name: "signature offload (--sig_offload)", value: &p.SigOffload},
		{at: 76, name: "data validation (--data_validation)", value: &p.Validation},
	}
}

// number is the field's integer, or -1 for an unknown word.
func (f paramsField) number() int {
	switch {
	case f.word == nil:
		return *f.value
	case *f.word == "":
		return 0
	}
	return slices.Index(f.words, *f.word)
}

// shown is the field's value for human-readable text.
func (f paramsField) shown() any {
	if f.word == nil {
		return *f.value
	}
	return cmp.Or(*f.word, f.words[0])
}

// Marshal returns the block as a little-endian machine sends it. All supported machines are
// little-endian.
func (p Params) Marshal() ([]byte, error) {
	b := make([]byte, paramsBytes)
	for _, f := range p.fields() {
		n := f.number()
		if n < 0 {
			return nil, fmt.Errorf("%w: %s is %v", ErrLocal, f.name, f.shown())
		}
		binary.BigEndian.PutUint32(b[f.at:], uint32(n))
	}
	binary.BigEndian.PutUint64(b[paramsSize:], p.Size)
	binary.BigEndian.PutUint64(b[paramsIterations:], p.Iterations)
	binary.LittleEndian.PutUint32(b[paramsMaxReads:], uint32(p.MaxReads))
	binary.BigEndian.PutUint64(b[paramsMask:], p.Compression)
	return b, nil
}

// parseParams reads a block. Of the device's attributes it stores only MaxReads.
func parseParams(b []byte) (Params, error) {
	if len(b) != paramsBytes {
		return Params{}, fmt.Errorf("the parameter block has %d bytes, not %d", paramsBytes, len(b))
	}
	if !paramsPrefix(b) {
		return Params{}, fmt.Errorf("this is no parameter block: %s", printable(b[:paramsSize]))
	}
	var p Params
	for _, f := range p.fields() {
		n := int(int32(binary.BigEndian.Uint32(b[f.at:])))
		if f.word == nil {
			*f.value = n
		} else {
			*f.word = f.words[n] // paramsPrefix has checked the index
		}
	}
	p.Size = binary.BigEndian.Uint64(b[paramsSize:])
	p.Iterations = binary.BigEndian.Uint64(b[paramsIterations:])
	p.MaxReads = int32(binary.LittleEndian.Uint32(b[paramsMaxReads:]))
	p.Compression = binary.BigEndian.Uint64(b[paramsMask:])
	return p, nil
}

// Compare returns an error with the first field that differs between two sides, named by its flag;
// nil if they agree. Sizes are compared before the fields that depend on them.
func (p Params) Compare(peer Params) error {
	mine, theirs := p.fields(), peer.fields()
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
		if f.shown() != theirs[i].shown() {
			return differs(f.name, f.shown(), theirs[i].shown())
		}
	}
	return nil
}

// SwapParams exchanges blocks, if the peer's Hello.NeedsParams requires it, and compares them. The
// peer does the same and ends if there is a difference.
func (c *Conn) SwapParams(ctx context.Context, mine Params) (Params, error) {
	const what = "the parameter block"
	block, err := mine.Marshal()
	if err != nil {
		return Params{}, err
	}
	b, err := c.swap(ctx, what, block)
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
