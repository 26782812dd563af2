package driver

import (
	"cmp"
	"context"
	"crypto"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"

	"github.com/assay-hpc/assay/build/inspect"
	"github.com/assay-hpc/assay/build/matrix"
	"github.com/assay-hpc/assay/internal/attest"
	"github.com/assay-hpc/assay/internal/exit"
	"github.com/assay-hpc/assay/internal/oci"
)

// finish determines the tags, publishes what passed, and records the duration.
func (b *build) finish(ctx context.Context, res *BuildResult, start time.Time) (*BuildResult, error) {
	for i, t := range b.targets {
		tr := &res.Targets[i]
		if tr.Failed {
			continue
		}
		p, err := b.plan(t)
		if err != nil {
			return res, err
		}
		if len(platformsOf(t, b.o.Platforms)) == len(t.Platforms) {
			// A tag means "for every platform"; a partial build gets none.
			tr.Tags = append([]string{p.Tag}, t.Moving...)
		}
		if b.repo == nil {
			continue
		}
		if len(tr.Tags) == 0 {
			b.Log("%s: built for %d of %d platforms, so it is pushed by digest, without a tag", t.Name, len(tr.Images), len(t.Platforms))
		}
		if tr.Pushed, err = b.push(ctx, b.repo, t, tr.Tags); err != nil {
			tr.Failed, tr.Error, tr.notDone = true, err.Error(), false
		}
	}
	res.Seconds = time.Since(start).Seconds()
	return res, nil
}

// push publishes a target and its certifier, whose tags end in "-certify". Both are there and
// verified before a tag of either moves, and the target's own move last.
func (b *build) push(ctx context.Context, repo *oci.Repository, t matrix.Target, tags []string) (*oci.Result, error) {
	policy := attest.Policy{Target: t.Name, Required: inspect.All}
	for _, p := range platformsOf(t, b.o.Platforms) {
		policy.Platforms = append(policy.Platforms, p.String())
	}
	if b.o.SignKey != nil {
		policy.Keys = []crypto.PublicKey{b.o.SignKey.Public()}
	}
	var certifierTags []string
	for _, tag := range tags {
		certifierTags = append(certifierTags, tag+certifySuffix)
	}
	root, r, err := upload(ctx, b.layout, t.Name, repo, tags, policy)
	if err != nil {
		return nil, err
	}
	certifier, c, err := upload(ctx, b.layout, t.Name+certifySuffix, repo, certifierTags, policy)
	if r.Add(c); err != nil {
		return &r, err
	}
	c, err = repo.Tag(ctx, b.layout, certifier, certifierTags)
	if r.Add(c); err != nil {
		return &r, err
	}
	c, err = repo.Tag(ctx, b.layout, root, tags)
	r.Add(c)
	return &r, err
}

// Publish copies an image of a layout (a target, or another name as for [oci.Layout.Find]) to a
// repository. The name is resolved once: the policy accepts a digest, and that digest is pushed.
// The tags are set last, after what the registry itself serves has also passed the policy.
func Publish(ctx context.Context, l *oci.Layout, name string, repo *oci.Repository, tags []string, policy attest.Policy) (oci.Result, error) {
	root, res, err := upload(ctx, l, name, repo, tags, policy)
	if err != nil {
		return res, err
	}
	t, err := repo.Tag(ctx, l, root, tags)
	res.Add(t)
	return res, err
}

// upload does what Publish does, except that it sets no tag. It returns the digest that the tags
// are for.
func upload(ctx context.Context, l *oci.Layout, name string, repo *oci.Repository, tags []string, policy attest.Policy) (root v1.Hash, res oci.Result, err error) {
	if err := repo.CheckTags(tags); err != nil {
		return root, res, exit.With(exit.Usage, err)
	}
	for _, tag := range tags {
		digits := recipeOfTag(tag)
		if policy.Recipe == "" {
			policy.Recipe = digits
		}
		if digits != "" && digits != policy.Recipe {
			return root, res, exit.Usagef("--tag %s: it ends in %s, and another tag or the recipe in %s: an image has one recipe", tag, digits, policy.Recipe)
		}
	}
	rep, err := inspect.Inspect(ctx, l.Source(name), policy)
	if err != nil {
		return root, res, fmt.Errorf("nothing is pushed: %w", err)
	}
	if root, err = v1.NewHash(rep.Digest); err != nil {
		return root, res, err
	}
	if res, err = repo.Push(ctx, l, root); err != nil {
		return root, res, err
	}
	policy.Digest = rep.Digest
	policy.Layers = max(policy.Layers, attest.LayersBegun) // some registries say that they have what they lack
	if _, err := inspect.Inspect(ctx, repo.Source(root), policy); err != nil {
		return root, res, fmt.Errorf("no tag is set: %w", err)
	}
	return root, res, nil
}

// fullTag matches a tag that ends in the digits of a recipe's hash, as the axes' images have it.
var fullTag = regexp.MustCompile(`^[0-9]+\.[0-9.]+-devel-[a-z]+[0-9.]+-nccl[0-9.]+-.+-([0-9a-f]{7})$|^[0-9]+\.[0-9.]+-devel-[a-z]+[0-9.]+-nccl[0-9.]+-([0-9a-f]{7})$`)

var recipeInTag = regexp.MustCompile(`^[0-9a-f]{7}$`)

// recipeOfTag returns the digits of the recipe's hash in which a full tag of the fixed scheme ends;
// "" if the tag is of another form.
func recipeOfTag(tag string) string {
	m := fullTag.FindStringSubmatch(strings.TrimSuffix(tag, certifySuffix))
	if m == nil {
		return ""
	}
	return cmp.Or(m[1], m[2])
}

// A Tagged is what a reference's tag says about the image.
type Tagged struct {
	Tag    string // "" if the reference names a digest
	Target string // "" if the matrix lists no target with such a tag
	Recipe string // digits of the recipe's hash, of a full tag
}

// ReadTag returns what a reference's tag, full or moving, says about its image.
func ReadTag(targets []matrix.Target, ref string) (out Tagged) {
	if strings.Contains(ref, "@") {
		return out
	}
	out.Tag = "latest"
	if i := strings.LastIndex(ref, ":"); i >= 0 && !strings.Contains(ref[i:], "/") {
		out.Tag = ref[i+1:]
	}
	tag := strings.TrimSuffix(out.Tag, certifySuffix)
	out.Recipe = recipeOfTag(tag)
	for _, t := range targets {
		before, after, full := strings.Cut(t.Tag, "{recipe}")
		middle, ok := strings.CutPrefix(tag, before)
		if ok {
			middle, ok = strings.CutSuffix(middle, after)
		}
		switch {
		case full && ok && recipeInTag.MatchString(middle):
			out.Target, out.Recipe = t.Name, middle
			return out
		case slices.Contains(t.Moving, tag):
			out.Target = t.Name
			return out
		}
	}
	return out
}
