package matrix

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/invopop/jsonschema"
	"go.yaml.in/yaml/v3"

	"github.com/assay-hpc/assay/internal/words"
)

// A kind is a rule for one piece of text. The parser and the JSON Schema use the same rule, so
// patterns contain only what RE2 and ECMAScript have in common.
type kind struct {
	what    string         // "a CUDA version", for messages
	words   []string       // all allowed values; or
	pattern *regexp.Regexp // the form it must have, with
	remedy  string         // how to write it
}

// A ruled type identifies a kind; it is used only as a type parameter of value.
type ruled interface{ kind() kind }

// A value is a piece of text in the file, of one kind.
type value[K ruled] struct {
	Text string
	At   Pos
}

func (v *value[K]) decode(r *reporter, field string, n *yaml.Node) {
	text, ok := r.text(field, n)
	if !ok {
		return
	}
	v.Text, v.At = text, pos(n)
	var k K
	if msg, remedy := k.kind().problem(text); msg != "" {
		r.report(v.At, field, msg, remedy)
	}
}

// JSONSchema implements the interface that jsonschema.Reflector looks for.
func (value[K]) JSONSchema() *jsonschema.Schema {
	var k K
	s := &jsonschema.Schema{Type: "string"}
	if p := k.kind().pattern; p != nil {
		s.Pattern = p.String()
	}
	for _, w := range k.kind().words {
		s.Enum = append(s.Enum, w)
	}
	return s
}

// problem returns what is wrong with text and what to do about it.
func (k kind) problem(text string) (msg, remedy string) {
	msg = fmt.Sprintf("%q is not %s", text, k.what)
	switch {
	case k.words != nil && !slices.Contains(k.words, text):
		return msg, fmt.Sprintf("the nearest of %s is %q", strings.Join(k.words, ", "), words.Nearest(text, k.words))
	case k.pattern != nil && !k.pattern.MatchString(text):
		return msg, k.remedy
	}
	return "", ""
}

type (
	sentence     struct{}
	name         struct{}
	repository   struct{}
	reference    struct{}
	inTheBase    struct{}
	tagTemplate  struct{}
	cudaVersion  struct{}
	ubuntu       struct{}
	platform     struct{}
	capability   struct{}
	anyVersion   struct{}
	distribution struct{}
	suite        struct{}
	bootstrap    struct{}
)

var (
	sentenceKind = kind{
		what: "a reason", pattern: regexp.MustCompile(`\S`),
		remedy: "write the reason as a person should read it",
	}
	nameKind = kind{
		what: "a name", pattern: regexp.MustCompile(`^[a-z0-9]+([.-][a-z0-9]+)*$`),
		remedy: `use lower-case letters and digits, separated by "." or "-", as in "fabric-debian12"`,
	}
	repositoryKind = kind{
		what:    "a repository",
		pattern: regexp.MustCompile(`^[a-z0-9.-]+(:[0-9]+)?(/[a-z0-9]+([._-]+[a-z0-9]+)*)+$`),
		remedy:  `write host/path in lower case without a tag, as in "ghcr.io/assay-hpc/assay"`,
	}
	referenceKind = kind{
		what:    "an image reference with a tag",
		pattern: regexp.MustCompile(`^[a-z0-9.-]+(:[0-9]+)?(/[a-z0-9._-]+)+:[A-Za-z0-9_.{}-]+$`),
		remedy:  `write host/path:tag without a digest (matrix.lock holds it), as in "docker.io/nvidia/cuda:{cuda}-devel-ubuntu{ubuntu}"`,
	}
	inTheBaseKind = kind{
		what:    "a version, nor a path in the base",
		pattern: regexp.MustCompile(`^([0-9][0-9A-Za-z.:+~_-]*|(/[.]?[A-Za-z0-9_][A-Za-z0-9_.+-]*)+)$`),
		remedy:  `write the version in quotes, as in "2.28.3-1", or an absolute path without "..", as in "/usr/local/mpi"`,
	}
	tagTemplateKind = kind{
		what: "a tag", pattern: regexp.MustCompile(`^[A-Za-z0-9_{][A-Za-z0-9_.{}-]*$`),
		remedy: `use letters, digits, "_", ".", "-" and placeholders, as in "{cuda}-devel-ubuntu{ubuntu}-nccl{nccl}-{recipe}"`,
	}
	cudaVersionKind = kind{
		what: "a CUDA version", pattern: regexp.MustCompile(`^[1-9][0-9]{0,2}\.[0-9]{1,3}\.[0-9]{1,3}$`),
		remedy: `write major.minor.patch, as in "12.9.1"`,
	}
	ubuntuKind = kind{
		what: "an Ubuntu release", pattern: regexp.MustCompile(`^[0-9]{2}\.(04|10)$`),
		remedy: `write year.month, as in "24.04"`,
	}
	platformKind   = kind{what: "a platform", words: []string{"linux/amd64", "linux/arm64"}}
	capabilityKind = kind{
		what: "a compute capability", pattern: regexp.MustCompile(`^[1-9][0-9]?\.[0-9]$`),
		remedy: `write major.minor, as in "9.0"`,
	}
	anyVersionKind = kind{
		what: "a version", pattern: regexp.MustCompile(`^[0-9A-Za-z][0-9A-Za-z.:+~_-]*$`),
		remedy: `write the version as its publisher does, as in "2.27.6-1", or "distro" where the distribution decides`,
	}
	distributionKind = kind{what: "a distribution", words: []string{"debian", "ubuntu"}}
	suiteKind        = kind{
		what: "a suite", pattern: regexp.MustCompile(`^[a-z]+$`),
		remedy: `write the release's code name, as in "bookworm"`,
	}
	bootstrapKind = kind{what: "a debootstrap variant", words: []string{"minbase", "buildd"}}
)

func (sentence) kind() kind     { return sentenceKind }
func (name) kind() kind         { return nameKind }
func (repository) kind() kind   { return repositoryKind }
func (reference) kind() kind    { return referenceKind }
func (inTheBase) kind() kind    { return inTheBaseKind }
func (tagTemplate) kind() kind  { return tagTemplateKind }
func (cudaVersion) kind() kind  { return cudaVersionKind }
func (ubuntu) kind() kind       { return ubuntuKind }
func (platform) kind() kind     { return platformKind }
func (capability) kind() kind   { return capabilityKind }
func (anyVersion) kind() kind   { return anyVersionKind }
func (distribution) kind() kind { return distributionKind }
func (suite) kind() kind        { return suiteKind }
func (bootstrap) kind() kind    { return bootstrapKind }
