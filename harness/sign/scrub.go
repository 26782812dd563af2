package sign

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
)

// secretName is the name of a variable whose value no text may show.
var secretName = regexp.MustCompile(`(?i)TOKEN|SECRET|PASSWORD|PASSPHRASE|CREDENTIAL|_KEY$|_PIN$`)

// userInfo is who a URL says is asking, with the password.
var userInfo = regexp.MustCompile(`://[^/\s"@]+@`)

// scrub makes one line of an error's text and takes out of it what a service or a
// plugin was given to know us by, should either repeat it.
func scrub(text string) string {
	for _, s := range secrets() {
		text = strings.ReplaceAll(text, s, "[hidden]")
	}
	return userInfo.ReplaceAllString(strings.Join(strings.Fields(text), " "), "://[hidden]@")
}

func secrets() (out []string) {
	const least = 6 // what is shorter is no secret, and stands in many words
	for _, kv := range os.Environ() {
		if name, value, _ := strings.Cut(kv, "="); secretName.MatchString(name) && len(value) >= least {
			out = append(out, value)
		}
	}
	home, err := os.UserHomeDir()
	if err != nil {
		return out
	}
	if b, err := os.ReadFile(filepath.Join(home, ".vault-token")); err == nil && len(b) >= least {
		out = append(out, strings.TrimSpace(string(b)))
	}
	return out
}

// shown is a reference without its parameters, among which a PIN may be.
func shown(ref string) string {
	ref, query, ok := strings.Cut(ref, "?")
	if ok && query != "" {
		ref += "?[hidden]"
	}
	return userInfo.ReplaceAllString(ref, "://[hidden]@")
}
