package sign

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
)

// secretName matches names of variables with values that must not appear in any text.
var secretName = regexp.MustCompile(`(?i)TOKEN|SECRET|PASSWORD|PASSPHRASE|CREDENTIAL|_KEY$|_PIN$`)

// userInfo matches the user name and password in a URL.
var userInfo = regexp.MustCompile(`://[^/\s"@]+@`)

// scrub converts an error's text to one line and removes our credentials, in case a service or a
// plugin repeats them.
func scrub(text string) string {
	for _, s := range secrets() {
		text = strings.ReplaceAll(text, s, "[hidden]")
	}
	return userInfo.ReplaceAllString(strings.Join(strings.Fields(text), " "), "://[hidden]@")
}

func secrets() (out []string) {
	const least = 6 // shorter values are not secrets, and are part of many words
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

// shown returns a reference without its parameters, which may contain a PIN.
func shown(ref string) string {
	ref, query, ok := strings.Cut(ref, "?")
	if ok && query != "" {
		ref += "?[hidden]"
	}
	return userInfo.ReplaceAllString(ref, "://[hidden]@")
}
