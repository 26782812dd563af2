package elf

import (
	"bytes"
	"debug/elf"
	"errors"
	"os"
	"os/exec"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/assay-hpc/assay/internal/elf/elftest"
)

func TestParse(t *testing.T) {
	want := elftest.File{
		Interp: "/lib64/ld.so", Soname: "liba.so.1", Needed: []string{"libb.so.2", "libc.so.6"},
		RunPath: "$ORIGIN/../lib:/opt/lib", NoDefault: true,
	}
	f, err := Parse(bytes.NewReader(want.Bytes()))
	if err != nil {
		t.Fatal(err)
	}
	got := *f
	exp := File{
		Kind: Kind{elf.ELFCLASS64, elf.ELFDATA2LSB, elf.EM_X86_64}, Type: elf.ET_DYN, Interp: "/lib64/ld.so", Dynamic: true,
		Soname: "liba.so.1", Needed: want.Needed, RunPath: []string{"$ORIGIN/../lib", "/opt/lib"}, NoDefault: true,
	}
	if d := cmp.Diff(exp, got); d != "" {
		t.Errorf("Parse (-want +got):\n%s", d)
	}
}

func TestParseOther(t *testing.T) {
	for _, s := range []string{"", "#!/bin/sh\n", "\x7fEL", "PK\x03\x04 and some more bytes than twenty"} {
		if _, err := Parse(bytes.NewReader([]byte(s))); !errors.Is(err, ErrNotELF) {
			t.Errorf("Parse(%q) = %v; want ErrNotELF", s, err)
		}
	}
	whole := elftest.File{Needed: []string{"libc.so.6"}}.Bytes()
	for _, n := range []int{20, 63, 64, 100, len(whole) - 2} {
		if _, err := Parse(bytes.NewReader(whole[:n])); err == nil || errors.Is(err, ErrNotELF) {
			t.Errorf("Parse of the first %d bytes = %v; want an error", n, err)
		}
	}
}

// TestParseMachine compares with debug/elf on the programs of this machine.
func TestParseMachine(t *testing.T) {
	for _, name := range []string{"sh", "ls", "tar", "bash", "perl"} {
		p, err := exec.LookPath(name)
		if err != nil {
			continue
		}
		ref, err := elf.Open(p)
		if err != nil {
			continue
		}
		defer ref.Close()
		file, err := os.Open(p)
		if err != nil {
			t.Fatal(err)
		}
		defer file.Close()
		got, err := Parse(file)
		if err != nil {
			t.Errorf("Parse(%s) = %v", p, err)
			continue
		}
		if want, _ := ref.ImportedLibraries(); !slices.Equal(got.Needed, want) {
			t.Errorf("Parse(%s).Needed = %q; want %q", p, got.Needed, want)
		}
		if got.Machine != ref.Machine || got.Class != ref.Class || got.Type != ref.Type {
			t.Errorf("Parse(%s) = %v %v; want %v %v", p, got.Kind, got.Type, ref.Machine, ref.Type)
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add(elftest.File{Needed: []string{"libc.so.6"}, Soname: "x", RPath: "/a:/b"}.Bytes())
	if b, err := os.ReadFile("/bin/true"); err == nil {
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		if file, err := Parse(bytes.NewReader(b)); err == nil && !file.Dynamic && len(file.Needed) > 0 {
			t.Errorf("a static file needs %q", file.Needed)
		}
	})
}
