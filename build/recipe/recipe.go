// Package recipe describes, as pure data, what goes into one image for one platform: stages,
// steps, downloads with checksums, environment, files and the checks that prove the result. It
// does no I/O and does not depend on a builder: build/llb and build/dockerfile are its two back
// ends and must build the same image from it.
package recipe

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"hash"
	"strings"
	"unicode/utf8"

	"github.com/assay-hpc/assay/internal/certificate"
)

// A Platform is what an image runs on, for example {linux amd64}.
type Platform struct {
	OS   string `json:"os"`
	Arch string `json:"arch"` // Go's and OCI's name: amd64, arm64
}

// String returns "linux/amd64".
func (p Platform) String() string { return p.OS + "/" + p.Arch }

// ParsePlatform reads "linux/amd64".
func ParsePlatform(s string) (Platform, error) {
	os, arch, ok := strings.Cut(s, "/")
	if !ok || os != "linux" || (arch != "amd64" && arch != "arm64") {
		return Platform{}, fmt.Errorf("platform %q is not one of linux/amd64, linux/arm64", s)
	}
	return Platform{OS: os, Arch: arch}, nil
}

// Machine returns the name that uname -m, and most vendors' file names, use.
func (p Platform) Machine() string {
	if p.Arch == "arm64" {
		return "aarch64"
	}
	return "x86_64"
}

// Multiarch returns Debian's library directory name, such as
// x86_64-linux-gnu.
func (p Platform) Multiarch() string { return p.Machine() + "-linux-gnu" }

// A Recipe is everything that goes into one image for one platform.
type Recipe struct {
	Target     string                  `json:"target"`
	Platform   Platform                `json:"platform"`
	Stages     []Stage                 `json:"stages"` // each refers only to earlier ones; the last is the image
	Config     Config                  `json:"config"`
	Components []certificate.Component `json:"components"`
	Absent     []certificate.Absent    `json:"absent,omitempty"`
	// Whole is the hash of the target's recipes for all of its platforms, in hex: its first digits
	// end the target's tag. The image declares it, and so its certificate names it.
	Whole string `json:"-"`
}

// Declared returns the hash that the image declares as its recipe's.
func (r *Recipe) Declared() string { return cmp.Or(r.Whole, r.Hash()) }

// A Stage is a file system made by steps on top of a source. Two stages with
// equal content are one vertex for BuildKit, whichever target they belong to.
type Stage struct {
	Name string `json:"name"`
	// Native stages run on the builder's own platform and cross-compile; the
	// others run on the recipe's platform.
	Native bool   `json:"native,omitempty"`
	From   Source `json:"from"`
	Env    []Var  `json:"env,omitempty"` // for all its Run steps, on top of the source image's own
	Steps  []Step `json:"steps"`
}

// Config is the OCI image configuration that the recipe adds to its base's.
type Config struct {
	Env        []Var             `json:"env,omitempty"` // replaces the base's variable of the same name
	Labels     map[string]string `json:"labels,omitempty"`
	WorkingDir string            `json:"workingDir,omitempty"`
	Entrypoint []string          `json:"entrypoint,omitempty"`
	Cmd        []string          `json:"cmd,omitempty"`
}

// A Var is one environment variable. A value may refer to the base image's own
// value of a variable as ${NAME}; the builder resolves it.
type Var struct {
	Name  string `json:"name"`
	Value string `json:"value"`
}

// SourceKind is the kind of a Source.
type SourceKind string

const (
	Scratch     SourceKind = "scratch"
	FromStage   SourceKind = "stage"    // Ref is an earlier stage's name
	FromImage   SourceKind = "image"    // Ref is an image reference, Digest its (index) digest
	FromLayout  SourceKind = "layout"   // content that assay itself creates: Ref names it, Digest is the digest of its inputs
	FromURL     SourceKind = "download" // Ref is the URL, Digest the SHA-256 of the file
	CacheVolume SourceKind = "cache"    // Ref is the cache's id; only for mounts
)

// A Source is where a stage starts, or what a step copies or mounts from.
type Source struct {
	Kind   SourceKind `json:"kind"`
	Ref    string     `json:"ref,omitempty"`
	Digest string     `json:"digest,omitempty"` // "sha256:…"
}

// Name returns the last element of a download's URL.
func (s Source) Name() string { return s.Ref[strings.LastIndex(s.Ref, "/")+1:] }

// Step is one of Run, Copy, File, Symlink and Apt.
type Step interface{ kind() string }

// Run runs a shell script (sh -eu) in the stage.
type Run struct {
	Title   string  `json:"title"` // shown in the progress display
	Script  string  `json:"script"`
	Env     []Var   `json:"env,omitempty"`
	Mounts  []Mount `json:"mounts,omitempty"`
	Network bool    `json:"network,omitempty"` // off by default

	Pieces []Piece `json:"-"` // the script in the parts that people know, see [Run.Add]; none: it is one part
}

// A Piece is a part of a script: a component's own file, or what scripts have in common.
type Piece struct {
	File string // relative path that tells where it is from: "nccl/build.sh"
	Text string
}

// CommonDir is the directory of the pieces that scripts of several components have in common.
const CommonDir = "common/"

// Add appends pieces to the script.
func (r *Run) Add(pieces ...Piece) {
	r.Pieces = append(r.Pieces, pieces...)
	r.Script = scriptOf(r.Pieces)
}

func scriptOf(pieces []Piece) string {
	var b strings.Builder
	for _, p := range pieces {
		b.WriteString(p.Text)
	}
	return b.String()
}

// A Mount is visible to one Run step only and leaves nothing behind. All mounts except caches are
// read-only.
type Mount struct {
	Target string `json:"target"` // for a download: the path of the file
	From   Source `json:"from"`
	Path   string `json:"path,omitempty"` // in the source; "" is its root
}

// Copy copies a file, or the contents of a directory if Src ends in "/", from a source. It never
// follows a symbolic link of the stage below, so Dst's parents must be real directories there.
// Its layer does not depend on what is below (COPY --link): images of one matrix share it.
type Copy struct {
	From Source `json:"from"`
	Src  string `json:"src"`
	Dst  string `json:"dst"`
}

// Title is shown in the progress display and in the image's history.
func (c Copy) Title() string { return "copy " + c.From.Name() + " to " + c.Dst }

// File writes one regular file.
type File struct {
	Path    string `json:"path"`
	Mode    uint32 `json:"mode"`
	Content string `json:"content"`
}

// Symlink makes a symbolic link.
type Symlink struct {
	Path   string `json:"path"`
	Target string `json:"target"`
}

// Apt installs exactly the given Debian packages, without network. It replaces packages that are
// already installed in another version.
type Apt struct {
	Title    string   `json:"title"`
	Set      string   `json:"-"`                 // the package set's name in matrix.lock
	Packages []string `json:"packages"`          // requested; the rest are their dependencies
	Upgrade  bool     `json:"upgrade,omitempty"` // pending upgrades of the base belong to the set
	Debs     []Deb    `json:"debs"`              // all of them, pinned, sorted by name
}

// A Deb is one pinned Debian package.
type Deb struct {
	Name    string `json:"name"`
	Version string `json:"version"`
	Arch    string `json:"arch"` // amd64, arm64, all
	URL     string `json:"url"`  // "debian:pool/…" is resolved by the client's default archive
	SHA256  string `json:"sha256"`
	Size    int64  `json:"size"`
}

func (Run) kind() string     { return "run" }
func (Copy) kind() string    { return "copy" }
func (File) kind() string    { return "file" }
func (Symlink) kind() string { return "symlink" }
func (Apt) kind() string     { return "apt" }

// Image returns the stage that is the image: the last one.
func (r *Recipe) Image() *Stage { return &r.Stages[len(r.Stages)-1] }

// Stage returns the stage of that name, or nil.
func (r *Recipe) Stage(name string) *Stage {
	for i := range r.Stages {
		if r.Stages[i].Name == name {
			return &r.Stages[i]
		}
	}
	return nil
}

// Hash returns the SHA-256 of the recipe's canonical JSON, in hex. It covers every input: two
// recipes with the same hash make the same image. The image's declaration of itself is left out:
// it is derived from what is covered, and contains this hash.
func (r *Recipe) Hash() string {
	h := newHasher()
	for _, s := range r.Stages {
		h.stage(s)
	}
	h.add([]any{r.Target, r.Platform, r.Config, r.Components, r.Absent})
	return h.sum()
}

// RequestHash identifies the request of an Apt step: its packages, on top of the stage before the
// step, and on top of the stages that this one starts from. A lock entry made for another request
// is not used.
func (a Apt) RequestHash(before Stage, below ...Stage) string {
	h := newHasher()
	for _, s := range below {
		h.stage(s)
	}
	before.Name = ""
	h.stage(before)
	h.add([]any{a.Packages, a.Upgrade})
	return h.sum()
}

// WheelsRequest identifies what is asked of pip: the index, the requirements, and the stage whose
// Python answers, as in [Apt.RequestHash].
func WheelsRequest(in Stage, index, requirements string, below ...Stage) string {
	h := newHasher()
	for _, s := range below {
		h.stage(s)
	}
	in.Name = ""
	h.stage(in)
	h.add([]string{index, requirements})
	return h.sum()
}

type hasher struct {
	hash hash.Hash
	enc  *json.Encoder
}

func newHasher() hasher {
	h := sha256.New()
	return hasher{h, json.NewEncoder(h)}
}

func (h hasher) add(v any) {
	if err := h.enc.Encode(v); err != nil {
		panic("recipe: " + err.Error()) // only plain data here
	}
}

func (h hasher) stage(s Stage) {
	steps := s.Steps
	s.Steps = nil
	h.add(s)
	for _, st := range steps {
		if f, ok := st.(File); ok && f.Path == certificate.SpecPath {
			continue
		}
		h.add(struct {
			Kind string `json:"kind"`
			Step Step   `json:"step"`
		}{st.kind(), st})
	}
}

func (h hasher) sum() string { return hex.EncodeToString(h.hash.Sum(nil)) }

// Spec returns the image's declaration of itself, which the build writes to
// certificate.SpecPath.
func (r *Recipe) Spec() certificate.ImageSpec {
	spec := certificate.ImageSpec{
		Version: certificate.SpecVersion, Target: r.Target, Platform: r.Platform.String(),
		Recipe: r.Declared(), Components: r.Components, Absent: r.Absent,
	}
	for _, st := range r.Image().Steps {
		if apt, ok := st.(Apt); ok {
			for _, d := range apt.Debs {
				spec.Packages = append(spec.Packages, certificate.Package{Name: d.Name, Version: d.Version, Arch: d.Arch})
			}
		}
	}
	return spec
}

// Validate reports the first rule that the recipe breaks.
func (r *Recipe) Validate() error {
	if len(r.Stages) == 0 {
		return fmt.Errorf("recipe %s: no stages", r.Target)
	}
	seen := map[string]bool{}
	for _, s := range r.Stages {
		check := func(src Source) error {
			if src.Kind == FromStage && !seen[src.Ref] {
				return fmt.Errorf("recipe %s: stage %q refers to %q, which is not an earlier stage", r.Target, s.Name, src.Ref)
			}
			return nil
		}
		if seen[s.Name] {
			return fmt.Errorf("recipe %s: two stages are called %q", r.Target, s.Name)
		}
		if err := check(s.From); err != nil {
			return err
		}
		for _, st := range s.Steps {
			switch st := st.(type) {
			case Run:
				if len(st.Pieces) > 0 && st.Script != scriptOf(st.Pieces) {
					return fmt.Errorf("recipe %s: stage %q: the script of %q is not its pieces", r.Target, s.Name, st.Title)
				}
				for _, m := range st.Mounts {
					if err := check(m.From); err != nil {
						return err
					}
				}
			case Copy:
				if err := check(st.From); err != nil {
					return err
				}
			case File:
				if !utf8.ValidString(st.Content) { // JSON, and so the hash, would not distinguish it from other invalid content
					return fmt.Errorf("recipe %s: stage %q: file %s is not UTF-8 text, which is all that a recipe holds", r.Target, s.Name, st.Path)
				}
			}
		}
		seen[s.Name] = true
	}
	return nil
}
