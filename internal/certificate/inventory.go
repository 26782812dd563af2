package certificate

import (
	"errors"
	"fmt"

	"github.com/assay-hpc/assay/internal/attest"
)

// NoAssertion is SPDX's value for "not stated".
const NoAssertion = "NOASSERTION"

// InventoryVersion is the version of the Inventory format.
const InventoryVersion = 1

// An Inventory lists the packages that are installed in an image. It is a separate document, from
// which the SBOM is made.
type Inventory struct {
	Version  int                `json:"version"`
	Packages []InstalledPackage `json:"packages"`
	// Components are those that the base declares, if it is an image of assay's.
	Components []Component `json:"components,omitempty"`
}

// An InstalledPackage is one entry of the image's package database.
type InstalledPackage struct {
	Name       string `json:"name"`
	Version    string `json:"version"`
	Arch       string `json:"arch"`
	Source     string `json:"source,omitempty"` // source package and version where they differ: "zlib (1:1.2)"
	Maintainer string `json:"maintainer,omitempty"`
	Homepage   string `json:"homepage,omitempty"`
	// Licenses are SPDX expressions, each of which applies to some of the package's files, or
	// NOASSERTION alone where the copyright file is not machine-readable.
	Licenses []string `json:"licenses"`
}

// NewInventory returns an empty inventory.
func NewInventory() *Inventory {
	return &Inventory{Version: InventoryVersion, Packages: []InstalledPackage{}}
}

// Marshal returns the inventory's canonical form.
func (inv *Inventory) Marshal() ([]byte, error) {
	if err := inv.validate(); err != nil {
		return nil, err
	}
	return attest.Encode(inv)
}

// ParseInventory reads what Marshal wrote.
func ParseInventory(b []byte) (*Inventory, error) {
	var inv Inventory
	if err := attest.Decode(b, MaxSize, &inv); err != nil {
		return nil, fmt.Errorf("inventory: %w", err)
	}
	return &inv, inv.validate()
}

func (inv *Inventory) validate() error {
	if inv.Version != InventoryVersion {
		return fmt.Errorf("inventory: version %d; this program reads version %d", inv.Version, InventoryVersion)
	}
	for _, p := range inv.Packages {
		if p.Name == "" || p.Version == "" {
			return fmt.Errorf("inventory: package %q lacks name or version", p.Name)
		}
		if len(p.Licenses) == 0 {
			return errors.New("inventory: " + p.Name + " has no licence, not even " + NoAssertion)
		}
	}
	return nil
}
