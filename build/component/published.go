package component

// Checksum is a SHA-256 that somebody has published for a download.
type Checksum struct {
	SHA256 string // hex
	From   string // who published it
}

// Published maps a download's URL to the checksum that its publisher, or a
// packager who verified it, has announced: what is pinned even where the
// upstream cannot be reached.
var Published = map[string]Checksum{}
