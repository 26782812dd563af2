// Package elf reads those parts of an ELF file that the dynamic loader reads: the program headers
// and the dynamic section. It never reads the section headers, which may be stripped or wrong in
// a file that runs. It is a leaf, and it does not trust the files that it reads.
package elf

import (
	"debug/elf"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"strings"
)

// ErrNotELF says that a file is not an ELF file.
var ErrNotELF = errors.New("not an ELF file")

// A Kind decides whether two files can be loaded into one process.
type Kind struct {
	Class   elf.Class
	Data    elf.Data
	Machine elf.Machine
}

// String returns, for example, "EM_X86_64 64-bit".
func (k Kind) String() string {
	bits := "64-bit"
	if k.Class == elf.ELFCLASS32 {
		bits = "32-bit"
	}
	return k.Machine.String() + " " + bits
}

// KindOf returns the kind of an architecture, by its name in Go and OCI.
func KindOf(arch string) (Kind, bool) {
	machines := map[string]elf.Machine{"amd64": elf.EM_X86_64, "arm64": elf.EM_AARCH64}
	m, ok := machines[arch]
	return Kind{elf.ELFCLASS64, elf.ELFDATA2LSB, m}, ok
}

// A File is what the dynamic loader needs to know about a file.
type File struct {
	Kind
	Type    elf.Type
	Interp  string   // PT_INTERP: the loader that the kernel starts
	Dynamic bool     // it has a dynamic section
	Soname  string   // DT_SONAME
	Needed  []string // DT_NEEDED, in order
	RPath   []string // DT_RPATH, split at colons, not expanded
	RunPath []string // DT_RUNPATH
	// NoDefault is DF_1_NODEFLIB: neither the cache nor the default directories are searched.
	NoDefault bool
}

// Limits on sizes that a file may state. Real files stay far below.
const (
	maxProgs   = 4096
	maxDynamic = 1 << 20
	maxString  = 1 << 16
)

// Parse reads a file. It returns ErrNotELF for a file without ELF's magic number, and another
// error for a damaged one.
func Parse(r io.ReaderAt) (*File, error) {
	var ident [20]byte
	if n, _ := r.ReadAt(ident[:], 0); n < len(ident) || string(ident[:4]) != elf.ELFMAG {
		return nil, ErrNotELF
	}
	p := parser{r: r}
	p.file.Class, p.file.Data = elf.Class(ident[4]), elf.Data(ident[5])
	switch p.file.Data {
	case elf.ELFDATA2LSB:
		p.order = binary.LittleEndian
	case elf.ELFDATA2MSB:
		p.order = binary.BigEndian
	default:
		return nil, fmt.Errorf("ELF byte order %d is unknown", ident[5])
	}
	p.file.Type = elf.Type(p.order.Uint16(ident[16:]))
	p.file.Machine = elf.Machine(p.order.Uint16(ident[18:]))
	progs, err := p.progs()
	if err != nil {
		return nil, err
	}
	if err := p.use(progs); err != nil {
		return nil, err
	}
	return &p.file, nil
}

type parser struct {
	r     io.ReaderAt
	order binary.ByteOrder
	file  File
}

// A prog is the part of a program header that matters here.
type prog struct {
	typ              elf.ProgType
	off, addr, fsize uint64
}

// progs reads the program headers.
func (p *parser) progs() ([]prog, error) {
	var hdr [64]byte
	var off uint64
	var size, count int
	switch p.file.Class {
	case elf.ELFCLASS64:
		if _, err := p.r.ReadAt(hdr[:64], 0); err != nil {
			return nil, fmt.Errorf("ELF header: %w", noEOF(err))
		}
		off = p.order.Uint64(hdr[32:])
		size, count = int(p.order.Uint16(hdr[54:])), int(p.order.Uint16(hdr[56:]))
	case elf.ELFCLASS32:
		if _, err := p.r.ReadAt(hdr[:52], 0); err != nil {
			return nil, fmt.Errorf("ELF header: %w", noEOF(err))
		}
		off = uint64(p.order.Uint32(hdr[28:]))
		size, count = int(p.order.Uint16(hdr[42:])), int(p.order.Uint16(hdr[44:]))
	default:
		return nil, fmt.Errorf("ELF class %d is unknown", p.file.Class)
	}
	if count == 0 {
		return nil, nil
	}
	if want := p.progSize(); size != want || count > maxProgs {
		return nil, fmt.Errorf("ELF header: %d program headers of %d bytes; want %d bytes each", count, size, want)
	}
	table, err := p.read(off, uint64(size*count))
	if err != nil {
		return nil, fmt.Errorf("ELF program headers: %w", err)
	}
	progs := make([]prog, count)
	for i := range progs {
		progs[i] = p.prog(table[i*size:])
	}
	return progs, nil
}

func (p *parser) progSize() int {
	if p.file.Class == elf.ELFCLASS64 {
		return 56
	}
	return 32
}

func (p *parser) prog(b []byte) prog {
	typ := elf.ProgType(p.order.Uint32(b))
	if p.file.Class == elf.ELFCLASS64 {
		return prog{typ, p.order.Uint64(b[8:]), p.order.Uint64(b[16:]), p.order.Uint64(b[32:])}
	}
	return prog{typ, uint64(p.order.Uint32(b[4:])), uint64(p.order.Uint32(b[8:])), uint64(p.order.Uint32(b[16:]))}
}

// use reads the interpreter and the dynamic section.
func (p *parser) use(progs []prog) error {
	for _, ph := range progs {
		switch ph.typ {
		case elf.PT_INTERP:
			b, err := p.read(ph.off, min(ph.fsize, maxString))
			if err != nil {
				return fmt.Errorf("ELF interpreter: %w", err)
			}
			p.file.Interp, _, _ = strings.Cut(string(b), "\x00")
		case elf.PT_DYNAMIC:
			if ph.fsize == 0 {
				continue // a file with only debugging information
			}
			if err := p.dynamic(ph, progs); err != nil {
				return fmt.Errorf("ELF dynamic section: %w", err)
			}
		}
	}
	return nil
}

func (p *parser) read(off, size uint64) ([]byte, error) {
	if size > maxDynamic || off > 1<<62 {
		return nil, fmt.Errorf("%d bytes at offset %d are out of range", size, off)
	}
	b := make([]byte, size)
	if _, err := p.r.ReadAt(b, int64(off)); err != nil {
		return nil, noEOF(err)
	}
	return b, nil
}

func noEOF(err error) error {
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}
