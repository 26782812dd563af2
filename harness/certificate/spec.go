package certificate

// SpecPath is where every image that assay builds carries its [ImageSpec].
const SpecPath = "/opt/assay/image.json"

// BaseDir is where an image keeps records of the base that it was built on, as
// the base had them: what the base brought can then be told from what the build
// put in. They are dpkg's status and the loader's cache. Where an image is not
// believed, the base's own are mounted there, with the checksums of its packages'
// files, which otherwise are those of the image.
const (
	BaseDir        = "/opt/assay/base"
	BaseStatusPath = BaseDir + "/dpkg-status"
	BaseCachePath  = BaseDir + "/ld.so.cache"
	BaseInfoDir    = BaseDir + "/info"
)

// NoSpec in place of a declaration's path says that what the image declares is not
// to be believed.
const NoSpec = "none"

// SpecVersion is the version of the ImageSpec format that this package writes.
const SpecVersion = 1

// An ImageSpec is what an image declares about itself. The build writes it to
// [SpecPath]; the suite "image" holds the image against it.
type ImageSpec struct {
	Version  int    `json:"version"`
	Target   string `json:"target"`   // name of the target in matrix.yaml
	Platform string `json:"platform"` // "linux/amd64"
	Recipe   string `json:"recipe"`   // SHA-256 of the recipe, hex

	Components []Component `json:"components"`
	Packages   []Package   `json:"packages,omitempty"`
	Absent     []Absent    `json:"absent,omitempty"`
}

// A Component is one declared part of an image.
type Component struct {
	Name     string     `json:"name"`
	Version  string     `json:"version"`
	License  string     `json:"license"` // SPDX expression, or LicenseRef-…
	Homepage string     `json:"homepage,omitempty"`
	Sources  []Download `json:"sources,omitempty"`
	Packages []string   `json:"packages,omitempty"` // Debian's, that it asks for; what these need is not named
	Layers   []string   `json:"layers,omitempty"`   // that are its own, by their lines in the image's history
	Checks   []Check    `json:"checks,omitempty"`
}

// A Download is one file that a component was made from.
type Download struct {
	URL    string `json:"url"`
	Digest string `json:"digest"` // "sha256:…"
}

// A Package is one Debian package with the version that was locked.
type Package struct {
	Name    string `json:"name"`
	Version string `json:"version"`
	Arch    string `json:"arch"`
}

// Absent names a shared library that the image is allowed to lack, because
// whoever starts the container brings it (the NVIDIA driver's libcuda.so.1). A
// load check that fails only for such libraries is skipped, never passed.
type Absent struct {
	Library string `json:"library"` // soname, exactly
	Because string `json:"because"`
}

// CheckKind says what a Check does.
type CheckKind string

const (
	// CheckCommand runs Command with the image's environment and wants exit
	// status 0 and, where Match is set, output that matches it.
	CheckCommand CheckKind = "command"
	// CheckFile wants Path to exist (as an executable where Mode asks for it).
	CheckFile CheckKind = "file"
	// CheckLoad wants the dynamic loader to load the library Path with every
	// symbol bound.
	CheckLoad CheckKind = "load"
)

// A Check is one thing that certification does in the finished image to show
// that a component is there, loads, and is the declared version.
type Check struct {
	Name    string    `json:"name"`
	Kind    CheckKind `json:"kind"`
	Command []string  `json:"command,omitempty"` // argv, no shell
	Env     []string  `json:"env,omitempty"`     // added to the image's environment
	Match   string    `json:"match,omitempty"`   // RE2, over stdout and stderr together
	Path    string    `json:"path,omitempty"`
	Mode    uint32    `json:"mode,omitempty"`    // permission bits that must be set
	Seconds int       `json:"seconds,omitempty"` // time limit; 0 means the suite's default
}
