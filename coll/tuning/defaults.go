package tuning

import (
	"bytes"
	"compress/gzip"
	_ "embed"
	"sync"
)

//go:embed measured.json.gz
var measured []byte

// Defaults are measurements that came with the package: "harness coll tune"
// made them, on the machine that they name. They are shared and not changed.
var Defaults = sync.OnceValues(func() (*Measurements, error) {
	r, err := gzip.NewReader(bytes.NewReader(measured))
	if err != nil {
		return nil, err
	}
	return ReadMeasurements(r)
})
