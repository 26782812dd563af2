package component

import (
	_ "embed"
	"sync"

	"go.yaml.in/yaml/v3"
)

// Checksum is a published SHA-256 of a download.
type Checksum struct {
	SHA256 string `yaml:"sha256"` // hex
	From   string `yaml:"from"`   // the source that published it
}

//go:embed published.yaml
var published []byte

// Published returns the checksums of published.yaml, by URL.
var Published = sync.OnceValue(func() map[string]Checksum {
	var all map[string]Checksum
	if err := yaml.Unmarshal(published, &all); err != nil {
		panic("component: published.yaml: " + err.Error())
	}
	return all
})
