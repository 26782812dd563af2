package base

import (
	"archive/tar"
	"bufio"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"

	"github.com/klauspost/compress/zstd"
	"github.com/ulikunitz/xz"
)

// maxWindow is the most memory, in bytes, that the zstd decoder may use for its window.
const maxWindow = 128 << 20

// members calls each for every member of a package's data archive, in its order. It reads and
// decompresses in this process: a lock may name any file, and a program that unpacks it as root
// would write wherever the file says.
func members(file string, each func(h *tar.Header, content io.Reader) error) error {
	f, err := os.Open(file)
	if err != nil {
		return err
	}
	defer f.Close()
	name, data, err := dataMember(bufio.NewReaderSize(f, 1<<20))
	if err != nil {
		return err
	}
	plain, done, err := decompress(name, data)
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	defer done()
	for r := tar.NewReader(plain); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		if err := each(h, r); err != nil {
			return err
		}
	}
}

const (
	arMagic  = "!<arch>\n"
	arHeader = 60 // bytes before each member: name[16] time[12] owner[6] group[6] mode[8] size[10] end[2]
)

// dataMember returns the name and content of a package's data archive. A package is an archive of
// the program ar with the members debian-binary, control.tar.* and data.tar.*.
func dataMember(r *bufio.Reader) (string, io.Reader, error) {
	bad := func(why string) (string, io.Reader, error) {
		return "", nil, fmt.Errorf("not a Debian package: %s", why)
	}
	magic := make([]byte, len(arMagic))
	if _, err := io.ReadFull(r, magic); err != nil || string(magic) != arMagic {
		return bad("it is no ar archive")
	}
	for {
		h := make([]byte, arHeader)
		if _, err := io.ReadFull(r, h); err != nil {
			return bad("it has no member data.tar")
		}
		name := strings.TrimSuffix(strings.TrimRight(string(h[:16]), " "), "/")
		size, err := strconv.ParseInt(strings.TrimRight(string(h[48:58]), " "), 10, 64)
		if err != nil || size < 0 || string(h[58:]) != "`\n" {
			return bad(fmt.Sprintf("the header of member %q is malformed", name))
		}
		if name == "data.tar" || strings.HasPrefix(name, "data.tar.") {
			return name, io.LimitReader(r, size), nil
		}
		if _, err := io.CopyN(io.Discard, r, size+size%2); err != nil {
			return bad(fmt.Sprintf("member %q is cut off", name))
		}
	}
}

// decompress returns the content of an archive by the end of its name.
func decompress(name string, r io.Reader) (_ io.Reader, done func(), err error) {
	done = func() {}
	switch strings.TrimPrefix(name, "data.tar") {
	case "":
		return r, done, nil
	case ".gz":
		zr, err := gzip.NewReader(r)
		return zr, done, err
	case ".xz":
		zr, err := xz.NewReader(r)
		return zr, done, err
	case ".zst":
		zr, err := zstd.NewReader(r, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxWindow(maxWindow), zstd.WithDecoderMaxMemory(maxWindow))
		if err != nil {
			return nil, nil, err
		}
		return zr, zr.Close, nil
	}
	return nil, nil, errors.New("its compression is not one of gz, xz, zst")
}
