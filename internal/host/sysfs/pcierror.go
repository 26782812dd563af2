package sysfs

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"strconv"
	"strings"
)

// AER holds the numbers of errors that Advanced Error Reporting has counted for a PCI function
// since its detection.
type AER struct{ Correctable, NonFatal, Fatal uint64 }

// AER reads a function's counters. If the firmware handles the errors itself, and in most virtual
// machines, there are none: fs.ErrNotExist.
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

// ParseAER parses an aer_dev file: one kind of error and its count per line. The total is in the
// last line, TOTAL_ERR_COR or similar.
func ParseAER(text string) (uint64, error) {
	for line := range strings.Lines(text) {
		name, count, _ := strings.Cut(strings.TrimSpace(line), " ")
		if strings.HasPrefix(name, "TOTAL_ERR_") {
			return strconv.ParseUint(strings.TrimSpace(count), 10, 64)
		}
	}
	return 0, fmt.Errorf("%.40q has no line TOTAL_ERR_", text)
}

// ACS says how the Access Control Services of a bridge handle traffic between its ports (PCI
// Express Base Specification, ACS Control Register).
type ACS uint16

// The bits that redirect peer-to-peer traffic to the root complex.
const (
	ACSRequestRedirect    ACS = 1 << 2
	acsCompletionRedirect ACS = 1 << 3
	acsEgressControl      ACS = 1 << 5
)

// Redirects reports whether peers below the bridge do not reach each other on the direct path.
func (a ACS) Redirects() bool {
	return a&(ACSRequestRedirect|acsCompletionRedirect|acsEgressControl) != 0
}

// ErrNoACS says that a function does not have the capability.
var ErrNoACS = errors.New("it has no Access Control Services")

// ACS reads a function's ACS Control Register. The error is ErrNoACS for a function without the
// capability, and fs.ErrPermission if only root may read the whole configuration space.
func (f FS) ACS(id BusID) (ACS, error) {
	config, err := f.bytes(pciDir + "/" + id.String() + "/config")
	if err != nil {
		return 0, err
	}
	return ParseACS(config)
}

const (
	publicConfig   = 64       // bytes of it that any user may read
	legacyConfig   = 256      // start of the extended capabilities
	acsCapability  = 0x000d   // the capability's number
	acsControl     = 6        // offset of the register in the capability
	mostCapability = 4096 / 8 // that fit into the space
)

// ParseACS finds the register in a configuration space.
func ParseACS(config []byte) (ACS, error) {
	if len(config) <= publicConfig {
		return 0, fmt.Errorf("configuration space of %d bytes: %w", len(config), fs.ErrPermission)
	}
	next := legacyConfig
	for range mostCapability { // bounded, as the list may contain a loop
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
