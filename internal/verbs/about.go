package verbs

import (
	"fmt"
	"strings"
)

// About says whether libibverbs is found, and the devices for which it has a provider.
func About() string {
	if err := Load(); err != nil {
		return fmt.Sprintf("skipped: %v", err)
	}
	names, err := Names()
	switch {
	case err != nil:
		return "libibverbs; no devices: " + strings.TrimPrefix(err.Error(), ErrNoLibrary.Error()+": ")
	case len(names) == 0:
		return "libibverbs; no devices"
	}
	return "libibverbs; " + strings.Join(names, ", ")
}
