package sysfs

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"strconv"
	"strings"
)

// AER is how many errors of Advanced Error Reporting a PCI function has had
// since it was found.
type AER struct{ Correctable, NonFatal, Fatal uint64 }

// AER reads a function's counters. Where firmware keeps the errors to itself,
// and in most virtual machines, there are none: fs.ErrNotExist.
func (f FS) AER(id BusID) (AER, error) {
	var out AER
	for _, c := range []struct {
		file string
		to   *uint64
	}{
		{"aer_dev_correctable", &out.Correctable}, {"aer_dev_nonfatal", &out.NonFatal}, {"aer_dev_fatal", &out.Fatal},
	} {
		name := pciDir + "/" + id.String() + "/" + c.file
		text, err := f.read(name)
		if err != nil {
			return AER{}, err
		}
		if *c.to, err = ParseAER(text); err != nil {
			return AER{}, &AttrError{File: name, Err: err}
		}
	}
	return out, nil
}

// ParseAER parses an aer_dev file: a kind of error and its count a line. The
// total is its last line, TOTAL_ERR_COR or the like.
func ParseAER(text string) (uint64, error) {
	for line := range strings.Lines(text) {
		name, count, _ := strings.Cut(strings.TrimSpace(line), " ")
		if strings.HasPrefix(name, "TOTAL_ERR_") {
			return strconv.ParseUint(strings.TrimSpace(count), 10, 64)
		}
	}
	return 0, fmt.Errorf("%.40q has no line TOTAL_ERR_", text)
}

// ACS is what Access Control Services of a bridge do with what its ports send
// to one another (PCI Express Base Specification, ACS Control Register).
type ACS uint16

// The bits of it that send peer-to-peer traffic up to the root complex.
const (
	ACSRequestRedirect    ACS = 1 << 2
	acsCompletionRedirect ACS = 1 << 3
	acsEgressControl      ACS = 1 << 5
)

// Redirects reports whether peers below the bridge do not reach one another
// the short way.
func (a ACS) Redirects() bool {
	return a&(ACSRequestRedirect|acsCompletionRedirect|acsEgressControl) != 0
}

// ErrNoACS says that a function does not have the capability.
var ErrNoACS = errors.New("it has no Access Control Services")

// ACS reads a function's ACS Control Register. The error is ErrNoACS for one
// without, and fs.ErrPermission where only root may read all of the
// configuration space.
func (f FS) ACS(id BusID) (ACS, error) {
	config, err := f.bytes(pciDir + "/" + id.String() + "/config")
	if err != nil {
		return 0, err
	}
	return ParseACS(config)
}

const (
	publicConfig   = 64       // bytes of it that anybody may read
	legacyConfig   = 256      // where the extended capabilities begin
	acsCapability  = 0x000d   // its number
	acsControl     = 6        // offset of the register in the capability
	mostCapability = 4096 / 8 // that fit into the space
)

// ParseACS finds the register in a configuration space.
func ParseACS(config []byte) (ACS, error) {
	if len(config) <= publicConfig {
		return 0, fmt.Errorf("configuration space of %d bytes: %w", len(config), fs.ErrPermission)
	}
	next := legacyConfig
	for range mostCapability { // a list that leads back to itself ends here, too
		if next < legacyConfig || next+acsControl+2 > len(config) {
			break
		}
		head := binary.LittleEndian.Uint32(config[next:])
		if head&0xffff == acsCapability {
			return ACS(binary.LittleEndian.Uint16(config[next+acsControl:])), nil
		}
		next = int(head >> 20)
	}
	return 0, ErrNoACS
}
