package driver

import (
	"context"
	"fmt"
	"regexp"
	"slices"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"

	"github.com/assay-hpc/assay/build/inspect"
	"github.com/assay-hpc/assay/build/matrix"
	"github.com/assay-hpc/assay/internal/attest"
	"github.com/assay-hpc/assay/internal/exit"
	"github.com/assay-hpc/assay/internal/oci"
)

// Publish copies an image of a layout (a target, or another name as for [oci.Layout.Find]) to a
// repository. The name is resolved once: the policy accepts a digest, and that digest is pushed.
// The tags are set last, after what the registry itself serves has also passed the policy.
func Publish(ctx context.Context, l *oci.Layout, name string, repo *oci.Repository, tags []string, policy attest.Policy) (oci.Result, error) {
	if err := repo.CheckTags(tags); err != nil {
		return oci.Result{}, exit.With(exit.Usage, err)
	}
	rep, err := inspect.Inspect(ctx, l.Source(name), policy)
	if err != nil {
		return oci.Result{}, fmt.Errorf("nothing is pushed: %w", err)
	}
	root, err := v1.NewHash(rep.Digest)
	if err != nil {
		return oci.Result{}, err
	}
	res, err := repo.Push(ctx, l, root)
	if err != nil {
		return res, err
	}
	policy.Digest = rep.Digest
	if _, err := inspect.Inspect(ctx, repo.Source(root), policy); err != nil {
		return res, fmt.Errorf("no tag is set: %w", err)
	}
	t, err := repo.Tag(ctx, l, root, tags)
	res.Add(t)
	return res, err
}

var recipeInTag = regexp.MustCompile(`^[0-9a-f]{7}$`)

// TargetOfTag returns the target to which a reference's tag, full or moving, belongs; "" if there
// is no such target.
func TargetOfTag(targets []matrix.Target, ref string) string {
	if strings.Contains(ref, "@") {
		return ""
	}
	i := strings.LastIndex(ref, ":")
	if i < 0 || strings.Contains(ref[i:], "/") {
		return ""
	}
	tag := strings.TrimSuffix(ref[i+1:], certifySuffix)
	for _, t := range targets {
		before, after, _ := strings.Cut(t.Tag, "{recipe}")
		middle, ok := strings.CutPrefix(tag, before)
		if ok {
			middle, ok = strings.CutSuffix(middle, after)
		}
		if ok && recipeInTag.MatchString(middle) || slices.Contains(t.Moving, tag) {
			return t.Name
		}
	}
	return ""
}
