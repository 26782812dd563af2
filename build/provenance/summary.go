package provenance

import (
	"encoding/json"
	"fmt"

	"github.com/assay-hpc/assay/internal/attest"
)

// Kind is how policies read provenance: only provenance of our own build type counts; that of
// others is ignored.
var Kind = attest.Kind{Name: "provenance", Type: PredicateType, Check: func(st *attest.Statement) (attest.Claims, error) {
	s, err := Summarize(st.Predicate)
	switch {
	case err != nil:
		return attest.Claims{}, err
	case s.BuildType != BuildType:
		return attest.Claims{}, attest.ErrForeign
	case s.Target == "" || s.Recipe == "" || s.Builder == "":
		return attest.Claims{}, fmt.Errorf("provenance: it names no target, recipe or builder")
	}
	return attest.Claims{Target: s.Target, Platform: s.Platform}, nil
}}

// A Summary is the part of a provenance that is of interest to a person.
type Summary struct {
	Builder      string `json:"builder"`
	BuildType    string `json:"buildType"`
	Target       string `json:"target,omitempty"`   // for our own build type only
	Platform     string `json:"platform,omitempty"` // likewise
	Recipe       string `json:"recipe,omitempty"`   // likewise
	Invocation   string `json:"invocation,omitempty"`
	StartedOn    string `json:"startedOn,omitempty"`
	FinishedOn   string `json:"finishedOn,omitempty"`
	Dependencies int    `json:"dependencies"`
}

// Summarize reads a predicate of type [PredicateType] from any builder.
func Summarize(predicate []byte) (Summary, error) {
	var p struct {
		BuildDefinition struct {
			BuildType            string            `json:"buildType"`
			ExternalParameters   json.RawMessage   `json:"externalParameters"`
			InternalParameters   json.RawMessage   `json:"internalParameters"`
			ResolvedDependencies []json.RawMessage `json:"resolvedDependencies"`
		} `json:"buildDefinition"`
		RunDetails runDetails `json:"runDetails"`
	}
	if err := json.Unmarshal(predicate, &p); err != nil {
		return Summary{}, fmt.Errorf("provenance: %w", err)
	}
	s := Summary{
		Builder: p.RunDetails.Builder.ID, BuildType: p.BuildDefinition.BuildType,
		Invocation: p.RunDetails.Metadata.InvocationID, StartedOn: p.RunDetails.Metadata.StartedOn,
		FinishedOn: p.RunDetails.Metadata.FinishedOn, Dependencies: len(p.BuildDefinition.ResolvedDependencies),
	}
	if s.BuildType != BuildType {
		return s, nil // other build types define the parameters differently
	}
	var ext External
	var in Internal
	if err := json.Unmarshal(p.BuildDefinition.ExternalParameters, &ext); err != nil {
		return s, fmt.Errorf("provenance: external parameters: %w", err)
	}
	if err := json.Unmarshal(p.BuildDefinition.InternalParameters, &in); err != nil {
		return s, fmt.Errorf("provenance: internal parameters: %w", err)
	}
	s.Target, s.Platform, s.Recipe = ext.Target, ext.Platform, in.Recipe
	return s, nil
}
