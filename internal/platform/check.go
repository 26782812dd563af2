package platform

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"reflect"
	"slices"
)

// check checks the database for consistency.
func (db *DB) check() error {
	if db.Schema != 1 {
		return fmt.Errorf("schema %d; this program reads schema 1", db.Schema)
	}
	if err := db.checkSources(reflect.ValueOf(db).Elem(), ""); err != nil {
		return err
	}
	if err := errors.Join(checkEach("gpus", db.GPUs, db.checkGPU), checkEach("nics", db.NICs, db.checkNIC),
		checkEach("clouds", db.Clouds, checkCloud), checkEach("platforms", db.Platforms, db.checkPlatform)); err != nil {
		return err
	}
	if err := db.checkNumbers(); err != nil {
		return err
	}
	for _, key := range slices.Sorted(maps.Keys(db.Rules)) {
		if r := db.Rules[key]; r.Source != "" && !(0 < r.Low && r.Low <= r.High && r.High <= 1.2) {
			return fmt.Errorf("rules.%s: from %g to %g is not a band of fractions", key, r.Low, r.High)
		}
	}
	for _, key := range slices.Sorted(maps.Keys(db.Tables)) {
		if err := db.checkTable(key); err != nil {
			return fmt.Errorf("tables.%s: %w", key, err)
		}
	}
	return nil
}

func (db *DB) checkTable(key string) error {
	t := db.Tables[key]
	if t == nil || len(t.Rows) == 0 {
		return fmt.Errorf("it has no rows")
	}
	if db.Platforms[t.Platform] == nil {
		return fmt.Errorf("there is no platform %q in platforms", t.Platform)
	}
	if t.Nodes < 1 || t.GPUs < t.Nodes || !t.Confidence.valid() {
		return fmt.Errorf("nodes %d, gpus %d, confidence %q", t.Nodes, t.GPUs, t.Confidence)
	}
	for i, r := range t.Rows {
		if i > 0 && r.Bytes <= t.Rows[i-1].Bytes {
			return fmt.Errorf("row %d: sizes must grow", i+1)
		}
		// A small bandwidth has two decimals, and so only two digits.
		if got := float64(r.Bytes) / r.Microseconds / 1e3; r.Microseconds <= 0 || math.Abs(got-r.AlgBW) > 0.006+0.002*r.AlgBW {
			return fmt.Errorf("row %d: %d bytes in %g us are %.2f GB/s, not %g", i+1, r.Bytes, r.Microseconds, got, r.AlgBW)
		}
	}
	return nil
}

// checkSources walks the whole database: every field named Source must be a key of Sources.
func (db *DB) checkSources(v reflect.Value, where string) error {
	switch v.Kind() {
	case reflect.Pointer:
		if !v.IsNil() {
			return db.checkSources(v.Elem(), where)
		}
	case reflect.Map:
		for it := v.MapRange(); it.Next(); {
			if err := db.checkSources(it.Value(), fmt.Sprintf("%s.%v", where, it.Key())); err != nil {
				return err
			}
		}
	case reflect.Slice:
		for i := range v.Len() {
			if err := db.checkSources(v.Index(i), fmt.Sprintf("%s[%d]", where, i)); err != nil {
				return err
			}
		}
	case reflect.Struct:
		for i := range v.NumField() {
			name := v.Type().Field(i).Name
			if s := v.Field(i); name == "Source" && s.String() != "" {
				if _, ok := db.Sources[s.String()]; !ok && s.String() == ownSource {
					return fmt.Errorf("%s: a figure is [value, source, confidence] and perhaps a note, or null", where)
				} else if !ok {
					return fmt.Errorf("%s: there is no source %q in sources", where, s)
				}
			} else if err := db.checkSources(s, where+"."+name); err != nil {
				return err
			}
		}
	}
	return nil
}
