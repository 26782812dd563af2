// Package libnccl determines who made a file named libnccl.so.2: assay, NVIDIA or another maker.
// It reads the file and loads nothing.
package libnccl

import (
	"bytes"
	"debug/elf"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"

	"github.com/assay-hpc/assay/internal/infile"
	"github.com/assay-hpc/assay/internal/ldso"
	"github.com/assay-hpc/assay/internal/rootfs"
)

// Name is the file's name, and the SONAME that programs request.
const Name = "libnccl.so.2"

// Engine is the file that assay's library needs in its directory.
const Engine = "libassay-coll.so"

// Dir is the directory of both in images.
const Dir = "/opt/assay/lib"

// A Maker is the maker of a library.
type Maker string

// The known makers. A library that names none is Unknown.
const (
	Unknown Maker = ""
	Assay   Maker = "assay"
	NVIDIA  Maker = "NVIDIA"
)

// An Identity is what a library's file states about itself.
type Identity struct {
	Maker   Maker
	Version string // of assay: "0.1.0"; of NVIDIA's library: "2.28.9+cuda13.0"
	API     string // the NCCL version with the same API: "2.28.9"
}

func (i Identity) String() string {
	switch i.Maker {
	case Assay:
		return fmt.Sprintf("assay's %s, API of NCCL %s", i.Version, i.API)
	case NVIDIA:
		return "NVIDIA's NCCL " + i.Version
	}
	return "a library that does not say which project built it"
}

// Texts in the files: from front/whose.c, and from NCCL's init.cc, for its log.
var (
	assayText  = regexp.MustCompile(`assay libnccl ([\w.+-]{1,40}), NCCL API (\d+\.\d+\.\d+)`)
	nvidiaText = regexp.MustCompile(`NCCL version ((\d+\.\d+\.\d+)[\w.-]{0,20}\+cuda\d+\.\d+)`)
)

// longest is the length of the longest text.
const longest = 128

// Read reads a library. A file that does not name its maker is not an error.
func Read(r io.ReaderAt) (Identity, error) {
	f, err := elf.NewFile(r)
	if err != nil {
		return Identity{}, err
	}
	for _, s := range f.Sections {
		if !constants(s) {
			continue
		}
		if id, err := search(s.Open()); err != nil || id.Maker != Unknown {
			return id, err
		}
	}
	return Identity{}, nil
}

// ReadFile reads the library with the given file name.
func ReadFile(name string) (Identity, error) {
	f, err := infile.Open(name)
	if err != nil {
		return Identity{}, err
	}
	defer f.Close()
	id, err := Read(f)
	if err != nil {
		return id, fmt.Errorf("%s: %w", name, err)
	}
	return id, nil
}

// installed returns nil if a file is assay's library with its engine in the same directory, and
// an error that says what is wrong otherwise.
func installed(name string) error {
	id, err := ReadFile(name)
	if err != nil {
		return err
	}
	if id.Maker != Assay {
		return fmt.Errorf("%s: it is %v", name, id)
	}
	if _, err := os.Stat(filepath.Join(filepath.Dir(name), Engine)); err != nil {
		return fmt.Errorf("%s: its engine is not next to it: %w", name, err)
	}
	return nil
}

// FindNVIDIA returns the first of the loader's directories with a library of NVIDIA's, and
// whether no other library comes before it. dir is "" if there is none.
func FindNVIDIA(libraryPath string) (dir string, first bool) {
	root, err := rootfs.Open("/")
	if err != nil {
		return "", false
	}
	first = true
	for _, dir := range ldso.Dirs(root, libraryPath) {
		id, err := ReadFile(filepath.Join(dir, Name))
		switch {
		case err != nil: // none, or none that the loader would load
		case id.Maker == NVIDIA:
			return dir, first
		default:
			first = false
		}
	}
	return "", false
}

// constants reports whether a section may contain a program's texts. NVIDIA's machine code for
// GPUs, some hundred megabytes, contains none.
func constants(s *elf.Section) bool {
	return s.Type == elf.SHT_PROGBITS && s.Flags&elf.SHF_ALLOC != 0 && s.Flags&elf.SHF_EXECINSTR == 0 && s.Name != ".nv_fatbin"
}

// search searches for the texts in blocks.
func search(r io.Reader) (Identity, error) {
	buf := make([]byte, 1<<20)
	kept := 0
	for {
		n, err := io.ReadFull(r, buf[kept:])
		text := buf[:kept+n]
		if id := identifyText(text); id.Maker != Unknown {
			return id, nil
		}
		if err == io.EOF || errors.Is(err, io.ErrUnexpectedEOF) {
			return Identity{}, nil
		}
		if err != nil {
			return Identity{}, err
		}
		kept = copy(buf, text[len(text)-longest:])
	}
}

// identifyText searches for the texts in a block.
func identifyText(text []byte) Identity {
	if m := assayText.FindSubmatch(text); m != nil {
		return Identity{Assay, string(m[1]), string(m[2])}
	}
	// Most blocks contain none, and a search for a fixed string is fast.
	if !bytes.Contains(text, []byte("NCCL version ")) {
		return Identity{}
	}
	if m := nvidiaText.FindSubmatch(text); m != nil {
		return Identity{NVIDIA, string(m[1]), string(m[2])}
	}
	return Identity{}
}
