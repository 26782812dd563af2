package platform

import (
	"cmp"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"sync"

	"github.com/assay-hpc/assay/internal/hardware"
	"github.com/assay-hpc/assay/internal/infile"
)

// OwnFile is the environment variable that names a file of platforms of one's own. Its entries count before ours.
const OwnFile = "ASSAY_HARDWARE"

// ownSource is the source of figures without one, which only a file of one's own may have.
const ownSource = "own"

// maxOwnFile is far beyond any such file.
const maxOwnFile = 1 << 20

// Use returns the key of the platform that a flag names. If that is a file, FILE.yaml or FILE.yaml:KEY, its entries are
// part of the database of this process and its children from then on; any other name is returned as it is. KEY says
// which of several platforms is meant.
func Use(name string) (string, error) {
	m := ownFile.FindStringSubmatch(name)
	if m == nil {
		return name, nil
	}
	file, key := m[1], m[2]
	own, err := readOwn(file)
	if err != nil {
		return "", err
	}
	keys := slices.Sorted(maps.Keys(own.Platforms))
	switch {
	case len(keys) == 0:
		return "", fmt.Errorf("%s: it has no platforms; write \"platforms: {mine: {gpu: h100-sxm, gpus_per_node: 8, nics: {count: 8, gbit_each: 400}}}\"", file)
	case key == "" && len(keys) > 1:
		return "", fmt.Errorf("%s: it has several platforms, %s; name one: %s:%s", file, strings.Join(keys, ", "), file, keys[0])
	case key == "":
		key = keys[0]
	case own.Platforms[key] == nil:
		return "", fmt.Errorf("%s: %w", file, unknown("platform", key, keys))
	}
	if file, err = filepath.Abs(file); err != nil {
		return "", err
	}
	if err := os.Setenv(OwnFile, file); err != nil {
		return "", err
	}
	_, err = Load() // checks it together with ours
	return key, err
}

var ownFile = regexp.MustCompile(`^(.+\.ya?ml)(?::(.+))?$`)

var loaded struct {
	sync.Mutex
	own string // OwnFile's value
	db  *DB
	err error
}

// Load returns the embedded database with the entries of OwnFile, if that is set. It is parsed once.
func Load() (*DB, error) {
	loaded.Lock()
	defer loaded.Unlock()
	if own := os.Getenv(OwnFile); loaded.db == nil && loaded.err == nil || own != loaded.own {
		loaded.own = own
		loaded.db, loaded.err = withOwn(own)
	}
	return loaded.db, loaded.err
}

// withOwn parses the embedded database and adds the entries of a file, if there is one.
func withOwn(own string) (*DB, error) {
	db, err := Parse(hardware.Files)
	if err != nil || own == "" {
		return db, err
	}
	mine, err := readOwn(own)
	if err == nil {
		err = db.adopt(mine, own)
	}
	if err != nil {
		return nil, fmt.Errorf("hardware file: %w", err)
	}
	return db, nil
}

// readOwn reads a file of one's own, in the form of the database's.
func readOwn(name string) (*DB, error) {
	text, err := infile.Read(name, maxOwnFile)
	if err != nil {
		return nil, err
	}
	f, err := hardware.Decode[databaseFile](name, text)
	if err != nil {
		return nil, err
	}
	return &f.DB, nil
}

// adopt puts the entries of a file in place of those with the same keys.
func (db *DB) adopt(own *DB, file string) error {
	for key, p := range own.Platforms {
		if p == nil {
			return fmt.Errorf("%s: platforms.%s is empty", file, key)
		}
		p.own = true
		p.Name = cmp.Or(p.Name, key)
	}
	for key, g := range own.GPUs {
		if g == nil {
			return fmt.Errorf("%s: gpus.%s is empty", file, key)
		}
		g.Name = cmp.Or(g.Name, key)
	}
	if !reflect.ValueOf(own.Interconnects).IsZero() {
		db.Interconnects = own.Interconnects
	}
	db.Sources[ownSource] = hardware.Source{File: file, What: "a file of one's own"}
	maps.Copy(db.Sources, own.Sources)
	maps.Copy(db.GPUs, own.GPUs)
	maps.Copy(db.NICs, own.NICs)
	maps.Copy(db.Rules, own.Rules)
	maps.Copy(db.Clouds, own.Clouds)
	maps.Copy(db.Platforms, own.Platforms)
	maps.Copy(db.Tables, own.Tables)
	if err := db.check(); err != nil {
		return fmt.Errorf("%s: %w", file, err)
	}
	return nil
}
