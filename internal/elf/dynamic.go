package elf

import (
	"bytes"
	"debug/elf"
	"fmt"
	"io"
	"strings"
)

const df1NoDefaultLib = 0x800 // DF_1_NODEFLIB

// dynamic reads the dynamic section. DT_STRTAB gives the address of the string table and may come
// last, so strings are resolved at the end.
func (p *parser) dynamic(ph prog, progs []prog) error {
	b, err := p.read(ph.off, ph.fsize)
	if err != nil {
		return err
	}
	p.file.Dynamic = true
	var refs []ref
	var strtab, strsize uint64
	for tag, val := range p.entries(b) {
		switch tag {
		case elf.DT_STRTAB:
			strtab = val
		case elf.DT_STRSZ:
			strsize = val
		case elf.DT_NEEDED, elf.DT_SONAME, elf.DT_RPATH, elf.DT_RUNPATH:
			refs = append(refs, ref{tag, val})
		case elf.DT_FLAGS_1:
			p.file.NoDefault = val&df1NoDefaultLib != 0
		}
	}
	if len(refs) == 0 {
		return nil
	}
	base, err := fileOffset(strtab, progs)
	if err != nil {
		return err
	}
	return p.strings(refs, base, strsize)
}

// A ref is a dynamic entry with an offset into the string table as its value.
type ref struct {
	tag elf.DynTag
	off uint64
}

func (p *parser) strings(refs []ref, base, size uint64) error {
	for _, r := range refs {
		if r.off >= size {
			return fmt.Errorf("%v is outside the string table", r.tag)
		}
		s, err := p.stringAt(base + r.off)
		if err != nil {
			return fmt.Errorf("%v: %w", r.tag, err)
		}
		switch r.tag {
		case elf.DT_NEEDED:
			p.file.Needed = append(p.file.Needed, s)
		case elf.DT_SONAME:
			p.file.Soname = s
		case elf.DT_RPATH:
			p.file.RPath = strings.Split(s, ":")
		case elf.DT_RUNPATH:
			p.file.RunPath = strings.Split(s, ":")
		}
	}
	return nil
}

// entries yields the tags and values up to DT_NULL.
func (p *parser) entries(b []byte) func(func(elf.DynTag, uint64) bool) {
	return func(yield func(elf.DynTag, uint64) bool) {
		for {
			var tag elf.DynTag
			var val uint64
			switch {
			case p.file.Class == elf.ELFCLASS64 && len(b) >= 16:
				tag, val, b = elf.DynTag(p.order.Uint64(b)), p.order.Uint64(b[8:]), b[16:]
			case p.file.Class == elf.ELFCLASS32 && len(b) >= 8:
				tag, val, b = elf.DynTag(p.order.Uint32(b)), uint64(p.order.Uint32(b[4:])), b[8:]
			default:
				return
			}
			if tag == elf.DT_NULL || !yield(tag, val) {
				return
			}
		}
	}
}

// fileOffset converts a virtual address to a file offset.
func fileOffset(addr uint64, progs []prog) (uint64, error) {
	for _, ph := range progs {
		if ph.typ == elf.PT_LOAD && addr >= ph.addr && addr-ph.addr < ph.fsize {
			return ph.off + (addr - ph.addr), nil
		}
	}
	return 0, fmt.Errorf("no segment holds the string table at %#x", addr)
}

// stringAt reads a NUL-terminated string.
func (p *parser) stringAt(off uint64) (string, error) {
	if off > 1<<62 {
		return "", io.ErrUnexpectedEOF
	}
	var s []byte
	for chunk := [256]byte{}; len(s) < maxString; off += uint64(len(chunk)) {
		n, err := p.r.ReadAt(chunk[:], int64(off))
		if i := bytes.IndexByte(chunk[:n], 0); i >= 0 {
			return string(append(s, chunk[:i]...)), nil
		}
		if err != nil {
			return "", noEOF(err)
		}
		s = append(s, chunk[:n]...)
	}
	return "", fmt.Errorf("a string is longer than %d bytes", maxString)
}
