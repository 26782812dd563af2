package main

import (
	"errors"
	"io/fs"
	"regexp"
	"strconv"
	"strings"

	"github.com/assay-hpc/assay/build/jobs"
	"github.com/assay-hpc/assay/coll/debug"
	"github.com/assay-hpc/assay/coll/knob"
)

// quiet matches values of NCCL_DEBUG that NCCL does not know, and that are to log nothing: so they do.
var quiet = regexp.MustCompile(`(?i)^(off|none|error|false|0|)$`)

// ncclVariable judges a value of one of NCCL's variables. Names that none of NCCL's is like belong to
// plugins.
func ncclVariable(name, value string) *jobs.Finding {
	none := func(string) ([]byte, error) { return nil, fs.ErrNotExist }
	_, warnings, err := knob.Load([]string{name + "=" + value}, none)
	var wrong *knob.Error
	switch {
	case name == "NCCL_DEBUG" && quiet.MatchString(value):
	case errors.As(err, &wrong):
		return &jobs.Finding{Level: jobs.LevelError, Message: wrong.Reason}
	default:
		for _, w := range warnings {
			if w.Level != debug.Warn || w.Ours {
				continue
			}
			text := strings.Replace(w.Message, " (environment)", "", 1)
			if !strings.HasPrefix(text, name+" is unknown") {
				_, text, _ = strings.Cut(text, ": ")
				message, remedy, _ := strings.Cut(text, "; ")
				return &jobs.Finding{Level: jobs.LevelWarning, Message: strconv.Quote(value) + ": " + message, Remedy: remedy}
			}
			if _, meant, near := strings.Cut(text, "; did you mean "); near {
				return &jobs.Finding{Level: jobs.LevelWarning, Message: "NCCL reads no variable of this name", Remedy: "did you mean " + meant}
			}
		}
	}
	return nil
}
