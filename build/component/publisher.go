package component

import "github.com/assay-hpc/assay/build/matrix"

// A Publisher signs package repositories.
type Publisher struct {
	URL  string   // prefix of its repositories' URLs
	Keys []string // fingerprints of its keys, in upper-case hex
	From string   // the file that says so, for messages
}

// Publishers are the publishers with pinned keys. When package sets are locked, a repository of
// theirs is trusted only if exactly these keys are set for it. Distributions' own archives are
// signed with keys that come with the distribution.
var Publishers = []Publisher{
	// cudatools <cudatools@nvidia.com>; the base images contain it.
	{"https://developer.download.nvidia.com/compute/cuda/repos/", []string{"EB693B3035CD5710E231E123A4B469963BF863CC"}, "build/component/publisher.go"},
	// NVIDIA DOCA Host <networking-support@nvidia.com>, of January 2026; all of DOCA's
	// repositories were re-signed with it.
	{docaRoot, []string{"70454E6BF5D9C2D3B78709E8DC726C5E41B9CC50"}, "build/component/publisher.go"},
}

// PublishersOf returns the publishers of the repositories that components of the targets set up: each
// has one key, whose fingerprint its component states.
func PublishersOf(targets []matrix.Target, definition func(name string) *matrix.Definition) (out []Publisher) {
	for _, t := range targets {
		for _, c := range t.Components {
			for _, p := range t.Platforms {
				// What has no value there is reported where the recipe is made.
				part, _ := definition(c.Name).Part(t, p, func(string) string { return "" })
				for _, a := range part.Apt {
					if a.Fingerprint != "" {
						out = append(out, Publisher{a.URL, []string{a.Fingerprint}, c.Name + "'s component.yaml"})
					}
				}
			}
		}
	}
	return out
}
