package oci

import "testing"

func TestScrubHidesUploadState(t *testing.T) {
	w := newClient(Options{})
	w.note("tok3n")
	in := `Put "https://r.io/v2/a/blobs/uploads/1?_state=abc%3D&digest=sha256:12": tok3n refused`
	want := `Put "https://r.io/v2/a/blobs/uploads/1?_state=[hidden]&digest=sha256:12": [hidden] refused`
	if got := w.scrub(in); got != want {
		t.Errorf("scrub = %s; want %s", got, want)
	}
}
