// Package hardware has the files of the hardware data base: what GPUs, links, NICs and nodes
// can do, what people measured on them, and what jobs for them need. They are YAML, read as
// one: a platform is a file in platforms. harness/platform reads the figures, build/jobs
// the profiles of jobs.
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

// Files are the data base that comes with the program.
//
//go:embed *.yaml platforms/*.yaml
var Files embed.FS

// A Source is where a figure was read.
type Source struct {
	URL  string `yaml:"url" json:"url,omitempty"`
	File string `yaml:"file" json:"file,omitempty"` // of the project, or its seeds
	Read string `yaml:"read" json:"read,omitempty"` // when, or which version
	What string `yaml:"what" json:"what"`
}

// Read decodes each of the files into a T, and gives it to add. A key that T does not have is an
// error, as are two documents in a file.
func Read[T any](files fs.FS, add func(*T) error) error {
	return fs.WalkDir(files, ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		text, err := fs.ReadFile(files, name)
		if err != nil {
			return err
		}
		dec := yaml.NewDecoder(bytes.NewReader(text))
		dec.KnownFields(true)
		t := new(T)
		if err := dec.Decode(t); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		if err := dec.Decode(new(yaml.Node)); !errors.Is(err, io.EOF) {
			return fmt.Errorf("%s: more than one YAML document; keep one", name)
		}
		if err := add(t); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		return nil
	})
}

// Unite adds what a file has under a key to what others had there.
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
