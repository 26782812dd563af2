package solve

import (
	"bytes"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"path"
	"slices"
	"strings"

	"github.com/ProtonMail/go-crypto/openpgp"
	"github.com/ProtonMail/go-crypto/openpgp/armor"
	"github.com/ProtonMail/go-crypto/openpgp/packet"

	"github.com/assay-hpc/assay/build/component"
)

// fingerprints returns the fingerprints of a keyring's keys, in upper-case hex.
func fingerprints(keyring []byte) ([]string, error) {
	bad := func(err error) ([]string, error) { return nil, fmt.Errorf("not a keyring of OpenPGP: %w", err) }
	if bytes.HasPrefix(bytes.TrimSpace(keyring), []byte("-----BEGIN")) {
		if bytes.Count(keyring, []byte("-----BEGIN")) > 1 {
			return bad(errors.New("it has more than one armored block"))
		}
		block, err := armor.Decode(bytes.NewReader(keyring))
		if err != nil {
			return bad(err)
		}
		if keyring, err = io.ReadAll(block.Body); err != nil {
			return bad(err)
		}
	}
	keys, err := openpgp.ReadKeyRing(bytes.NewReader(keyring))
	if err != nil {
		return bad(err)
	}
	var all []string
	for _, k := range keys {
		all = append(all, strings.ToUpper(hex.EncodeToString(k.PrimaryKey.Fingerprint)))
	}
	// ReadKeyRing skips keys of kinds that it does not know, and apt may know them.
	primary := 0
	for packets := packet.NewOpaqueReader(bytes.NewReader(keyring)); ; {
		p, err := packets.Next()
		if err == io.EOF {
			break
		}
		if err != nil {
			return bad(err)
		}
		if p.Tag == publicKeyTag {
			primary++
		}
	}
	if len(all) == 0 || primary != len(all) {
		return bad(fmt.Errorf("%d of its %d keys can be read", len(all), primary))
	}
	return all, nil
}

// publicKeyTag is the tag of a primary key's packet.
const publicKeyTag = 6

// pinned checks that all of a keyring's keys are the publisher's.
func pinned(p component.Publisher, keyring []byte) error {
	found, err := fingerprints(keyring)
	if err != nil {
		return err
	}
	for _, f := range found {
		if !slices.Contains(p.Keys, f) {
			return fmt.Errorf("it holds the key %s; the publisher's is %s (if the publisher has announced a new one, %s must say so)", f, strings.Join(p.Keys, ", "), p.From)
		}
	}
	return nil
}

// SignedWith returns the publishers with the keys of a keyring instead of their
// own: for stand-ins of their repositories.
func SignedWith(keyring []byte) ([]component.Publisher, error) {
	keys, err := fingerprints(keyring)
	var all []component.Publisher
	for _, p := range component.Publishers {
		all = append(all, component.Publisher{URL: p.URL, Keys: keys, From: p.From})
	}
	return all, err
}

// publisherOf returns the publisher whose URL is a prefix of the given URL.
func (p *Provider) publisherOf(url string) (component.Publisher, bool) {
	for _, pub := range p.publishers() {
		if strings.HasPrefix(url, pub.URL) {
			return pub, true
		}
	}
	return component.Publisher{}, false
}

func (p *Provider) publishers() []component.Publisher {
	if p.Publishers != nil {
		return p.Publishers
	}
	return component.Publishers
}

// checkTrust reads what recipe.ResolveScript wrote to /out/trust and checks that every source of
// a pinned publisher may be signed only with the publisher's keys.
func (p *Provider) checkTrust(text string) error {
	files := map[string][]byte{}
	var order []string
	for line := range strings.Lines(text) {
		i := strings.LastIndex(strings.TrimSpace(line), " ")
		if i < 0 { // an empty file
			continue
		}
		data, err := base64.StdEncoding.DecodeString(strings.TrimSpace(line[i+1:]))
		if err != nil {
			return fmt.Errorf("sources of packages: %q is not a path and base64", line)
		}
		files[line[:i]] = data
		order = append(order, line[:i])
	}
	for _, name := range order {
		if !strings.HasPrefix(name, "/etc/apt/sources.list") {
			continue
		}
		for _, s := range sourcesIn(name, string(files[name])) {
			pub, ok := p.publisherOf(s.url)
			if !ok {
				continue
			}
			keyring, ok := files[s.signedBy]
			if !ok || s.trusted {
				return fmt.Errorf("%s: %s: no keyring is set for it by signed-by=FILE, so that other keys than its publisher's would do", name, s.url)
			}
			if err := pinned(pub, keyring); err != nil {
				return fmt.Errorf("%s, which %s is to be signed with: %w", s.signedBy, s.url, err)
			}
		}
	}
	return nil
}

// An aptSource is one URL in a list of sources.
type aptSource struct {
	url      string
	signedBy string // a file, "" for any key that apt knows
	trusted  bool   // accepted without any signature
}

// sourcesIn reads a list of sources, in either of apt's forms.
func sourcesIn(name, text string) []aptSource {
	if path.Ext(name) == ".sources" {
		return stanzas(text)
	}
	var all []aptSource
	for line := range strings.Lines(text) {
		line, _, _ = strings.Cut(line, "#")
		kind, rest, _ := strings.Cut(strings.Join(strings.Fields(line), " "), " ")
		if kind != "deb" && kind != "deb-src" {
			continue
		}
		var s aptSource
		if options, after, ok := strings.Cut(rest, "]"); ok && strings.HasPrefix(options, "[") {
			for _, o := range strings.Fields(options[1:]) {
				s.option(strings.Cut(o, "="))
			}
			rest = after
		}
		s.url, _, _ = strings.Cut(strings.TrimSpace(rest), " ")
		all = append(all, s)
	}
	return all
}

// stanzas reads the newer form: fields, one per line or continued on the next.
func stanzas(text string) []aptSource {
	var all []aptSource
	for stanza := range strings.SplitSeq(strings.ReplaceAll(text, "\r", ""), "\n\n") {
		var s aptSource
		var urls []string
		var field string
		for line := range strings.Lines(stanza) {
			if strings.HasPrefix(line, "#") {
				continue
			}
			value := line
			if line[0] != ' ' && line[0] != '\t' {
				field, value, _ = strings.Cut(line, ":")
			}
			if value = strings.TrimSpace(value); strings.EqualFold(field, "URIs") {
				urls = append(urls, strings.Fields(value)...)
			} else if value != "" {
				s.option(field, value, true)
			}
		}
		for _, s.url = range urls {
			all = append(all, s)
		}
	}
	return all
}

func (s *aptSource) option(name, value string, _ bool) {
	switch strings.ToLower(name) {
	case "signed-by":
		if s.signedBy != "" {
			value = "several" // not a file, so it is rejected
		}
		s.signedBy = value
	case "trusted", "allow-insecure", "allow-weak":
		s.trusted = s.trusted || value != "no"
	}
}
