package provenance

import (
	"encoding/json"
	"fmt"
)

// A Summary is what a person wants to know of a provenance.
type Summary struct {
	Builder      string `json:"builder"`
	BuildType    string `json:"buildType"`
	Target       string `json:"target,omitempty"` // of our own build type only
	Recipe       string `json:"recipe,omitempty"` // likewise
	Invocation   string `json:"invocation,omitempty"`
	StartedOn    string `json:"startedOn,omitempty"`
	FinishedOn   string `json:"finishedOn,omitempty"`
	Dependencies int    `json:"dependencies"`
}

// Summarize reads a predicate of type [PredicateType], whoever made it.
func Summarize(predicate []byte) (Summary, error) {
	var p struct {
		BuildDefinition struct {
			BuildType            string            `json:"buildType"`
			ExternalParameters   json.RawMessage   `json:"externalParameters"`
			InternalParameters   json.RawMessage   `json:"internalParameters"`
			ResolvedDependencies []json.RawMessage `json:"resolvedDependencies"`
		} `json:"buildDefinition"`
		RunDetails RunDetails `json:"runDetails"`
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
		return s, nil // others give the parameters other meanings
	}
	var ext External
	var in Internal
	if err := json.Unmarshal(p.BuildDefinition.ExternalParameters, &ext); err != nil {
		return s, fmt.Errorf("provenance: external parameters: %w", err)
	}
	if err := json.Unmarshal(p.BuildDefinition.InternalParameters, &in); err != nil {
		return s, fmt.Errorf("provenance: internal parameters: %w", err)
	}
	s.Target, s.Recipe = ext.Target, in.Recipe
	return s, nil
}
