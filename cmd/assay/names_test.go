package main

import (
	"testing"

	"github.com/assay-hpc/assay/build/jobs"
	"github.com/assay-hpc/assay/internal/platform"
)

// TestNamesOfHardware: what jobs call a platform, the harness knows, and the other way round.
func TestNamesOfHardware(t *testing.T) {
	t.Parallel()
	db, err := platform.Load()
	if err != nil {
		t.Fatal(err)
	}
	d, err := jobs.Load()
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range d.Profiles {
		if p.Hardware == "" {
			continue
		}
		if key, err := db.Key(p.ID); key != p.Hardware {
			t.Errorf("profile %s is of %s, and by its name of %q: %v", p.ID, p.Hardware, key, err)
		}
		names := append([]string{p.Hardware, db.Platforms[p.Hardware].Name}, db.Platforms[p.Hardware].Aliases...)
		for _, name := range names {
			if got, err := d.Profile(name); err != nil || got.ID != p.ID {
				t.Errorf("%q is no name of profile %s: %v", name, p.ID, err)
			}
		}
	}
}
