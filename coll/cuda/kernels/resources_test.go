package kernels

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"fmt"
	"io/fs"
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/assay-hpc/assay/internal/golden"
)

// Kinds of entries of a cubin's section .nv.info, and of the attributes that its entries with a value have.
const (
	sized     = 4    // two bytes of size follow, and the value; else the two bytes are the value
	frameSize = 0x11 // bytes of a function's stack: arrays that are not in registers, and spills
	regCount  = 0x2f
)

// A usage is what a kernel needs of a multiprocessor.
type usage struct {
	registers int // of a thread
	stack     int // bytes of a thread, in local memory
	shared    int // bytes of a block
}

// usages returns what each kernel of a cubin needs.
func usages(cubin []byte) (map[string]*usage, error) {
	cubin = slices.Clone(cubin)
	binary.LittleEndian.PutUint32(cubin[20:], uint32(elf.EV_CURRENT)) // e_version, which is nvcc's here
	f, err := elf.NewFile(bytes.NewReader(cubin))
	if err != nil {
		return nil, err
	}
	symbols, err := f.Symbols()
	if err != nil {
		return nil, err
	}
	all := map[string]*usage{}
	for _, s := range f.Sections {
		if name, ok := strings.CutPrefix(s.Name, ".text."); ok {
			all[name] = &usage{}
		}
	}
	for name, u := range all {
		if s := f.Section(".nv.shared." + name); s != nil {
			u.shared = int(s.Size)
		}
	}
	info := f.Section(".nv.info")
	if info == nil {
		return nil, fmt.Errorf("it has no section .nv.info")
	}
	b, err := info.Data()
	if err != nil {
		return nil, err
	}
	for len(b) >= 4 {
		format, attribute, n := b[0], b[1], int(binary.LittleEndian.Uint16(b[2:]))
		b = b[4:]
		if format != sized {
			continue
		}
		if n > len(b) {
			return nil, fmt.Errorf(".nv.info ends within an entry")
		}
		value := b[:n]
		b = b[n:]
		if attribute != regCount && attribute != frameSize {
			continue
		}
		if n != 8 {
			return nil, fmt.Errorf("attribute %#x of .nv.info has %d bytes; want 8", attribute, n)
		}
		i, v := int(binary.LittleEndian.Uint32(value))-1, int(binary.LittleEndian.Uint32(value[4:]))
		if i < 0 || i >= len(symbols) || all[symbols[i].Name] == nil {
			continue
		}
		if u := all[symbols[i].Name]; attribute == regCount {
			u.registers = v
		} else {
			u.stack = v
		}
	}
	return all, nil
}

// ofType is what a kernel's name ends with if there is one for each type, and for each reduction.
var ofType = regexp.MustCompile(`_(bf16|e4m3|e5m2|[fiu]\d+)(_[a-z]+)?$`)

// TestResources holds what the compiled kernels need to the table of the docs.
func TestResources(t *testing.T) {
	archives, err := fs.Glob(Files, "ptx/sm_*.tar.zst")
	if err != nil || len(archives) == 0 {
		t.Fatal(archives, err)
	}
	type row struct {
		least, most, shared, stack int
		of                         string // the first that has most of its stack in memory
	}
	table := map[string]map[string]*row{} // by kernel and archive
	var columns []string
	for _, a := range archives {
		dir, err := fs.Sub(Files, "ptx")
		if err != nil {
			t.Fatal(err)
		}
		code, err := read(dir, strings.TrimPrefix(a, "ptx/"), ".cubin")
		if err != nil {
			t.Fatal(err)
		}
		column := strings.TrimSuffix(strings.TrimPrefix(a, "ptx/sm_"), ".tar.zst")
		columns = append(columns, column)
		for _, m := range slices.Sorted(maps.Keys(code)) {
			all, err := usages(code[m])
			if err != nil {
				t.Fatalf("%s, %s: %v", a, m, err)
			}
			for _, name := range slices.Sorted(maps.Keys(all)) {
				u, kernel := all[name], ofType.ReplaceAllString(name, "")
				if u.registers == 0 {
					t.Errorf("%s, %s: nothing says how many registers it has", a, name)
				}
				if table[kernel] == nil {
					table[kernel] = map[string]*row{}
				}
				r := table[kernel][column]
				if r == nil {
					r = &row{least: u.registers}
					table[kernel][column] = r
				}
				r.least, r.most = min(r.least, u.registers), max(r.most, u.registers)
				r.shared = max(r.shared, u.shared)
				if u.stack > r.stack {
					r.stack, r.of = u.stack, strings.TrimPrefix(name, kernel+"_")
				}
			}
		}
	}
	var b strings.Builder
	b.WriteString("| kernel |")
	for _, c := range columns {
		arch, few, _ := strings.Cut(c, ".")
		fmt.Fprintf(&b, " %s.%s", arch[:1], arch[1:])
		if few != "" {
			fmt.Fprintf(&b, ", %s ranks", strings.TrimPrefix(few, "r"))
		}
		b.WriteString(" |")
	}
	b.WriteString(" shared memory |\n|---|" + strings.Repeat("---|", len(columns)) + "---|\n")
	for _, kernel := range slices.Sorted(maps.Keys(table)) {
		fmt.Fprintf(&b, "| `%s` |", kernel)
		shared := 0
		for _, c := range columns {
			r := table[kernel][c]
			if r == nil {
				b.WriteString(" |")
				continue
			}
			fmt.Fprintf(&b, " %d", r.least)
			if r.most > r.least {
				fmt.Fprintf(&b, " to %d", r.most)
			}
			if r.stack > 0 {
				fmt.Fprintf(&b, ", **%d B** (%s)", r.stack, r.of)
			}
			b.WriteString(" |")
			shared = max(shared, r.shared)
		}
		fmt.Fprintf(&b, " %d |\n", shared)
	}
	golden.Part(t, "../../../docs/lab/gpu-collectives.md", "<!-- registers: go test ./coll/cuda/kernels -run TestResources -args -update writes them -->\n", "<!-- end of the registers -->", b.String())
}
