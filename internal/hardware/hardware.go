// Package hardware contains the files of the hardware database: what GPUs, links, NICs and nodes
// can do, values that people measured on them, and what jobs need on them. The files are YAML and
// are read as one; each platform is a file in platforms. internal/platform reads the figures,
// build/jobs the job profiles.
package hardware

import (
	"bytes"
	"embed"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"slices"

	"go.yaml.in/yaml/v3"
)

// Files is the database that is embedded in the program.
//
//go:embed *.yaml platforms/*.yaml
var Files embed.FS

// A Source is where a figure comes from.
type Source struct {
	URL  string `yaml:"url" json:"url,omitempty"`
	File string `yaml:"file" json:"file,omitempty"` // in the project or its seeds
	Read string `yaml:"read" json:"read,omitempty"` // date or version
	What string `yaml:"what" json:"what"`
}

// Read decodes each file into a T and passes it to add. A key that T does not have is an error, and
// so is a second document in a file.
func Read[T any](files fs.FS, add func(*T) error) error {
	return fs.WalkDir(files, ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		text, err := fs.ReadFile(files, name)
		if err != nil {
			return err
		}
		t, err := Decode[T](name, text)
		if err != nil {
			return err
		}
		if err := add(t); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		return nil
	})
}

// Decode decodes one file, as Read does.
func Decode[T any](name string, text []byte) (*T, error) {
	dec := yaml.NewDecoder(bytes.NewReader(text))
	dec.KnownFields(true)
	t := new(T)
	if err := dec.Decode(t); err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	if err := dec.Decode(new(yaml.Node)); !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("%s: more than one YAML document; keep one", name)
	}
	return t, nil
}

// Unite adds the entries of one file under a key to those of other files. A duplicate is an error.
func Unite[V any](what string, into *map[string]V, more map[string]V) error {
	if *into == nil {
		*into = map[string]V{}
	}
	for _, key := range slices.Sorted(maps.Keys(more)) {
		if _, ok := (*into)[key]; ok {
			return fmt.Errorf("%s.%s is in another file, too", what, key)
		}
		(*into)[key] = more[key]
	}
	return nil
}
