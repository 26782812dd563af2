package mirror

import (
	"encoding/base64"
	"net/url"
	"strings"
	"unicode"
)

// A credential is a mirror's user and password. It is separated from the URL as soon as the URL
// is read, and stored where neither formatting nor encoding can reveal it: callers request it in
// the form that they need.
type credential struct{ secret *secret }

// secret contains a function because fmt follows pointers and reads unexported fields, but calls
// no function.
type secret struct {
	get func() (user, password string)
}

// Set reports whether there is a credential.
func (c credential) Set() bool { return c.secret != nil }

func (c credential) String() string {
	if !c.Set() {
		return ""
	}
	return "***"
}

// Header returns the value of an Authorization header, "" without a credential.
func (c credential) Header() string {
	if !c.Set() {
		return ""
	}
	user, password := c.secret.get()
	return "Basic " + base64.StdEncoding.EncodeToString([]byte(user+":"+password))
}

// login returns the end of a line in netrc format.
func (c credential) login() string {
	user, password := c.secret.get()
	return " login " + user + " password " + password + "\n"
}

// split removes the user and password from a URL. ok is false if s is not the URL of a server, or
// if its credential cannot be written to files.
func split(s string) (plain string, c credential, ok bool) {
	u, err := url.Parse(s)
	if err != nil || u.Host == "" {
		return "", c, false
	}
	if u.User == nil {
		return s, c, true
	}
	scheme, rest, _ := strings.Cut(s, "://")
	end := strings.IndexAny(rest, "/?#")
	if end < 0 {
		end = len(rest)
	}
	plain = scheme + "://" + rest[strings.LastIndex(rest[:end], "@")+1:]
	user := u.User.Username()
	password, _ := u.User.Password()
	for _, part := range []string{user, password} {
		if strings.ContainsFunc(part, func(r rune) bool { return unicode.IsSpace(r) || unicode.IsControl(r) }) {
			return "", c, false
		}
	}
	return plain, credential{&secret{func() (string, string) { return user, password }}}, true
}

// A location is a mirror that needs a credential.
type location struct {
	Name string // what the mirror replaces: a rule's From, or a scheme
	URL  string // without the credential
	credential
}

// Locations returns every mirror that needs a credential, including the default archives.
func (r *Resolver) Locations() []location {
	var all []location
	for _, rule := range r.rules {
		if rule.auth.Set() {
			all = append(all, location{rule.From, rule.To, rule.auth})
		}
	}
	for _, s := range schemes {
		root, err := r.Defaults[s.of]()
		if err != nil {
			continue // nothing is fetched from it
		}
		if plain, c, ok := split(root); ok && c.Set() {
			all = append(all, location{s.name, plain + s.suffix, c})
		}
	}
	return all
}

// Location returns the mirror that serves a URL returned by [Resolver.URL], if that mirror needs
// a credential.
func (r *Resolver) Location(url string) (location, bool) {
	var best location
	for _, l := range r.Locations() {
		if _, ok := under(url, l.URL); ok && len(l.URL) > len(best.URL) {
			best = l
		}
	}
	return best, best.Set()
}

// Authorization returns the Authorization header for a URL, "" for none.
func (r *Resolver) Authorization(url string) string {
	l, _ := r.Location(url)
	return l.Header()
}

// AptAuth returns the mirrors' credentials in the format of apt's auth.conf, "" if there are
// none.
func (r *Resolver) AptAuth() string {
	var b strings.Builder
	for _, l := range r.Locations() {
		if !strings.HasPrefix(l.Name, "goproxy:") { // no package source refers to it
			b.WriteString("machine " + l.URL + l.login())
		}
	}
	return b.String()
}

// Netrc returns the credential for a URL in .netrc format, "" for none.
func (r *Resolver) Netrc(at string) string {
	l, ok := r.Location(at)
	u, err := url.Parse(at)
	if !ok || err != nil {
		return ""
	}
	return "machine " + u.Hostname() + l.login()
}
