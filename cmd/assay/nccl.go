package main

import (
	"strconv"
	"strings"

	"github.com/assay-hpc/assay/build/jobs"
	"github.com/assay-hpc/assay/coll/knob"
)

// ncclVariable judges a value of one of NCCL's variables. Names that none of NCCL's is like belong to
// plugins.
func ncclVariable(name, value string) *jobs.Finding {
	for _, p := range knob.Problems(name+"="+value, "") {
		if p.Unknown {
			if p.Near != "" {
				return &jobs.Finding{Level: jobs.LevelWarning, Message: "NCCL reads no variable of this name", Remedy: "did you mean " + p.Near + "?"}
			}
			continue
		}
		_, text, _ := strings.Cut(p.Text, ": ")
		message, remedy, _ := strings.Cut(text, "; ")
		if p.Refused {
			return &jobs.Finding{Level: jobs.LevelError, Message: message, Remedy: remedy}
		}
		return &jobs.Finding{Level: jobs.LevelWarning, Message: strconv.Quote(value) + ": " + message, Remedy: remedy}
	}
	return nil
}
