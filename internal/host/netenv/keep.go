package netenv

import (
	"fmt"
	"slices"
	"strings"
)

// families are the name prefixes of the variables that are always shown if the user has set them.
var families = []string{"NCCL_", "UCX_", "FI_", "GLOO_", "SHARP_", "RDMAV_"}

// keep moves the user's settings from Set and Unset to Kept, and reports those that contradict the
// node.
func (m *maker) keep() {
	for _, s := range m.opt.Env {
		if s.Value == "" || slices.ContainsFunc(m.Kept, func(k Kept) bool { return k.Name == s.Name }) {
			continue
		}
		k := Kept{Setting: s}
		at := slices.IndexFunc(m.Set, func(v Variable) bool { return v.Name == s.Name })
		if at >= 0 {
			k.Found, k.Reason = m.Set[at].Value, m.Set[at].Reason
			m.Set = slices.Delete(m.Set, at, at+1)
		}
		left := slices.IndexFunc(m.Unset, func(u Unset) bool { return u.Name == s.Name })
		if left >= 0 {
			k.Reason = m.Unset[left].Reason
			m.Unset = slices.Delete(m.Unset, left, left+1)
		}
		shown := slices.ContainsFunc(families, func(p string) bool { return strings.HasPrefix(s.Name, p) })
		if at < 0 && left < 0 && !shown && checks[s.Name] == nil {
			continue
		}
		o := m.against(s, k.Found)
		if s.Unread != "" {
			o = harms("has no effect: %s", s.Unread)
		}
		k.Against, k.Grade = o.text, o.grade
		m.Kept = append(m.Kept, k)
		if k.Against != "" && s.Unread == "" { // that is one of the problems
			m.warn(fmt.Sprintf("%s=%s (%s) %s", s.Name, s.Value, s.From, k.Against), k.Remedy())
		}
	}
	slices.SortFunc(m.Kept, func(a, b Kept) int { return strings.Compare(a.Name, b.Name) })
}

// Remedy is what to do about a value that contradicts the node.
func (k Kept) Remedy() string {
	if k.Found != "" {
		return "unset it, or set it to " + k.Found
	}
	return "unset it"
}
