package component

// A Publisher signs package repositories.
type Publisher struct {
	URL  string   // prefix of its repositories' URLs
	Keys []string // fingerprints of its keys, in upper-case hex
}

// Publishers are the publishers with pinned keys. When package sets are locked, a repository of
// theirs is trusted only if exactly these keys are set for it. Distributions' own archives are
// signed with keys that come with the distribution.
var Publishers = []Publisher{
	// cudatools <cudatools@nvidia.com>; the base images contain it.
	{"https://developer.download.nvidia.com/compute/cuda/repos/", []string{"EB693B3035CD5710E231E123A4B469963BF863CC"}},
	// NVIDIA DOCA Host <networking-support@nvidia.com>, of January 2026; all of DOCA's
	// repositories were re-signed with it.
	{docaRoot, []string{"70454E6BF5D9C2D3B78709E8DC726C5E41B9CC50"}},
}
