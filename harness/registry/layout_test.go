package registry

import (
	"bytes"
	"encoding/json"
	"io"
	"testing"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// blob writes a layout's blob.
func blob(t *testing.T, l layout.Path, b []byte, mediaType string) v1.Descriptor {
	t.Helper()
	h, size, err := v1.SHA256(bytes.NewReader(b))
	if err == nil {
		err = l.WriteBlob(h, io.NopCloser(bytes.NewReader(b)))
	}
	if err != nil {
		t.Fatal(err)
	}
	return v1.Descriptor{MediaType: types.MediaType(mediaType), Digest: h, Size: size}
}

func jsonOf(t *testing.T, v any) []byte {
	t.Helper()
	b, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return b
}
