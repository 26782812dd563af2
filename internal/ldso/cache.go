package ldso

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
)

// An Entry is one library in ld.so.cache.
type Entry struct {
	Soname string
	Path   string
	// HWCap is set if the loader uses the entry only on some processors.
	HWCap bool
}

// The layout is glibc's struct cache_file_new (sysdeps/generic/dl-cache.h).
const (
	cacheMagic    = "glibc-ld.so.cache1.1"
	oldCacheMagic = "ld.so-1.7.0"
	headerSize    = 48
	entrySize     = 24
	oldHeaderSize = 16
	oldEntrySize  = 12
)

var errCache = errors.New("ld.so.cache is damaged")

// ParseCache reads the content of /etc/ld.so.cache. It understands the format
// of glibc 2.2 and later, alone or after a cache in the older one.
func ParseCache(b []byte) ([]Entry, error) {
	b, err := skipOld(b)
	if err != nil {
		return nil, err
	}
	if len(b) < headerSize || string(b[:len(cacheMagic)]) != cacheMagic {
		return nil, fmt.Errorf("%w: it does not start with %q", errCache, cacheMagic)
	}
	order, err := byteOrder(b[28])
	if err != nil {
		return nil, err
	}
	count := uint64(order.Uint32(b[20:]))
	if count*entrySize > uint64(len(b)-headerSize) {
		return nil, fmt.Errorf("%w: %d entries in %d bytes", errCache, count, len(b))
	}
	entries := make([]Entry, 0, count)
	for i := range count {
		e := b[headerSize+i*entrySize:]
		name, err1 := cacheString(b, order.Uint32(e[4:]))
		path, err2 := cacheString(b, order.Uint32(e[8:]))
		if err := errors.Join(err1, err2); err != nil {
			return nil, err
		}
		entries = append(entries, Entry{name, path, order.Uint64(e[16:]) != 0})
	}
	return entries, nil
}

// skipOld skips a cache in the format of libc5.
func skipOld(b []byte) ([]byte, error) {
	if !bytes.HasPrefix(b, []byte(oldCacheMagic)) {
		return b, nil
	}
	if len(b) < oldHeaderSize {
		return nil, errCache
	}
	end := oldHeaderSize + uint64(binary.LittleEndian.Uint32(b[12:]))*oldEntrySize
	end = (end + 7) &^ 7 // the new header is aligned like its 64-bit fields
	if end > uint64(len(b)) {
		return nil, fmt.Errorf("%w: the old part is longer than the file", errCache)
	}
	return b[end:], nil
}

// byteOrder reads the header's flags: 0 (before glibc 2.33) and 2 are little endian on every
// machine that assay supports.
func byteOrder(flags byte) (binary.ByteOrder, error) {
	switch flags & 3 {
	case 0, 2:
		return binary.LittleEndian, nil
	case 3:
		return binary.BigEndian, nil
	}
	return nil, fmt.Errorf("%w: ldconfig marked it invalid", errCache)
}

func cacheString(b []byte, off uint32) (string, error) {
	if uint64(off) >= uint64(len(b)) {
		return "", fmt.Errorf("%w: a string lies outside", errCache)
	}
	n := bytes.IndexByte(b[off:], 0)
	if n < 0 {
		return "", fmt.Errorf("%w: a string has no end", errCache)
	}
	return string(b[off : int(off)+n]), nil
}
