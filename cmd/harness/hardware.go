package main

import (
	"github.com/assay-hpc/assay/internal/exit"
	"github.com/assay-hpc/assay/internal/platform"
)

// hardware returns the hardware database and the key of the platform that --hardware names: ours, or one of a file, which
// then is part of the database. Without a name there is no key.
func hardware(name string) (*platform.DB, string, error) {
	name, err := platform.Use(name)
	if err != nil {
		return nil, "", exit.Usagef("--hardware: %w", err)
	}
	db, err := platform.Load()
	if err != nil || name == "" {
		return db, "", err
	}
	key, err := db.Key(name)
	if err != nil {
		return nil, "", exit.Usagef("--hardware: %w", err)
	}
	return db, key, nil
}
