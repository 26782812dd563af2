// Package elftest writes small ELF files for tests: headers and a dynamic
// section, no code.
package elftest

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
)

// A File describes what to write. The zero File is an empty x86-64 shared
// object.
type File struct {
	Machine   elf.Machine // 0: EM_X86_64
	Static    bool        // no dynamic section
	Interp    string
	Soname    string
	Needed    []string
	RPath     string
	RunPath   string
	NoDefault bool
}

const headers = 64 + 3*56

// Bytes returns the file: ELF header, three program headers, the dynamic
// section, the strings.
func (f File) Bytes() []byte {
	strs := []byte{0}
	str := func(s string) uint64 {
		off := len(strs)
		strs = append(append(strs, s...), 0)
		return uint64(off)
	}
	dyn := f.dynamic(str)
	interp := str(f.Interp)
	dynOff := uint64(headers)
	strOff := dynOff + uint64(len(dyn)+3)*16
	dyn = append(dyn, dynamicEntry{int64(elf.DT_STRTAB), strOff}, dynamicEntry{int64(elf.DT_STRSZ), uint64(len(strs))}, dynamicEntry{int64(elf.DT_NULL), 0})

	var b bytes.Buffer
	f.header(&b)
	put(&b, elf.Prog64{Type: uint32(elf.PT_LOAD), Filesz: strOff + uint64(len(strs))})
	second := elf.Prog64{Type: uint32(elf.PT_NULL)}
	if f.Interp != "" {
		second = elf.Prog64{Type: uint32(elf.PT_INTERP), Off: strOff + interp, Filesz: uint64(len(f.Interp) + 1)}
	}
	put(&b, second)
	third := elf.Prog64{Type: uint32(elf.PT_NULL)}
	if !f.Static {
		third = elf.Prog64{Type: uint32(elf.PT_DYNAMIC), Off: dynOff, Filesz: uint64(len(dyn)) * 16}
	}
	put(&b, third)
	put(&b, dyn)
	b.Write(strs)
	return b.Bytes()
}

type dynamicEntry struct {
	Tag int64
	Val uint64
}

func (f File) dynamic(str func(string) uint64) []dynamicEntry {
	var dyn []dynamicEntry
	add := func(tag elf.DynTag, s string) {
		if s != "" {
			dyn = append(dyn, dynamicEntry{int64(tag), str(s)})
		}
	}
	for _, n := range f.Needed {
		add(elf.DT_NEEDED, n)
	}
	add(elf.DT_SONAME, f.Soname)
	add(elf.DT_RPATH, f.RPath)
	add(elf.DT_RUNPATH, f.RunPath)
	if f.NoDefault {
		dyn = append(dyn, dynamicEntry{int64(elf.DT_FLAGS_1), 0x800})
	}
	return dyn
}

func (f File) header(b *bytes.Buffer) {
	machine := f.Machine
	if machine == 0 {
		machine = elf.EM_X86_64
	}
	h := elf.Header64{
		Type: uint16(elf.ET_DYN), Machine: uint16(machine), Version: 1,
		Phoff: 64, Ehsize: 64, Phentsize: 56, Phnum: 3,
	}
	copy(h.Ident[:], elf.ELFMAG)
	h.Ident[elf.EI_CLASS], h.Ident[elf.EI_DATA], h.Ident[elf.EI_VERSION] = byte(elf.ELFCLASS64), byte(elf.ELFDATA2LSB), 1
	put(b, h)
}

func put(b *bytes.Buffer, v any) {
	if err := binary.Write(b, binary.LittleEndian, v); err != nil {
		panic("elftest: " + err.Error()) // only fixed-size types above
	}
}
